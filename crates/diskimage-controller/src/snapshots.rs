//! The kinds of `snapshot.storage.k8s.io/v1`, with the fields used here. Hand-written: the published crates carry far
//! more than is read, and a class or a content has its fields at the top, which the derive does not make.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};

macro_rules! snapshot_kind {
    ($kind:ident, $plural:literal, $scope:ty) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "snapshot.storage.k8s.io".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A snapshot of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshot {
    /// Name, owners and annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What to snapshot.
    #[serde(default)]
    pub spec: VolumeSnapshotSpec,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<VolumeSnapshotStatus>,
}
snapshot_kind!(VolumeSnapshot, "volumesnapshots", NamespaceResourceScope);

/// What to snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// From what.
    #[serde(default)]
    pub source: VolumeSnapshotSource,
    /// Class; never left to the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// The claim a snapshot is taken of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    /// Name of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
}

/// What became of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// Whether a claim can be made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// Its content, when bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// The smallest claim that can be made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
}

/// An error of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotError {
    /// What the driver said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The stored side of a snapshot; cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContent {
    /// Name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it belongs to.
    #[serde(default)]
    pub spec: VolumeSnapshotContentSpec,
}
snapshot_kind!(VolumeSnapshotContent, "volumesnapshotcontents", ClusterResourceScope);

/// What a content belongs to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// The snapshot it is bound to.
    #[serde(default)]
    pub volume_snapshot_ref: ObjectReference,
    /// `Delete` or `Retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
}

/// A class of snapshots; cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotClass {
    /// Name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The driver that takes them; that of the volume, or the snapshot never becomes ready.
    #[serde(default)]
    pub driver: String,
    /// `Delete` or `Retain`.
    #[serde(default)]
    pub deletion_policy: String,
}
snapshot_kind!(VolumeSnapshotClass, "volumesnapshotclasses", ClusterResourceScope);
