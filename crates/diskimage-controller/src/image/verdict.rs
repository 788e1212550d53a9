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
mod open;
mod slot;
mod stuck;
mod waiting;

use jiff::Timestamp;
use otctl_kit::attempt::AttemptStep;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::diskimage::Cut;
use otctl_types::import::{FailureClass, ImportReason};

use self::data::with_data;
pub use self::data::{has_data, keeps_volume};
use self::open::{end_of_attempt, may_go_on, running};
use self::slot::{prepare, record, release};
use self::waiting::{given_up, wait};
use crate::image::ending::Ending;
use crate::image::observe::Observed;
use crate::surroundings::{Obstacle, obstacle, spec_problem};

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
    /// It runs and does not come to an end by itself.
    Cutting(Cut),
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
        /// When it is given up, if it was asked for.
        late_at: Option<Timestamp>,
    },
    /// The data is there; its snapshot waits until it may be asked for.
    SnapshotQueued {
        /// Whether as many are being taken as may be.
        is_full: bool,
    },
    /// The snapshot was refused; it is asked for again at this time.
    SnapshotRefused(Timestamp),
    /// The snapshot was not ready in time, and is replaced.
    SnapshotLate {
        /// What the driver said.
        trouble: Option<String>,
        /// Whether this one is on record as late.
        is_noted: bool,
    },
    /// As many snapshots as may be were not ready in time.
    SnapshotGivenUp {
        /// What the driver said.
        trouble: Option<String>,
        /// How many were replaced.
        replaced: u32,
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
            Self::Cutting(_) => "Cutting",
            Self::Snapshotting { .. } => "Snapshotting",
            Self::SnapshotQueued { .. } => "SnapshotQueued",
            Self::SnapshotRefused(_) => "SnapshotRefused",
            Self::SnapshotLate { .. } => "SnapshotLate",
            Self::SnapshotGivenUp { .. } => "SnapshotGivenUp",
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
        AttemptStep::Prepare(number) => prepare(image, observed, number, now),
        AttemptStep::Record { number, job } => record(image, observed, number, job),
        AttemptStep::Start { .. } if !observed.hall.has_bandwidth => {
            Verdict::Awaiting("others must hear of less bandwidth first")
        }
        AttemptStep::Start { job } => Verdict::Starting(job),
        AttemptStep::Run { job } => running(observed, &job, now),
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
        || !observed.record.can_count_on()
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

/// No slot is held and none was: data, or what stands in its way.
fn without_slot(image: &VMDiskImage, observed: &Observed, now: Timestamp) -> Verdict {
    if image.metadata.deletion_timestamp.is_some() {
        return Verdict::Gone;
    }
    if has_data(observed) {
        return with_data(image, observed, now);
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
