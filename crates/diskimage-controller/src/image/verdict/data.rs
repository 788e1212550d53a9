//! Once the data was brought: which copies are there, and which were promised.

use jiff::Timestamp;
use otctl_types::VMDiskImage;

use super::Verdict;
use crate::image::observe::{Lane, Observed, Presence};
use crate::proof::{self, is_going, is_hollow, is_lost, is_ready};
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotStatus};

/// The data of the revision in spec was brought, or a copy proves that it was (a status that was wiped or restored).
pub fn has_data(observed: &Observed) -> bool {
    observed.record.has_fetched() || observed.record.is_current() || is_proven(observed)
}

fn is_proven(observed: &Observed) -> bool {
    let claim = observed.claim.object().map(|claim| &**claim);
    proof::is_proven(claim, observed.snapshot.object().map(|snapshot| &**snapshot))
}

/// The data was brought: which copies are there, and which are wanted?
pub(super) fn with_data(image: &VMDiskImage, observed: &Observed, now: Timestamp) -> Verdict {
    let claim = volume(observed);
    if observed.snapshot_class().is_none() {
        return match claim {
            Volume::There => Verdict::Ready,
            Volume::Hollow | Volume::Going | Volume::Gone => Verdict::Lost,
            Volume::Unknown => Verdict::Awaiting("the volume was not seen yet"),
        };
    }
    match (&observed.snapshot, claim) {
        (Presence::Present(snapshot), claim) => {
            with_snapshot(image, observed, (snapshot, claim), now)
        }
        (Presence::Absent, Volume::There) => without_snapshot(observed, now),
        (Presence::Absent, Volume::Hollow | Volume::Going | Volume::Gone) => Verdict::Lost,
        (Presence::Unseen, _) | (_, Volume::Unknown) => {
            Verdict::Awaiting("volume and snapshot were not seen yet")
        }
    }
}

/// What the volume is worth to a consumer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Volume {
    /// It can be used.
    There,
    /// It is there and has no data behind it, any more or yet.
    Hollow,
    /// It is being deleted: no pod may be started on it any more, however long something holds it.
    Going,
    /// The API server has none.
    Gone,
    /// Nobody asked.
    Unknown,
}

fn volume(observed: &Observed) -> Volume {
    match &observed.claim {
        Presence::Present(claim) if is_going(&claim.metadata) => Volume::Going,
        Presence::Present(claim) if is_hollow(claim) => Volume::Hollow,
        Presence::Present(_) => Volume::There,
        Presence::Absent => Volume::Gone,
        Presence::Unseen => Volume::Unknown,
    }
}

/// There is data and no snapshot of it: asked for when the queue lists the image for one.
fn without_snapshot(observed: &Observed, now: Timestamp) -> Verdict {
    let refused_until = observed.record.status.next_retry_at.as_ref().map(|at| at.0);
    match (refused_until.filter(|at| *at > now), observed.hall.lane) {
        (Some(until), _) => Verdict::SnapshotRefused(until),
        (None, Lane::Held) => {
            Verdict::Snapshotting { is_missing: true, trouble: None, late_at: None }
        }
        (None, Lane::Full) => Verdict::SnapshotQueued { is_full: true },
        (None, Lane::Open) => Verdict::SnapshotQueued { is_full: false },
    }
}

fn with_snapshot(
    image: &VMDiskImage,
    observed: &Observed,
    (snapshot, claim): (&VolumeSnapshot, Volume),
    now: Timestamp,
) -> Verdict {
    // A snapshot that was good once stays good: drivers turn one unready when its class is deleted.
    let was_good = observed.record.was_ready(&snapshot.metadata);
    if !(was_good || is_ready(snapshot) && observed.is_bound) {
        let has_none = matches!(claim, Volume::Hollow | Volume::Going | Volume::Gone);
        if has_none && !may_be_cut(snapshot) {
            return Verdict::Lost;
        }
        return unready(observed, snapshot, claim == Volume::There, now);
    }
    match claim {
        _ if !keeps_volume(image, observed) => Verdict::Ready,
        Volume::There => Verdict::Ready,
        // It is bound when a consumer comes, where its class waits for one.
        Volume::Hollow if !observed.claim.object().is_some_and(|claim| is_lost(claim)) => {
            Verdict::Ready
        }
        Volume::Hollow | Volume::Going => Verdict::Restoring { is_missing: false },
        Volume::Gone => Verdict::Restoring { is_missing: true },
        Volume::Unknown => Verdict::Awaiting("the volume was not seen yet"),
    }
}

/// A snapshot that was asked for and is not ready: waited for, then replaced, then given up.
fn unready(
    observed: &Observed,
    snapshot: &VolumeSnapshot,
    has_volume: bool,
    now: Timestamp,
) -> Verdict {
    let error = snapshot.status.as_ref().and_then(|status| status.error.as_ref());
    let trouble = error.and_then(|error| error.message.clone());
    let asked_at = snapshot.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0);
    let late_at = asked_at.checked_add(observed.policy.snapshot_timeout).unwrap_or(Timestamp::MAX);
    let (replaced, last) = observed.record.late_snapshots();
    let is_noted = last.is_some() && last == snapshot.metadata.uid.as_deref();
    if is_noted {
        // One that was noted and is still there: its deletion was not made, or takes its time.
        return Verdict::SnapshotLate { trouble, is_noted };
    }
    if now < late_at || is_going(&snapshot.metadata) {
        // Of one that is going, late or not, the end is seen.
        let late_at = Some(late_at).filter(|at| *at > now);
        return Verdict::Snapshotting { is_missing: false, trouble, late_at };
    }
    if has_volume && replaced < observed.policy.retry_limit {
        return Verdict::SnapshotLate { trouble, is_noted };
    }
    Verdict::SnapshotGivenUp { trouble, replaced }
}

/// Whether a snapshot whose volume is gone can still become ready: its driver has taken it up and named no error.
fn may_be_cut(snapshot: &VolumeSnapshot) -> bool {
    let taken_up = |status: &VolumeSnapshotStatus| {
        status.bound_volume_snapshot_content_name.is_some() && status.error.is_none()
    };
    snapshot.status.as_ref().is_some_and(taken_up)
}

/// Whether the volume stays beside the snapshot.
pub fn keeps_volume(image: &VMDiskImage, observed: &Observed) -> bool {
    // Without a snapshot the volume is the only copy, whatever the spec says.
    observed.snapshot_class().is_none() || image.spec.keep_volume == Some(true)
}
