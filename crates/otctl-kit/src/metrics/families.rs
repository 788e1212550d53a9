//! What every controller measures, as a table.

use super::Family;

/// A pass reads from memory and makes a few writes of about 2 ms each; the upper end is a deadline or two.
const PASS_BUCKETS_SECONDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0];

pub(super) const PASS_SECONDS: Family = Family::histogram(
    "otctl_reconcile_duration_seconds",
    &["controller", "outcome"],
    "How long passes took, by how they ended.",
    &PASS_BUCKETS_SECONDS,
);
pub(super) const PASSES: Family = Family::counter(
    "otctl_reconcile_total",
    &["controller", "outcome"],
    "Passes by how they ended.",
);
pub(super) const ERRORS: Family = Family::counter(
    "otctl_reconcile_errors_total",
    &["controller", "category"],
    "Failed passes by cause.",
);
pub(super) const OVERDUE: Family = Family::counter(
    "otctl_reconcile_overdue_views_total",
    &["controller"],
    "Passes that began although a watch had not shown for 5 s what the last one wrote.",
);
pub(super) const QUEUE_DEPTH: Family =
    Family::gauge("otctl_queue_depth", &["controller"], "Objects that are due for a pass.");
pub(super) const REQUESTS: Family = Family::counter(
    "otctl_api_requests_total",
    &["verb", "code"],
    "Requests to the API server by its answer; none where none came.",
);
pub(super) const UNREADABLE: Family = Family::gauge(
    "otctl_watch_unreadable_objects",
    &["kind"],
    "Objects in a state that cannot be read; what was read of them before is used.",
);
pub(super) const LEADER: Family =
    Family::gauge("otctl_leader", &[], "Whether this process holds the lease and reconciles.");
pub(super) const BUILD: Family =
    Family::gauge("otctl_build_info", &["program", "version", "commit"], "What runs; always 1.");
/// Registered with the process's logs, which tests and the demo do not have.
pub(crate) const LOG_LINES_DROPPED: Family = Family::gauge(
    "otctl_log_lines_dropped",
    &[],
    "Log lines dropped since the start because the sink blocked.",
);

/// What every controller measures.
pub const FAMILIES: [Family; 10] = [
    PASS_SECONDS,
    PASSES,
    ERRORS,
    OVERDUE,
    QUEUE_DEPTH,
    REQUESTS,
    UNREADABLE,
    LEADER,
    BUILD,
    LOG_LINES_DROPPED,
];
/// What the Prometheus client measures of every process.
pub const PROCESS_FAMILIES: [Family; 7] = [
    Family::counter(
        "process_cpu_seconds_total",
        &[],
        "Total user and system CPU time spent in seconds.",
    ),
    Family::gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    Family::gauge("process_open_fds", &[], "Number of open file descriptors."),
    Family::gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes."),
    Family::gauge(
        "process_start_time_seconds",
        &[],
        "Start time of the process since unix epoch in seconds.",
    ),
    Family::gauge("process_threads", &[], "Number of OS threads in the process."),
    Family::gauge("process_virtual_memory_bytes", &[], "Virtual memory size in bytes."),
];
