//! How an attempt ended: from a Job, its pod and the importer's report to one value. Classes come from the report's
//! reason and the API's own reasons, never from the text of a message.

use k8s_openapi::api::core::v1::Pod;
use otctl_kit::cluster::Target;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Cut, OpenAttempt};
use otctl_types::import::{FailureClass, ImportOutcome, ImportReason, ImportReport, SourceFacts};

use crate::image::observe::Work;
use crate::jobs;
use crate::record;

/// Said of an attempt that ran too long, by whomever it was ended.
pub(super) const OVERLONG: &str = "it ran longer than attemptTimeout of the policy";
/// Sizes that are named are whole MiB.
const MIB: u64 = 1 << 20;

/// The end of an attempt or of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// How; none for success.
    pub failure: Option<Failure>,
    /// Whether it is paid from the budget.
    pub is_charged: bool,
    /// Bytes it fetched, if it lived to tell.
    pub bytes: Option<u64>,
    /// What it saw of the source.
    pub source: Option<SourceFacts>,
    /// sha256 of the bytes at the source.
    pub checksum: Option<String>,
    /// sha256 of the raw disk.
    pub disk_checksum: Option<String>,
    /// How long the source asked us to stay away, in seconds.
    pub retry_after_seconds: Option<u64>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason, as in conditions, events and metrics.
    pub reason: Reason,
    /// What it asks for.
    pub class: FailureClass,
    /// A sentence for people.
    pub message: String,
}

impl Ending {
    /// An end without a report.
    pub fn failed(reason: Reason, class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            failure: Some(Failure { reason, class, message: message.into() }),
            is_charged: false,
            bytes: None,
            source: None,
            checksum: None,
            disk_checksum: None,
            retry_after_seconds: None,
        }
    }

    /// The end of an attempt that was ended from outside.
    pub fn of_cut(cut: &Cut) -> Self {
        let reason = record::reason_of(&cut.reason);
        let class = match reason {
            Reason::Import(reason) => reason.class(),
            _ => FailureClass::Waiting,
        };
        Self { is_charged: cut.charged, ..Self::failed(reason, class, cut.message.clone()) }
    }

    /// The end of an attempt that finds the name of a child taken.
    pub fn foreign(child: &Target) -> Self {
        let message = format!(
            "{child} exists and belongs to something else; rename or delete it, or use another name for this image"
        );
        Self::failed(Reason::NameConflict, FailureClass::Waiting, message)
    }

    /// The end of an attempt whose Job somebody else made in our name.
    pub fn forged(job: &Target) -> Self {
        let message = format!(
            "{job} bears the name and the owner reference of this image's attempt and does something else: whoever made it may \
             create Jobs in this namespace. What it brings is not taken; the next attempt has another number"
        );
        Self::failed(Reason::NameConflict, FailureClass::Waiting, message)
    }

    /// The same, paid from the budget.
    #[must_use]
    pub fn charged(mut self) -> Self {
        self.is_charged = true;
        self
    }
}

/// The end of an import whose Job has ended.
pub fn of_import(work: &Work) -> Ending {
    let report = work.ended_pod().and_then(|pod| jobs::report(pod));
    match report {
        Some(report) if !was_cut(&report, work) => {
            from_report(&report, report.download_started || would_repeat(&report))
        }
        Some(report) => Ending {
            bytes: Some(report.bytes),
            is_charged: report.download_started,
            ..without_report(work)
        },
        None if never_ran(work) => not_started(work),
        None if work.pods.is_empty() && jobs::is_complete(&work.job) => unread(),
        None => without_report(work).charged(),
    }
}

/// Its importer ended well, and its pod went, with its node, say, before anybody read what it brought. The whole
/// download is on the scratch volume with its sums, so the next attempt asks the source for nothing.
fn unread() -> Ending {
    let reason = ImportReason::ResultLost;
    let message = "the import was complete, and its pod was gone before its result was read; the next attempt finds what it \
                   fetched";
    Ending::failed(Reason::Import(reason), reason.class(), message)
}

/// A failure in passing that came after all bytes were there: it asked for none, but uncharged it would come back for
/// ever.
fn would_repeat(report: &ImportReport) -> bool {
    let is_transient = |reason: ImportReason| reason.class() == FailureClass::Transient;
    report.reason.is_some_and(|reason| is_transient(reason) && reason != ImportReason::Interrupted)
}

