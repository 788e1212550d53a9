//! Snapshots: of complete data only, of the class that was asked for, and nothing that stays behind unsaid.

use std::collections::BTreeMap;

use image_server::{Behaviour, Content, Fault};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams,
    PostParams,
};
use kube::{Api, ResourceExt as _};
use local_cluster::storage::{
    DRIVER, SNAPSHOT_CLASS, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotSource,
    VolumeSnapshotSpec, snapshot_class,
};
use otctl::demo::verify::restored_disk;
use otctl_types::VMDiskImage;
use otctl_types::condition::{SNAPSHOTTED, find};
use otctl_types::diskimage::Phase;
use serde_json::json;

use crate::hands::finish_but;
use crate::stage::{NAMESPACE, Stage, status, until, well_behaved};

const MIB: u64 = 1 << 20;

fn content() -> Content {
    Content::generated(MIB, 1)
}

fn classes(stage: &Stage) -> Api<DynamicObject> {
    let kind =
        kube::api::GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass");
    Api::all_with(
        stage.client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, "volumesnapshotclasses"),
    )
}

async fn create_class(stage: &Stage, name: &str, driver: &str, policy: &str, is_default: bool) {
    let mut class = snapshot_class(name, driver, policy);
    let mark = "snapshot.storage.kubernetes.io/is-default-class".to_owned();
    class.metadata.annotations = Some(BTreeMap::from([(mark, is_default.to_string())]));
    classes(stage).create(&PostParams::default(), &class).await.unwrap();
}

fn snapshots(stage: &Stage) -> Api<VolumeSnapshot> {
    Api::namespaced(stage.client.clone(), NAMESPACE)
}

async fn of_class(stage: &Stage, name: &str, class: Option<&str>) -> VMDiskImage {
    let mut image = stage.image(name, content(), well_behaved());
    image.spec.snapshot_class = class.map(str::to_owned);
    stage.create(&image).await
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_of_complete_data_and_of_the_class_that_was_asked_for() {
    let mut stage = Stage::set(&[("concurrency", "2")]).await;
    stage.start_controller();
    of_class(&stage, "no-default", None).await;
    stage.await_phase("no-default", Phase::Succeeded).await;
    create_class(&stage, "one", DRIVER, "Delete", true).await;
    of_class(&stage, "one-default", None).await;
    stage.await_phase("one-default", Phase::Succeeded).await;
    create_class(&stage, "two", DRIVER, "Delete", true).await;
    create_class(&stage, "foreign", "somebody.else", "Delete", false).await;
    of_class(&stage, "two-defaults", None).await;
    of_class(&stage, "foreign", Some("foreign")).await;
    of_class(&stage, "asked-for", Some("two")).await;

    for name in ["no-default", "one-default", "two-defaults"] {
        let image = stage.await_phase(name, Phase::Succeeded).await;
        assert_eq!(status(&image).current.unwrap().snapshot, None, "{name}");
    }
    let refused = stage.await_reason("foreign", "SnapshotClassMismatch").await;
    assert!(status(&refused).message.unwrap().contains("somebody.else"));
    assert_eq!(stage.server.counts("foreign").requests, 0, "refused before anything is fetched");
    let image = stage.await_phase("asked-for", Phase::Succeeded).await;
    let all = snapshots(&stage).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), 1, "the one that was asked for");

    expect_the_copy_is_whole(&stage, &image).await;
    expect_success_outlives_its_class(&mut stage, &all[0]).await;
    stage.finish().await;
}

/// The storage copies what the volume holds when it is asked, so a snapshot that came too early would show here.
async fn expect_the_copy_is_whole(stage: &Stage, image: &VMDiskImage) {
    let disk = restored_disk(&stage.client, image).await.unwrap();
    let expected = content().disk_hash(MIB).unwrap().hex();
    assert_eq!((disk.size, disk.sha256), (MIB, expected));
}

