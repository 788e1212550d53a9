//! The rules of every queue, over toys that want nothing but a slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::{Action, Plan};
use otctl_kit::reader::Reader;
use otctl_kit::store::Version;
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{AdmissionQueue, AdmissionQueueSpec};
use policy::admission::{Eligibility, Limits};
use policy::{Policy, Ticket};

use super::{decide, needs_work};
use crate::{Document, Line, Member, Observed, Place, Trace, Want, Work};

/// Something that waits.
#[derive(Clone, Debug)]
struct Toy {
    metadata: ObjectMeta,
    uid: String,
    ticket: Option<String>,
    last: i64,
    open: Option<i64>,
    is_suspended: bool,
    is_blocked: bool,
}

/// A toy that was created as the so-manyth.
fn toy(name: &str, created: i64) -> Toy {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        resource_version: Some(format!("{}", 100 + created)),
        creation_timestamp: Some(Time(Timestamp::from_second(created).unwrap())),
        ..ObjectMeta::default()
    };
    Toy {
        metadata,
        uid: format!("uid-{name}"),
        ticket: None,
        last: 0,
        open: None,
        is_suspended: false,
        is_blocked: false,
    }
}

impl Toy {
    fn ticket(self, ticket: &str) -> Self {
        Self { ticket: Some(ticket.to_owned()), ..self }
    }

    /// Used so many numbers.
    fn last(self, last: i64) -> Self {
        Self { last, ..self }
    }

    /// That number is open.
    fn open(self, number: i64) -> Self {
        Self { open: Some(number), last: number, ..self }
    }

    fn suspended(self) -> Self {
        Self { is_suspended: true, ..self }
    }

    fn blocked(self) -> Self {
        Self { is_blocked: true, ..self }
    }
}

impl Member for Toy {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn target(&self) -> Target {
        Target::new::<ConfigMap>(None, self.metadata.name.as_deref().unwrap())
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn ticket_text(&self) -> Option<&str> {
        self.ticket.as_deref()
    }

    fn ticket(&self) -> Option<Ticket> {
        self.ticket.as_ref()?.parse().ok()
    }

    fn last(&self) -> i64 {
        self.last
    }

    fn open(&self) -> Option<i64> {
        self.open
    }

    fn order(&self) -> (Option<&Time>, Version) {
        let version = self.metadata.resource_version.as_deref().unwrap();
        (self.metadata.creation_timestamp.as_ref(), Version::read(version))
    }

    fn is_suspended(&self) -> bool {
        self.is_suspended
    }
}

struct Toys;

impl Line for Toys {
    type Member = Toy;
    type Facts = ();
    const QUEUE: &'static str = "toys";
    const CONTROLLER: &'static str = "toy-controller";

    fn members(&self) -> Vec<Arc<Toy>> {
        Vec::new()
    }

    fn facts(&self, _: &[Arc<Toy>]) {}

    fn has_seen(&self, _: &Expectation) -> bool {
        true
    }

    async fn trace(&self, _: &ActiveEntry, _: &Reader) -> Result<Trace, ApiError> {
        Ok(Trace::Nothing)
    }

    async fn work(&self, _: &Reader) -> Result<Work, ApiError> {
        Ok(Work::default())
    }

    fn limits(policy: &Policy) -> Limits {
        policy.workspace_limits()
    }

