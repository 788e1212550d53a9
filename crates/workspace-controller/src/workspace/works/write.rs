//! The writes that works consist of, each with its guards.

use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{Target, erase};
use otctl_kit::plan::{Action, Propagation, Write};
use otctl_types::Workspace;
use otctl_types::names::WORKSPACE_FINALIZER;
use serde::Serialize;

use crate::kin::{self, stays};
use crate::owned::{self, Stuck};

/// Makes `wanted`, or puts right what is there of it. What keeps an apply from that is taken out first, or it is made anew;
/// what is on its way out is waited for. Of what was made from something else than it is now, an apply takes back what it
/// does not ask for any more: whether anything keeps it from that, the API server knows.
pub(super) fn bring_about<K>(wanted: &K, found: Option<&K>, because: &'static str) -> Option<Write>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    match found {
        None => Some(establish(wanted, because)),
        Some(found) if stays(found) => put_right(wanted, found, because),
        Some(_) => None,
    }
}

/// Puts right what is there, also what is on its way out: it may be long on that way.
pub(super) fn put_right<K>(wanted: &K, found: &K, because: &'static str) -> Option<Write>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let (mut wanted, seen) = (erase(wanted), erase(found));
    owned::differs(&wanted, &seen)?;
    let stuck = owned::stuck(&wanted, &seen);
    let is_certain = stuck == Some(Stuck::Address)
        || kin::revision_of(&wanted.metadata) == kin::revision_of(found.meta());
    let otherwise = stuck.map(|stuck| match stuck {
        Stuck::Ports(places) => strip(found, places),
        Stuck::Whole | Stuck::Address => {
            delete(found, "no change makes it what it should be: it is made anew")
        }
    });
    wanted.metadata.uid = found.meta().uid.clone();
    let wanted = Action::Apply(wanted);
    Some(match otherwise {
        Some(otherwise) if is_certain => otherwise,
        Some(otherwise) => {
            let (wanted, otherwise) = (Box::new(wanted), Box::new(otherwise.action));
            Write { action: Action::Either { wanted, otherwise }, because }
        }
        None => Write { action: wanted, because },
    })
}

/// What it is to be is applied in the next pass: one that dies between the two leaves a difference that is seen.
fn strip<K: Resource<DynamicType = ()>>(found: &K, places: Vec<String>) -> Write {
    let meta = found.meta();
    let action = Action::Strip {
        target: target_of(found),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        places,
    };
    Write { action, because: "a port was moved by hand, and its name is to be had again" }
}

fn target_of<K: Resource<DynamicType = ()>>(object: &K) -> Target {
    let meta = object.meta();
    Target::new::<K>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// Makes an object that is not there.
pub(super) fn establish<K>(object: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()> + Serialize,
{
    Write { action: Action::Establish(erase(object)), because }
}

/// Makes an object that is not there, or the other one where this one cannot be had.
pub(super) fn establish_either<K>(wanted: &K, otherwise: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let establish = |object| Box::new(Action::Establish(erase(object)));
    let action = Action::Either { wanted: establish(wanted), otherwise: establish(otherwise) };
    Write { action, because }
}

/// Deletes an object that was read.
pub(super) fn delete<K: Resource<DynamicType = ()>>(object: &K, because: &'static str) -> Write {
    let action = Action::Delete {
        target: target_of(object),
        uid: object.meta().uid.clone().unwrap_or_default(),
        resource_version: None,
        propagation: Propagation::Background,
    };
    Write { action, because }
}

/// Deletes an object once what it made is gone: a set of pods that outlives it may make another one, which nobody would
/// know of, and the policy would go before it.
pub(super) fn delete_after_pods<K>(object: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()>,
{
    let mut write = delete(object, because);
    if let Action::Delete { propagation, .. } = &mut write.action {
        *propagation = Propagation::Foreground;
    }
    write
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
