//! The claim with the disk of a virtual machine: a copy of its image. Nothing of it changes later, and nothing of it is
//! deleted but with its entry: it holds what the guest wrote.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Current;
use otctl_types::names::{IMAGE_ANNOTATION, REVISION_ANNOTATION};
use otctl_types::workspace::VirtualMachine;
use policy::quantity;

use super::Facts;
use crate::images::Origin;
use crate::names::{self, Component};

/// A claim that is filled from what `image` has to offer now: from its snapshot, or else from its volume. None while it
/// has nothing.
pub fn claim(
    facts: &Facts<'_>,
    entry: &VirtualMachine,
    image: &VMDiskImage,
) -> Option<PersistentVolumeClaim> {
    let current = image.status.as_ref()?.current.as_ref()?;
    let spec = &image.spec;
    let class = spec.storage_class.as_ref().or(facts.policy.default_storage_class.as_ref());
    let size = ("storage".to_owned(), Quantity(quantity::format(size(image, current))));
    let claim = PersistentVolumeClaimSpec {
        access_modes: Some(spec.access_modes.iter().map(|it| it.as_str().to_owned()).collect()),
        storage_class_name: class.cloned(),
        volume_mode: Some(spec.volume_mode.as_str().to_owned()),
        data_source: Some(source(current)?),
        resources: Some(VolumeResourceRequirements { requests: Some([size].into()), limits: None }),
        ..PersistentVolumeClaimSpec::default()
    };
    let image = entry.spec.vm_disk_image_name.clone();
    let origin = Origin { image, revision: current.revision.clone() };
    let metadata = metadata(facts, entry, &origin);
    Some(PersistentVolumeClaim { metadata, spec: Some(claim), status: None })
}

/// What a claim of that origin is held to once it is there: its metadata. Its spec is as it is, since it cannot be
/// changed, and the image may have moved on; but for its size, and that may have been raised by hand.
pub fn kept(
    facts: &Facts<'_>,
    entry: &VirtualMachine,
    origin: &Origin,
    observed: &PersistentVolumeClaim,
) -> PersistentVolumeClaim {
    let spec = observed.spec.as_ref().map(|spec| PersistentVolumeClaimSpec {
        access_modes: spec.access_modes.clone(),
        storage_class_name: spec.storage_class_name.clone(),
        volume_mode: spec.volume_mode.clone(),
        data_source: spec.data_source.clone(),
        resources: spec.resources.clone(),
        ..PersistentVolumeClaimSpec::default()
    });
    let metadata = metadata(facts, entry, origin);
    PersistentVolumeClaim { metadata, spec, status: None }
}

fn metadata(facts: &Facts<'_>, entry: &VirtualMachine, origin: &Origin) -> ObjectMeta {
    let name = names::claim_name(&facts.name(), &facts.uid(), &entry.name, &origin.revision);
    let image = (IMAGE_ANNOTATION.to_owned(), origin.image.clone());
    let revision = (REVISION_ANNOTATION.to_owned(), origin.revision.clone());
    ObjectMeta {
        annotations: Some([image, revision].into()),
        ..facts.meta(name, Component::Machine, Some(&entry.name))
    }
}

fn source(current: &Current) -> Option<TypedLocalObjectReference> {
    let snapshot = current.snapshot.as_ref().map(|name| TypedLocalObjectReference {
        api_group: Some("snapshot.storage.k8s.io".to_owned()),
        kind: "VolumeSnapshot".to_owned(),
        name: name.clone(),
    });
    snapshot.or_else(|| {
        Some(TypedLocalObjectReference {
            api_group: None,
            kind: "PersistentVolumeClaim".to_owned(),
            name: current.volume.clone()?,
        })
    })
}

/// Bytes that a copy must have at least: as many as the image says, and room for a disk of its size as its own volume has
/// it. Not every driver takes, or tells, a smaller one.
fn size(image: &VMDiskImage, current: &Current) -> u64 {
    let told = current.minimum_size.and_then(|bytes| u64::try_from(bytes).ok());
    let disk = image.status.as_ref().and_then(|status| status.disk_size.as_deref());
    let disk = disk.or(image.spec.disk_size.as_deref());
    let disk = disk.and_then(|text| quantity::parse(text).ok());
    let room = disk.or(told).map(|bytes| image.spec.volume_mode.room_for(bytes));
    told.into_iter().chain(room).max().unwrap_or(1)
}
