//! Watches that fail for ever, close at once, begin with an error, or fall silent: others go on, none becomes a storm,
//! and what was missed is noticed.

use std::time::{Duration, Instant};

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use serde_json::json;
use testbed::fault::{Answer, Verb, What, at};

use super::lives::{Clean, Life, Lives};
use crate::hands::merge;
use crate::stage::{Stage, until};

/// More than one page of a list.
const CROWD: usize = 60;
/// So many starts are looked at to tell how soon they follow each other: of one that closes at once, which begins again
/// each second, and of one that fails, which takes longer each time and comes to ask for a list in pages.
const CLOSED: usize = 8;
const FAILED: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn one_watch_that_fails_is_no_storm_and_holds_up_no_other() {
    let scene = Lives::set("64", &[]).await;
    let clean = scene.clean(Life::Success).await;
    for line in ["watch StorageClass", "list StorageClass"] {
        scene.controller.proxy.add(at(line).always().then(status(500)));
    }
    scene.controller.proxy.add(at("watch VolumeSnapshotClass").always().then(empty()));
    scene.controller.proxy.add(at("watch Pod").then(status(410)));
    for kind in ["StorageClass", "VolumeSnapshotClass", "Pod"] {
        scene.controller.proxy.add(at(&format!("event any {kind}")).then(What::Cut(10)));
    }
    touch_classes(&scene.stage).await;
    let from = scene.controller.asked();
    live(&scene, &clean, "with watches that fail").await;
    let closed = await_starts(&scene, from, ("watch VolumeSnapshotClass", CLOSED)).await;
    let failed = await_starts(&scene, from, (" StorageClass", FAILED)).await;
    println!(
        "{CLOSED} starts of a watch that closes at once took {closed:.1?}, {FAILED} of one that fails {failed:.1?}"
    );
    // The first may come late, and so close to the second.
    let least = |starts: usize| Duration::from_secs(starts as u64 - 2);
    assert!(closed >= least(CLOSED) && failed >= least(FAILED), "a storm: {closed:?}, {failed:?}");
    assert!(scene.controller.get("/livez").await.starts_with("HTTP/1.1 200"), "no restart helps");
    assert_eq!(scene.controller.proxy.faults().unmet(), [] as [String; 0]);
    scene.controller.proxy.faults().clear();

    silence(&scene, &clean).await;
    scene.finish().await;
}

/// The watch of images falls silent: an image is noticed all the same, once.
async fn silence(scene: &Lives, clean: &Clean) {
    let namespace = scene.namespace().await;
    let line = format!("event any VMDiskImage {namespace}/*");
    scene.controller.proxy.add(at(&line).then(What::Blackhole));
    Life::Success.begin(&scene.stage, &namespace).await;
    let (from, created) = (scene.controller.asked(), Instant::now());
    let noticed = async {
        until("the silence is noticed", async || {
            let writes = scene.controller.writes(from);
            writes.iter().any(|line| line.contains(&namespace)).then(|| created.elapsed())
        })
        .await
    };
    let ((), noticed) = tokio::join!(Life::Success.go(&scene.stage, &namespace), noticed);
    println!("an image was noticed {noticed:.1?} after its creation on a watch that fell silent");
    assert!(noticed < Duration::from_secs(90), "the silence was hardly noticed");
    assert!(scene.controller.get("/livez").await.starts_with("HTTP/1.1 200"));
    scene.expect_end("a watch that fell silent", &namespace, &clean.end).await;
    assert_eq!(scene.controller.proxy.faults().unmet(), [] as [String; 0]);
    scene.controller.proxy.faults().clear();
}

async fn live(scene: &Lives, clean: &Clean, told: &str) {
    let namespace = scene.namespace().await;
    Life::Success.begin(&scene.stage, &namespace).await;
    Life::Success.go(&scene.stage, &namespace).await;
    scene.expect_end(told, &namespace, &clean.end).await;
}

fn status(code: u16) -> What {
    What::Answer(Answer::refusal(code, ""))
}

/// A success that says nothing and ends.
fn empty() -> What {
    What::Answer(Answer { body: Some(String::new()), ..Answer::refusal(200, "") })
}

/// Something happens to each class, so that its watch has something to tell.
async fn touch_classes(stage: &Stage) {
    let patch = json!({"metadata": {"annotations": {"touched": "once"}}});
    merge(&Api::<StorageClass>::all(stage.client.clone()), IMMEDIATE_CLASS, &patch).await;
    let classes = ApiResource {
        group: "snapshot.storage.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "snapshot.storage.k8s.io/v1".to_owned(),
        kind: "VolumeSnapshotClass".to_owned(),
        plural: "volumesnapshotclasses".to_owned(),
    };
    let classes: Api<DynamicObject> = Api::all_with(stage.client.clone(), &classes);
    merge(&classes, SNAPSHOT_CLASS, &patch).await;
}

/// Waits for so many requests whose line ends so; how long they took.
async fn await_starts(scene: &Lives, from: usize, (line, count): (&str, usize)) -> Duration {
    until(&format!("{count} times {line}"), async || {
        let log = scene.controller.proxy.log();
        let starts = log[from..].iter().filter(|entry| {
            entry.call.verb != Verb::Event && entry.call.to_string().ends_with(line)
        });
        let times: Vec<Instant> = starts.map(|entry| entry.arrived).collect();
        Some(*times.get(count - 1)? - times[0])
    })
    .await
}

/// The views begin with pages that expire and with no bookmarks at all: nothing that is on a page that did not come is
/// taken for gone.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_gone_that_was_on_a_page_that_did_not_come() {
    let mut scene = Lives::set("64", &[]).await;
    let clean = scene.clean(Life::Deletion).await;
    let namespace = scene.namespace().await;
    for number in 0..CROWD {
        let url = scene.stage.server.url("nowhere");
        let mut image = scene.stage.image_of(&format!("crowd-{number}"), &url);
        image.spec.suspend = true;
        scene.stage.create(&image).await;
    }
    Life::Deletion.begin(&scene.stage, &namespace).await;
    let running = scene.stage.ledger().await.active;
    scene.controller.stop().await;

    let from = scene.controller.asked();
    scene.controller.proxy.add(at("event bookmark").always().then(What::Drop));
    scene.controller.proxy.add(at("continue VMDiskImage").times(3).then(status(410)));
    scene.controller.start();
    until("the pages came", async || {
        let log = scene.controller.proxy.log();
        let mut pages =
            log[from..].iter().filter(|entry| entry.call.to_string() == "continue VMDiskImage");
        pages.nth(3).and_then(|entry| entry.ended)
    })
    .await;
    scene.quiet().await;
    assert_eq!(
        scene.stage.ledger().await.active,
        running,
        "it holds its slot and nothing else does"
    );
    let deletes: Vec<String> = scene.controller.writes(from);
    assert!(deletes.iter().all(|line| !line.starts_with("delete")), "{deletes:?}");
    Life::Deletion.go(&scene.stage, &namespace).await;
    scene.expect_end("after pages that expired", &namespace, &clean.end).await;
    assert_eq!(scene.controller.proxy.faults().unmet(), [] as [String; 0]);
    scene.finish().await;
}
