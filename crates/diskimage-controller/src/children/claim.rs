//! The claim with the disk.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::core::DynamicObject;
use otctl_kit::cluster::erase;
use otctl_types::names::DISK_CHECKSUM_ANNOTATION;
use serde_json::json;

use crate::children::{Facts, hash_in};
use crate::surroundings::storage_class;

/// What is asked for when the size of the disk is not known.
const MIB: u64 = 1 << 20;

/// An empty claim for the disk.
pub fn claim(facts: &Facts<'_>) -> PersistentVolumeClaim {
    let spec = &facts.image.spec;
    let size = spec.volume_mode.room_for(facts.disk_size().unwrap_or(MIB));
    PersistentVolumeClaim {
        metadata: facts.meta(facts.data_name(), "disk"),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(
                spec.access_modes.iter().map(|mode| mode.as_str().to_owned()).collect(),
            ),
            storage_class_name: storage_class(spec, facts.policy, facts.around).map(str::to_owned),
            volume_mode: Some(spec.volume_mode.as_str().to_owned()),
            resources: Some(requests(size)),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// A claim filled from the snapshot of the disk, in place of one that was lost.
pub fn restored(facts: &Facts<'_>) -> PersistentVolumeClaim {
    let mut claim = claim(facts);
    claim.metadata.annotations.get_or_insert_default().extend(facts.hashes());
    if let Some(spec) = &mut claim.spec {
        let empty = facts.image.spec.volume_mode.room_for(facts.disk_size().unwrap_or(MIB));
        spec.resources = Some(requests(empty.max(facts.restore_size.unwrap_or(0))));
        spec.data_source = Some(TypedLocalObjectReference {
            api_group: Some("snapshot.storage.k8s.io".to_owned()),
            kind: "VolumeSnapshot".to_owned(),
            name: facts.data_name(),
        });
    }
    claim
}

/// The claim with the proof that its data is complete.
pub fn finished(claim: &PersistentVolumeClaim, facts: &Facts<'_>) -> Box<DynamicObject> {
    let mut object = erase(&PersistentVolumeClaim::default());
    object.metadata.name = Some(claim.name_any());
    object.metadata.namespace = claim.namespace();
    object.metadata.uid = claim.uid();
    object.metadata.annotations = Some(facts.hashes());
    object.data = json!({});
    object
}

/// Whether the claim carries that proof.
pub fn is_finished(claim: &PersistentVolumeClaim) -> bool {
    hash_in(&claim.metadata, DISK_CHECKSUM_ANNOTATION).is_some()
}

/// The request of that many bytes.
pub(super) fn requests(bytes: u64) -> VolumeResourceRequirements {
    let size = Quantity(policy::quantity::format(bytes));
    VolumeResourceRequirements {
        requests: Some([("storage".to_owned(), size)].into()),
        limits: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_to_be_a_hash_proves_nothing() {
        let mut claim = PersistentVolumeClaim::default();
        for (text, is_proof) in [("sha256:d".to_owned(), true), ("d".repeat(5000), false)] {
            claim.annotations_mut().insert(DISK_CHECKSUM_ANNOTATION.to_owned(), text);
            assert_eq!(is_finished(&claim), is_proof);
        }
    }
}
