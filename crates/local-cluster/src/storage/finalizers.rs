//! Finalizers: added and removed against the version that was read.

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::StorageError;

/// On a VolumeSnapshot that has, or may get, a content.
pub(super) const SNAPSHOT_BOUND: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// On a VolumeSnapshotContent.
pub(super) const CONTENT_BOUND: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// On a claim while a snapshot of it is being taken.
pub(super) const CLAIM_AS_SOURCE: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

/// On a claim while another one is being filled from it.
pub(super) const CLONED: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// Puts a finalizer on an object that does not have it.
pub(super) async fn add<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), StorageError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    if object.finalizers().iter().any(|present| present == finalizer) {
        return Ok(());
    }
    let finalizers = object.finalizers().iter().map(String::as_str).chain([finalizer]).collect();
    write(api, object, finalizers).await
}

/// Takes a finalizer off an object that has it.
pub(super) async fn remove<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), StorageError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let kept: Vec<_> =
        object.finalizers().iter().map(String::as_str).filter(|f| *f != finalizer).collect();
    if kept.len() == object.finalizers().len() {
        return Ok(());
    }
    write(api, object, kept).await
}

async fn write<K>(api: &Api<K>, object: &K, finalizers: Vec<&str>) -> Result<(), StorageError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let patch = serde_json::json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "finalizers": finalizers,
    }});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        // Gone: it has no finalizers left.
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
