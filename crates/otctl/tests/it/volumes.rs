//! Claims that are there while their data is not: nothing is called Ready by them.

use image_server::Content;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use local_cluster::storage::{VolumeSnapshot, WAITING_CLASS};
use otctl::demo::verify::restored_disk;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use serde_json::json;

use crate::hands::merge;
use crate::stage::{NAMESPACE, Stage, status, until, well_behaved};

const MIB: u64 = 1 << 20;

fn image(stage: &Stage, name: &str) -> VMDiskImage {
    let mut image = stage.image(name, Content::generated(MIB, 1), well_behaved());
    image.spec.keep_volume = Some(true);
    image
}

/// Name and UID of the claim with the data.
async fn claim(stage: &Stage, name: &str) -> (String, String) {
    let current = status(&stage.read(name).await).current.unwrap();
    let claim = stage.claims().get(&current.volume.unwrap()).await.unwrap();
    (claim.metadata.name.unwrap(), claim.metadata.uid.unwrap())
}

/// Takes the volume away from under its claim, as somebody does who cleans up a storage by hand.
async fn take_volume(stage: &Stage, claim: &str) {
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    let claim = stage.claims().get(claim).await.unwrap();
    let volume = claim.spec.unwrap().volume_name.unwrap();
    volumes.delete(&volume, &DeleteParams::default()).await.unwrap();
    merge(&volumes, &volume, &json!({"metadata": {"finalizers": null}})).await;
}

/// Waits until there is another claim than before and the image is Ready by it.
async fn await_another(stage: &Stage, name: &str, before: &str) -> VMDiskImageStatus {
    until("there is another claim with the data", async || {
        let current = status(&stage.read(name).await).current;
        let name = current.and_then(|current| current.volume)?;
        let claim = stage.claims().get_opt(&name).await.unwrap()?;
        (claim.metadata.uid.as_deref() != Some(before)).then_some(())
    })
    .await;
    status(&stage.await_phase(name, Phase::Succeeded).await)
}

fn reasons(status: &VMDiskImageStatus) -> Vec<&str> {
    status.attempts.iter().filter_map(|attempt| attempt.reason.as_deref()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_its_data_is_no_copy() {
    let mut stage = Stage::set(&[("concurrency", "2")]).await;
    stage.start_controller();
    let mut alone = image(&stage, "alone");
    alone.spec.snapshot_class = None;
    stage.create(&alone).await;
    stage.create(&image(&stage, "copied")).await;
    for name in ["alone", "copied"] {
        stage.await_phase(name, Phase::Succeeded).await;
    }

    // Nothing else holds the data: it is fetched again, into a new claim.
    let (lost, uid) = claim(&stage, "alone").await;
    take_volume(&stage, &lost).await;
    let again = await_another(&stage, "alone", &uid).await;
    println!("alone: {:?}", reasons(&again));
    assert_eq!(reasons(&again).last(), Some(&"Succeeded"));
    assert_eq!(stage.server.counts("alone").downloads, 2);

    // The snapshot holds it: it is restored, and nothing is fetched.
    let (lost, uid) = claim(&stage, "copied").await;
    take_volume(&stage, &lost).await;
    let restored = await_another(&stage, "copied", &uid).await;
    assert_eq!(reasons(&restored), ["Succeeded"]);
    assert_eq!(stage.server.counts("copied").downloads, 1);
    stage.finish().await;
}

/// Its class binds a claim when a pod uses it, and until then the snapshot is all there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_to_be_restored_is_no_copy() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    stage.start_controller();
    let mut waits = image(&stage, "waits");
    waits.spec.keep_volume = Some(false);
    waits.spec.storage_class = Some(WAITING_CLASS.to_owned());
    stage.create(&waits).await;
    stage.await_phase("waits", Phase::Succeeded).await;
    until("only the snapshot is kept", async || {
        let claims = stage.claims().list(&ListParams::default()).await.unwrap().items;
        claims.is_empty().then_some(())
    })
    .await;
    stage.patch("waits", &json!({"spec": {"keepVolume": true}})).await;
    let kept = stage.await_image("waits", |status| {
        status.current.as_ref().is_some_and(|current| current.volume.is_some())
    });
    let kept = status(&kept.await).current.unwrap();
    let (_, uid) = claim(&stage, "waits").await;

    let snapshots: Api<VolumeSnapshot> = Api::namespaced(stage.client.clone(), NAMESPACE);
    snapshots.delete(&kept.snapshot.unwrap(), &DeleteParams::default()).await.unwrap();
    let again = await_another(&stage, "waits", &uid).await;
    println!("waits: {:?}", reasons(&again));
    assert_eq!(reasons(&again).last(), Some(&"Succeeded"));
    assert_eq!(stage.server.counts("waits").downloads, 2);
    let disk = restored_disk(&stage.client, &stage.read("waits").await).await.unwrap();
    assert_eq!(disk.sha256, Content::generated(MIB, 1).disk_hash(MIB).unwrap().hex());
    stage.finish().await;
}
