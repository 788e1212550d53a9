//! Places in the queue: what they cost, and what becomes of them when images go.

use std::collections::BTreeMap;

use futures::future::join_all;
use kube::api::{DeleteParams, ListParams};
use local_cluster::audit::AuditEntry;
use serde_json::Value;

use crate::stage::Stage;
use crate::{otctl, stdout};

/// Images that are deleted while the queue numbers them: its write finds nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_write_that_finds_nobody_is_not_repeated() {
    const IMAGES: usize = 80;
    const DELETED: usize = 30;
    let mut stage = Stage::set(&[("concurrency", "0")]).await;
    for number in 0..IMAGES {
        stage.create(&stage.image_of(&name(number), &stage.server.url("nowhere"))).await;
    }
    stage.start_controller();
    // Tickets are given in order; the last ones go before their turn comes.
    stage.await_image(&name(0), |status| status.ticket.is_some()).await;
    let images = stage.images();
    let gone = (IMAGES - DELETED..IMAGES).rev().map(|number| {
        let images = images.clone();
        async move { images.delete(&name(number), &DeleteParams::default()).await.unwrap() }
    });
    join_all(gone).await;
    stage.await_ledger("only the rest waits", |ledger| ledger.waiting_count == Some(50)).await;
    for number in 0..IMAGES - DELETED {
        stage.await_reason(&name(number), "Paused").await;
    }
    let writes = stage.writes(Default::default());
    let missed = count(&writes, |entry| entry.code == 404);
    println!("{DELETED} images were deleted while tickets were given: {missed:?} found nobody");
    assert!(!missed.is_empty(), "no write met a deletion");
    assert!(missed.values().all(|count| *count == 1), "a write was repeated: {missed:?}");
    assert_eq!(images.list(&ListParams::default()).await.unwrap().items.len(), IMAGES - DELETED);
    expect_cheap_places(&stage, &writes, IMAGES - DELETED);
    stage.finish().await;
}

/// Those that wait stand at 1 to n without a gap; each cost a ticket, a status and an Event, and the others' deletion
/// cost it nothing.
fn expect_cheap_places(stage: &Stage, writes: &[AuditEntry], waiting: usize) {
    let kubeconfig = stage.cluster().kubeconfig_path();
    let queue = otctl().args(["queue", "-o", "json", "--kubeconfig"]).arg(kubeconfig).output();
    let queue: Value = serde_json::from_str(&stdout(&queue.unwrap())).unwrap();
    let places: Vec<(&str, u64)> = queue["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["position"].as_u64().unwrap()))
        .collect();
    let names: Vec<String> = (0..waiting).map(name).collect();
    let wanted: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(1..).collect();
    assert_eq!(places, wanted);

    let told = count(writes, |entry| entry.is_success() && entry.target() == "vmdiskimages/status");
    let costly: Vec<_> = names.iter().filter(|name| told.get(*name) != Some(&2)).collect();
    assert!(costly.is_empty(), "not a ticket and a status: {costly:?} of {told:?}");
    let events = writes.iter().filter(|entry| entry.resource == "events" && entry.is_success());
    println!("{waiting} images wait: two status writes each, {} Events", events.count());
}

/// Writes that are meant, by the name of the object.
fn count(writes: &[AuditEntry], is_meant: impl Fn(&AuditEntry) -> bool) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in writes.iter().filter(|entry| is_meant(entry)) {
        *counts.entry(entry.name.clone()).or_default() += 1;
    }
    counts
}

fn name(number: usize) -> String {
    format!("image-{number:02}")
}