/// The end of a probe whose Job has ended. It is no download, but one that fails in passing is charged all the same, so
/// that a mistyped host comes to an end.
pub fn of_probe(work: &Work) -> Ending {
    let report = work.ended_pod().and_then(|pod| jobs::report(pod));
    let Some(report) = report else {
        let is_late = jobs::failure_reason(&work.job) == Some("DeadlineExceeded");
        return if is_late || never_ran(work) {
            not_started(work)
        } else {
            without_report(work).charged()
        };
    };
    let is_transient =
        report.reason.is_some_and(|reason| reason.class() == FailureClass::Transient);
    from_report(&report, is_transient)
}

/// The end of an attempt of which nothing is left. Without a note that it never ran it is charged: what cannot be
/// accounted for may have fetched.
pub fn of_nothing(open: Option<&OpenAttempt>) -> Ending {
    if open.is_some_and(|open| open.never_ran) {
        let message = "its Job was deleted before a pod of it ran";
        return Ending::failed(Reason::PodNotStarted, FailureClass::Waiting, message);
    }
    interrupted("its Job was deleted while it ran").charged()
}

fn from_report(report: &ImportReport, is_charged: bool) -> Ending {
    let failure = match report.outcome {
        ImportOutcome::Complete => None,
        ImportOutcome::Failed => {
            let reason = report.reason.unwrap_or(ImportReason::Internal);
            Some(Failure {
                reason: Reason::Import(reason),
                class: reason.class(),
                message: message(report, reason),
            })
        }
    };
    Ending {
        failure,
        is_charged,
        bytes: Some(report.bytes),
        source: report.source.clone(),
        checksum: report.checksum.clone(),
        disk_checksum: report.disk_checksum.clone(),
        retry_after_seconds: report.retry_after_seconds,
    }
}

/// What the importer said, with the size that fits where it is known: whoever reads it knows what to write.
fn message(report: &ImportReport, reason: ImportReason) -> String {
    let size = report.source.as_ref().and_then(|source| source.virtual_size);
    match size.filter(|_| reason == ImportReason::TooSmall) {
        Some(size) => format!(
            "{}; set diskSize to {} or more, or leave it out",
            report.message.trim_end_matches('.'),
            policy::quantity::format(size.div_ceil(MIB).saturating_mul(MIB))
        ),
        None => report.message.clone(),
    }
}

/// The importer was told to stop by something that knows better why.
fn was_cut(report: &ImportReport, work: &Work) -> bool {
    report.reason == Some(ImportReason::Interrupted) && outside_reason(work).is_some()
}

fn without_report(work: &Work) -> Ending {
    match outside_reason(work) {
        Some((reason, message)) => Ending::failed(Reason::Import(reason), reason.class(), message),
        None => interrupted(&exit_text(work)),
    }
}

/// Its pod is known, and no process of it was ever started.
fn never_ran(work: &Work) -> bool {
    !work.pods.is_empty() && !work.pods.iter().any(|pod| jobs::pod_has_run(pod))
}

/// A pod that its node did not start (an image that cannot be pulled, no room) says nothing about the source: it is
/// tried again without a charge. A probe reports within seconds once it runs, so one that met its deadline in silence
/// did not run either.
fn not_started(work: &Work) -> Ending {
    let waiting = work.pods.iter().find_map(|pod| jobs::waiting_reason(pod));
    let message = match waiting {
        Some(why) => format!("its pod was not started: {why}"),
        None => "its pod was not started in time; see the Events of the namespace".to_owned(),
    };
    Ending::failed(Reason::PodNotStarted, FailureClass::Waiting, message)
}

/// What Kubernetes says of the end.
fn outside_reason(work: &Work) -> Option<(ImportReason, String)> {
    let status = work.ended_pod()?.status.as_ref()?;
    match status.reason.as_deref()? {
        "DeadlineExceeded" => Some((ImportReason::AttemptTimeout, OVERLONG.to_owned())),
        "Evicted" => Some((ImportReason::Evicted, "its pod was evicted from the node".to_owned())),
        "NodeLost" | "NodeShutdown" | "Terminated" => {
            Some((ImportReason::NodeLost, "its node is gone".to_owned()))
        }
        _ => None,
    }
}

fn interrupted(message: &str) -> Ending {
    Ending::failed(Reason::Import(ImportReason::Interrupted), FailureClass::Transient, message)
}

fn exit_text(work: &Work) -> String {
    let terminated = work.ended_pod().and_then(|pod: &std::sync::Arc<Pod>| jobs::termination(pod));
    match terminated {
        Some(end) => {
            let reason = end.reason.as_deref().unwrap_or("Error");
            format!("its pod ended without a report: {reason}, exit code {}", end.exit_code)
        }
        None => "its pod is gone without a report".to_owned(),
    }
}
