//! The snapshot of the disk. Made only when the data is complete and no pod mounts the claim any more.

use crate::children::Facts;
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec};

/// The snapshot of the claim of the same name. It carries the hashes, so that a lost status can be told again.
pub fn snapshot(facts: &Facts<'_>) -> VolumeSnapshot {
    let mut metadata = facts.meta(facts.data_name(), "snapshot");
    metadata.annotations.get_or_insert_default().extend(facts.hashes());
    VolumeSnapshot {
        metadata,
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource { persistent_volume_claim_name: Some(facts.data_name()) },
            volume_snapshot_class_name: facts.snapshot_class.clone(),
        },
        status: None,
    }
}
