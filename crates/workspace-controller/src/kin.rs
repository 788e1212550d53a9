//! Whose an object is: by its controller owner's UID and by nothing else, but for one that has lost its owner and carries
//! a child's name and our labels.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use otctl_kit::store::Key;
use otctl_types::Workspace;
use otctl_types::names::{ENTRY_LABEL, OWNER_LABEL, REVISION_ANNOTATION};

use crate::names;

/// Whose an object of a child's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The workspace controls it.
    Ours,
    /// Nobody owns it, and its labels say that it was made for this workspace: it is taken back.
    Orphaned,
    /// Somebody else's.
    Foreign,
}

/// Whose an object of a child's name is.
pub fn whose(metadata: &ObjectMeta, workspace: &Workspace) -> Whose {
    let uid = workspace.metadata.uid.as_deref().unwrap_or_default();
    let mut owners = metadata.owner_references.iter().flatten();
    let is_made_for_us = || {
        let labels = metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(OWNER_LABEL)).is_some_and(|label| label == uid)
    };
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) if owner.uid == uid => Whose::Ours,
        None if metadata.owner_references.iter().flatten().next().is_none() && is_made_for_us() => {
            Whose::Orphaned
        }
        Some(_) | None => Whose::Foreign,
    }
}

/// Names of the children that a workspace has or will have, by kind.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of Services.
    pub services: BTreeSet<String>,
    /// Of Deployments.
    pub deployments: BTreeSet<String>,
    /// Of machines.
    pub machines: BTreeSet<String>,
    /// Of network policies.
    pub networks: BTreeSet<String>,
}

/// Names of the children of `workspace`.
pub fn of_children(workspace: &Workspace) -> Wanted {
    let (machines, containers) = (&workspace.spec.virtual_machines, &workspace.spec.containers);
    let (name, uid) = (workspace.name_any(), workspace.uid().unwrap_or_default());
    let named = |entry: &str| names::child_name(&name, &uid, entry);
    let runs = machines.iter().filter(|entry| entry.spec.instance.is_some());
    let deployments: BTreeSet<String> = containers.iter().map(|it| named(&it.name)).collect();
    let of_machines = machines.iter().map(|it| named(&it.name));
    Wanted {
        services: of_machines.chain(deployments.iter().cloned()).collect(),
        machines: runs.map(|it| named(&it.name)).collect(),
        networks: [names::policy_name(&name, &uid)].into(),
        deployments,
    }
}

/// The entry that a child was made for.
pub fn entry_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(ENTRY_LABEL).map(String::as_str)
}

/// The revision of the image that a claim was made from.
pub fn revision_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(REVISION_ANNOTATION).map(String::as_str)
}

/// The key of the workspace that controls an object.
pub fn owner_key(metadata: &ObjectMeta) -> Option<Key> {
    let mut owners = metadata.owner_references.iter().flatten();
    let is_workspace = |kind: &str, version: &str| {
        kind == Workspace::kind(&()) && version == Workspace::api_version(&())
    };
    let owner = owners.find(|owner| {
        owner.controller == Some(true) && is_workspace(&owner.kind, &owner.api_version)
    })?;
    Some(Key::new("", &owner.name))
}
