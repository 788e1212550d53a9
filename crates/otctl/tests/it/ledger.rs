//! The ledger is lost while imports run: nobody is admitted beyond the limit, and first of all it is made right again.

use std::collections::BTreeMap;

use image_server::{Behaviour, Content, Fault};
use kube::api::{DeleteParams, Patch, PatchParams};
use otctl::demo::peak::History;
use otctl_types::diskimage::Phase;
use otctl_types::names::IMAGE_QUEUE;
use otctl_types::queue::AdmissionQueueStatus;
use serde_json::{Value, json};
use testbed::check;

use crate::stage::{Stage, names, phase, until, well_behaved};
use crate::timeline::{Timeline, entries};

const LIMIT: usize = 3;
const WAITING: usize = 50;
/// More than a first look reads.
const SIZE: u64 = 80 << 10;
const RUNNING: [&str; LIMIT] = ["running-0", "running-1", "running-2"];

/// What happens to the ledger.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Deleted,
    Emptied,
    Restored,
}

const LOSSES: [Loss; 3] = [Loss::Deleted, Loss::Emptied, Loss::Restored];

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_ledger_is_right_again_before_anyone_is_admitted() {
    let mut stage = Stage::set(&[("concurrency", "3")]).await;
    let peak = History::open(&stage.client).await.unwrap();
    let mut timeline = Timeline::open(&stage.client).await;
    stage.start_controller();
    let old = earlier_ledger(&stage).await;
    let pods = three_run_and_fifty_wait(&stage).await;

    for loss in LOSSES {
        lose(&stage, loss, &old).await;
        expect_whole(&stage, &pods, loss).await;
    }
    for loss in LOSSES {
        stage.kill_controller().await;
        lose(&stage, loss, &old).await;
        stage.start_controller();
        expect_whole(&stage, &pods, loss).await;
    }
    expect_nobody_else(&mut timeline).await;

    for name in RUNNING {
        stage.let_go(name);
    }
    let ended = stage.await_all_ended().await;
    let succeeded = ended.iter().filter(|image| phase(image) == Some(Phase::Succeeded)).count();
    assert_eq!(succeeded, ended.len(), "every image succeeds");
    expect_one_download_each(&stage);
    let (entries, pods) = peak.close().await.unwrap();
    let transfers = stage.server.totals().most_open_data;
    println!(
        "ledger lost {} times with {WAITING} waiting: at most {entries} entries, {pods} import pods, {transfers} transfers at once",
        2 * LOSSES.len()
    );
    assert_eq!((entries, pods, transfers), (LIMIT, LIMIT, LIMIT));
    check::expect_none(&check::ledger::always(&timeline.history().await));
    stage.finish().await;
}

/// A status of the ledger as a backup would have it: three that ended since hold the slots.
async fn earlier_ledger(stage: &Stage) -> AdmissionQueueStatus {
    let earlier = ["earlier-0", "earlier-1", "earlier-2"];
    for name in earlier {
        stage.create(&stage.image(name, Content::generated(SIZE, 1), stalled())).await;
    }
    stage.await_running(LIMIT).await;
    let old = stage.ledger().await;
    assert_eq!(old.active.len(), LIMIT);
    for name in earlier {
        stage.let_go(name);
    }
    stage.await_all_ended().await;
    stage.await_ledger("nobody holds a slot", |ledger| ledger.active.is_empty()).await;
    old
}

/// The import pods of the three, by name.
async fn three_run_and_fifty_wait(stage: &Stage) -> BTreeMap<String, String> {
    for name in RUNNING {
        stage.create(&stage.image(name, Content::generated(SIZE, 2), stalled())).await;
    }
    let pods = stage.await_running(LIMIT).await;
    for number in 0..WAITING {
        let content = Content::generated(SIZE, 3);
        stage.create(&stage.image(&format!("waiting-{number}"), content, well_behaved())).await;
    }
    stage
        .await_ledger("fifty wait", |ledger| {
            usize::try_from(ledger.waiting_count.unwrap_or(0)) == Ok(WAITING)
        })
        .await;
    pods
}

fn stalled() -> Behaviour {
    Behaviour::new().then(Fault::stall(SIZE / 2))
}

async fn lose(stage: &Stage, loss: Loss, old: &AdmissionQueueStatus) {
    let queues = stage.queues();
    match loss {
        Loss::Deleted => {
            queues.delete(IMAGE_QUEUE, &DeleteParams::default()).await.unwrap();
        }
        Loss::Emptied => replace_status(stage, Value::Null).await,
        Loss::Restored => replace_status(stage, json!(old)).await,
    }
}

/// The whole status, whatever stands there.
async fn replace_status(stage: &Stage, status: Value) {
    let change = json!([{"op": "add", "path": "/status", "value": status}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(change).unwrap());
    stage.queues().patch_status(IMAGE_QUEUE, &PatchParams::default(), &patch).await.unwrap();
}

/// The three hold the slots again, and their pods are the same.
async fn expect_whole(stage: &Stage, pods: &BTreeMap<String, String>, loss: Loss) {
    until(&format!("the ledger is right again after it was {loss:?}"), async || {
        let ledger = stage.ledger().await;
        let mut holders = names(&ledger);
        holders.sort();
        let waiting = usize::try_from(ledger.waiting_count.unwrap_or(0)) == Ok(WAITING);
        (holders == RUNNING && waiting && ledger.limit == Some(3)).then_some(())
    })
    .await;
    assert_eq!(stage.running().await, *pods, "nothing was killed, nothing else runs");
}

/// From the moment the three ran, no version of the ledger gives a slot to anybody who waited.
async fn expect_nobody_else(timeline: &mut Timeline) {
    let history = timeline.history().await;
    let versions: Vec<_> = history.iter().filter_map(entries).collect();
    let is_full = |entries: &Vec<(String, i64)>| {
        RUNNING.iter().all(|name| entries.iter().any(|(holder, _)| holder == name))
    };
    let first = versions.iter().position(is_full).expect("the three ran");
    for entries in &versions[first..] {
        let waited: Vec<_> =
            entries.iter().filter(|(name, _)| name.starts_with("waiting-")).collect();
        assert!(waited.is_empty(), "admitted before a slot was free: {waited:?}");
    }
    println!("{} versions of the ledger since three ran", versions.len() - first);
}

fn expect_one_download_each(stage: &Stage) {
    let twice: Vec<_> = RUNNING
        .iter()
        .map(|name| (name, stage.server.counts(name).downloads))
        .filter(|(_, downloads)| *downloads != 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
}
