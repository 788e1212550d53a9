//! One look at the whole set: who gets a ticket, who gets a slot, who gives one back.

mod burst;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_kit::ledger::Unfinished;
use otctl_kit::plan::{Action, Next, Plan};
use otctl_types::diskimage::{Attempt, OpenAttempt, VMDiskImageSpec};
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage};

use crate::known::Known;
use otctl_queue::{Document, Trace, Work, decide, needs_work};

use super::{Facts, Observed};
use crate::surroundings::Surroundings;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

/// A set of images under `concurrency`, with unfinished work already listed.
fn set(concurrency: u32) -> Observed {
    let mut queue = AdmissionQueue::new("vmdiskimages", AdmissionQueueSpec::default());
    queue.metadata.uid = Some("queue".to_owned());
    queue.metadata.resource_version = Some("1".to_owned());
    queue.status = Some(AdmissionQueueStatus::default());
    let entries = [("concurrency".to_owned(), concurrency.to_string())].into();
    Observed {
        ledger: Some(Arc::new(queue)),
        members: Vec::new(),
        facts: Facts {
            proven: [].into(),
            used: [].into(),
            around: Surroundings {
                storage: [("fast".to_owned(), "csi".to_owned())].into(),
                default_storage: Some("fast".to_owned()),
                snapshot: None,
                retaining: [].into(),
            },
            snapshotted: [].into(),
            gone: [].into(),
            strays: Vec::new(),
        },
        document: Document::Present { entries, reference: Box::default() },
        missing: [].into(),
        work: Some(Work::default()),
    }
}

/// What a set is told to be.
trait Set: Sized {
    /// With this image.
    fn image(self, name: &str, ticket: Option<&str>) -> Self;

    /// With this image, changed so. Images are created in the order in which they are named.
    fn image_with(
        self,
        name: &str,
        ticket: Option<&str>,
        change: impl FnOnce(&mut VMDiskImage),
    ) -> Self;

    /// With a slot for it.
    fn holds(self, name: &str, attempt: i64, ticket: &str) -> Self;
}

impl Set for Observed {
    fn image(self, name: &str, ticket: Option<&str>) -> Self {
        self.image_with(name, ticket, |_| {})
    }

    fn image_with(
        mut self,
        name: &str,
        ticket: Option<&str>,
        change: impl FnOnce(&mut VMDiskImage),
    ) -> Self {
        let spec = VMDiskImageSpec { url: format!("http://host/{name}"), ..Default::default() };
        let mut image = VMDiskImage::new(name, spec);
        let age = i64::try_from(self.members.len()).unwrap();
        image.metadata.namespace = Some("lab".to_owned());
        image.metadata.uid = Some(name.to_owned());
        image.metadata.resource_version = Some("5".to_owned());
        image.metadata.creation_timestamp = Some(Time(now() + SignedDuration::from_secs(age)));
        image.status.get_or_insert_default().ticket = ticket.map(str::to_owned);
        change(&mut image);
        self.members.push(Arc::new(Known::of(Arc::new(image))));
        self
    }

    fn holds(mut self, name: &str, attempt: i64, ticket: &str) -> Self {
        let queue = Arc::make_mut(self.ledger.as_mut().unwrap());
        queue.status.as_mut().unwrap().active.push(entry(name, attempt, ticket));
        self
    }
}

/// Its attempt of this number is on record as running.
fn run(image: &mut VMDiskImage, number: i64) {
    let status = image.status.get_or_insert_default();
    status.last_attempt = Some(number);
    status.open_attempt = Some(OpenAttempt {
        number,
        job_uid: "j".to_owned(),
        started_at: None,
        ticket: None,
        budget: None,
        revision: None,
        never_ran: false,
        cut: None,
    });
}

fn entry(name: &str, attempt: i64, ticket: &str) -> ActiveEntry {
    ActiveEntry {
        namespace: "lab".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        attempt,
        ticket: ticket.to_owned(),
        host: None,
        since: Time(now()),
    }
}

/// `a#1@3`: the slot of a's first attempt, won with ticket 3.
fn slots(plan: &Plan<AdmissionQueueStatus>) -> Vec<String> {
    let mut swaps = plan.writes.iter().filter_map(|write| match &write.action {
        Action::Swap(status) => serde_json::from_value::<AdmissionQueueStatus>(status.clone()).ok(),
        _ => None,
    });
    let active = swaps.next_back().map(|status| status.active).unwrap_or_default();
    active.iter().map(|e| format!("{}#{}@{}", e.name, e.attempt, e.ticket)).collect()
}

