//! What the controller watches: one store per kind. Which kinds, and with which selector, is said here and nowhere else.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use otctl_kit::store::{Key, Store};
use otctl_types::names::IMAGE_QUEUE;
use otctl_types::{AdmissionQueue, VMDiskImage};

pub use otctl_queue::effective_policy;

use crate::known::KnownImages;
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotClass};

/// Every store of this controller. Clones share the stores.
#[derive(Clone, Default)]
pub struct Views {
    /// All images.
    pub images: Store<VMDiskImage>,
    /// The ledger of images; no other queue.
    pub queues: Store<AdmissionQueue>,
    /// The policy ConfigMap; no other.
    pub policies: Store<ConfigMap>,
    /// Probe and import Jobs, by label.
    pub jobs: Store<Job>,
    /// Their pods, by label.
    pub pods: Store<Pod>,
    /// Claims made here, by label.
    pub claims: Store<PersistentVolumeClaim>,
    /// Snapshots made here, by label.
    pub snapshots: Store<VolumeSnapshot>,
    /// All storage classes.
    pub storage_classes: Store<StorageClass>,
    /// All snapshot classes.
    pub snapshot_classes: Store<VolumeSnapshotClass>,
    /// What follows from images, as far as it was asked for.
    pub known: KnownImages,
}

/// The key of the ledger of images.
pub fn queue_key() -> Key {
    Key::new("", IMAGE_QUEUE)
}

impl Views {
    /// The ledger as last seen.
    pub fn queue(&self) -> Option<Arc<AdmissionQueue>> {
        self.queues.get(&queue_key())
    }
}
