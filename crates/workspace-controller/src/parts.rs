//! The parts of a workspace: its entries, which of them have had their start, and where they are made.

use std::collections::BTreeSet;

use otctl_types::Workspace;
use otctl_types::workspace::{DiskOrigin, VirtualMachine, WorkspaceStatus};

use crate::config::Settings;
use crate::images::Origin;

/// Names of all entries, virtual machines first.
pub fn names(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let machines = workspace.spec.virtual_machines.iter().map(|entry| entry.name.as_str());
    machines.chain(workspace.spec.containers.iter().map(|entry| entry.name.as_str()))
}

/// Names of the entries whose first start is over; not of one that has gained a machine since. Whoever asks what is started
/// asks here.
pub fn started(workspace: &Workspace) -> BTreeSet<&str> {
    let names = had_start(workspace).into_iter();
    names.filter(|name| !gains_machine(workspace, name)).collect()
}

/// Names of the entries that had a start as what they are, virtual machine or container.
pub fn had_start(workspace: &Workspace) -> BTreeSet<&str> {
    let recorded = workspace.status.iter().flat_map(|status| &status.started_parts);
    let is_recorded = |name: &&str| recorded.clone().any(|it| it == name);
    names(workspace).filter(is_recorded).filter(|name| is_of_that_kind(workspace, name)).collect()
}

/// Whether an entry is of the kind that it had its start as. In a status that does not tell, nobody knows: what was started
/// is not started again.
fn is_of_that_kind(workspace: &Workspace, name: &str) -> bool {
    let status = workspace.status.as_ref();
    let machines = status.and_then(|status| status.started_machines.as_ref());
    machines
        .is_none_or(|machines| machines.iter().any(|it| it == name) == is_machine(workspace, name))
}

/// Whether the entry of that name is a virtual machine.
fn is_machine(workspace: &Workspace, name: &str) -> bool {
    workspace.spec.virtual_machines.iter().any(|entry| entry.name == name)
}

/// Those of these names whose entries are virtual machines, as they are remembered; none where there are no names.
pub fn machines_among(workspace: &Workspace, names: &[String]) -> Option<Vec<String>> {
    let machines = names.iter().filter(|name| is_machine(workspace, name)).cloned();
    (!names.is_empty()).then(|| machines.collect())
}

/// Whether an entry that only used its image is to run a machine now. Of one without a record nobody knows: what was started
/// is not started again.
fn gains_machine(workspace: &Workspace, name: &str) -> bool {
    let mut machines = workspace.spec.virtual_machines.iter();
    let entry = machines.find(|entry| entry.name == name && entry.spec.instance.is_some());
    entry.and_then(|entry| disk(workspace, entry)).is_some_and(|disk| !disk.copied)
}

/// Names of the entries that a slot is needed for.
pub fn unstarted(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let started = started(workspace);
    names(workspace).filter(move |name| !started.contains(name))
}

/// The machines among them.
pub fn machines_to_start(workspace: &Workspace) -> Vec<&VirtualMachine> {
    let started = started(workspace);
    let machines = workspace.spec.virtual_machines.iter();
    machines.filter(|entry| !started.contains(entry.name.as_str())).collect()
}

/// The entry that says how an image of that name is made, if one does.
pub fn recipe<'a>(workspace: &'a Workspace, image: &str) -> Option<&'a VirtualMachine> {
    let mut machines = workspace.spec.virtual_machines.iter();
    machines.find(|it| it.spec.vm_disk_image_name == image && it.spec.image.is_some())
}

/// The namespace of everything that is made: what was accepted counts.
pub fn namespace(workspace: &Workspace, settings: &Settings) -> String {
    let accepted = workspace.status.as_ref().and_then(|status| status.namespace.clone());
    let asked = || workspace.spec.namespace.clone();
    accepted.or_else(asked).unwrap_or_else(|| settings.default_namespace.clone())
}

/// What the disk of an entry was made from, as is on record.
pub fn made_from(workspace: &Workspace, entry: &VirtualMachine) -> Option<Origin> {
    let DiskOrigin { image, revision, .. } = disk(workspace, entry)?;
    Some(Origin { image, revision })
}

/// What is on record of the disk of an entry.
pub fn disk(workspace: &Workspace, entry: &VirtualMachine) -> Option<DiskOrigin> {
    let status = workspace.status.as_ref()?;
    let recorded = status.disks.iter().find(|disk| disk.entry == entry.name);
    recorded.cloned().or_else(|| told(status, entry))
}

/// What people are told of it. A release that did not remember disks took that for its memory, so that its status has it
/// nowhere else; whether the disk was the machine's own then is not known.
fn told(status: &WorkspaceStatus, entry: &VirtualMachine) -> Option<DiskOrigin> {
    let reports = &status.resource_status.as_ref()?.virtual_machines;
    let report = reports.iter().find(|report| report.name == entry.name)?;
    Some(DiskOrigin {
        entry: entry.name.clone(),
        image: report.image.clone()?,
        revision: report.revision.clone()?,
        copied: entry.spec.instance.is_some(),
    })
}

#[cfg(test)]
mod tests;
