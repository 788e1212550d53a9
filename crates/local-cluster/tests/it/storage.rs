//! Volumes and snapshots: bound by the real controllers, made, copied and deleted by ours.

mod shelf;

use std::{fs, os::unix::fs::FileTypeExt};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt, api::DeleteParams};
use local_cluster::storage::{
    DRIVER, SNAPSHOT_CLASS, VolumeSnapshot, VolumeSnapshotContent, WAITING_CLASS,
};
use serde_json::json;

use self::shelf::{Shelf, claim_phase, content_name, mounted, pod, source};
use crate::{
    node::{create, phase, until},
    support::wait_until,
};

#[tokio::test]
async fn an_immediate_claim_is_bound_and_a_pod_writes_into_its_volume() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    let volume = shelf.volume("disk").await;
    assert!(fs::read_dir(&volume).unwrap().next().is_none(), "a new volume is empty");
    let pods: Api<Pod> = Api::namespaced(shelf.client(), &shelf.namespace);
    create(&pods, pod("disk", "printf bytes >$DISK/disk.img", &mounted())).await;
    until(&pods, "writer", phase("Succeeded")).await;
    assert_eq!(fs::read(volume.join("disk.img")).unwrap(), b"bytes");
}

#[tokio::test]
async fn a_waiting_claim_is_bound_for_its_first_pod() {
    let shelf = Shelf::new().await;
    shelf.claim("first", json!({"storageClassName": WAITING_CLASS})).await;
    // An immediate claim made later is bound first: nothing is done for the other one.
    shelf.claim("marker", json!({})).await;
    shelf.volume("marker").await;
    let claim = shelf.claims().get("first").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Pending"));

    let pods: Api<Pod> = Api::namespaced(shelf.client(), &shelf.namespace);
    create(&pods, pod("first", "printf x >$DISK/x", &mounted())).await;
    let writer = until(&pods, "writer", phase("Succeeded")).await.unwrap();
    assert_eq!(fs::read(shelf.volume("first").await.join("x")).unwrap(), b"x");
    let claim = shelf.claims().get("first").await.unwrap();
    let chosen = claim.annotations().get("volume.kubernetes.io/selected-node");
    assert_eq!(chosen, writer.spec.unwrap().node_name.as_ref());
}

#[tokio::test]
async fn a_block_volume_is_one_file_of_the_claims_size() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({"volumeMode": "Block"})).await;
    let device = shelf.volume("disk").await;
    let metadata = fs::metadata(&device).unwrap();
    assert!(metadata.is_file() && !metadata.file_type().is_block_device());
    assert_eq!(metadata.len(), 16 << 20);

    let pods: Api<Pod> = Api::namespaced(shelf.client(), &shelf.namespace);
    let as_device = json!({"volumeDevices": [{"name": "disk", "devicePath": "/disk"}]});
    let script = "printf head | dd of=$DISK conv=notrunc 2>&1";
    create(&pods, pod("disk", script, &as_device)).await;
    until(&pods, "writer", phase("Succeeded")).await;
    let bytes = fs::read(&device).unwrap();
    assert_eq!((&bytes[..4], bytes.len()), (b"head".as_slice(), 16 << 20));

    shelf.snapshot("snap", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.ready("snap").await;
    let larger = json!({"requests": {"storage": "24Mi"}});
    let spec = json!({"volumeMode": "Block", "resources": larger, "dataSource": source("snap")});
    shelf.claim("copy", spec).await;
    let copy = fs::read(shelf.volume("copy").await).unwrap();
    assert_eq!(copy.len(), 24 << 20);
    assert_eq!(copy[..16 << 20], bytes);
}

#[tokio::test]
async fn a_ready_snapshot_is_bound_both_ways_and_restores_the_same_bytes() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    let volume = shelf.volume("disk").await;
    let bytes: Vec<u8> =
        (0..3 << 20).map(|i: u32| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    fs::write(volume.join("disk.img"), &bytes).unwrap();
    shelf.snapshot("snap", "disk", Some(SNAPSHOT_CLASS)).await;
    let snapshot = shelf.ready("snap").await;

    let status = snapshot.status.as_ref().unwrap();
    assert_eq!(status.restore_size.as_ref().unwrap().0, (16 << 20).to_string());
    assert!(status.creation_time.is_some() && status.error.is_none());
    let content = shelf.contents().get(&content_name(&snapshot)).await.unwrap();
    assert_eq!(content.spec.volume_snapshot_ref.uid, snapshot.uid());
    assert_eq!(content.spec.driver, DRIVER);
    let held = content.status.unwrap();
    assert_eq!((held.ready_to_use, held.restore_size), (Some(true), Some(16 << 20)));

    let restored = shelf.restore("copy", "snap").await;
    assert_eq!(fs::read(restored.join("disk.img")).unwrap(), bytes);
}

