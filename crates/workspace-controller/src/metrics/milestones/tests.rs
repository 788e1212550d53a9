//! Versions of a Workspace as they are seen, and what is met on the way.

use serde_json::{Value, json};

use super::*;

/// A Workspace created at noon, as its status is some minutes later.
fn version(status: Value) -> Arc<Workspace> {
    let metadata = json!({"name": "lab", "uid": "u", "creationTimestamp": at(0)});
    let mut workspace = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": metadata, "spec": {},
    });
    workspace["status"] = status;
    Arc::new(serde_json::from_value(workspace).unwrap())
}

/// So many minutes after noon.
fn at(minute: u32) -> String {
    format!("2026-05-01T12:{minute:02}:00Z")
}

/// A status in verbs.
#[derive(Clone)]
struct Status(Value);

/// What is written at minute 1: it waits in line with ticket 1.
fn queued() -> Status {
    Status(
        json!({"phase": "Provisioning", "ticket": "1", "queuedAt": at(1), "observedGeneration": 1}),
    )
    .with("Accepted", "True", "Accepted", 1)
    .with("Admitted", "False", "Queued", 1)
    .with("ImagesReady", "True", "NothingAsked", 1)
    .with("Ready", "False", "Queued", 1)
}

impl Status {
    fn with(mut self, kind: &str, status: &str, reason: &str, minute: u32) -> Self {
        let conditions = self.0["conditions"].as_array_mut().map(std::mem::take);
        let mut conditions = conditions.unwrap_or_default();
        conditions.retain(|it| it["type"] != kind);
        conditions.push(json!({
            "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at(minute),
        }));
        self.0["conditions"] = json!(conditions);
        self
    }

    fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0[field] = value.into();
        self
    }

    fn unset(mut self, field: &str) -> Self {
        self.0.as_object_mut().unwrap().remove(field);
        self
    }

    /// The turn of that number began.
    fn opened(self, number: i64, minute: u32) -> Self {
        self.set("phase", "Provisioning")
            .set("openTurn", json!({"number": number, "since": at(minute)}))
            .set("lastTurn", number)
            .with("Admitted", "True", "Admitted", minute)
    }

    /// The turn was given back for want of an image.
    fn gave_back(self, minute: u32) -> Self {
        self.unset("openTurn").with("Admitted", "False", "AwaitingImages", minute).with(
            "ImagesReady",
            "False",
            "AwaitingImages",
            minute,
        )
    }

    /// The turn is over, with so many parts ready.
    fn settled(self, parts: &str) -> Self {
        let settled = self.unset("openTurn").unset("ticket").unset("queuedAt");
        settled.set("readyParts", parts).set("startedParts", json!(["api"]))
    }

    fn ready(self, minute: u32) -> Self {
        self.set("phase", "Ready").with("Ready", "True", "AllReady", minute)
    }

    /// It is not ready any more.
    fn broke(self, minute: u32) -> Self {
        self.set("phase", "Provisioning").with("Ready", "False", "Degraded", minute)
    }

    fn suspended(self, minute: u32) -> Self {
        let stopped = self.unset("openTurn").unset("startedParts").set("phase", "Suspended");
        let admitted = stopped.with("Admitted", "False", "Suspended", minute);
        admitted.with("Ready", "False", "Suspended", minute)
    }

    /// Another ticket was given.
    fn ticketed(self, ticket: &str, minute: u32) -> Self {
        self.set("ticket", ticket).set("queuedAt", at(minute))
    }
}

/// Ready at minute 5 in its first turn, which began at minute 3.
fn done() -> Status {
    queued().opened(1, 3).settled("1/1").ready(5)
}

fn line(milestone: &Milestone) -> String {
    let minutes = |took: &Duration| format!("{} min", took.as_secs() / 60);
    match milestone {
        Milestone::Admitted { waited } => format!("admitted after {}", minutes(waited)),
        Milestone::Ended(end) => format!("ended {}", end.label()),
        Milestone::Ready { wish, took } => {
            format!("ready {} after {}", minutes(took), wish.label())
        }
        Milestone::Recovered { took } => format!("recovered in {}", minutes(took)),
    }
}

/// What is met between these versions, the first of which is news of nothing.
fn check(versions: &[Status], expected: &[&str]) {
    let versions: Vec<_> = versions.iter().map(|status| version(status.0.clone())).collect();
    let mut seen = Seen::first(versions[0].clone());
    let met = versions[1..].iter().flat_map(|version| seen.next(version.clone()));
    assert_eq!(met.map(|met| line(&met)).collect::<Vec<_>>(), expected);
}

