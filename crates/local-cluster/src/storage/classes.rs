//! The classes of a local cluster.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;

use super::StorageError;

/// The name of provisioner and snapshot driver.
pub const DRIVER: &str = "local.pelotech.ot";
/// A storage class whose claims are bound at once.
pub const IMMEDIATE_CLASS: &str = "otctl-local";
/// A storage class whose claims are bound when a pod uses them.
pub const WAITING_CLASS: &str = "otctl-local-wffc";
/// A snapshot class that deletes snapshots with their objects.
pub const SNAPSHOT_CLASS: &str = "otctl-local";
pub(super) const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// Both storage classes; neither is the default.
pub fn storage_classes() -> [StorageClass; 2] {
    [(IMMEDIATE_CLASS, "Immediate"), (WAITING_CLASS, "WaitForFirstConsumer")].map(
        |(name, binding)| {
            let mut class = StorageClass {
                provisioner: DRIVER.to_owned(),
                reclaim_policy: Some("Delete".to_owned()),
                volume_binding_mode: Some(binding.to_owned()),
                ..StorageClass::default()
            };
            class.metadata.name = Some(name.to_owned());
            class
        },
    )
}

/// A VolumeSnapshotClass of `driver` with deletion policy `Delete` or `Retain`.
pub fn snapshot_class(name: &str, driver: &str, deletion_policy: &str) -> DynamicObject {
    DynamicObject::new(name, &snapshot_class_resource())
        .data(json!({"driver": driver, "deletionPolicy": deletion_policy}))
}

/// Creates both storage classes and [`SNAPSHOT_CLASS`], or brings them back to what they were.
pub async fn create_classes(client: &Client) -> Result<(), StorageError> {
    let params = PatchParams::apply("local-cluster").force();
    let classes: Api<StorageClass> = Api::all(client.clone());
    for class in storage_classes() {
        let name = class.metadata.name.clone().unwrap_or_default();
        classes.patch(&name, &params, &Patch::Apply(&class)).await?;
    }
    let snapshot_classes: Api<DynamicObject> =
        Api::all_with(client.clone(), &snapshot_class_resource());
    let class = snapshot_class(SNAPSHOT_CLASS, DRIVER, "Delete");
    snapshot_classes.patch(SNAPSHOT_CLASS, &params, &Patch::Apply(&class)).await?;
    Ok(())
}

pub(super) fn snapshot_class_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass");
    ApiResource::from_gvk_with_plural(&kind, "volumesnapshotclasses")
}

/// What a snapshot takes from its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenClass {
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) deletion_policy: String,
}

impl From<DynamicObject> for ChosenClass {
    fn from(class: DynamicObject) -> Self {
        let field = |name: &str| class.data[name].as_str().unwrap_or_default().to_owned();
        Self {
            driver: field("driver"),
            deletion_policy: field("deletionPolicy"),
            name: class.metadata.name.unwrap_or_default(),
        }
    }
}
