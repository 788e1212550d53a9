//! The state machine of an image: from facts to what is the case. `decide.rs` says what follows, `status.rs` how it
//! looks.
//!
//! ```text
//!               no ticket      ticket         slot: entry (UID,n), n > lastAttempt            open {n, Job}
//!  created ──▶ Unticketed ──▶ Queued ──▶ Probing ──▶ Preparing ──▶ Recording ──▶ Starting ──▶ Importing ──▶ Closing
//!                 ▲  ▲           ▲            │            │             │                         │            │
//!                 │  │           └─ backoff ──┴────────────┴── Releasing ┘     Stopping ◀── cut ───┘            │
//!                 │  └─ resumed ── Suspended                                                                    │
//!                 └─ new budget ── GivenUp ◀── terminal, or the budget is spent ────────────────────────────────┤
//!                                                                                                               ▼
//!                                        Lost ◀── no copy left ── Ready ◀── ready and bound ── Snapshotting ◀── data
//! ```

mod data;
mod waiting;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use otctl_kit::attempt::AttemptStep;
use otctl_kit::cluster::Target;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::import::{FailureClass, ImportReason};

use self::data::with_data;
pub use self::data::{has_data, keeps_volume};
use self::waiting::{given_up, wait};
use crate::children;
use crate::image::ending::{self, Ending};
use crate::image::observe::{Observed, Work};
use crate::jobs;
use crate::names::{self, JobRole};
use crate::surroundings::{Obstacle, obstacle, spec_problem};

/// How long a slot is kept for a child that is on its way out.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// What is the case with an image.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is gone, or going with nothing left to end.
    Gone,
    /// It waits for its ticket; until it has one nothing is written, so that tickets go by the order of creation.
    Unticketed,
    /// The spec cannot be acted on.
    Invalid(Obstacle),
    /// A person suspended it.
    Suspended,
    /// It waits for a slot.
    Queued(Wait),
    /// It holds a slot that it may not use (I5).
    Releasing(i64, Ending),
    /// Its source is looked at.
    Probing {
        /// The number it holds.
        number: i64,
        /// Whether the Job must be made.
        is_missing: bool,
    },
    /// The source was looked at, and that ended the attempt.
    ProbeFailed(i64, Ending),
    /// Claims and the suspended Job are made (I1).
    Preparing(i64),
    /// The Job is put on record (I2).
    Recording {
        /// The number.
        number: i64,
        /// UID of the Job.
        job: String,
    },
    /// The recorded Job is started (I3).
    Starting(String),
    /// It runs.
    Importing,
    /// A Job of it is deleted and awaited (I7, I8).
    Stopping {
        /// UID of the Job.
        job: String,
        /// Only if it is still this version.
        resource_version: Option<String>,
    },
    /// The open attempt has ended (I4).
    Closing(i64, Ending),
    /// The data is there, its snapshot is not.
    Snapshotting {
        /// Whether the snapshot must be asked for.
        is_missing: bool,
        /// What the driver said.
        trouble: Option<String>,
    },
    /// The volume is brought back from the snapshot.
    Restoring {
        /// Whether the claim must be made.
        is_missing: bool,
    },
    /// No copy of the data is left.
    Lost,
    /// Usable.
    Ready,
    /// No automatic step will help.
    GivenUp(Obstacle),
    /// Something is on its way out, or a view is behind.
    Awaiting(&'static str),
}

/// What a queued image waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Until when, if a time is known.
    pub until: Option<Timestamp>,
}

impl Verdict {
    /// A constant for logs, spans and goldens.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::Unticketed => "Unticketed",
            Self::Invalid(_) => "Invalid",
            Self::Suspended => "Suspended",
            Self::Queued(_) => "Queued",
            Self::Releasing(..) => "Releasing",
            Self::Probing { .. } => "Probing",
            Self::ProbeFailed(..) => "ProbeFailed",
            Self::Preparing(_) => "Preparing",
            Self::Recording { .. } => "Recording",
            Self::Starting(_) => "Starting",
            Self::Importing => "Importing",
            Self::Stopping { .. } => "Stopping",
            Self::Closing(..) => "Closing",
            Self::Snapshotting { .. } => "Snapshotting",
            Self::Restoring { .. } => "Restoring",
            Self::Lost => "Lost",
            Self::Ready => "Ready",
            Self::GivenUp(_) => "GivenUp",
            Self::Awaiting(_) => "Awaiting",
        }
    }
}

