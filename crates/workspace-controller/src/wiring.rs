//! Which change wants a pass of whom. The driver wakes its keys through it, and so does the simulator.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use otctl_kit::store::{Key, Scoped, Store};
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::{AdmissionQueueStatus, VMDiskImage, Workspace};

use crate::images;
use crate::kin::{self, Whose};
use crate::views::{Views, queue_key};

/// Wakes a key.
pub type Wake = Arc<dyn Fn(&Key) + Send + Sync>;

/// Any change of a workspace, an image, the ledger or the policy may admit somebody or free a slot; so may an object that was
/// in somebody's way, or a child that goes before another one is made.
pub fn wire_queue(wake: &Wake, views: &Views) {
    wake_queue(wake, &views.workspaces);
    wake_queue(wake, &views.queues);
    wake_queue(wake, &views.policies);
    let of_image = wake.clone();
    views.images.subscribe(move |_| of_image(&queue_key()));
    let of_kind = wake.clone();
    views.machines.when_installed(move || of_kind(&queue_key()));
    let of_ground = wake.clone();
    views.grounds.subscribe(move |_| of_ground(&queue_key()));
    of_obstacles(wake, views, &views.networks);
    of_obstacles(wake, views, &views.services);
    of_obstacles(wake, views, &views.deployments);
    of_obstacles(wake, views, &views.claims);
    of_obstacles(wake, views, &views.machines);
    wake(&queue_key());
}

fn of_obstacles<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    views: &Views,
    store: &Scoped<K>,
) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    store.subscribe(move |object| {
        let meta = object.meta();
        let is_in_the_way = !is_child(meta, &workspaces) || !kin::stays(object);
        if is_in_the_way && !kin::concerned(meta, &workspaces).is_empty() {
            wake(&queue_key());
        }
    });
}

fn wake_queue<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    store: &Store<K>,
) {
    let wake = wake.clone();
    store.subscribe(move |_| wake(&queue_key()));
}

/// A change of a workspace, of a child, of what is in a child's way, of an image that it names, or of a policy beside its
/// own.
pub fn wire_workspaces(wake: &Wake, views: &Views) {
    let each = wake.clone();
    views.workspaces.subscribe(move |workspace| each(&Key::of(workspace)));
    wake_concerned(wake, views, &views.services);
    wake_concerned(wake, views, &views.deployments);
    wake_concerned(wake, views, &views.claims);
    wake_concerned(wake, views, &views.machines);
    wake_owner_of_pod(wake, views);
    wake_users(wake, views);
    wake_neighbours(wake, views);
    wake_changed_holders(wake, views);
    let (of_kind, workspaces) = (wake.clone(), views.workspaces.clone());
    views.machines.when_installed(move || wake_all(&of_kind, &workspaces));
    let (of_ground, workspaces) = (wake.clone(), views.workspaces.clone());
    views.grounds.subscribe(move |namespace| wake_all_in(namespace, &of_ground, &workspaces));
}

fn wake_concerned<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    views: &Views,
    store: &Scoped<K>,
) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    store.subscribe(move |child| {
        kin::concerned(child.meta(), &workspaces).iter().for_each(|owner| wake(owner));
    });
}

fn wake_owner_of_pod(wake: &Wake, views: &Views) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    views.pods.subscribe(move |pod| {
        let uid = pod.labels().get(WORKSPACE_LABEL);
        let owner = uid.and_then(|uid| by_uid(&workspaces, uid));
        owner.iter().for_each(|owner| wake(&Key::of(&**owner)));
    });
}

fn by_uid(workspaces: &Store<Workspace>, uid: &str) -> Option<Arc<Workspace>> {
    workspaces.all().into_iter().find(|workspace| workspace.metadata.uid.as_deref() == Some(uid))
}

/// Every workspace that names the image.
fn wake_users(wake: &Wake, views: &Views) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    views.images.subscribe(move |image: &VMDiskImage| {
        let name = image.name_any();
        let users = workspaces.all();
        let users = users.iter().filter(|workspace| images::is_named(workspace, &name));
        users.for_each(|workspace| wake(&Key::of(&**workspace)));
    });
}

/// Whether an object is a child of the workspace that it names as its controller. References can be copied by hand, and so
/// can labels: a child has the name of one.
fn is_child(metadata: &ObjectMeta, workspaces: &Store<Workspace>) -> bool {
    let owner = kin::owner_key(metadata).and_then(|key| workspaces.get(&key));
    owner.is_some_and(|owner| {
        kin::whose(metadata, &owner) == Whose::Ours
            && kin::has_child(&owner, metadata.name.as_deref().unwrap_or_default())
    })
}

/// A workspace's own network policy selects its own pods. Any other may select everybody's in its namespace.
fn wake_neighbours(wake: &Wake, views: &Views) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    views.networks.subscribe(move |policy| {
        kin::concerned(&policy.metadata, &workspaces).iter().for_each(|owner| wake(owner));
        if !is_child(&policy.metadata, &workspaces) {
            wake_all_in(&policy.namespace().unwrap_or_default(), &wake, &workspaces);
        }
    });
}

fn wake_all_in(namespace: &str, wake: &Wake, workspaces: &Store<Workspace>) {
    let is_there = |workspace: &&Arc<Workspace>| {
        let status = workspace.status.as_ref();
        status.and_then(|status| status.namespace.as_deref()) == Some(namespace)
    };
    workspaces.all().iter().filter(is_there).for_each(|it| wake(&Key::of(&**it)));
}

fn wake_all(wake: &Wake, workspaces: &Store<Workspace>) {
    workspaces.all().iter().for_each(|workspace| wake(&Key::of(&**workspace)));
}

/// A change of the ledger concerns those whose entry came or went; a change of the policy concerns everybody.
fn wake_changed_holders(wake: &Wake, views: &Views) {
    let (wake, workspaces) = (wake.clone(), views.workspaces.clone());
    let before = Mutex::new(AdmissionQueueStatus::default());
    views.queues.subscribe(move |queue| {
        let after = queue.status.clone().unwrap_or_default();
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        if after.policy != before.policy {
            wake_all(&wake, &workspaces);
        }
        let entries = after.active.iter().chain(&before.active);
        let changed = entries
            .filter(|entry| !(after.active.contains(entry) && before.active.contains(entry)));
        changed.for_each(|entry| wake(&Key::new("", &entry.name)));
        *before = after;
    });
}

#[cfg(test)]
mod tests;
