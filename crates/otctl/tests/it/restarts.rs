//! The controller ends, well or not, is written over, or finds an image gone under its hands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use image_server::{Behaviour, Content, Fault};
use jiff::Timestamp;
use kube::ResourceExt as _;
use local_cluster::audit::AuditEntry;
use otctl::demo::peak::History;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use serde_json::Value;

use crate::controller_log::Log;
use crate::stage::{Stage, phase, status, until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_asked_to_end_gives_its_lease_back_and_nothing_is_done_twice() {
    let mut stage = Stage::set(&[("concurrency", "2")]).await;
    let peak = History::open(&stage.client).await.unwrap();
    let finished = two_finished(&mut stage).await;
    for number in 0..6 {
        let behaviour = Behaviour::new().then(Fault::stall(SIZE / 2));
        let content = Content::generated(SIZE, number);
        stage.create(&stage.image(&format!("image-{number}"), content, behaviour)).await;
    }
    stage.start_controller();
    let mut log = Log::await_moment(stage.log(), 12, true).await;

    let asked = Timestamp::now();
    stage.stop_controller().await;
    let ended = Timestamp::now();
    let holder = stage.lease().await.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref().unwrap_or_default(), "", "the lease is nobody's");
    log.read();
    assert!(!log.is_mid_pass(), "the pass at hand was not finished");
    println!(
        "SIGTERM between two writes of a pass: the lease was free after {:.0?}, the process gone after {:.0?}",
        lease_given_back(&stage, asked),
        Duration::try_from(ended.duration_since(asked)).unwrap()
    );

    stage.start_controller();
    let running = stage.await_running(2).await;
    stage.stop_controller().await;
    assert_eq!(stage.running().await, running, "imports go on without it");

    // Two end while nobody looks.
    (0..2).for_each(|number| stage.let_go(&format!("image-{number}")));
    until("both pods have ended", async || stage.running().await.is_empty().then_some(())).await;
    stage.start_controller();
    (2..6).for_each(|number| stage.let_go(&format!("image-{number}")));
    let images = stage.await_all_ended().await;
    let (old, new): (Vec<_>, Vec<_>) =
        images.into_iter().partition(|image| finished.contains_key(&image.name_any()));
    expect_done_once(&stage, &new);
    let versions: BTreeMap<_, _> =
        old.iter().map(|image| (image.name_any(), image.resource_version())).collect();
    assert_eq!(versions, finished, "what was finished is untouched");
    let (entries, pods) = peak.close().await.unwrap();
    assert_eq!((entries, pods, stage.server.totals().most_open_data), (2, 2, 2));
    stage.finish().await;
}

/// One that succeeded and one that failed for good, with their versions, and no controller.
async fn two_finished(stage: &mut Stage) -> BTreeMap<String, Option<String>> {
    stage.create(&stage.image("done", Content::generated(SIZE, 7), well_behaved())).await;
    stage.create(&stage.image_of("not-there", &stage.server.url("nowhere"))).await;
    stage.start_controller();
    let images = stage.await_all_ended().await;
    stage.stop_controller().await;
    images.into_iter().map(|image| (image.name_any(), image.resource_version())).collect()
}

/// From the signal to the write that emptied the lease, by the API server's clock.
fn lease_given_back(stage: &Stage, asked: Timestamp) -> Duration {
    let requests = stage.requests(Default::default());
    let emptied = requests.iter().rfind(|entry| {
        let spec = entry.response_object.as_ref().map(|lease| &lease["spec"]["holderIdentity"]);
        entry.resource == "leases"
            && entry.is_write()
            && spec.is_some_and(|holder| holder.as_str().unwrap_or_default().is_empty())
    });
    let at = emptied.expect("a write empties the lease").answered_at;
    Duration::try_from(at.duration_since(asked)).expect("it comes after the signal")
}

/// One probe, one import, one download, one attempt for each.
fn expect_done_once(stage: &Stage, images: &[VMDiskImage]) {
    let mut jobs = stage.writes(Default::default());
    jobs.retain(|entry| entry.verb == "create" && entry.resource == "jobs");
    for image in images {
        let name = image.name_any();
        let (own, named) = (creates_of(&jobs, image), names_of(&jobs, image));
        assert_eq!(named.len(), 2, "{name}: a probe and an import: {named:?}");
        assert!(own <= 2, "{name}: {own} Jobs were made of {named:?}");
        assert_eq!(phase(image), Some(Phase::Succeeded), "{name}");
        assert_eq!(status(image).attempts.len(), 1, "{name}");
        assert_eq!(stage.server.counts(&name).downloads, 1, "{name}");
    }
}

/// How many were answered as made. One whose sender was killed before its answer may have been made unsaid.
fn creates_of(creates: &[AuditEntry], image: &VMDiskImage) -> usize {
    creates.iter().filter(|create| is_of(create, image) && create.is_success()).count()
}

/// The names that were asked for; each can be there once only, and nothing frees one that is used.
fn names_of(creates: &[AuditEntry], image: &VMDiskImage) -> BTreeSet<String> {
    let jobs = creates.iter().filter(|create| is_of(create, image));
    let names = jobs.filter_map(|create| create.request_object.as_ref());
    names.filter_map(|job| job["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn is_of(create: &AuditEntry, image: &VMDiskImage) -> bool {
    let owners = create.request_object.as_ref().map(|job| &job["metadata"]["ownerReferences"]);
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners.any(|owner| owner["uid"].as_str() == image.metadata.uid.as_deref())
}

/// The same crash again and again is no attempt, and in the end everything is done once.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_in_the_middle_five_times_in_a_row_costs_no_attempt() {
    let mut stage = Stage::set(&[("concurrency", "1"), ("retryLimit", "0")]).await;
    for number in 0..3 {
        let image = stage.image(
            &format!("image-{number}"),
            Content::generated(SIZE, number),
            well_behaved(),
        );
        stage.create(&image).await;
    }
    for _ in 0..5 {
        stage.start_controller();
        Log::await_moment(stage.log(), 1, true).await;
        stage.kill_controller().await;
    }
    stage.start_controller();
    let images = stage.await_all_ended().await;
    expect_done_once(&stage, &images);
    stage.await_ledger("every slot is free", |ledger| ledger.active.is_empty()).await;
    stage.finish().await;
}