/// What is the case. Checks in this order: attempts that run, slots that are held, data that is there, and only then
/// what is missing.
pub fn judge(observed: &Observed, now: Timestamp) -> Verdict {
    let Some(image) = &observed.image else {
        return Verdict::Gone;
    };
    let hindrance = hindrance(image, observed);
    let jobs = observed.job_facts();
    let step = observed.attempt(&jobs, hindrance.is_none(), may_go_on(image, observed)).step();
    match step {
        AttemptStep::Idle => without_slot(image, observed, now),
        AttemptStep::Prepare(number) => prepare(observed, number, now),
        AttemptStep::Record { number, job } => record(image, observed, number, job),
        AttemptStep::Start { job } => Verdict::Starting(job),
        AttemptStep::Run { .. } => Verdict::Importing,
        AttemptStep::Stop { job, resource_version }
        | AttemptStep::Sweep { job, resource_version } => {
            Verdict::Stopping { job, resource_version }
        }
        AttemptStep::Close(number) => Verdict::Closing(number, end_of_attempt(image, observed)),
        AttemptStep::CloseUnused(number) => release(observed, number, hindrance),
        AttemptStep::Await => Verdict::Awaiting("a Job is on its way out, or its view is behind"),
    }
}

/// Why a slot that is held may not be used: nothing may start.
fn hindrance(image: &VMDiskImage, observed: &Observed) -> Option<Ending> {
    let waiting = |obstacle: Obstacle| {
        Ending::failed(obstacle.reason, FailureClass::Waiting, obstacle.message)
    };
    let unused = |message: &str| Ending::failed(Reason::Superseded, FailureClass::Waiting, message);
    if image.metadata.deletion_timestamp.is_some() {
        return Some(unused("it is being deleted"));
    }
    if image.spec.suspend {
        return Some(suspended());
    }
    if has_data(observed) {
        return Some(unused("its data is there"));
    }
    if observed.record.final_attempt().is_some()
        || observed.record.is_spent(observed.policy.retry_limit)
    {
        return Some(unused("no attempt is left"));
    }
    spec_problem(&image.spec)
        .or_else(|| obstacle(&image.spec, &observed.policy, &observed.around))
        .map(waiting)
}

fn suspended() -> Ending {
    Ending::failed(
        Reason::Import(ImportReason::Suspended),
        FailureClass::Waiting,
        "it was suspended",
    )
}

/// Whether the open attempt still serves the spec.
fn may_go_on(image: &VMDiskImage, observed: &Observed) -> bool {
    let is_wanted = image.metadata.deletion_timestamp.is_none() && !image.spec.suspend;
    is_wanted && !is_superseded(image, observed) && !was_stopped(observed) && !cannot_run(observed)
}

/// Its Job was made for another spec. Without the Job, the status tells what it was last written for.
fn is_superseded(image: &VMDiskImage, observed: &Observed) -> bool {
    let status = &observed.record.status;
    let Some(open) = &status.open_attempt else {
        return false;
    };
    match observed.import(&open.job_uid) {
        Some(work) => !serves(image, observed, work),
        None => status.revision.as_ref().is_some_and(|told| *told != observed.record.revision),
    }
}

/// Its Job was started and is suspended again. Not by us: starting it once more would be a fight, so the attempt ends
/// and the next one waits its time.
fn was_stopped(observed: &Observed) -> bool {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let was_edited = |job: &Job| job.metadata.generation.is_some_and(|generation| generation > 1);
    work.is_some_and(|work| jobs::is_suspended(&work.job) && was_edited(&work.job))
}

/// The Job of a number that is not on record yet: put there, unless it was made for an earlier spec. That one never ran,
/// so it is replaced, and the number is not used up.
fn record(image: &VMDiskImage, observed: &Observed, number: i64, job: String) -> Verdict {
    let work = observed.import(&job);
    if work.is_some_and(|work| !serves(image, observed, work)) {
        let resource_version = work.and_then(|work| work.job.metadata.resource_version.clone());
        return Verdict::Stopping { job, resource_version };
    }
    Verdict::Recording { number, job }
}

/// Whether a Job was made for the spec as it is now: its name tells.
fn serves(image: &VMDiskImage, observed: &Observed, work: &Work) -> bool {
    let uid = image.metadata.uid.as_deref().unwrap_or_default();
    let name = image.metadata.name.as_deref().unwrap_or_default();
    let expected =
        names::job_name(name, uid, &observed.record.revision, JobRole::Import, work.number);
    work.job.metadata.name.as_ref() == Some(&expected)
}

