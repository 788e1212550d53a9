//! Retries come when and as often as the status says, whoever restarts, edits or writes meanwhile.

use futures::future::join_all;
use image_server::{Behaviour, Content, Fault};
use jiff::Timestamp;
use kube::ResourceExt as _;
use local_cluster::audit::AuditEntry;
use otctl_types::diskimage::Phase;
use serde_json::json;

use crate::stage::{Stage, has_ended, phase, ready_reason, status, until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_comes_at_the_time_on_record_whatever_happens_until_then() {
    let policy = [("concurrency", "3"), ("retryLimit", "1"), ("retryBackoffDuration", "30s")];
    let mut stage = Stage::set(&policy).await;
    stage.start_controller();
    let fails = Behaviour::new().always(Fault::status(503));
    stage.create(&stage.image("fails", Content::generated(SIZE, 1), fails)).await;
    let mut wrong = stage.image("wrong", Content::generated(SIZE, 2), well_behaved());
    wrong.spec.checksum = Some(format!("sha256:{}", "0".repeat(64)));
    stage.create(&wrong).await;
    let failed = stage.await_image("fails", |status| status.next_retry_at.is_some()).await;
    let due = status(&failed).next_retry_at.unwrap();

    let mut restarts = 0;
    while restarts < 3 && Timestamp::now() < due.0 {
        stage.kill_controller().await;
        stage.start_controller();
        stage.await_log("\"object\":\"labs/fails\"").await;
        restarts += 1;
        let now = status(&stage.read("fails").await);
        if now.attempts.len() == 1 {
            assert_eq!(now.next_retry_at.as_ref(), Some(&due), "kept over {restarts} restarts");
        }
    }
    assert!(restarts > 0, "there was no time for a restart");
    let conflicts = cause_conflicts(&stage, 20).await;
    println!("{conflicts} status writes met a conflict, {restarts} restarts during a backoff");
    let images = stage.await_all_ended().await;
    for image in images.iter().filter(|image| image.name_any().starts_with("touched")) {
        let status = status(image);
        assert_eq!(status.phase, Some(Phase::Succeeded), "{}", image.name_any());
        assert_eq!(status.attempts.len(), 1, "{}", image.name_any());
        assert_eq!(status.budget.map(|budget| budget.charged), Some(1), "{}", image.name_any());
    }

    let spent = status(&stage.read("fails").await);
    assert_eq!(ready_reason(&spent), "RetriesExhausted");
    let started = spent.attempts[1].started_at.clone().unwrap();
    assert!(started.0 >= due.0, "the second attempt began at {started:?}, before {due:?}");
    assert_eq!(spent.attempts.len(), 2);

    stage.policy(&[("concurrency", "3"), ("retryLimit", "1")]).await;
    for round in 1..=2 {
        ask_again(&mut stage, round).await;
    }
    expect_final(&mut stage).await;
    stage.finish().await;
}

/// Syncs images, ten after ten, while somebody else writes to them without a pause, until so many status writes of the
/// controller were refused.
async fn cause_conflicts(stage: &Stage, wanted: usize) -> usize {
    let mark = stage.mark();
    let conflicts = || {
        let writes = stage.writes(mark);
        let is_ours = |entry: &&AuditEntry| entry.target() == "vmdiskimages/status";
        writes.iter().filter(is_ours).filter(|entry| entry.code == 409).count()
    };
    let mut batches = 0..;
    until("enough conflicts", async || {
        let batch = batches.next().unwrap_or(0);
        let names: Vec<String> =
            (0..10).map(|number| format!("touched-{batch}-{number}")).collect();
        for (name, seed) in names.iter().zip(10..) {
            stage.create(&stage.image(name, Content::generated(SIZE, seed), well_behaved())).await;
        }
        // Looked at after every round only: the log grows with every touch.
        while conflicts() < wanted && !have_ended(stage, &names).await {
            join_all(names.iter().map(|name| touch(stage, name))).await;
        }
        Some(conflicts()).filter(|conflicts| *conflicts >= wanted)
    })
    .await
}

async fn have_ended(stage: &Stage, names: &[String]) -> bool {
    join_all(names.iter().map(|name| stage.read(name))).await.iter().all(has_ended)
}

/// Changes an annotation of an image again and again.
async fn touch(stage: &Stage, name: &str) {
    for touches in 0..20 {
        let annotation = json!({"metadata": {"annotations": {"touched": touches.to_string()}}});
        stage.patch(name, &annotation).await;
    }
}

/// A new value of the annotation gives one new budget, be it written while the controller is down, and keeps history.
async fn ask_again(stage: &mut Stage, round: usize) {
    let before = status(&stage.read("fails").await);
    let is_down = round == 2;
    if is_down {
        stage.kill_controller().await;
    }
    let annotation = json!({"metadata": {"annotations": {"pelotech.ot/retry": round.to_string()}}});
    stage.patch("fails", &annotation).await;
    if is_down {
        stage.start_controller();
    }
    let again = stage
        .await_image("fails", |status| {
            status.attempts.len() == before.attempts.len() + 1 && status.next_retry_at.is_some()
        })
        .await;
    let again = status(&again);
    assert_eq!(again.attempts[..before.attempts.len()], before.attempts, "history is kept");
    assert_eq!(again.budget.map(|budget| budget.charged), Some(1), "one budget, one attempt of it");
    let spent = stage.await_phase("fails", Phase::Failed).await;
    assert_eq!(status(&spent).attempts.len(), before.attempts.len() + 2);
}

/// Nothing but a request gives another attempt: no label, no restart, no edit of the policy.
async fn expect_final(stage: &mut Stage) {
    let names = ["fails", "wrong"];
    let counts = names.map(|name| stage.server.counts(name));
    assert_eq!(counts[1].downloads, 1, "a wrong checksum is one download");
    for name in names {
        stage.patch(name, &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    }
    stage.kill_controller().await;
    stage.policy(&[("concurrency", "5"), ("retryLimit", "1"), ("attemptTimeout", "2h")]).await;
    stage.start_controller();
    stage.create(&stage.image("after", Content::generated(SIZE, 3), well_behaved())).await;
    stage.await_phase("after", Phase::Succeeded).await;
    for (name, counts) in names.into_iter().zip(counts) {
        assert_eq!(stage.server.counts(name), counts, "'{name}' is not asked for again");
        assert_eq!(phase(&stage.read(name).await), Some(Phase::Failed), "{name}");
    }
    let wrong = status(&stage.read("wrong").await);
    assert_eq!((wrong.attempts.len(), ready_reason(&wrong)), (1, "ChecksumMismatch"));
}