fn nothing() -> Status {
    Status(Value::Null)
}

/// A life that waits two minutes for its slot and starts for two.
fn life() -> [Status; 4] {
    [nothing(), queued(), queued().opened(1, 3), done()]
}

const MET: [&str; 3] = ["admitted after 2 min", "ended ready", "ready 5 min after creation"];

#[test]
fn a_life_is_met_step_by_step() {
    check(&life(), &MET);
}

#[test]
fn what_is_seen_again_is_not_met_again() {
    let twice: Vec<_> = life().iter().flat_map(|it| [it.clone(), it.clone()]).collect();
    check(&twice, &MET);
    let restored = [done(), nothing(), done(), queued().opened(1, 3), done()];
    check(&restored, &[]);
}

#[test]
fn whoever_comes_later_meets_what_is_left() {
    check(&life()[1..], &MET);
    check(&life()[2..], &MET[1..]);
    check(&life()[3..], &[]);
}

#[test]
fn versions_that_were_not_seen_tell_of_no_turn() {
    check(&[queued(), done()], &MET[2..]);
    check(&[queued().opened(1, 3), queued().opened(2, 5)], &["admitted after 4 min"]);
}

#[test]
fn ticket_and_slot_at_once_are_a_wait_since_creation() {
    let at_once = queued().unset("queuedAt").opened(1, 3);
    check(&[nothing(), at_once], &["admitted after 3 min"]);
}

#[test]
fn time_without_images_is_no_wait_for_a_slot() {
    let blocked = queued().with("ImagesReady", "False", "AwaitingImages", 1);
    let usable = blocked.clone().with("ImagesReady", "True", "AllReady", 20);
    check(&[blocked.clone(), usable.clone().opened(1, 20)], &["admitted after 0 min"]);
    check(&[blocked, usable.clone(), usable.opened(1, 25)], &["admitted after 5 min"]);
}

#[test]
fn a_turn_that_was_given_back_waits_again_from_then() {
    let back = queued().opened(1, 3).gave_back(4);
    let admitted = "admitted after 2 min";
    check(&[queued(), queued().opened(1, 3), back.clone()], &[admitted, "ended given_back"]);
    let usable = back.clone().with("ImagesReady", "True", "AllReady", 30);
    check(&[back.clone(), usable.clone(), usable.opened(2, 33)], &["admitted after 3 min"]);
    check(&[back.clone(), back.opened(2, 9)], &["admitted after 5 min"]);
}

#[test]
fn a_start_that_takes_too_long_is_ready_in_the_end() {
    let late = queued().opened(1, 3).settled("0/1").with("Ready", "False", "Degraded", 1);
    let healed = late.clone().ready(40);
    let expected = ["ended timed_out", "ready 40 min after creation"];
    check(&[queued().opened(1, 3), late, healed], &expected);
}

/// What had its start before is healed without a slot, and says nothing of this one.
#[test]
fn a_turn_ends_well_beside_a_part_that_is_broken() {
    let part = |name: &str, status: &str| json!({"name": name, "status": status});
    let parts = |web: &str| json!({"virtualMachines": [], "containers": [part("api", "Failed"), part("web", web)]});
    let ended = |web: &str, expected: &str| {
        let open = done().broke(6).opened(2, 7).set("resourceStatus", parts("Progressing"));
        let over = open.clone().settled("1/2").set("startedParts", json!(["api", "web"]));
        check(&[open, over.set("resourceStatus", parts(web))], &[expected]);
    };
    ended("Running", "ended ready");
    ended("Progressing", "ended timed_out");
}

#[test]
fn a_turn_ends_when_the_api_server_calls_something_invalid() {
    let failed = queued().opened(1, 3).settled("0/1").with("Stalled", "True", "Rejected", 4);
    check(&[queued().opened(1, 3), failed], &["ended refused"]);
}

#[test]
fn a_person_who_suspends_or_deletes_it_stops_its_turn() {
    let open = queued().opened(1, 3);
    check(&[open.clone(), open.clone().suspended(4)], &["ended stopped"]);
    let going = open.clone().unset("openTurn").with("Ready", "False", "Deleting", 1);
    check(&[open.clone(), going], &["ended stopped"]);
    let gone = |status: Status| Seen::first(version(status.0)).end();
    assert_eq!(gone(open), [Milestone::Ended(End::Stopped)]);
    assert_eq!(gone(done()), []);
}

