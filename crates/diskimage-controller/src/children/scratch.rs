//! The claim with the download: what was fetched survives a killed pod and a failed attempt, and goes when the disk is
//! complete or nothing more will be tried.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use otctl_types::diskimage::VolumeMode;
use otctl_types::import::SourceFacts;

use crate::children::Facts;
use crate::children::claim::requests;
use crate::names;
use crate::surroundings::storage_class;

/// Room for the checkpoint beside the source.
const CHECKPOINT_ROOM: u64 = 4 << 20;

/// The claim for the download: as large as the source, and as what of it must be unpacked to be read.
pub fn claim(facts: &Facts<'_>) -> PersistentVolumeClaim {
    let source = facts
        .source
        .as_ref()
        .and_then(SourceFacts::scratch_bytes)
        .or_else(|| facts.disk_size())
        .unwrap_or(0);
    let size = VolumeMode::Filesystem.room_for(source.saturating_add(CHECKPOINT_ROOM));
    let class = facts
        .policy
        .scratch_storage_class
        .as_deref()
        .or_else(|| storage_class(&facts.image.spec, facts.policy, facts.around));
    PersistentVolumeClaim {
        metadata: facts.meta(names::scratch_name(&facts.name(), facts.revision), "scratch"),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: class.map(str::to_owned),
            volume_mode: Some("Filesystem".to_owned()),
            resources: Some(requests(size)),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