    fn want(_: &Observed<Self>, toy: &Toy, _: &Policy, now: Timestamp) -> Want {
        if toy.is_suspended {
            return if toy.ticket.is_some() { Want::GiveUpPlace } else { Want::Nothing };
        }
        if toy.open.is_some() {
            return Want::Nothing;
        }
        let place = match toy.ticket() {
            Some(ticket) => Place::Held(ticket),
            None if toy.last > 0 => Place::Retry(now),
            None => Place::First,
        };
        let eligibility = if toy.is_blocked {
            Eligibility::Blocked { why: "Toy".to_owned() }
        } else {
            Eligibility::Eligible
        };
        Want::Slot { place, eligibility }
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

fn entry(name: &str, attempt: i64, ticket: &str) -> ActiveEntry {
    ActiveEntry {
        namespace: String::new(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        attempt,
        ticket: ticket.to_owned(),
        host: None,
        since: Time(now()),
    }
}

/// A queue with so many slots, these entries and these members, of which nothing runs that has no entry.
fn queue(slots: u32, active: &[ActiveEntry], members: &[Toy]) -> Observed<Toys> {
    let policy = Policy { workspace_concurrency: slots, ..Policy::default() };
    let mut queue = AdmissionQueue::new("toys", AdmissionQueueSpec::default());
    queue.status = Some(AdmissionQueueStatus {
        active: active.to_vec(),
        policy: policy.to_entries(),
        ..AdmissionQueueStatus::default()
    });
    let entries = [("workspaceConcurrency".to_owned(), slots.to_string())];
    Observed {
        ledger: Some(Arc::new(queue)),
        members: members.iter().cloned().map(Arc::new).collect(),
        facts: (),
        document: Document::Present {
            entries: entries.into(),
            reference: Box::new(ObjectReference::default()),
        },
        missing: BTreeMap::new(),
        work: Some(Work::default()),
    }
}

fn plan(observed: &Observed<Toys>) -> Plan<AdmissionQueueStatus> {
    decide(observed, now())
}

/// Who holds slots after the plan, and the tickets that it gives.
fn told(observed: &Observed<Toys>) -> String {
    let plan = plan(observed);
    let mut told = Vec::new();
    for write in &plan.writes {
        match &write.action {
            Action::Swap(status) => {
                let active = status["active"].as_array().cloned().unwrap_or_default();
                let names =
                    active.iter().map(|it| format!("{}#{}", text(&it["name"]), it["attempt"]));
                told.push(format!("active {}", names.collect::<Vec<_>>().join(" ")));
            }
            Action::Mark { target, fields, .. } => {
                told.push(format!("{} {}", target.name, text(&fields["ticket"])));
            }
            other => told.push(format!("{other:?}")),
        }
    }
    told.join(", ")
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or("-")
}

#[test]
fn tickets_are_given_in_the_order_of_creation_whoever_is_seen_first() {
    let blocked = |name, created| toy(name, created).blocked();
    let members = [blocked("c", 3), blocked("a", 1), blocked("b", 2)];
    assert_eq!(told(&queue(1, &[], &members)), "active , a 1, b 2, c 3");
    // Those of one second by version, then by UID.
    let mut members = [blocked("z", 1), blocked("y", 1)];
    members[0].metadata.resource_version = Some("99".to_owned());
    assert_eq!(told(&queue(1, &[], &members)), "active , z 1, y 2");
}

#[test]
fn the_next_ticket_follows_the_highest_that_anybody_has() {
    let members = [toy("a", 1).ticket("7").blocked(), toy("b", 2).blocked()];
    assert_eq!(told(&queue(1, &[entry("x", 1, "9")], &members)), "active x#1, b 10");
    let retry = [toy("a", 1).ticket("4+1970-01-01T00:10:00Z").blocked(), toy("b", 2).blocked()];
    assert_eq!(told(&queue(1, &[], &retry)), "active , b 5");
}

#[test]
fn whom_there_is_room_for_is_admitted_with_its_next_number() {
    let members =
        [toy("a", 1).ticket("1").last(3), toy("b", 2).ticket("2"), toy("c", 3).ticket("3")];
    assert_eq!(told(&queue(2, &[], &members)), "active a#4 b#1");
    assert_eq!(told(&queue(0, &[], &members)), "active ");
    let plan = plan(&queue(2, &[], &members));
    assert_eq!((plan.verdict, plan.writes.len()), ("Queueing", 1));
}

#[test]
fn nobody_is_admitted_before_what_runs_was_listed() {
    let mut observed = queue(2, &[], &[toy("a", 1).ticket("1")]);
    observed.work = None;
    assert!(needs_work(&observed, now()));
    assert_eq!(told(&observed), "active ");
    let full = queue(1, &[entry("x", 1, "1")], &[toy("x", 0).open(1), toy("a", 1).ticket("1")]);
    assert!(!needs_work(&full, now()), "every slot is taken");
}

#[test]
fn one_that_is_blocked_holds_nobody_up() {
    let members = [toy("a", 1).ticket("1").blocked(), toy("b", 2).ticket("2")];
    assert_eq!(told(&queue(1, &[], &members)), "active b#1");
}

#[test]
fn without_tickets_only_an_unbroken_head_is_admitted() {
    let members = [toy("a", 1), toy("b", 2), toy("c", 3)];
    assert_eq!(told(&queue(2, &[], &members)), "active a#1 b#1");
    let members = [toy("a", 1), toy("b", 2).blocked(), toy("c", 3)];
    assert_eq!(told(&queue(3, &[], &members)), "active a#1");
}

#[test]
fn no_ticket_is_given_while_one_stands_in_an_entry_only() {
    let members = [toy("a", 1), toy("b", 2)];
    assert_eq!(told(&queue(1, &[entry("a", 1, "1")], &members)), "active a#1");
    // But for so long, since whoever is to write it may not be able to.
    let mut late = entry("a", 1, "1");
    late.since = Time(Timestamp::from_second(900).unwrap());
    assert_eq!(told(&queue(1, &[late], &members)), "active a#1, a 1");
}

#[test]
fn a_slot_is_given_back_when_its_number_is_used_up() {
    let held = [entry("a", 2, "1")];
    let after = |toy: Toy| told(&queue(1, &held, &[toy.ticket("1").blocked()]));
    assert_eq!(after(toy("a", 1).last(1)), "active a#2", "not begun");
    assert_eq!(after(toy("a", 1).open(2)), "active a#2", "running");
    assert_eq!(after(toy("a", 1).last(2)), "active ", "over");
    assert_eq!(after(toy("a", 1).open(3)), "active ", "a later one runs");
}

#[test]
fn a_slot_of_one_that_is_not_seen_is_kept_until_it_is_proven_gone() {
    let held = [entry("gone", 1, "1")];
    let with = |trace: Trace| {
        let mut observed = queue(1, &held, &[toy("a", 1).ticket("2")]);
        observed.missing.insert("uid-gone".to_owned(), trace);
        observed
    };
    for trace in [Trace::Alive, Trace::Runs] {
        assert_eq!(told(&with(trace)), "active gone#1");
    }
    assert_eq!(told(&with(Trace::Nothing)), "active a#1");
    let target = Target::new::<ConfigMap>(None, "left");
    let left = with(Trace::Left { target, uid: "uid-left".to_owned() });
    assert_eq!(told(&left), "active gone#1");
    let plan = plan(&left);
    assert!(matches!(&plan.clear[0].action, Action::Delete { uid, .. } if uid == "uid-left"));
}

#[test]
fn what_runs_without_an_entry_is_entered_before_anybody_is_admitted() {
    let mut observed =
        queue(2, &[], &[toy("a", 1).open(1), toy("b", 2).ticket("2"), toy("c", 3).ticket("3")]);
    observed.work = None;
    assert!(needs_work(&observed, now()), "an entry is missing");
    let mut work = Work::default();
    work.started([entry("a", 1, "1")]);
    observed.work = Some(work);
    assert_eq!(told(&observed), "active a#1 b#1");
    let mut unstarted = queue(1, &[], &[toy("b", 2).ticket("2")]);
    let mut work = Work::default();
    work.unstarted([entry("x", 1, "1")]);
    unstarted.work = Some(work);
    assert_eq!(told(&unstarted), "active ", "it takes the slot until it is deleted");
}

#[test]
fn one_that_only_its_status_calls_open_takes_a_slot() {
    let observed = queue(1, &[], &[toy("a", 1).open(1), toy("b", 2).ticket("2")]);
    assert_eq!(told(&observed), "active ");
}

#[test]
fn a_retry_goes_behind_all_first_tickets_and_before_later_ones() {
    let members = [toy("a", 1).last(1).blocked(), toy("b", 2).ticket("5").blocked()];
    assert_eq!(told(&queue(1, &[], &members)), "active , a 5+1970-01-01T00:16:40Z");
    let members = [toy("a", 1).last(1), toy("b", 2).ticket("5"), toy("c", 3)];
    assert_eq!(told(&queue(1, &[], &members)), "active b#1, a 5+1970-01-01T00:16:40Z, c 6");
}

#[test]
fn one_that_is_suspended_gives_its_place_up() {
    let members = [toy("a", 1).ticket("1").suspended(), toy("b", 2).ticket("2").blocked()];
    assert_eq!(told(&queue(1, &[], &members)), "active , a -");
}

#[test]
fn a_burst_is_numbered_in_parts() {
    let members: Vec<Toy> = (0..250).map(|n| toy(&format!("t{n:03}"), n).blocked()).collect();
    let plan = plan(&queue(1, &[], &members));
    assert_eq!(plan.writes.len(), 1 + super::TICKETS_A_PASS);
}

#[test]
fn a_ledger_that_is_not_there_is_made_by_its_name_alone() {
    let mut observed = queue(1, &[], &[toy("a", 1)]);
    observed.ledger = None;
    let plan = plan(&observed);
    assert!(matches!(&plan.writes[..], [write] if matches!(write.action, Action::Ensure(_))));
}

#[test]
fn a_queue_at_rest_writes_nothing() {
    let observed = queue(1, &[], &[toy("a", 1).open(1)]);
    let first = plan(&observed);
    let Action::Swap(status) = &first.writes[0].action else { panic!("{:?}", first.writes) };
    let mut observed = queue(1, &[], &[toy("a", 1).open(1)]);
    let mut ledger = AdmissionQueue::new("toys", AdmissionQueueSpec::default());
    ledger.status = Some(serde_json::from_value(status.clone()).unwrap());
    observed.ledger = Some(Arc::new(ledger));
    assert!(plan(&observed).writes.is_empty());
}