#[tokio::test]
async fn a_claim_is_a_copy_of_another_claims_volume_once_that_is_bound() {
    let shelf = Shelf::new().await;
    let of = |claim: &str| json!({"kind": "PersistentVolumeClaim", "name": claim});
    shelf.claim("early", json!({"dataSource": of("disk")})).await;
    shelf.claim("disk", json!({})).await;
    let original = shelf.volume("disk").await;
    shelf.volume("early").await;
    fs::write(original.join("disk.img"), b"bytes").unwrap();
    let small = json!({"requests": {"storage": "15Mi"}});
    shelf.claim("small", json!({"resources": small, "dataSource": of("disk")})).await;
    shelf.claim("block", json!({"volumeMode": "Block", "dataSource": of("disk")})).await;
    shelf.claim("copy", json!({"dataSource": of("disk")})).await;
    let copy = shelf.volume("copy").await;
    fs::write(original.join("disk.img"), b"other").unwrap();
    assert_eq!(fs::read(copy.join("disk.img")).unwrap(), b"bytes");

    for refused in ["small", "block"] {
        until(&shelf.claims(), refused, claim_phase("Pending")).await;
        shelf.claims().delete(refused, &DeleteParams::default()).await.unwrap();
    }
    // What is not copied any more can be deleted.
    shelf.claims().delete("disk", &DeleteParams::default()).await.unwrap();
    until(&shelf.claims(), "disk", |claim: Option<&PersistentVolumeClaim>| claim.is_none()).await;
}

#[tokio::test]
async fn a_claim_waits_for_its_snapshot_and_refuses_to_be_too_small() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    shelf.volume("disk").await;
    shelf.claim("copy", json!({"dataSource": source("snap")})).await;
    let small = json!({"requests": {"storage": "15Mi"}});
    shelf.claim("small", json!({"resources": small, "dataSource": source("snap")})).await;
    shelf.storage().hold_ready(&shelf.namespace);
    shelf.snapshot("snap", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.copied("snap").await;
    assert!(!shelf.snapshots().get("snap").await.unwrap().is_ready());
    until(&shelf.claims(), "copy", claim_phase("Pending")).await;

    shelf.storage().release_ready(&shelf.namespace);
    shelf.volume("copy").await;
    until(&shelf.claims(), "small", claim_phase("Pending")).await;
}

#[tokio::test]
async fn a_snapshot_taken_too_early_has_only_what_was_there() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    let volume = shelf.volume("disk").await;
    fs::write(volume.join("disk.img"), b"half").unwrap();
    shelf.storage().hold_ready(&shelf.namespace);
    shelf.snapshot("early", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.copied("early").await;
    fs::write(volume.join("disk.img"), b"half and the rest").unwrap();
    shelf.storage().release_ready(&shelf.namespace);
    shelf.ready("early").await;
    let restored = shelf.restore("copy", "early").await;
    assert_eq!(fs::read(restored.join("disk.img")).unwrap(), b"half");
}

#[tokio::test]
async fn what_is_wrong_stands_in_the_status_and_heals() {
    let shelf = Shelf::new().await;
    let late = format!("late-{}", shelf.namespace);
    let other = format!("other-{}", shelf.namespace);
    shelf.create_class(&other, "other.example.com", "Delete").await;
    shelf.claim("disk", json!({})).await;
    shelf.volume("disk").await;
    shelf.claim("unbound", json!({"storageClassName": WAITING_CLASS})).await;

    shelf.snapshot("no-class", "disk", Some(&late)).await;
    shelf.snapshot("no-default", "disk", None).await;
    shelf.snapshot("no-claim", "absent", Some(SNAPSHOT_CLASS)).await;
    shelf.snapshot("not-bound", "unbound", Some(SNAPSHOT_CLASS)).await;
    shelf.snapshot("other-driver", "disk", Some(&other)).await;
    shelf.error("no-class", "Failed to get snapshot class").await;
    shelf.error("no-default", "cannot find default snapshot class").await;
    shelf.error("no-claim", "cannot get claim from snapshot").await;
    shelf.error("not-bound", "the PVC unbound is not yet bound to a PV").await;
    shelf.error("other-driver", "failed to take snapshot of the volume").await;

    shelf.create_class(&late, DRIVER, "Delete").await;
    let healed = shelf.ready("no-class").await;
    assert_eq!(healed.error_message(), None);
    for broken in ["no-default", "no-claim", "not-bound", "other-driver"] {
        shelf.delete_snapshot(broken).await;
    }
}

