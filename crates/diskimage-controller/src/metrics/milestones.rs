//! What has become of an image from one version to the next that was seen of it. Versions may be left out: attempts have
//! numbers that only grow, so that each is met once.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use otctl_kit::metrics::Life;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Attempt, Phase, VMDiskImageStatus};

use crate::record::{Told, reason_of};

/// Something that happened to an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Milestone {
    /// An attempt was given a slot.
    Admitted {
        /// How long it had waited for it.
        waited: Duration,
    },
    /// An import is on record; it has not begun.
    Opened {
        /// UID of its Job.
        job_uid: String,
    },
    /// An import is on record no more.
    Closed {
        /// UID of its Job.
        job_uid: String,
        /// What it received, if it lived to tell.
        bytes: Option<u64>,
    },
    /// An attempt ended, with or without an import.
    Ended(Reason),
    /// A snapshot was not ready in time.
    SnapshotLate,
    /// Data that an attempt brought became usable.
    Synced {
        /// Since that attempt was admitted.
        since_admission: Option<Duration>,
        /// Since the image was created; none where a person had to see to it, or it was synced before.
        since_creation: Option<Duration>,
    },
}

/// An image as it was seen last, and how far what was told of it goes.
#[derive(Clone, Debug)]
pub struct Seen {
    image: Arc<VMDiskImage>,
    /// The highest attempt whose admission was met.
    admitted: i64,
    /// The highest attempt whose end was met.
    ended: i64,
    /// The highest attempt whose data became usable.
    synced: i64,
    /// A ticket that was waited with, and since when.
    queued: Option<(String, Timestamp)>,
    /// Neither suspended, nor failed for good, nor lost, as far as seen.
    is_straight: bool,
}

impl Life for Seen {
    type Object = VMDiskImage;
    type Milestone = Milestone;

    fn first(image: Arc<VMDiskImage>) -> Self {
        let status = Told::Of(image.clone());
        let last = status.last_attempt.unwrap_or(0);
        let open = status.open_attempt.as_ref().map(|open| open.number);
        let told = status.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0);
        let synced = if status.phase == Some(Phase::Succeeded) { told } else { 0 };
        let queued = status.ticket.clone().zip(status.queued_at.as_ref().map(|at| at.0));
        Self {
            admitted: told.max(last).max(open.unwrap_or(0)),
            ended: told.max(open.map_or(last, |open| open.saturating_sub(1))),
            synced,
            queued: queued.filter(|_| status.phase.is_none_or(|phase| phase == Phase::Queued)),
            is_straight: is_straight(&image, &status),
            image,
        }
    }

    fn uid(&self) -> Option<&str> {
        self.image.metadata.uid.as_deref()
    }

    fn next(&mut self, image: Arc<VMDiskImage>) -> Vec<Milestone> {
        let before = Told::Of(std::mem::replace(&mut self.image, image.clone()));
        let after = Told::Of(image);
        self.is_straight &= is_straight(&self.image, &after);
        self.note_ticket(&before, &after);
        let mut met = self.admissions(&after);
        met.extend(imports(&before, &after));
        met.extend(self.endings(&after).into_iter().map(Milestone::Ended));
        met.extend(has_late_snapshot(&before, &after).then_some(Milestone::SnapshotLate));
        met.extend(self.sync(&after));
        met
    }

    /// The import on record goes with it.
    fn end(self) -> Vec<Milestone> {
        let status = self.image.status.as_ref();
        let open = status.and_then(|status| status.open_attempt.as_ref());
        let job_uid = open.map(|open| open.job_uid.clone());
        job_uid.map(|job_uid| Milestone::Closed { job_uid, bytes: None }).into_iter().collect()
    }
}

impl Seen {
    /// A ticket without a time of its own came with the slot.
    fn note_ticket(&mut self, before: &VMDiskImageStatus, after: &VMDiskImageStatus) {
        if before.ticket != after.ticket {
            let at = after.queued_at.as_ref().filter(|at| before.queued_at.as_ref() != Some(*at));
            self.queued = after.ticket.clone().zip(at.map(|at| at.0));
        }
    }