/// Its class is deleted, and its driver makes it unready for that.
async fn expect_success_outlives_its_class(stage: &mut Stage, snapshot: &VolumeSnapshot) {
    classes(stage).delete("two", &DeleteParams::default()).await.unwrap();
    let unready = json!({"status": {"readyToUse": false}});
    let name = snapshot.name_any();
    snapshots(stage)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&unready))
        .await
        .unwrap();
    stage.kill_controller().await;
    stage.start_controller();
    of_class(stage, "marker", None).await;
    stage.await_phase("marker", Phase::Succeeded).await;
    let image = stage.read("asked-for").await;
    assert_eq!(status(&image).phase, Some(Phase::Succeeded), "{image:#?}");
    assert_eq!(stage.server.counts("asked-for").downloads, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_leaves_nothing_unsaid_and_blocks_nothing() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    create_class(&stage, "retains", DRIVER, "Retain", false).await;
    stage.start_controller();
    expect_a_waiting_snapshot_holds_no_slot(&stage).await;
    expect_what_a_class_retains_is_said(&stage).await;
    expect_a_namespace_to_go(&stage).await;
    // What is still tried while the namespace goes is refused for that.
    finish_but(stage, |entry| entry.namespace.starts_with("doomed-")).await;
}

/// Deleted while its snapshot waits, with an invalid one beside it.
async fn expect_a_waiting_snapshot_holds_no_slot(stage: &Stage) {
    stage.cluster().storage().unwrap().hold_ready(NAMESPACE);
    of_class(stage, "waits", Some(SNAPSHOT_CLASS)).await;
    stage.await_phase("waits", Phase::Snapshotting).await;
    let invalid = VolumeSnapshot {
        metadata: ObjectMeta { name: Some("invalid".to_owned()), ..ObjectMeta::default() },
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                persistent_volume_claim_name: Some("no-such-claim".to_owned()),
                ..VolumeSnapshotSource::default()
            },
            volume_snapshot_class_name: Some("no-such-class".to_owned()),
        },
        status: None,
    };
    snapshots(stage).create(&PostParams::default(), &invalid).await.unwrap();
    stage.await_ledger("its slot is free", |ledger| ledger.active.is_empty()).await;
    stage.delete("waits").await;
    until("nothing of it is left", async || (children(stage, "waits-").await == 0).then_some(()))
        .await;
    assert!(snapshots(stage).get_opt("invalid").await.unwrap().is_some(), "it is not ours");
    stage.cluster().storage().unwrap().release_ready(NAMESPACE);
}

/// Claims and snapshots whose name begins with this.
async fn children(stage: &Stage, prefix: &str) -> usize {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let claims = claims.list(&ListParams::default()).await.unwrap().items;
    let snapshots = snapshots(stage).list(&ListParams::default()).await.unwrap().items;
    let names = claims.iter().map(|claim| claim.name_any());
    let names = names.chain(snapshots.iter().map(|snapshot| snapshot.name_any()));
    names.filter(|name| name.starts_with(prefix)).count()
}

/// A class that retains leaves content and bytes: the image says so while it lives.
async fn expect_what_a_class_retains_is_said(stage: &Stage) {
    of_class(stage, "retained", Some("retains")).await;
    let status = status(&stage.await_phase("retained", Phase::Succeeded).await);
    let said = find(&status.conditions, SNAPSHOTTED).unwrap();
    assert!(said.message.contains("retains"), "{said:?}");
    stage.delete("retained").await;
    until("its children are gone", async || {
        (children(stage, "retained-").await == 0).then_some(())
    })
    .await;
    let contents: Api<VolumeSnapshotContent> = Api::all(stage.client.clone());
    let left = contents.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 1, "the bytes that the class retains");
}

/// The namespace of a running import is deleted: it goes, and its slot is another's.
async fn expect_a_namespace_to_go(stage: &Stage) {
    let name = stage.cluster().namespace("doomed").await.unwrap();
    let image = stage.image("doomed", content(), Behaviour::new().then(Fault::stall(300 << 10)));
    stage.create_in(&name, image).await;
    until("its transfer is open", async || {
        (stage.server.counts("doomed").open_data == 1).then_some(())
    })
    .await;
    of_class(stage, "next", None).await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    stage.await_phase("next", Phase::Succeeded).await;
    until("the namespace is gone", async || {
        namespaces.get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(stage.server.counts("doomed").downloads, 1);
}
