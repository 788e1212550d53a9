//! Who may take its snapshot: a lane of its own beside the slots, in the same ledger and the same write. An image that is
//! listed asks for its snapshot; it leaves the list when its status says that none is being taken any more. What makes
//! the limit hold with two leaders and over a crash is what makes that of the slots hold: the list is changed by
//! compare-and-swap alone, and read again before the snapshot is asked for.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::store::Version;
use otctl_types::diskimage::Phase;
use otctl_types::queue::SnapshotEntry;
use policy::admission::{Eligibility, Holding, Waiting, admit};
use policy::{Policy, Ticket};

use crate::known::Known;
use crate::queue::Observed;

/// Listed images that are not among those that were seen: whether they are there must be asked.
pub fn missing(observed: &Observed) -> Vec<SnapshotEntry> {
    let status = observed.ledger.as_ref().and_then(|queue| queue.status.as_ref());
    let listed = status.iter().flat_map(|status| &status.snapshots);
    let images = by_uid(observed);
    listed.filter(|entry| !images.contains_key(entry.uid.as_str())).cloned().collect()
}

/// The list after this turn. Snapshots that are being taken without being listed, after the ledger was lost, are listed
/// first, whatever the limit.
pub fn snapshots(
    observed: &Observed,
    policy: &Policy,
    before: &[SnapshotEntry],
    now: Timestamp,
) -> Vec<SnapshotEntry> {
    let images = by_uid(observed);
    let is_kept = |entry: &&SnapshotEntry| match images.get(entry.uid.as_str()) {
        Some(image) => is_older(image, entry) || wants(image, now),
        None => !observed.facts.gone.contains(&entry.uid),
    };
    let mut listed: Vec<SnapshotEntry> = before.iter().filter(is_kept).cloned().collect();
    let is_listed =
        |listed: &[SnapshotEntry], uid: &str| listed.iter().any(|entry| entry.uid == uid);
    let waits = |image: &&Known| wants(image, now) && !is_listed(&listed, &image.uid);
    let waiting: Vec<&Known> =
        observed.members.iter().map(|image| &**image).filter(waits).collect();
    let (taken, waiting): (Vec<&Known>, Vec<&Known>) =
        waiting.into_iter().partition(|image| observed.facts.snapshotted.contains(&image.uid));
    listed.extend(taken.into_iter().map(|image| entry(image, now)));
    let holding: Vec<Holding> =
        listed.iter().map(|entry| Holding { id: entry.uid.clone(), host: None }).collect();
    let waiting: Vec<Waiting> = waiting.into_iter().map(in_line).collect();
    let admission = admit(&waiting, &holding, &policy.snapshot_limits());
    let admitted = admission.admitted.iter().filter_map(|uid| images.get(uid.as_str()));
    listed.extend(admitted.map(|image| entry(image, now)));
    listed
}

/// Its data is complete, and its snapshot is being taken or is to be. One that was refused waits outside.
fn wants(image: &Known, now: Timestamp) -> bool {
    let status = &image.record.status;
    let has_snapshot = status.current.as_ref().is_some_and(|current| current.snapshot.is_some());
    let is_refused = status.next_retry_at.as_ref().is_some_and(|at| at.0 > now);
    status.phase == Some(Phase::Snapshotting)
        && !has_snapshot
        && !is_refused
        && image.metadata.deletion_timestamp.is_none()
}

/// The image is seen as it was before it was listed: that proves nothing.
fn is_older(image: &Known, entry: &SnapshotEntry) -> bool {
    image.order.1 < Version::read(&entry.version)
}

/// In the order of tickets: who was first to get a slot is first here.
fn in_line(image: &Known) -> Waiting {
    Waiting {
        id: image.uid.clone(),
        ticket: image.ticket.unwrap_or(Ticket::first(0)),
        eligibility: Eligibility::Eligible,
        host: None,
    }
}

fn entry(image: &Known, now: Timestamp) -> SnapshotEntry {
    SnapshotEntry {
        namespace: image.namespace().unwrap_or_default(),
        name: image.name_any(),
        uid: image.uid.clone(),
        version: image.resource_version().unwrap_or_default(),
        since: Time(now),
    }
}

fn by_uid(observed: &Observed) -> HashMap<&str, &Known> {
    observed.members.iter().map(|image| (image.uid.as_str(), &**image)).collect()
}

/// When an image that was refused its snapshot wants to be listed again.
pub fn next(observed: &Observed, now: Timestamp) -> Option<Timestamp> {
    let refused = observed.members.iter().filter(|image| {
        image.record.status.phase == Some(Phase::Snapshotting)
            && image.metadata.deletion_timestamp.is_none()
    });
    let times = refused.filter_map(|image| image.record.status.next_retry_at.as_ref());
    times.map(|at| at.0).filter(|at| *at > now).min()
}

#[cfg(test)]
mod tests;