    fn admissions(&mut self, after: &VMDiskImageStatus) -> Vec<Milestone> {
        let open = after.open_attempt.iter();
        let open = open.map(|open| (open.number, open.ticket.as_ref(), open.started_at.as_ref()));
        let ended = after.attempts.iter();
        let ended = ended.map(|it| (it.number, it.ticket.as_ref(), it.started_at.as_ref()));
        let mut met = Vec::new();
        for (number, ticket, since) in ended.chain(open) {
            if number <= self.admitted {
                continue;
            }
            let waited = since.map(|since| self.waited(ticket, since.0));
            met.extend(waited.map(|waited| Milestone::Admitted { waited }));
            self.admitted = number;
        }
        self.admitted = self.admitted.max(after.last_attempt.unwrap_or(0));
        met
    }

    /// An image that gets ticket and slot at once has waited since its creation; a retry that does has not waited.
    fn waited(&self, ticket: Option<&String>, since: Timestamp) -> Duration {
        let queued = self.queued.as_ref().filter(|(held, _)| Some(held) == ticket);
        let queued = queued.map(|(_, at)| *at).filter(|at| *at <= since);
        let is_first = self.admitted == 0 && self.is_straight;
        let created = self.image.creation_timestamp().filter(|_| is_first).map(|at| at.0);
        queued.or(created).map_or(Duration::ZERO, |from| between(from, since))
    }

    fn endings(&mut self, after: &VMDiskImageStatus) -> Vec<Reason> {
        let known = self.ended;
        let ended: Vec<&Attempt> =
            after.attempts.iter().filter(|attempt| attempt.number > known).collect();
        self.ended = ended.iter().map(|attempt| attempt.number).fold(known, i64::max);
        ended.iter().map(|it| reason_of(it.reason.as_deref().unwrap_or_default())).collect()
    }

    fn sync(&mut self, after: &VMDiskImageStatus) -> Option<Milestone> {
        let brought = after.attempts.last().filter(|_| after.phase == Some(Phase::Succeeded))?;
        let is_news = brought.number > self.synced;
        if !is_news || reason_of(brought.reason.as_deref()?) != Reason::Succeeded {
            return None;
        }
        let is_first = self.synced == 0 && self.is_straight;
        self.synced = brought.number;
        let current = after.current.as_ref();
        let usable = current.and_then(|it| it.synced_at.as_ref()).or(brought.ended_at.as_ref())?.0;
        let since = |from: Option<&Time>| from.map(|from| between(from.0, usable));
        Some(Milestone::Synced {
            since_admission: since(brought.started_at.as_ref()),
            since_creation: since(self.image.creation_timestamp().filter(|_| is_first).as_ref()),
        })
    }
}

fn is_straight(image: &VMDiskImage, status: &VMDiskImageStatus) -> bool {
    let has_failed = status.phase == Some(Phase::Failed)
        || status.attempts.iter().any(|attempt| attempt.is_final);
    !image.spec.suspend && !has_failed && status.last_loss_at.is_none()
}

/// The import on record went, or came, or both.
fn imports(before: &VMDiskImageStatus, after: &VMDiskImageStatus) -> Vec<Milestone> {
    let job = |status: &VMDiskImageStatus| {
        status.open_attempt.as_ref().map(|open| (open.number, open.job_uid.clone()))
    };
    let (was, is) = (job(before), job(after));
    if was == is {
        return Vec::new();
    }
    let closed = was.map(|(number, job_uid)| {
        let told = after.attempts.iter().find(|attempt| attempt.number == number);
        let bytes = told.and_then(|attempt| attempt.bytes);
        Milestone::Closed { job_uid, bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()) }
    });
    let opened = is.map(|(_, job_uid)| Milestone::Opened { job_uid });
    closed.into_iter().chain(opened).collect()
}

fn has_late_snapshot(before: &VMDiskImageStatus, after: &VMDiskImageStatus) -> bool {
    let count =
        |status: &VMDiskImageStatus| status.late_snapshots.as_ref().map_or(0, |it| it.count);
    count(after) > count(before)
}

/// Clocks of two machines differ: what ends before it begins took no time.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