#[tokio::test]
async fn a_driver_that_refuses_is_asked_again() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    let volume = shelf.volume("disk").await;
    shelf.storage().fail_next(&shelf.namespace, 2, "ConcurrentSnapshotLimitExceeded");
    shelf.snapshot("snap", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.error("snap", "ConcurrentSnapshotLimitExceeded").await;
    fs::write(volume.join("late"), b"late").unwrap();
    shelf.ready("snap").await;
    let copied = shelf.restore("copy", "snap").await.join("late");
    assert!(copied.exists(), "the bytes are those of the attempt that succeeded");
}

#[tokio::test]
async fn deleting_removes_the_bytes_unless_the_class_retains_them() {
    let shelf = Shelf::new().await;
    let keep = format!("keep-{}", shelf.namespace);
    shelf.create_class(&keep, DRIVER, "Retain").await;
    shelf.claim("disk", json!({})).await;
    let volume = shelf.volume("disk").await;
    fs::write(volume.join("disk.img"), b"x").unwrap();
    shelf.snapshot("gone", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.snapshot("kept", "disk", Some(&keep)).await;
    let bytes_of = |snapshot: &VolumeSnapshot| {
        shelf.storage().root().join("snapshots").join(content_name(snapshot))
    };
    let (deleted, retained) = (shelf.ready("gone").await, shelf.ready("kept").await);
    assert!(bytes_of(&deleted).exists() && bytes_of(&retained).exists());

    shelf.delete_snapshot("gone").await;
    shelf.delete_snapshot("kept").await;
    assert!(shelf.contents().get_opt(&content_name(&deleted)).await.unwrap().is_none());
    assert!(!bytes_of(&deleted).exists());
    let content = content_name(&retained);
    shelf.contents().get(&content).await.unwrap();
    shelf.contents().delete(&content, &DeleteParams::default()).await.unwrap();
    until(&shelf.contents(), &content, |c: Option<&VolumeSnapshotContent>| c.is_none()).await;
    assert!(bytes_of(&retained).exists());

    let claim = shelf.claims().get("disk").await.unwrap();
    let name = claim.spec.unwrap().volume_name.unwrap();
    shelf.claims().delete("disk", &DeleteParams::default()).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(shelf.client());
    until(&volumes, &name, |volume: Option<&PersistentVolume>| volume.is_none()).await;
    wait_until("the volume's directory is gone", || !volume.exists()).await;
}

#[tokio::test]
async fn a_claim_whose_snapshot_is_being_taken_outlives_its_deletion() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    shelf.volume("disk").await;
    shelf.storage().hold_ready(&shelf.namespace);
    shelf.snapshot("snap", "disk", Some(SNAPSHOT_CLASS)).await;
    let is_source = |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(|claim| {
            claim.finalizers().iter().any(|f| f.ends_with("pvc-as-source-protection"))
        })
    };
    until(&shelf.claims(), "disk", is_source).await;
    shelf.claims().delete("disk", &DeleteParams::default()).await.unwrap();
    let dying = shelf.claims().get("disk").await.unwrap();
    assert!(dying.metadata.deletion_timestamp.is_some());
    shelf.delete_snapshot("snap").await;
    until(&shelf.claims(), "disk", |claim: Option<&PersistentVolumeClaim>| claim.is_none()).await;
}

#[tokio::test]
async fn a_namespace_with_snapshots_in_every_state_can_be_deleted() {
    let shelf = Shelf::new().await;
    shelf.claim("disk", json!({})).await;
    shelf.volume("disk").await;
    shelf.snapshot("good", "disk", Some(SNAPSHOT_CLASS)).await;
    shelf.ready("good").await;
    shelf.snapshot("bad", "disk", Some("absent")).await;
    shelf.error("bad", "not found").await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(shelf.client());
    namespaces.delete(&shelf.namespace, &DeleteParams::default()).await.unwrap();
    let is_gone = |namespace: Option<&k8s_openapi::api::core::v1::Namespace>| namespace.is_none();
    until(&namespaces, &shelf.namespace, is_gone).await;
}
