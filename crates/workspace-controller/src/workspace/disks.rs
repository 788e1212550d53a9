//! What disks were made from: what a pass remembers of it.

use otctl_types::workspace::{DiskOrigin, VirtualMachine as MachineEntry};

use super::observe::Observed;
use super::status::Standing;
use super::verdict::Verdict;
use crate::family::ChildKind;
use crate::images::{Disk, Origin};
use crate::parts;

impl Observed {
    /// What is remembered after a pass. A record stays until a disk is seen or made that tells otherwise, or until its entry
    /// goes: a pass that sees no claim, in a namespace that is not served any more or because somebody deleted it, knows no
    /// better. It may still be there, under the name of a revision that no image has any more; and where it was lost, the
    /// next one is a record of its own.
    pub fn disks(&self, standing: &Standing) -> Vec<DiskOrigin> {
        let workspace = self.workspace.iter();
        let entries = workspace.flat_map(|workspace| &workspace.spec.virtual_machines);
        let disks = entries.filter_map(|entry| match entry.spec.instance {
            Some(_) => self.own_disk(entry, standing),
            None => self.used_image(entry),
        });
        disks.collect()
    }

    /// The disk of a machine. One that its entry has gained since it had its start is on record as such only when its own
    /// start is over: until then the record says that a slot is needed. What that start has not made is on no record, so that
    /// it asks for no further one.
    fn own_disk(&self, entry: &MachineEntry, standing: &Standing) -> Option<DiskOrigin> {
        let recorded = self.disk_on_record(entry);
        let mut touched = standing.touched.iter().filter(|child| child.is_of(&entry.name));
        let is_made = touched.any(|child| child.kind == ChildKind::Claim);
        let seen = self.made_from(entry).or_else(|| self.current(entry).filter(|_| is_made));
        let is_gained = recorded.as_ref().is_some_and(|disk| !disk.copied);
        let is_over = matches!(standing.verdict, Verdict::Settling(_))
            || standing.given_up.contains(&entry.name);
        let copied = !is_gained || is_over;
        let seen = seen.map(|origin| disk(entry, origin, copied));
        seen.or_else(|| recorded.filter(|disk| disk.copied == copied))
    }

    /// The image of an entry that runs no machine, from the pass on in which others find it by its name. Later revisions
    /// change nothing. One that ran a machine has lost that disk with it.
    fn used_image(&self, entry: &MachineEntry) -> Option<DiskOrigin> {
        let is_used = self.service(&entry.name).is_some();
        let used = self.made_from(entry).or_else(|| self.current(entry).filter(|_| is_used));
        let recorded = || Some(DiskOrigin { copied: false, ..self.disk_on_record(entry)? });
        used.map(|origin| disk(entry, origin, false)).or_else(recorded)
    }

    fn disk_on_record(&self, entry: &MachineEntry) -> Option<DiskOrigin> {
        parts::disk(self.workspace.as_ref()?, entry)
    }

    fn made_from(&self, entry: &MachineEntry) -> Option<Origin> {
        self.needs.made_from(self.workspace.as_ref()?, entry)
    }

    /// What would be used of the image now.
    fn current(&self, entry: &MachineEntry) -> Option<Origin> {
        let Disk::Available(current) = self.needs.disks.get(&entry.name)? else { return None };
        let image = entry.spec.vm_disk_image_name.clone();
        Some(Origin { image, revision: current.revision.clone() })
    }
}

fn disk(entry: &MachineEntry, origin: Origin, copied: bool) -> DiskOrigin {
    let Origin { image, revision } = origin;
    DiskOrigin { entry: entry.name.clone(), image, revision, copied }
}

#[cfg(test)]
mod tests;
