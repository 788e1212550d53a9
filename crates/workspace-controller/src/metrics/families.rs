//! What this controller measures, as a table.

use otctl_kit::metrics::Family;
use otctl_queue::metrics::POLICY_VALID;

/// From seconds, where slots are free, to a night, where they are not.
const WAIT_SECONDS: [f64; 13] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0];
/// Containers that are known to their nodes take seconds, disks that have to be synced first hours.
const READY_SECONDS: [f64; 14] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    43_200.0,
];

pub(super) const WORKSPACES: Family =
    Family::gauge("otctl_workspaces", &["phase"], "Workspaces by phase.");
pub(super) const UNREADY: Family = Family::gauge(
    "otctl_workspaces_unready",
    &["phase", "reason"],
    "Workspaces that are not Ready, by phase and by the reason of their condition Ready.",
);
pub(super) const UNREADY_AGE: Family = Family::gauge(
    "otctl_workspace_unready_oldest_age_seconds",
    &["phase", "reason"],
    "How long the Workspace that is unready longest has been so; since its ticket, its slot, its disk images, its failure or \
     its deletion, if that was later.",
);
pub(super) const WAITING: Family = Family::gauge(
    "otctl_workspaces_waiting",
    &[],
    "Workspaces that wait for a slot, or for what they need before they can use one.",
);
pub(super) const OLDEST: Family = Family::gauge(
    "otctl_workspace_queue_oldest_age_seconds",
    &[],
    "How long the Workspace that waits longest for a slot has had its ticket; 0 when none waits.",
);
pub(super) const ACTIVE: Family =
    Family::gauge("otctl_workspace_slots_active", &[], "Slots of the workspace queue in use.");
pub(super) const LIMIT: Family = Family::gauge(
    "otctl_workspace_slots_limit",
    &[],
    "Slots of the workspace queue, as the policy sets them.",
);
pub(super) const TURNS: Family = Family::counter(
    "otctl_workspace_turns_total",
    &["end"],
    "Turns, the work that one slot pays for, by how they ended.",
);
pub(super) const WAIT: Family = Family::histogram(
    "otctl_workspace_queue_wait_seconds",
    &[],
    "From the ticket of a Workspace to its slot, or from when its disk images were ready or it gave its last slot back, if \
     that was later; from its creation if it got ticket and slot at once.",
    &WAIT_SECONDS,
);
pub(super) const READY: Family = Family::histogram(
    "otctl_workspace_ready_duration_seconds",
    &["since"],
    "To Ready: since the creation of a Workspace; since the ticket or slot with which a suspended one goes on; since an edit \
     made a Ready one unready. Once for each, and not if it was suspended or Failed on the way.",
    &READY_SECONDS,
);
pub(super) const RECOVERY: Family = Family::histogram(
    "otctl_workspace_recovery_duration_seconds",
    &[],
    "From the moment in which a Ready Workspace was not ready any more, without an edit, to Ready; not if it was suspended or \
     Failed on the way.",
    &READY_SECONDS,
);

/// What this controller measures beside what every controller does.
pub const FAMILIES: [Family; 12] = [
    WORKSPACES,
    UNREADY,
    UNREADY_AGE,
    WAITING,
    OLDEST,
    ACTIVE,
    LIMIT,
    POLICY_VALID,
    TURNS,
    WAIT,
    READY,
    RECOVERY,
];