#[test]
fn a_wiped_status_tells_of_no_end() {
    let open = queued().opened(1, 3);
    check(&[open.clone(), nothing()], &[]);
    let again = [open.clone(), nothing(), open.clone(), done()];
    check(&again, &["ended ready", "ready 5 min after creation"]);
}

#[test]
fn one_that_breaks_recovers_once() {
    let broken = done().broke(20);
    let versions =
        [done(), broken.clone(), broken.clone(), broken.clone().ready(23), done().ready(23)];
    check(&versions, &["recovered in 3 min"]);
    check(&[broken.clone(), broken.ready(24)], &["recovered in 4 min"]);
    check(&[done(), done().ready(23)], &[]);
}

#[test]
fn an_edit_is_met_as_one() {
    let edited = done().set("observedGeneration", 2).broke(20);
    check(&[done(), edited.clone(), edited.ready(26)], &["ready 6 min after edit"]);
    let unnoticed = done().set("observedGeneration", 2);
    let broken = unnoticed.clone().broke(30);
    check(&[done(), unnoticed, broken.clone(), broken.ready(31)], &["recovered in 1 min"]);
}

#[test]
fn an_entry_that_is_added_waits_from_its_own_ticket() {
    let edited = done().set("observedGeneration", 2).broke(20);
    let queued = edited.ticketed("2", 20).with("Admitted", "False", "Queued", 20);
    let open = queued.clone().opened(2, 24);
    let ready = open.clone().settled("2/2").ready(27);
    let expected = ["admitted after 4 min", "ended ready", "ready 7 min after edit"];
    check(&[done(), queued.clone(), open.clone(), ready.clone()], &expected);
    check(&[queued, open, ready], &expected);
}

#[test]
fn a_resumption_counts_from_its_ticket_or_its_slot() {
    let suspended = done().suspended(10);
    let ticketed = suspended.clone().ticketed("2", 40);
    let open = ticketed.clone().opened(2, 43);
    let ready = open.clone().settled("1/1").ready(45);
    let expected = ["admitted after 3 min", "ended ready", "ready 5 min after resumption"];
    check(&[done(), suspended.clone(), ticketed.clone(), open.clone(), ready.clone()], &expected);
    check(&[ticketed, open, ready], &expected);
    let at_once = suspended.clone().opened(2, 43);
    let ready = at_once.clone().settled("1/1").ready(45);
    let expected = ["admitted after 0 min", "ended ready", "ready 2 min after resumption"];
    check(&[suspended, at_once, ready], &expected);
}

#[test]
fn one_that_is_suspended_on_the_way_begins_anew() {
    let suspended = queued().opened(1, 3).suspended(4).unset("ticket").unset("queuedAt");
    let open = suspended.clone().opened(2, 30);
    let ready = open.clone().settled("1/1").ready(31);
    let expected =
        ["ended stopped", "admitted after 0 min", "ended ready", "ready 1 min after resumption"];
    check(&[queued().opened(1, 3), suspended, open, ready], &expected);
}

#[test]
fn time_that_a_person_took_is_not_told_as_ours() {
    let failed =
        |status: Status| status.set("phase", "Failed").with("Ready", "False", "NameConflict", 10);
    let mended =
        |status: Status| status.set("phase", "Provisioning").with("Ready", "False", "Queued", 10);
    check(&[queued(), failed(queued()), mended(queued()).ready(50)], &[]);
    check(&[done(), failed(done()), mended(done()), done().ready(50)], &[]);
    check(&[failed(done()), done().ready(50)], &[]);
    let open = mended(queued()).opened(1, 40).unset("queuedAt");
    check(&[failed(queued()), open], &["admitted after 0 min"]);
}

#[test]
fn what_was_resumed_or_edited_nobody_knows_when_is_not_told() {
    let late = done().suspended(10).opened(2, 30).settled("0/1").set("phase", "Provisioning");
    check(&[late.clone(), late.ready(50)], &[]);
}

#[test]
fn clocks_that_disagree_make_no_negative_time() {
    let ahead = queued().opened(1, 0);
    let ready = ahead.clone().settled("1/1").ready(0);
    let expected = ["admitted after 0 min", "ended ready", "ready 0 min after creation"];
    check(&[queued(), ahead, ready], &expected);
}
