//! Who is listed for a snapshot, and for how long.

use std::sync::Arc;

use jiff::SignedDuration;
use otctl_queue::Document;
use otctl_types::diskimage::{Current, VMDiskImageStatus};
use otctl_types::queue::AdmissionQueueStatus;
use otctl_types::{AdmissionQueue, VMDiskImage};

use super::*;
use crate::queue::Facts;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn set() -> Observed {
    let mut queue = AdmissionQueue::new("vmdiskimages", Default::default());
    queue.status = Some(AdmissionQueueStatus::default());
    Observed {
        ledger: Some(Arc::new(queue)),
        members: Vec::new(),
        facts: Facts {
            proven: [].into(),
            used: [].into(),
            around: Default::default(),
            snapshotted: [].into(),
            gone: [].into(),
            strays: Vec::new(),
        },
        document: Document::Absent,
        missing: [].into(),
        work: None,
    }
}

/// What a set is told to be.
trait Set: Sized {
    /// With an image whose data is complete, at version 5.
    fn complete(self, name: &str, ticket: u64) -> Self {
        self.completed(name, ticket, |_| {})
    }

    /// The same with another status.
    fn completed(
        self,
        name: &str,
        ticket: u64,
        change: impl FnOnce(&mut VMDiskImageStatus),
    ) -> Self;

    /// Its snapshot is being taken.
    fn taking(self, name: &str) -> Self;
}

impl Set for Observed {
    fn completed(
        mut self,
        name: &str,
        ticket: u64,
        change: impl FnOnce(&mut VMDiskImageStatus),
    ) -> Self {
        let mut image = VMDiskImage::new(name, Default::default());
        image.metadata.namespace = Some("lab".to_owned());
        image.metadata.uid = Some(name.to_owned());
        image.metadata.resource_version = Some("5".to_owned());
        let status = image.status.get_or_insert_default();
        status.ticket = Some(ticket.to_string());
        status.phase = Some(Phase::Snapshotting);
        change(status);
        self.members.push(Arc::new(Known::of(Arc::new(image))));
        self
    }

    fn taking(mut self, name: &str) -> Self {
        self.facts.snapshotted.insert(name.to_owned());
        self
    }
}

fn listed_at(name: &str, version: &str) -> SnapshotEntry {
    SnapshotEntry {
        namespace: "lab".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        version: version.to_owned(),
        since: Time(now()),
    }
}

fn check(observed: &Observed, before: &[SnapshotEntry], limit: u32, expected: &[&str]) {
    let policy = Policy { snapshot_concurrency: limit, ..Policy::default() };
    let after = snapshots(observed, &policy, before, now());
    assert_eq!(after.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn as_many_are_listed_as_may_be_in_the_order_of_tickets() {
    let set = set().complete("c", 3).complete("a", 1).complete("b", 2);
    check(&set, &[], 2, &["a", "b"]);
    check(&set, &[listed_at("c", "5")], 2, &["c", "a"]);
    check(&set, &[listed_at("c", "5"), listed_at("b", "5")], 1, &["c", "b"]);
}

#[test]
fn it_leaves_the_list_when_its_status_says_that_it_is_over() {
    let ready = |status: &mut VMDiskImageStatus| status.phase = Some(Phase::Succeeded);
    let next = |ready: fn(&mut VMDiskImageStatus)| set().completed("a", 1, ready).complete("b", 2);
    check(&next(ready), &[listed_at("a", "4")], 1, &["b"]);
    let given_up = |status: &mut VMDiskImageStatus| status.phase = Some(Phase::Failed);
    check(&next(given_up), &[listed_at("a", "4")], 1, &["b"]);
    // A volume that comes back from its snapshot takes none.
    let restoring = |status: &mut VMDiskImageStatus| {
        status.current = Some(Current { snapshot: Some("s".to_owned()), ..Current::default() });
    };
    check(&next(restoring), &[listed_at("a", "4")], 1, &["b"]);
}

#[test]
fn a_view_from_before_it_was_listed_takes_nothing_back() {
    let syncing = |status: &mut VMDiskImageStatus| status.phase = Some(Phase::Syncing);
    let set = set().completed("a", 1, syncing).complete("b", 2);
    check(&set, &[listed_at("a", "6")], 1, &["a"]);
    check(&set, &[listed_at("a", "5")], 1, &["b"]);
}

#[test]
fn an_image_that_is_not_seen_keeps_its_place_until_it_is_proven_gone() {
    let set = set().complete("b", 2);
    check(&set, &[listed_at("a", "5")], 1, &["a"]);
    let mut gone = set;
    gone.facts.gone.insert("a".to_owned());
    check(&gone, &[listed_at("a", "5")], 1, &["b"]);
}

#[test]
fn after_a_lost_ledger_what_is_being_taken_is_listed_first_whatever_the_limit() {
    let set = set().complete("a", 1).complete("b", 2).complete("c", 3).taking("b").taking("c");
    check(&set, &[], 1, &["b", "c"]);
}

#[test]
fn one_that_was_refused_holds_up_nobody_and_comes_back() {
    let refused_until = |seconds: i64| {
        set()
            .completed("a", 1, |status| {
                status.next_retry_at = Some(Time(now() + SignedDuration::from_secs(seconds)));
            })
            .complete("b", 2)
    };
    check(&refused_until(30), &[listed_at("a", "4")], 1, &["b"]);
    assert_eq!(next(&refused_until(30), now()), Some(now() + SignedDuration::from_secs(30)));
    check(&refused_until(0), &[], 1, &["a"]);
}
