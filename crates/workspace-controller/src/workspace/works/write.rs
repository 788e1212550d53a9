//! The writes that works consist of, each with its guards.

use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{Target, erase};
use otctl_kit::plan::{Action, Propagation, Write};
use otctl_types::Workspace;
use otctl_types::names::WORKSPACE_FINALIZER;
use serde::Serialize;

use crate::owned;

/// Whether an object is not on its way out.
pub(super) fn stays<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

/// Makes `wanted`, or puts right what is there of it. What no change puts right is made anew; what is on its way out is
/// waited for.
pub(super) fn bring_about<K>(wanted: &K, found: Option<&K>, because: &'static str) -> Option<Write>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let Some(found) = found else {
        return Some(establish(wanted, because));
    };
    if !stays(found) {
        return None;
    }
    let (mut wanted, seen) = (erase(wanted), erase(found));
    owned::differs(&wanted, &seen)?;
    if owned::stuck(&wanted, &seen).is_some() {
        return Some(delete(found, "no change makes it what it should be: it is made anew"));
    }
    wanted.metadata.uid = found.meta().uid.clone();
    Some(Write { action: Action::Apply(wanted), because })
}

/// Makes an object that is not there.
pub(super) fn establish<K>(object: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()> + Serialize,
{
    Write { action: Action::Establish(erase(object)), because }
}

/// Deletes an object that was read.
pub(super) fn delete<K: Resource<DynamicType = ()>>(object: &K, because: &'static str) -> Write {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let action = Action::Delete {
        target: Target::new::<K>(meta.namespace.as_deref(), name),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: None,
        propagation: Propagation::Background,
    };
    Write { action, because }
}

/// Deletes an object at the version that was read.
pub(super) fn delete_as_seen<K>(object: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()>,
{
    let mut write = delete(object, because);
    if let Action::Delete { resource_version, .. } = &mut write.action {
        resource_version.clone_from(&object.meta().resource_version);
    }
    write
}

/// The workspace with our finalizer, or without it; others' are theirs.
pub(super) fn finalize(workspace: &Workspace, is_wanted: bool, because: &'static str) -> Write {
    let others = workspace.finalizers().iter().filter(|it| *it != WORKSPACE_FINALIZER);
    let ours = is_wanted.then(|| WORKSPACE_FINALIZER.to_owned());
    Write { action: Action::Finalize(others.cloned().chain(ours).collect()), because }
}
