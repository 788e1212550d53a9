//! The disk images that a workspace brings along, and its shares in those that Workspaces made: each that uses one and wants
//! it deleted with it owns it in common with the others, and the last one takes it with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use otctl_kit::cluster::erase;
use otctl_kit::plan::{Action, Write};
use otctl_types::VMDiskImage;
use otctl_types::names::MADE_BY_ANNOTATION;
use otctl_types::workspace::ImageRetention;

use super::Works;
use super::write::{delete_as_seen, establish};
use crate::children;
use crate::images::Disk;
use crate::kin::stays;
use crate::needs::owns;
use crate::parts;

impl Works<'_> {
    /// Images are made in a turn, or for entries that had one. A share is kept from the first pass on: whoever waits for an
    /// image uses it.
    pub(super) fn images(&self) -> Vec<Write> {
        let entries = self.workspace.spec.virtual_machines.iter();
        let named: BTreeSet<&str> = entries.map(|it| it.spec.vm_disk_image_name.as_str()).collect();
        let kept = named.into_iter().filter_map(|name| self.image(name));
        let left = self.observed.former_images.iter().filter(|image| stays(&***image));
        kept.chain(left.map(|image| self.unshare(image, "no entry names it any more"))).collect()
    }

    /// The image is made, or this workspace's share in it put as `imageRetention` says.
    fn image(&self, name: &str) -> Option<Write> {
        let needs = &self.observed.needs;
        let Some(image) = needs.images.get(name) else { return self.make(name) };
        if !stays(&**image) || !children::image::is_made_by_workspace(image) {
            return None;
        }
        match (needs.takes_along(self.workspace, name), owns(self.workspace, image)) {
            // It uses no image that is another than it asks for.
            (true, false) => self.uses(name).then(|| self.share(image)),
            (false, true) => Some(self.unshare(image, "its images are retained")),
            (true, true) | (false, false) => None,
        }
    }

    /// Where an entry waits for it: others of that name may have their disks already. Not while the workspace is suspended:
    /// a download is work.
    fn make(&self, name: &str) -> Option<Write> {
        let is_awaited =
            |entry: &str, disk: &Disk| *disk == Disk::ToMake && self.active.contains(entry);
        if self.is_stopped || !self.disks(name).any(|(entry, disk)| is_awaited(entry, disk)) {
            return None;
        }
        let image = children::image::image(&self.facts, parts::recipe(self.workspace, name)?)?;
        Some(establish(&image, "there is none of that name, and its entry says how it is made"))
    }

    fn uses(&self, name: &str) -> bool {
        self.disks(name).any(|(_, disk)| !matches!(disk, Disk::Differs(_)))
    }

    /// What each entry that names an image has of it, by the entry's name.
    fn disks<'b>(&'b self, name: &'b str) -> impl Iterator<Item = (&'b str, &'b Disk)> {
        let entries = self.workspace.spec.virtual_machines.iter();
        let entries = entries.filter(move |entry| entry.spec.vm_disk_image_name == name);
        entries.filter_map(|entry| {
            Some((entry.name.as_str(), self.observed.needs.disks.get(&entry.name)?))
        })
    }

    /// The image goes with the last of its owners. Who retains its images owns one as long as somebody else would take it
    /// along, and no longer. Everybody who uses it gets a share in this same write: were there a moment in which this
    /// workspace alone had one, the image would go with it under the hands of the others.
    fn share(&self, image: &VMDiskImage) -> Write {
        let mut owners = image.owner_references().to_vec();
        owners.push(children::image::owner_reference(self.workspace));
        let others = self.observed.needs.users.get(&image.name_any()).into_iter().flatten();
        owners.extend(others.cloned());
        own(image, owners, "it goes with the last workspace that uses it")
    }

    /// Without this workspace's share. An image that nobody has a share in any more goes, as it would have with its last
    /// owner; unless it is to be retained.
    fn unshare(&self, image: &Arc<VMDiskImage>, because: &'static str) -> Write {
        let uid = self.workspace.uid().unwrap_or_default();
        let mut owners = image.owner_references().to_vec();
        owners.retain(|owner| owner.uid != uid);
        let is_last = owners.is_empty()
            && self.workspace.spec.image_retention == ImageRetention::Delete
            && children::image::is_made_by_workspace(image);
        if is_last {
            return delete_as_seen(&**image, "its last workspace does not use it any more");
        }
        own(image, owners, because)
    }
}

/// Who owns an image, at the version at which it was seen: an owner that came since must not be lost. What was applied
/// when it was made is applied again, as it stands there: an apply takes back what it leaves out.
fn own(image: &VMDiskImage, owners: Vec<OwnerReference>, because: &'static str) -> Write {
    let mut applied = VMDiskImage::new(&image.name_any(), image.spec.clone());
    applied.metadata.namespace = image.namespace();
    applied.metadata.uid = image.uid();
    applied.metadata.resource_version = image.resource_version();
    applied.metadata.labels = image.metadata.labels.clone();
    applied.metadata.annotations = image.metadata.annotations.clone();
    applied
        .labels_mut()
        .retain(|label, _| children::image::LABELS.iter().any(|(ours, _)| ours == label));
    applied.annotations_mut().retain(|note, _| note == MADE_BY_ANNOTATION);
    applied.metadata.owner_references = Some(owners);
    Write { action: Action::Apply(erase(&applied)), because }
}
