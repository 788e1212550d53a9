//! Which change wants a pass of whom. The driver wakes its keys through it, and so does the simulator.

use std::sync::{Arc, Mutex, PoisonError};

use kube::{Resource, ResourceExt};
use otctl_kit::store::{Key, Store};
use otctl_types::{AdmissionQueueStatus, VMDiskImage};

use crate::jobs;
use crate::views::{Views, queue_key};

/// Wakes a key.
pub type Wake = Arc<dyn Fn(&Key) + Send + Sync>;

/// Any change of an image, the ledger, the policy or a class may admit somebody or free a slot.
pub fn wire_queue(wake: &Wake, views: &Views) {
    wake_queue(wake, &views.images);
    wake_queue(wake, &views.queues);
    wake_queue(wake, &views.policies);
    wake_queue(wake, &views.storage_classes);
    wake_queue(wake, &views.snapshot_classes);
    wake(&queue_key());
}

fn wake_queue<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    store: &Store<K>,
) {
    let wake = wake.clone();
    store.subscribe(move |_| wake(&queue_key()));
}

pub fn wire_images(wake: &Wake, views: &Views) {
    let each = wake.clone();
    views.images.subscribe(move |image| each(&Key::of(image)));
    wake_owner(wake, &views.jobs);
    wake_owner(wake, &views.claims);
    wake_owner(wake, &views.snapshots);
    let (of_pod, jobs) = (wake.clone(), views.jobs.clone());
    views.pods.subscribe(move |pod| {
        let job = jobs::controller(&pod.metadata)
            .map(|owner| Key::new(&pod.namespace().unwrap_or_default(), &owner.name));
        if let Some(owner) = job.and_then(|key| jobs.get(&key)).and_then(|job| owner_key(&*job)) {
            of_pod(&owner);
        }
    });
    wake_all(wake, views, &views.storage_classes);
    wake_all(wake, views, &views.snapshot_classes);
    wake_changed_holders(wake, views);
}

fn wake_owner<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    store: &Store<K>,
) {
    let wake = wake.clone();
    store.subscribe(move |child| {
        if let Some(owner) = owner_key(child) {
            wake(&owner);
        }
    });
}

fn owner_key<K: Resource>(child: &K) -> Option<Key> {
    let owner =
        jobs::controller(child.meta()).filter(|owner| owner.kind == VMDiskImage::kind(&()))?;
    Some(Key::new(child.meta().namespace.as_deref()?, &owner.name))
}

/// A class that appears or goes concerns whoever waits.
fn wake_all<K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    wake: &Wake,
    views: &Views,
    store: &Store<K>,
) {
    let (wake, images) = (wake.clone(), views.images.clone());
    store.subscribe(move |_| images.all().iter().for_each(|image| wake(&Key::of(&**image))));
}

/// A change of the ledger concerns those whose entry came or went; a change of the policy concerns everybody.
fn wake_changed_holders(wake: &Wake, views: &Views) {
    let (wake, images) = (wake.clone(), views.images.clone());
    let before = Mutex::new(AdmissionQueueStatus::default());
    views.queues.subscribe(move |queue| {
        let after = queue.status.clone().unwrap_or_default();
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        if after.policy != before.policy {
            images.all().iter().for_each(|image| wake(&Key::of(&**image)));
        }
        let entries = after.active.iter().chain(&before.active);
        let changed = entries
            .filter(|entry| !(after.active.contains(entry) && before.active.contains(entry)));
        changed.for_each(|entry| wake(&Key::new(&entry.namespace, &entry.name)));
        *before = after;
    });
}
