//! The parts of a workspace: its entries, which of them have had their start, and where they are made.

use std::collections::BTreeSet;

use otctl_types::Workspace;
use otctl_types::workspace::VirtualMachine;

use crate::config::Settings;
use crate::images::Origin;

/// Names of all entries, virtual machines first.
pub fn names(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let machines = workspace.spec.virtual_machines.iter().map(|entry| entry.name.as_str());
    machines.chain(workspace.spec.containers.iter().map(|entry| entry.name.as_str()))
}

/// Names of the entries whose first start is over.
pub fn started(workspace: &Workspace) -> BTreeSet<&str> {
    let status = workspace.status.as_ref();
    status.iter().flat_map(|status| &status.started_parts).map(String::as_str).collect()
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

/// What the disk of a machine was made from, as is on record.
pub fn made_from(workspace: &Workspace, entry: &str) -> Option<Origin> {
    let resources = workspace.status.as_ref()?.resource_status.as_ref()?;
    let report = resources.virtual_machines.iter().find(|report| report.name == entry)?;
    Some(Origin { image: report.image.clone()?, revision: report.revision.clone()? })
}
