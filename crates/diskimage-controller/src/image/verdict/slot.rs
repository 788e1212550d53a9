//! A slot that is held: what it pays for first, and why it is given back.

use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use otctl_kit::cluster::Target;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::import::FailureClass;

use super::open::serves;
use super::{Verdict, suspended};
use crate::children;
use crate::image::ending::{self, Ending};
use crate::image::observe::Observed;
use crate::snapshots::VolumeSnapshot;

/// How long a slot is kept for a child that is on its way out.
const CHILD_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// The Job of a number that is not on record yet: put there, unless it was made for an earlier spec. That one never ran,
/// so it is replaced, and the number is not used up. One that was not made here uses the number up: whoever makes such
/// Jobs is answered no faster than the backoff, and nothing that they bring is taken for data.
pub(super) fn record(
    image: &VMDiskImage,
    observed: &Observed,
    number: i64,
    job: String,
) -> Verdict {
    let Some(work) = observed.import(&job) else {
        return Verdict::Recording { number, job };
    };
    if !serves(image, observed, work) {
        let resource_version = work.job.metadata.resource_version.clone();
        return Verdict::Stopping { job, resource_version };
    }
    if !children::import::is_made_here(&work.job, image, &observed.record.revision) {
        return Verdict::Releasing(number, Ending::forged(&children::target(&*work.job)));
    }
    Verdict::Recording { number, job }
}

/// A slot is held: look at the source, then make what the import needs.
pub(super) fn prepare(
    image: &VMDiskImage,
    observed: &Observed,
    number: i64,
    now: Timestamp,
) -> Verdict {
    if let Some(child) = in_the_way(observed) {
        return give_way(observed, number, &child, now);
    }
    if let Some(child) = taken_name(observed) {
        return Verdict::Releasing(number, Ending::foreign(child));
    }
    if knows_source(observed) {
        return Verdict::Preparing(number);
    }
    match observed.probe(number) {
        None => Verdict::Probing { number, is_missing: true },
        Some(probe) if !children::probe::is_made_here(&probe.job, image) => {
            Verdict::Releasing(number, Ending::forged(&children::target(&*probe.job)))
        }
        Some(probe) if !probe.has_ended() => Verdict::Probing { number, is_missing: false },
        Some(probe) => match ending::of_probe(probe) {
            Ending { failure: None, .. } => Verdict::Preparing(number),
            ending => Verdict::ProbeFailed(number, ending),
        },
    }
}

/// What holds the name of a child and is on its way out. A snapshot that proves no data is one: were it cut later, it
/// would be of a disk that is being written.
fn in_the_way(observed: &Observed) -> Option<Target> {
    let snapshot = observed.snapshot.object().map(|snapshot| children::target(&**snapshot));
    observed.leaving.clone().or(snapshot)
}

/// Someone else's object of a child's name, told before anything is fetched. A snapshot's name matters when one is taken.
fn taken_name(observed: &Observed) -> Option<&Target> {
    let is_needed = |target: &&Target| {
        target.resource.kind != VolumeSnapshot::kind(&()) || observed.snapshot_class().is_some()
    };
    observed.foreign.as_ref().filter(is_needed)
}

/// Most children go within a second or two; the slot is kept that long, and no longer.
fn give_way(observed: &Observed, number: i64, child: &Target, now: Timestamp) -> Verdict {
    let since = observed.entry.as_ref().map_or(now, |entry| entry.since.0);
    if now.duration_since(since) < CHILD_PATIENCE {
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
pub(super) fn release(observed: &Observed, number: i64, hindrance: Option<Ending>) -> Verdict {
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