/// `b=2`: b is given ticket 2.
fn tickets(plan: &Plan<AdmissionQueueStatus>) -> Vec<String> {
    let marks = plan.writes.iter().filter_map(|write| match &write.action {
        Action::Mark { target, fields, .. } => {
            Some(format!("{}={}", target.name, fields["ticket"].as_str().unwrap_or("none")))
        }
        _ => None,
    });
    marks.collect()
}

fn check(observed: &Observed, expected_slots: &[&str], expected_tickets: &[&str]) {
    let plan = decide(observed, now());
    assert_eq!(slots(&plan), expected_slots, "slots");
    assert_eq!(tickets(&plan), expected_tickets, "tickets");
}

#[test]
fn a_burst_is_admitted_in_the_order_of_creation_and_the_rest_waits_for_its_tickets() {
    let burst = set(2).image("a", None).image("b", None).image("c", None);
    check(&burst, &["a#1@1", "b#1@2"], &[]);
}

#[test]
fn tickets_follow_when_those_of_the_admitted_stand_in_status() {
    let set = || set(1).holds("a", 1, "1").image("b", None).image("c", None);
    check(&set().image("a", None), &["a#1@1"], &[]);
    check(&set().image("a", Some("1")), &["a#1@1"], &["b=2", "c=3"]);
}

#[test]
fn a_number_that_bought_an_attempt_is_not_given_again_though_it_stands_in_no_status() {
    let given_up = |image: &mut VMDiskImage| {
        let status = image.status.get_or_insert_default();
        status.last_attempt = Some(1);
        let attempt = Attempt { number: 1, ticket: Some("3".to_owned()), ..Attempt::default() };
        status.attempts.push(attempt);
    };
    let set = set(2).image("a", None).image_with("b", None, given_up);
    check(&set, &["a#1@4", "b#2@5"], &[]);
}

#[test]
fn an_image_that_cannot_start_has_its_ticket_before_a_later_one_is_admitted() {
    let missing = |image: &mut VMDiskImage| image.spec.storage_class = Some("gone".to_owned());
    let set = set(1).image_with("head", None, missing).image("b", None);
    check(&set, &[], &["head=1", "b=2"]);
}

#[test]
fn a_head_that_cannot_start_holds_nobody_up() {
    let missing = |image: &mut VMDiskImage| image.spec.storage_class = Some("gone".to_owned());
    check(&set(1).image_with("head", Some("1"), missing).image("b", Some("2")), &["b#1@2"], &[]);
}

#[test]
fn nobody_is_admitted_before_unfinished_work_was_listed() {
    let unlisted = Observed { work: None, ..set(1).image("a", Some("1")) };
    assert!(needs_work(&unlisted, now()));
    check(&unlisted, &[], &[]);
}

#[test]
fn a_slot_is_given_back_when_its_number_is_used_up_and_given_on_in_the_same_write() {
    let closed = |image: &mut VMDiskImage| {
        let status = image.status.get_or_insert_default();
        status.last_attempt = Some(1);
        status.current = Some(otctl_types::diskimage::Current {
            revision: crate::names::revision(&image.spec),
            ..Default::default()
        });
    };
    let set = set(1).holds("a", 1, "1").image_with("a", Some("1"), closed).image("b", Some("2"));
    check(&set, &["b#1@2"], &[]);
}

#[test]
fn a_slot_of_an_image_that_is_gone_is_kept_until_nothing_of_it_is_left() {
    let held = || set(1).holds("a", 1, "1").image("b", Some("2"));
    let with = |trace| Observed { missing: [("a".to_owned(), trace)].into(), ..held() };
    for kept in [Trace::Alive, Trace::Runs] {
        check(&with(kept), &["a#1@1"], &[]);
    }
    check(&with(Trace::Nothing), &["b#1@2"], &[]);
}

#[test]
fn a_lost_ledger_is_made_whole_before_anybody_is_admitted() {
    let work = Work {
        unfinished: vec![Unfinished { entry: entry("a", 3, "0"), is_started: true }],
        unaccounted: [].into(),
    };
    let set = set(1).image_with("a", Some("1"), |a| run(a, 3)).image("b", Some("2"));
    assert!(needs_work(&Observed { work: None, ..set.clone() }, now()), "it is seen at once");
    check(&Observed { work: Some(work), ..set }, &["a#3@0"], &[]);
}

#[test]
fn work_that_nobody_accounts_for_takes_a_slot() {
    let work = Work { unfinished: Vec::new(), unaccounted: ["gone".to_owned()].into() };
    let set = Observed { work: Some(work), ..set(1).image("a", Some("1")) };
    check(&set, &[], &[]);
}

#[test]
fn an_attempt_that_no_list_knows_takes_its_slot_until_it_is_closed() {
    let set = set(1).image_with("a", Some("1"), |a| run(a, 3)).image("b", Some("2"));
    check(&set, &[], &[]);
}

