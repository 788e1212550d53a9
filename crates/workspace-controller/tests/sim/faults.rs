//! What the API server may answer: refusals are told and tried again, lost answers are looked up.

use otctl_types::condition;
use testbed::fault::{Answer, Point, What, at as call};
use testbed::mask::difference;
use testbed::sim::Order;
use testbed::{Fault, Sim, check};

use crate::builders::{synced_image, workspace};
use crate::controller::{is_ready, reason, slots, status, told, world_of};

pub(crate) fn refusal(status: u16, reason: &str, message: &str) -> What {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{message}","reason":"{reason}","code":{status}}}"#
    );
    What::Answer(Answer { status, reason: reason.to_owned(), retry_after: None, body: Some(body) })
}

fn live(faults: Vec<Fault>) -> Sim {
    let sim = world_of(1, Order::Fixed);
    let mut sim = faults.into_iter().fold(sim, Sim::with_fault);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    workspace("next").container("api").create(&sim.world);
    sim.settle();
    check::expect_none(&check::whole_history_of_workspaces(&sim.world));
    sim
}

#[test]
fn a_quota_that_refuses_what_we_make_is_told_and_left_behind() {
    let words = "exceeded quota: labs, requested: count/services=1, used: 4, limited: 4";
    let refused = refusal(403, "Forbidden", &format!("services is forbidden: {words}"));
    let fault = call("write Service labs/lab--api").times(4).then(refused);
    let mut sim = world_of(1, Order::Fixed).with_fault(fault);
    workspace("lab").container("api").create(&sim.world);
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "QuotaExceeded");
    assert!(told(&sim.world, "lab").contains(words), "{}", told(&sim.world, "lab"));
    assert_eq!(reason(&sim.world, "lab", condition::STALLED), "", "it is no failure");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(sim.faults().unmet(), [""; 0]);
}

#[test]
fn what_the_api_server_calls_invalid_is_a_failure_in_its_words() {
    let refused = refusal(422, "Invalid", "Deployment is invalid: spec: no such thing");
    let fault = call("write Deployment labs/lab--api").times(3).then(refused);
    let mut sim = world_of(1, Order::Fixed).with_fault(fault);
    workspace("lab").container("api").create(&sim.world);
    sim.run_until("it is told", |world| told(world, "lab").contains("no such thing"));
    assert!(told(&sim.world, "lab").starts_with("Failed (Rejected"), "{}", told(&sim.world, "lab"));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

/// The API server says the same whenever it is asked: a slot pays for work.
#[test]
fn what_the_api_server_calls_invalid_gives_its_slot_back_at_once_and_heals_without_one() {
    let refused = refusal(422, "Invalid", "Service is invalid: spec: no such thing");
    let fault = call("write Service labs/lab--api").times(5).then(refused);
    let mut sim = world_of(1, Order::Fixed).with_fault(fault);
    workspace("lab").container("api").create(&sim.world);
    workspace("next").container("api").create(&sim.world);
    let started = sim.world.clock().now();
    sim.run_until("next is ready", |world| is_ready(world, "next"));
    let took = sim.world.clock().now().duration_since(started);
    assert!(took.as_secs() < 60, "{took:?}\n{}", sim.story);
    assert!(told(&sim.world, "lab").starts_with("Failed (Rejected"), "{}", told(&sim.world, "lab"));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "it took no other slot");
    check::expect_none(&check::whole_history_of_workspaces(&sim.world));
}

#[test]
fn what_is_refused_for_good_holds_a_slot_no_longer_than_a_start_may_last() {
    let refused = refusal(403, "Forbidden", "admission webhook says no");
    let fault = call("write Service labs/lab--api").always().then(refused);
    let mut sim = world_of(1, Order::Fixed).with_fault(fault);
    workspace("lab").container("api").create(&sim.world);
    workspace("next").container("api").create(&sim.world);
    sim.run_until("next is ready", |world| is_ready(world, "next"));
    assert!(!slots(&sim.world).contains(&"lab#1".to_owned()), "\n{}", sim.story);
    assert!(told(&sim.world, "lab").contains("admission webhook says no"));
}

#[test]
fn an_answer_that_is_lost_or_late_makes_nothing_twice() {
    let clean = live(Vec::new());
    let wanted = clean.end_state();
    for what in [
        call("write").point(Point::Commit).nth(9).then(What::Lose),
        call("write Deployment").point(Point::Commit).then(What::Lose),
        call("write VirtualMachine").then(refusal(500, "InternalError", "etcd")),
        call("write any Workspace").nth(2).then(refusal(409, "Conflict", "changed")),
        call("write Service").nth(2).then(refusal(429, "TooManyRequests", "slow down")),
        call("read").nth(3).then(refusal(503, "ServiceUnavailable", "away")),
    ] {
        let told = what.to_string();
        let sim = live(vec![what]);
        assert_eq!(sim.faults().unmet(), [""; 0], "{told}");
        assert_eq!(difference(&wanted, &sim.end_state()), "", "{told}\n{}", sim.story);
    }
}
