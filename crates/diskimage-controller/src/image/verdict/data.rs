//! Once the data was brought: which copies are there, and which were promised.

use otctl_types::VMDiskImage;

use super::Verdict;
use crate::image::observe::{Observed, Presence};
use crate::proof::{self, is_going, is_ready};
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
pub(super) fn with_data(image: &VMDiskImage, observed: &Observed) -> Verdict {
    let claim = volume(observed);
    if observed.snapshot_class().is_none() {
        return match claim {
            Copy::There => Verdict::Ready,
            Copy::Going | Copy::Gone => Verdict::Lost,
            Copy::Unknown => Verdict::Awaiting("the volume was not seen yet"),
        };
    }
    match (&observed.snapshot, claim) {
        (Presence::Present(snapshot), claim) => with_snapshot(image, observed, snapshot, claim),
        (Presence::Absent, Copy::There) => {
            Verdict::Snapshotting { is_missing: true, trouble: None }
        }
        (Presence::Absent, Copy::Going | Copy::Gone) => Verdict::Lost,
        (Presence::Unseen, _) | (_, Copy::Unknown) => {
            Verdict::Awaiting("volume and snapshot were not seen yet")
        }
    }
}

/// What the volume is worth to a consumer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    /// It can be used.
    There,
    /// It is being deleted: no pod may be started on it any more, however long something holds it.
    Going,
    /// The API server has none.
    Gone,
    /// Nobody asked.
    Unknown,
}

fn volume(observed: &Observed) -> Copy {
    match &observed.claim {
        Presence::Present(claim) if is_going(&claim.metadata) => Copy::Going,
        Presence::Present(_) => Copy::There,
        Presence::Absent => Copy::Gone,
        Presence::Unseen => Copy::Unknown,
    }
}

fn with_snapshot(
    image: &VMDiskImage,
    observed: &Observed,
    snapshot: &VolumeSnapshot,
    claim: Copy,
) -> Verdict {
    // A snapshot that was good once stays good: drivers turn one unready when its class is deleted.
    let was_good = observed
        .record
        .status
        .current
        .as_ref()
        .is_some_and(|current| current.snapshot == snapshot.metadata.name);
    if !(was_good || is_ready(snapshot) && observed.is_bound) {
        if matches!(claim, Copy::Going | Copy::Gone) && !may_be_cut(snapshot) {
            return Verdict::Lost;
        }
        let error = snapshot.status.as_ref().and_then(|status| status.error.as_ref());
        return Verdict::Snapshotting {
            is_missing: false,
            trouble: error.and_then(|error| error.message.clone()),
        };
    }
    match claim {
        _ if !keeps_volume(image, observed) => Verdict::Ready,
        Copy::There => Verdict::Ready,
        Copy::Going => Verdict::Restoring { is_missing: false },
        Copy::Gone => Verdict::Restoring { is_missing: true },
        Copy::Unknown => Verdict::Awaiting("the volume was not seen yet"),
    }
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
