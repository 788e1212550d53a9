//! What people change and take away while an image is on its way, and what they see of it.

use std::process::Command;

use image_server::{Behaviour, Content, Fault};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use local_cluster::Progress;
use local_cluster::programs::{Program, Sources};
use otctl_types::condition::{RECONCILING, STALLED, find};
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use serde_json::json;

use crate::hands::merge;
use crate::stage::{NAMESPACE, Stage, ready_reason, status, until, well_behaved};
use crate::stdout;

const MIB: u64 = 1 << 20;
/// Where transfers stop until they are told to go on.
const STOP: u64 = 300 << 10;

fn stalled() -> Behaviour {
    Behaviour::new().then(Fault::stall(STOP))
}

fn hash(content: &Content) -> String {
    format!("sha256:{}", content.disk_hash(MIB).unwrap().hex())
}

/// What is fetched is what is asked for now.
async fn expect_disk(stage: &Stage, name: &str, content: &Content) -> VMDiskImageStatus {
    let image = stage.await_phase(name, Phase::Succeeded).await;
    let status = status(&image);
    assert_eq!(status.observed_generation, image.metadata.generation);
    assert_eq!(status.current.clone().unwrap().disk_checksum, Some(hash(content)));
    status
}

/// Waits until the status is about the spec as it is now, and says what is told.
async fn reason_of_now(stage: &Stage, name: &str) -> String {
    let generation = stage.read(name).await.metadata.generation;
    let image = stage.await_image(name, |status| status.observed_generation == generation).await;
    ready_reason(&status(&image)).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_before_there_is_data_are_acted_on_and_told() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    let (old, new) = (Content::generated(MIB, 1), Content::generated(MIB, 2));
    stage.server.add("new", new.clone());
    let to_new = json!({"spec": {"url": stage.server.url("new")}});
    stage.start_controller();

    // While it is synced: the old transfer ends, and what comes is the new.
    stage.create(&stage.image("syncing", old.clone(), stalled())).await;
    stage.await_transfer("syncing", STOP).await;
    // While it is queued behind that one.
    stage.create(&stage.image("queued", old.clone(), well_behaved())).await;
    stage.await_reason("queued", "SlotsBusy").await;
    stage.patch("queued", &to_new).await;
    assert_eq!(reason_of_now(&stage, "queued").await, "SlotsBusy");
    stage.patch("queued", &json!({"spec": {"storageClass": "not-yet"}})).await;
    assert_eq!(reason_of_now(&stage, "queued").await, "StorageClassNotFound");
    stage
        .patch("queued", &json!({"spec": {"storageClass": "otctl-local", "diskSize": "1Mi"}}))
        .await;
    assert_eq!(reason_of_now(&stage, "queued").await, "SlotsBusy");

    stage.patch("syncing", &to_new).await;
    let synced = expect_disk(&stage, "syncing", &new).await;
    let reasons: Vec<_> = synced.attempts.iter().filter_map(|a| a.reason.as_deref()).collect();
    assert_eq!(reasons, ["Superseded", "Succeeded"]);
    assert_eq!(stage.server.counts("syncing").open_data, 0, "the old transfer has ended");
    expect_disk(&stage, "queued", &new).await;
    assert_eq!(stage.server.counts("queued").requests, 0, "the old address was never asked");

    // While it has failed.
    stage.create(&stage.image_of("failed", &stage.server.url("gone"))).await;
    stage.await_reason("failed", "SourceNotFound").await;
    stage.patch("failed", &to_new).await;
    expect_disk(&stage, "failed", &new).await;
    // They go after the status that says that the snapshot is there.
    until("with snapshots no volume stays", async || {
        let claims = stage.claims().list(&kube::api::ListParams::default()).await.unwrap().items;
        claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_away_is_never_success() {
    let mut stage = Stage::set(&[("concurrency", "4"), ("retryLimit", "3")]).await;
    let content = Content::generated(MIB, 1);
    let names = ["job-deleted", "job-suspended", "claim-deleted", "job-unlabelled"];
    for name in names {
        stage.create(&stage.image(name, content.clone(), stalled())).await;
    }
    stage.start_controller();
    for name in names {
        stage.await_transfer(name, STOP).await;
    }
    let job = stage.import_job("job-deleted").await.name_any();
    stage.jobs().delete(&job, &DeleteParams::background()).await.unwrap();
    let job = stage.import_job("job-suspended").await.name_any();
    merge(&stage.jobs(), &job, &json!({"spec": {"suspend": true}})).await;
    take_labels_off(&stage, "job-unlabelled").await;
    // In use, so it goes when the pod has ended: just before anybody looks whether all is well.
    let claim = stage.read("claim-deleted").await;
    let revision = diskimage_controller::names::revision(&claim.spec);
    let claim = diskimage_controller::names::data_name("claim-deleted", &revision);
    stage.claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    for name in ["claim-deleted", "job-unlabelled"] {
        stage.server.release(name).unwrap();
    }

    for (name, first, downloads) in [
        ("job-deleted", "Interrupted", 1),
        ("job-suspended", "Interrupted", 1),
        ("claim-deleted", "Lost", 2),
        ("job-unlabelled", "Succeeded", 1),
    ] {
        let status = expect_disk(&stage, name, &content).await;
        let reasons: Vec<_> = status.attempts.iter().filter_map(|a| a.reason.as_deref()).collect();
        println!(
            "'{name}': attempts {reasons:?}, {} downloads",
            stage.server.counts(name).downloads
        );
        assert_eq!(reasons[0], first, "{status:#?}");
        assert_eq!(reasons.last(), Some(&"Succeeded"));
        assert_eq!(stage.server.counts(name).downloads, downloads, "{name}");
    }
    stage.finish().await;
}

/// Takes every label by which a child can be listed off a running import's Job and pod.
async fn take_labels_off(stage: &Stage, name: &str) {
    let pod = stage.running_pod(name).await.name_any();
    let job = stage.import_job(name).await.name_any();
    let none = json!({"metadata": {"labels": {
        "pelotech.ot/role": null, "pelotech.ot/owner-uid": null, "app.kubernetes.io/managed-by": null,
    }}});
    merge(&stage.jobs(), &job, &none).await;
    merge(&Api::<Pod>::namespaced(stage.client.clone(), NAMESPACE), &pod, &none).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_and_tools_see_how_it_stands() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    let mut image = stage.image("good", Content::generated(MIB, 1), stalled());
    image.spec.disk_size = None;
    stage.create(&image).await;
    stage.create(&stage.image_of("bad", &stage.server.url("nowhere"))).await;
    stage.start_controller();

    stage.await_transfer("good", STOP).await;
    let working = status(&stage.await_phase("good", Phase::Syncing).await);
    expect_kstatus(&working, true, false);
    let waiting = status(&stage.await_reason("bad", "SlotsBusy").await);
    expect_kstatus(&waiting, true, false);
    stage.server.release("good").unwrap();
    let waited = kubectl(&stage, &["wait", "--for=condition=Ready", "vmdi/good", "--timeout=120s"]);
    assert!(waited.contains("condition met"), "{waited}");
    expect_kstatus(&status(&stage.read("good").await), false, false);
    expect_kstatus(&status(&stage.await_phase("bad", Phase::Failed).await), false, true);

    let table = kubectl(&stage, &["get", "vmdi"]);
    println!("{table}");
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let columns = ["NAME", "PHASE", "REASON", "PROGRESS", "SIZE", "ATTEMPT", "AGE"];
    assert_eq!(rows[0], columns);
    let row = |name| rows.iter().find(|row| row[0] == name).unwrap();
    assert_eq!(row("good")[1..6], ["Succeeded", "Succeeded", "100%", "1Gi", "1"]);
    assert_eq!(row("bad")[1..3], ["Failed", "SourceNotFound"]);
    stage.finish().await;
}

/// What kstatus reads: work in progress, a dead end, or neither.
fn expect_kstatus(status: &VMDiskImageStatus, reconciling: bool, stalled: bool) {
    let holds = |kind| find(&status.conditions, kind).map(|condition| condition.status == "True");
    let expected = |holds: bool| holds.then_some(true);
    assert_eq!(holds(RECONCILING), expected(reconciling), "{status:#?}");
    assert_eq!(holds(STALLED), expected(stalled), "{status:#?}");
}

fn kubectl(stage: &Stage, arguments: &[&str]) -> String {
    let programs = Sources::from_env()
        .unwrap()
        .find_or_build(&[Program::Kubectl], &Progress::default())
        .unwrap();
    let mut command = Command::new(&programs[&Program::Kubectl]);
    command.arg("--kubeconfig").arg(stage.cluster().kubeconfig_path()).args(["-n", "labs"]);
    stdout(&command.args(arguments).output().unwrap())
}