/// A slot is held: look at the source, then make what the import needs.
fn prepare(observed: &Observed, number: i64, now: Timestamp) -> Verdict {
    if let Some(child) = in_the_way(observed) {
        return give_way(observed, number, &child, now);
    }
    if knows_source(observed) {
        return Verdict::Preparing(number);
    }
    match observed.probe(number) {
        None => Verdict::Probing { number, is_missing: true },
        Some(probe) if !probe.has_ended() => Verdict::Probing { number, is_missing: false },
        Some(probe) => match ending::of_probe(probe) {
            Ending { failure: None, .. } => Verdict::Preparing(number),
            ending => Verdict::ProbeFailed(number, ending),
        },
    }
}

/// Its pod has not run, and a claim of it is being deleted: no kubelet starts a pod on such a claim, and the claim waits
/// for the pod.
fn cannot_run(observed: &Observed) -> bool {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let has_run = |work: &Work| work.pods.iter().any(|pod| jobs::pod_has_run(pod));
    observed.leaving.is_some() && work.is_some_and(|work| !has_run(work))
}

/// What holds the name of a child and is on its way out. A snapshot that proves no data is one: were it cut later, it
/// would be of a disk that is being written.
fn in_the_way(observed: &Observed) -> Option<Target> {
    let snapshot = observed.snapshot.object().map(|snapshot| children::target(&**snapshot));
    observed.leaving.clone().or(snapshot)
}

/// Most children go within a second or two; the slot is kept that long, and no longer.
fn give_way(observed: &Observed, number: i64, child: &Target, now: Timestamp) -> Verdict {
    let since = observed.entry.as_ref().map_or(now, |entry| entry.since.0);
    if now.duration_since(since) < PATIENCE {
        return Verdict::Awaiting("a child of an earlier try is on its way out");
    }
    let message = format!(
        "{child} of an earlier image of this name, or of an earlier try, is still being deleted; see its finalizers"
    );
    let reason = Reason::OldChildTerminating;
    Verdict::Releasing(number, Ending::failed(reason, FailureClass::Waiting, message))
}

/// The source of this revision was looked at by an earlier attempt.
fn knows_source(observed: &Observed) -> bool {
    let status = &observed.record.status;
    status.source.is_some() && status.revision.as_ref() == Some(&observed.record.revision)
}

/// The number is used up, but not before a probe that still runs has ended.
fn release(observed: &Observed, number: i64, hindrance: Option<Ending>) -> Verdict {
    if let Some(probe) = observed.probes.iter().find(|probe| !probe.has_ended()) {
        let uid = probe.job.metadata.uid.clone().unwrap_or_default();
        let is_going = probe.job.metadata.deletion_timestamp.is_some();
        return if is_going {
            Verdict::Awaiting("its probe is being deleted")
        } else {
            Verdict::Stopping { job: uid, resource_version: None }
        };
    }
    Verdict::Releasing(number, hindrance.unwrap_or_else(suspended))
}

/// How the open attempt ended. What a person asked for goes before what the importer made of being stopped.
fn end_of_attempt(image: &VMDiskImage, observed: &Observed) -> Ending {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let ending =
        work.filter(|work| work.has_ended()).map_or_else(ending::of_nothing, ending::of_import);
    if is_superseded(image, observed) {
        // What it brought, be it complete, is the data of another spec.
        return Ending {
            bytes: ending.bytes,
            is_charged: ending.is_charged,
            ..Ending::failed(Reason::Superseded, FailureClass::Waiting, "the spec was changed")
        };
    }
    if image.spec.suspend && ending.failure.is_some() {
        return Ending { bytes: ending.bytes, ..suspended() };
    }
    ending
}

/// No slot is held and none was: data, or what stands in its way.
fn without_slot(image: &VMDiskImage, observed: &Observed, now: Timestamp) -> Verdict {
    if image.metadata.deletion_timestamp.is_some() {
        return Verdict::Gone;
    }
    if has_data(observed) {
        return with_data(image, observed);
    }
    if let Some(problem) = spec_problem(&image.spec) {
        return Verdict::Invalid(problem);
    }
    if let Some(end) = given_up(observed) {
        return Verdict::GivenUp(end);
    }
    if image.spec.suspend {
        return Verdict::Suspended;
    }
    let status = &observed.record.status;
    if status.ticket.is_none() && status.phase.is_none() && observed.record.last() == 0 {
        return Verdict::Unticketed;
    }
    Verdict::Queued(wait(image, observed, now))
}

#[cfg(test)]
mod tests;
