use serde_json::{Value, json};

use super::*;
use crate::kind;

const FIRST: &str = "11111111-0000-4000-8000-000000000000";
const OTHER: &str = "22222222-0000-4000-8000-000000000000";

/// An image of generation 2 whose status was judged on `observed`, with these conditions True.
fn image(uid: &str, observed: i64, conditions: &[&str]) -> DynamicObject {
    let condition = |kind: &&str| {
        json!({
            "type": kind, "status": "True", "reason": "Any", "message": "", "lastTransitionTime": "2026-05-01T12:00:00Z",
        })
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    let object = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
        "metadata": {"name": "web", "namespace": "lab", "uid": uid, "generation": 2},
        "spec": {"url": "http://images/a", "sourceType": "http"},
        "status": {"observedGeneration": observed, "phase": "Queued", "message": "why", "conditions": conditions},
    });
    serde_json::from_value(object).unwrap()
}

fn awaited() -> Awaited {
    let kind = kind::named("vmdi").unwrap();
    Awaited::new(Found { kind, object: image(FIRST, 1, &[]) }, Goal::Ready)
}

fn away() -> News {
    Err(watcher::Error::NoResourceVersion)
}

#[track_caller]
fn check(news: impl IntoIterator<Item = News>, expected: (Option<Outcome>, &str)) {
    let mut one = awaited();
    for news in news {
        one.take(news, Goal::Ready);
    }
    assert_eq!((one.outcome, one.standing.message.as_str()), expected);
}

#[test]
fn what_is_told_of_the_present_spec_decides() {
    check([Ok(Some(image(FIRST, 2, &["Ready"])))], (Some(Outcome::Reached), "why"));
    check([Ok(Some(image(FIRST, 2, &["Stalled"])))], (Some(Outcome::Failed), "why"));
    check([Ok(Some(image(FIRST, 2, &[])))], (None, "why"));
    let unseen = "the controller has not looked at the changed spec yet";
    check([Ok(Some(image(FIRST, 1, &["Ready"])))], (None, unseen));
}

#[test]
fn what_is_shown_has_the_sentence_beside_the_word() {
    let mut one = awaited();
    let mut told = image(FIRST, 2, &[]);
    told.data["status"]["message"] = json!("attempt 1 failed:\n  no such file");
    one.take(Ok(Some(told)), Goal::Ready);
    assert_eq!(item(&one).message, "attempt 1 failed: no such file");
}

#[test]
fn one_that_is_suspended_is_not_waited_for() {
    let mut held = image(FIRST, 2, &[]);
    held.data["spec"]["suspend"] = json!(true);
    check([Ok(Some(held))], (Some(Outcome::Suspended), "why"));
}

#[test]
fn one_that_goes_has_failed_also_when_another_took_its_name() {
    check([Ok(None)], (Some(Outcome::Deleted), "it was deleted"));
    let another = "it was deleted, and there is another of its name";
    check([Ok(Some(image(OTHER, 2, &["Ready"])))], (Some(Outcome::Deleted), another));
}

#[test]
fn an_api_server_that_is_away_decides_nothing() {
    check([away(), away(), Ok(Some(image(FIRST, 2, &["Ready"])))], (Some(Outcome::Reached), "why"));
    let mut one = awaited();
    one.take(away(), Goal::Ready);
    assert!(one.outcome.is_none() && one.warning().unwrap().contains("cannot be asked"));
    one.take(Ok(Some(image(FIRST, 2, &[]))), Goal::Ready);
    assert_eq!(one.warning(), None);
}

#[test]
fn what_is_decided_stays_so() {
    check([Ok(Some(image(FIRST, 2, &["Ready"]))), Ok(None)], (Some(Outcome::Reached), "why"));
    let mut one = awaited();
    one.take(Ok(Some(image(FIRST, 2, &["Stalled"]))), Goal::Ready);
    one.give_up();
    assert_eq!(one.outcome, Some(Outcome::Failed));
}

#[test]
fn whoever_is_undecided_when_the_time_is_up_has_timed_out() {
    let mut one = awaited();
    one.give_up();
    assert_eq!(one.outcome, Some(Outcome::TimedOut));
}

#[test]
fn a_watch_that_was_never_allowed_is_no_outage() {
    let refused = || {
        let answer = kube::core::Status::failure("vmdiskimages is forbidden", "Forbidden");
        let answer = kube::Error::Api(answer.with_code(403).boxed());
        Err(watcher::Error::InitialListFailed(answer))
    };
    let mut one = awaited();
    let told = one.expect_allowed(&refused()).unwrap_err().to_string();
    assert!(told.ends_with("web cannot be watched: vmdiskimages is forbidden"), "{told}");
    one.expect_allowed(&away()).unwrap();
    one.take(Ok(Some(image(FIRST, 2, &[]))), Goal::Ready);
    one.expect_allowed(&refused()).unwrap();
}