#[test]
fn a_slot_that_is_taken_by_what_has_no_watch_is_looked_at_again() {
    let soon = |work| {
        let set = Observed { work: Some(work), ..set(1).image("b", Some("2")) };
        assert_eq!(slots(&decide(&set, now())), [""; 0], "it is taken");
        matches!(decide(&set, now()).next, Next::At(at) if at <= now() + SignedDuration::from_secs(5))
    };
    let suspended = Unfinished { entry: entry("a", 1, "0"), is_started: false };
    assert!(soon(Work { unfinished: vec![suspended], unaccounted: [].into() }));
    assert!(soon(Work { unfinished: Vec::new(), unaccounted: ["gone".to_owned()].into() }));
}

#[test]
fn a_lowered_limit_admits_nobody_and_ends_nobody() {
    let set = set(1)
        .holds("a", 1, "1")
        .holds("b", 1, "2")
        .image_with("a", Some("1"), |a| run(a, 1))
        .image_with("b", Some("2"), |b| run(b, 1))
        .image("c", Some("3"));
    check(&set, &["a#1@1", "b#1@2"], &[]);
}

#[test]
fn numbers_that_a_lost_status_has_forgotten_are_not_used_again() {
    let mut set = set(1).image("a", Some("1"));
    set.facts.used.insert("a".to_owned(), 4);
    check(&set, &["a#5@1"], &[]);
}

#[test]
fn a_suspended_image_gives_up_its_place() {
    let suspended = |image: &mut VMDiskImage| image.spec.suspend = true;
    check(&set(1).image_with("a", Some("1"), suspended), &[], &["a=none"]);
}

#[test]
fn a_retry_queues_behind_every_ticket_given_until_then() {
    let failed = |image: &mut VMDiskImage| {
        let record = crate::record::Record::of(image);
        let status = image.status.get_or_insert_default();
        status.last_attempt = Some(1);
        status.revision = Some(record.revision.clone());
        status.next_retry_at = Some(Time(now() - SignedDuration::from_secs(1)));
        status.attempts = vec![otctl_types::diskimage::Attempt {
            number: 1,
            ticket: Some("1".to_owned()),
            reason: Some("ServerError".to_owned()),
            revision: Some(record.revision),
            budget: Some(record.budget_key),
            ..Default::default()
        }];
    };
    let set = set(1).image_with("a", Some("1"), failed).image("b", Some("2"));
    check(&set, &["b#1@2"], &["a=2+2026-05-01T12:00:00Z"]);
}

#[test]
fn the_counts_are_told_with_the_slots() {
    let plan = decide(&set(1).image("a", Some("1")).image("b", Some("2")), now());
    let Action::Swap(status) = &plan.writes[0].action else { panic!() };
    assert_eq!(status["activeCount"], 1);
    assert_eq!(status["waitingCount"], 1);
    assert_eq!(status["oldestWaitingTicket"], "2");
    assert_eq!(status["limit"], 1);
}

#[test]
fn a_ticket_that_its_image_does_not_write_is_written_for_it_when_others_wait() {
    let alone = set(2).image("a", None).holds("a", 1, "1");
    let awaited = set(2).image("a", None).holds("a", 1, "1").image("b", None);
    let later = now() + SignedDuration::from_secs(5);
    assert_eq!(tickets(&decide(&alone, later)), [] as [&str; 0], "nobody waits");
    let early = decide(&awaited, now());
    assert_eq!(tickets(&early), [] as [&str; 0], "its own write may come");
    assert_eq!(early.next, Next::At(later));
    let plan = decide(&awaited, later);
    assert_eq!(tickets(&plan), ["a=1"], "and b gets none before it stands");
    assert!(slots(&plan).iter().all(|slot| slot.starts_with("a#1@1")));
}

#[test]
fn a_misspelt_key_of_the_policy_is_warned_of_once() {
    let mut observed = set(1);
    let Document::Present { entries, .. } = &mut observed.document else { unreachable!() };
    entries.insert("concurency".to_owned(), "9".to_owned());
    let told = decide(&observed, now());
    let [notice] = &told.notices[..] else { panic!("{:?}", told.notices) };
    assert!(notice.warning && notice.reason == "UnknownKeys", "{notice:?}");
    assert!(notice.message.contains("concurency: no such key"), "{notice:?}");
    let Action::Swap(status) = &told.writes[0].action else { panic!("{:?}", told.writes) };
    let queue = Arc::make_mut(observed.ledger.as_mut().unwrap());
    queue.status = serde_json::from_value(status.clone()).unwrap();
    assert!(decide(&observed, now()).notices.is_empty());
}
