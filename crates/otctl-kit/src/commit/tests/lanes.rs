//! Lanes: what a refusal ends, and what goes on.

use super::*;

/// A plan of two lanes, with a status.
fn lanes() -> Plan<Value> {
    let lanes = vec![vec![create(), delete()], vec![delete()]];
    Plan { lanes, ..plan(vec![delete()], Some(json!({"phase": "Failed"}))) }
}

#[tokio::test]
async fn lanes_follow_the_writes_and_the_status_follows_the_lanes() {
    let cluster = Scripted::default();
    run(&cluster, &lanes()).await.unwrap();
    let patch = format!("patch status of {SUBJECT}");
    let (create, delete) = ("create ConfigMap", "delete ConfigMap lab/old");
    assert_eq!(cluster.asked(), [delete, create, delete, delete, &patch, "create Event"]);
}

#[tokio::test]
async fn a_refusal_ends_its_own_lane_and_then_the_plan() {
    let forbidden =
        ApiError::Forbidden { detail: String::new(), quota: false, namespace_terminating: false };
    let invalid = ApiError::Invalid { detail: String::new() };
    let webhook = ApiError::WebhookFailed { detail: String::new() };
    for refusal in [forbidden, conflict(), not_found(), invalid, webhook] {
        let cluster = Scripted::new([Ok(Answer::Done), Err(refusal.clone())]);
        let error = run(&cluster, &lanes()).await.unwrap_err();
        let (create, delete) = ("create ConfigMap", "delete ConfigMap lab/old");
        assert_eq!(cluster.asked(), [delete, create, delete], "{refusal:?}");
        assert_eq!((error.number, error.total, error.done.lines.len()), (2, 6, 2), "{refusal:?}");
        assert_eq!(error.cause.to_string(), refusal.to_string());
    }
}

#[tokio::test]
async fn what_failed_in_other_lanes_and_what_was_behind_it_is_told_too() {
    let invalid = ApiError::Invalid { detail: String::new() };
    let answers = [Ok(Answer::Done), Err(conflict()), Err(invalid)];
    let error = run(&Scripted::new(answers), &lanes()).await.unwrap_err();
    assert_eq!((error.number, error.done.lines.len()), (2, 1));
    let (child, old) = ("ConfigMap child", "ConfigMap lab/old");
    let told = |targets: &[Target]| targets.iter().map(Target::to_string).collect::<Vec<_>>();
    assert_eq!(told(&error.undone), [child, old, old]);
    let others = error.others.iter().map(|failed| failed.cause.to_string());
    assert_eq!(others.collect::<Vec<_>>(), ["refused as invalid: "]);
    // Before the lanes, nothing else is even tried.
    let error = run(&Scripted::new([Err(conflict())]), &lanes()).await.unwrap_err();
    assert_eq!(told(&error.undone), [old, child, old, old]);
}

#[tokio::test]
async fn what_is_no_answer_to_the_write_alone_ends_every_lane() {
    let throttled = ApiError::Throttled { retry_after_seconds: None };
    for failure in [unknown(), throttled] {
        // The look at what became of it tells nothing either.
        let answers = [Ok(Answer::Done), Err(failure.clone()), Err(unknown())];
        let cluster = Scripted::new(answers);
        run(&cluster, &lanes()).await.unwrap_err();
        let deletions = cluster.asked().iter().filter(|line| line.starts_with("delete")).count();
        assert_eq!(deletions, 1, "{failure:?}");
    }
    let cluster = Scripted::new([Err(conflict())]);
    run(&cluster, &lanes()).await.unwrap_err();
    assert_eq!(cluster.asked().len(), 1, "the lanes rest on the writes before them");
}
