//! A namespace with claims and snapshots, and what tests of storage wait for.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
    runtime::wait::Condition,
};
use local_cluster::{
    LocalCluster,
    storage::{IMMEDIATE_CLASS, Storage, VolumeSnapshot, VolumeSnapshotContent, snapshot_class},
};
use serde_json::{Value, json};

use crate::node::{create, furnished, until};

/// A namespace with claims and snapshots.
pub(crate) struct Shelf {
    cluster: &'static LocalCluster,
    pub(crate) namespace: String,
}

impl Shelf {
    pub(crate) async fn new() -> Self {
        let cluster = furnished().await;
        let namespace = cluster.namespace("storage").await.unwrap();
        Self { cluster, namespace }
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.admin()
    }

    pub(crate) fn storage(&self) -> &'static Storage {
        self.cluster.storage().unwrap()
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub(crate) fn snapshots(&self) -> Api<VolumeSnapshot> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub(crate) fn contents(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client())
    }

    /// A claim of 16 MiB; `spec` is laid over it.
    pub(crate) async fn claim(&self, name: &str, spec: Value) {
        let mut claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": IMMEDIATE_CLASS,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "16Mi"}},
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        create(&self.claims(), claim).await;
    }

    /// The volume of a claim, once it is bound.
    pub(crate) async fn volume(&self, claim: &str) -> PathBuf {
        until(&self.claims(), claim, claim_phase("Bound")).await;
        self.storage().read_volume(&self.namespace, claim).await.unwrap()
    }

    pub(crate) async fn snapshot(&self, name: &str, claim: &str, class: Option<&str>) {
        let source = json!({"persistentVolumeClaimName": claim});
        let spec = json!({"source": source, "volumeSnapshotClassName": class});
        create(&self.snapshots(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub(crate) async fn ready(&self, snapshot: &str) -> VolumeSnapshot {
        let is_ready =
            |snapshot: Option<&VolumeSnapshot>| snapshot.is_some_and(VolumeSnapshot::is_ready);
        until(&self.snapshots(), snapshot, is_ready).await.unwrap()
    }

    /// Waits until the bytes of a snapshot are copied, ready or not.
    pub(crate) async fn copied(&self, snapshot: &str) {
        let is_bound = |snapshot: Option<&VolumeSnapshot>| {
            snapshot
                .and_then(|s| s.status.as_ref()?.bound_volume_snapshot_content_name.as_ref())
                .is_some()
        };
        let snapshot = until(&self.snapshots(), snapshot, is_bound).await.unwrap();
        let is_copied = |content: Option<&VolumeSnapshotContent>| {
            content.is_some_and(|c| c.status.as_ref().is_some_and(|s| s.snapshot_handle.is_some()))
        };
        until(&self.contents(), &content_name(&snapshot), is_copied).await;
    }

    /// The message of a snapshot's error once it contains `part`.
    pub(crate) async fn error(&self, snapshot: &str, part: &'static str) -> String {
        let tells = move |snapshot: Option<&VolumeSnapshot>| {
            snapshot.and_then(VolumeSnapshot::error_message).is_some_and(|told| told.contains(part))
        };
        let snapshot = until(&self.snapshots(), snapshot, tells).await.unwrap();
        assert!(!snapshot.is_ready());
        snapshot.error_message().unwrap().to_owned()
    }

    /// The volume of a new claim that is filled from a snapshot.
    pub(crate) async fn restore(&self, claim: &str, snapshot: &str) -> PathBuf {
        self.claim(claim, json!({"dataSource": source(snapshot)})).await;
        self.volume(claim).await
    }

    pub(crate) async fn delete_snapshot(&self, name: &str) {
        self.snapshots().delete(name, &DeleteParams::default()).await.unwrap();
        until(&self.snapshots(), name, |snapshot: Option<&VolumeSnapshot>| snapshot.is_none())
            .await;
    }

    pub(crate) async fn create_class(&self, name: &str, driver: &str, policy: &str) {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass");
        let kind = ApiResource::from_gvk_with_plural(&kind, "volumesnapshotclasses");
        let classes: Api<DynamicObject> = Api::all_with(self.client(), &kind);
        let class = snapshot_class(name, driver, policy);
        classes.create(&PostParams::default(), &class).await.unwrap();
    }
}

pub(crate) fn source(snapshot: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot})
}

pub(crate) fn claim_phase<'a>(phase: &'a str) -> impl Condition<PersistentVolumeClaim> + 'a {
    move |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some(phase)
    }
}

pub(crate) fn content_name(snapshot: &VolumeSnapshot) -> String {
    snapshot.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.clone()).unwrap()
}

/// A pod that mounts a claim at `/disk` and runs a script that finds the path in `$DISK`.
pub(crate) fn pod(claim: &str, script: &str, use_volume: &Value) -> Value {
    let mut container = json!({
        "name": "main",
        "image": "none",
        "command": ["disk-importer", "-c", script],
        "env": [{"name": "DISK", "value": "/disk"}],
    });
    container.as_object_mut().unwrap().extend(use_volume.as_object().unwrap().clone());
    json!({"metadata": {"name": "writer"}, "spec": {
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [container],
    }})
}

pub(crate) fn mounted() -> Value {
    json!({"volumeMounts": [{"name": "disk", "mountPath": "/disk"}]})
}
