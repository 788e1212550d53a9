//! Whose an object is: by its controller owner's UID and by nothing else, but for one that has lost its owner and carries
//! a child's name and our label. Which child it is, its name says: labels can be taken off.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use otctl_kit::store::{Key, Scoped, Store};
use otctl_types::Workspace;
use otctl_types::names::{IMAGE_ANNOTATION, OWNER_LABEL, REVISION_ANNOTATION};
use otctl_types::workspace::VirtualMachine;

use crate::{names, parts};

/// Whose an object of a child's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The workspace controls it.
    Ours,
    /// Nobody owns it, and its label says that it was made for this workspace: it is taken back.
    Orphaned,
    /// An earlier workspace of the same name controlled it. There is one of a name at a time, so that one is gone for good,
    /// and garbage collection takes what it left.
    Left,
    /// Somebody else's.
    Foreign,
}

impl Whose {
    /// Whether it is a child, or will be one again.
    pub fn is_child(self) -> bool {
        match self {
            Self::Ours | Self::Orphaned => true,
            Self::Left | Self::Foreign => false,
        }
    }
}

/// Whether an object is not on its way out.
pub fn stays<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

/// Whose an object of a child's name is.
pub fn whose(metadata: &ObjectMeta, workspace: &Workspace) -> Whose {
    let uid = workspace.metadata.uid.as_deref().unwrap_or_default();
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
    match owners.iter().find(|owner| owner.controller == Some(true)) {
        Some(owner) if owner.uid == uid => Whose::Ours,
        Some(owner) if is_namesake(owner, workspace) => Whose::Left,
        None if owners.is_empty() && label.is_some_and(|label| label == uid) => Whose::Orphaned,
        Some(_) | None => Whose::Foreign,
    }
}

/// Whether an owner is a Workspace of that name, of whichever version of its kind.
fn is_namesake(owner: &OwnerReference, workspace: &Workspace) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == Workspace::kind(&())
        && group == Some(&*Workspace::group(&()))
        && workspace.metadata.name.as_ref() == Some(&owner.name)
}

/// Name of the Service, and of the Deployment or machine, of an entry.
pub fn child_name(workspace: &Workspace, entry: &str) -> String {
    names::child_name(&workspace.name_any(), &uid(workspace), entry)
}

/// Name of the network policy.
pub fn policy_name(workspace: &Workspace) -> String {
    names::policy_name(&workspace.name_any(), &uid(workspace))
}

/// Name of the claim of an entry that is made from that revision.
pub fn claim_name(workspace: &Workspace, entry: &str, revision: &str) -> String {
    names::claim_name(&workspace.name_any(), &uid(workspace), entry, revision)
}

/// The entry with a machine whose disk a claim of that name is, made from whatever revision. What a name tells of a
/// revision it tells of itself as well.
pub fn entry_of_claim<'a>(workspace: &'a Workspace, claim: &str) -> Option<&'a VirtualMachine> {
    let (_, revision) = claim.rsplit_once('-')?;
    let mut machines = workspace.spec.virtual_machines.iter();
    machines.find(|entry| {
        entry.spec.instance.is_some() && claim_name(workspace, &entry.name, revision) == claim
    })
}

/// The revision of the image that a claim says it was made from.
pub fn revision_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(REVISION_ANNOTATION).map(String::as_str)
}

/// The image that a claim says it was made from.
pub fn image_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(IMAGE_ANNOTATION).map(String::as_str)
}

/// The children that `workspace` has, and those of the wanted `names` that have lost their owner.
pub fn ours<K>(
    store: &Scoped<K>,
    workspace: &Workspace,
    namespace: &str,
    names: &BTreeSet<String>,
) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let mut ours = store.owned_by(namespace, &uid(workspace));
    let wanted = names.iter().filter_map(|name| store.get(&Key::new(namespace, name)));
    ours.extend(wanted.filter(|found| whose(found.meta(), workspace) == Whose::Orphaned));
    ours
}

/// The workspaces that an object concerns which may be, or may be in the way of, a child of theirs: its controller, and
/// whoever has a child of its name.
pub fn concerned(metadata: &ObjectMeta, workspaces: &Store<Workspace>) -> BTreeSet<Key> {
    let name = metadata.name.as_deref().unwrap_or_default();
    let by_name = name.rsplit_once("--").map(|(workspace, _)| Key::new("", workspace));
    let by_name = by_name.filter(|key| workspaces.get(key).is_some());
    let by_hash = || {
        let all = workspaces.all().into_iter();
        all.filter(|workspace| has_child(workspace, name)).map(|workspace| Key::of(&*workspace))
    };
    let owner = owner_key(metadata);
    let is_hashed = owner.is_none() && by_name.is_none() && name.starts_with("w-");
    let by_hash = is_hashed.then(by_hash).into_iter().flatten();
    owner.into_iter().chain(by_name).chain(by_hash).collect()
}

/// Whether a child of `workspace` has that name; a claim's goes on with its revision.
pub fn has_child(workspace: &Workspace, name: &str) -> bool {
    let is_of = |child: String| {
        name.strip_prefix(&child).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    parts::names(workspace).any(|entry| is_of(child_name(workspace, entry)))
        || policy_name(workspace) == name
}

/// The key of the workspace that controls an object.
pub fn owner_key(metadata: &ObjectMeta) -> Option<Key> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true)).filter(|owner| {
        owner.kind == Workspace::kind(&()) && owner.api_version == Workspace::api_version(&())
    })?;
    Some(Key::new("", &owner.name))
}

fn uid(workspace: &Workspace) -> String {
    workspace.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OURS: &str = "pelotech.ot/v1alpha1";

    fn check(metadata: Value, expected: Whose) {
        let mut workspace = Workspace::new("lab", otctl_types::WorkspaceSpec::default());
        workspace.metadata.uid = Some("u-2".to_owned());
        let metadata = serde_json::from_value(metadata).unwrap();
        assert_eq!(whose(&metadata, &workspace), expected, "{metadata:?}");
    }

    /// Owned by the object of that kind, name and UID, which controls it or not.
    fn of((version, kind): (&str, &str), name: &str, uid: &str, controls: bool) -> Value {
        let owner = json!({
            "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controls,
        });
        json!({"ownerReferences": [owner], "labels": {OWNER_LABEL: "u-2"}})
    }

    #[test]
    fn it_is_whose_controller_its_owner_says_and_else_what_its_label_says() {
        let workspace = (OURS, "Workspace");
        check(of(workspace, "lab", "u-2", true), Whose::Ours);
        check(of(workspace, "lab", "u-2", false), Whose::Foreign);
        check(of(workspace, "lab", "u-1", true), Whose::Left);
        check(of(("pelotech.ot/v1", "Workspace"), "lab", "u-1", true), Whose::Left);
        check(of(workspace, "lab", "u-1", false), Whose::Foreign);
        check(of(workspace, "other", "u-1", true), Whose::Foreign);
        check(of(("example.com/v1", "Workspace"), "lab", "u-1", true), Whose::Foreign);
        check(of((OURS, "VMDiskImage"), "lab", "u-1", true), Whose::Foreign);
        check(json!({"labels": {OWNER_LABEL: "u-2"}}), Whose::Orphaned);
        check(json!({"labels": {OWNER_LABEL: "u-1"}}), Whose::Foreign);
        check(json!({}), Whose::Foreign);
    }
}
