//! Which change wants a pass of whom. The driver wakes its keys through it, and so does the simulator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Resource, ResourceExt};
use otctl_kit::store::{Key, Store};
use otctl_types::diskimage::Phase;
use otctl_types::{AdmissionQueueStatus, VMDiskImage};

use crate::jobs;
use crate::source;
use crate::views::{Views, effective_policy, queue_key};

/// Wakes a key.
pub type Wake = Arc<dyn Fn(&Key) + Send + Sync>;

/// Any change of an image, the ledger, the policy or a class may admit somebody or free a slot; an ended pod that nobody
/// owns is taken away.
pub fn wire_queue(wake: &Wake, views: &Views) {
    wake_queue(wake, &views.images);
    wake_queue(wake, &views.queues);
    wake_queue(wake, &views.policies);
    wake_queue(wake, &views.storage_classes);
    wake_queue(wake, &views.snapshot_classes);
    let of_stray = wake.clone();
    views.pods.subscribe(move |pod| {
        if jobs::is_stray(pod) {
            of_stray(&queue_key());
        }
    });
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
    let owner = jobs::controller(child.meta()).filter(|owner| jobs::is_image(owner))?;
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

/// Whoever waits for a host that has no slot left while others are free is told so, once: that is why it does not start.
fn wake_busy(
    wake: &Wake,
    images: &Store<VMDiskImage>,
    before: &AdmissionQueueStatus,
    after: &AdmissionQueueStatus,
) {
    let (mut news, known) = (busy_hosts(after), busy_hosts(before));
    news.retain(|host| !known.contains(host));
    if news.is_empty() {
        return;
    }
    for image in images.all() {
        let status = image.status.as_ref();
        let waits = status.is_some_and(|status| status.phase == Some(Phase::Queued));
        let is_of_these = || source::host(&image.spec.url).is_some_and(|it| news.contains(&it));
        if waits && is_of_these() {
            wake(&Key::of(&*image));
        }
    }
}

/// Hosts whose slots are all taken while there are free ones.
fn busy_hosts(status: &AdmissionQueueStatus) -> Vec<String> {
    let policy = effective_policy(Some(status));
    let is_full = |taken: usize, limit: u32| usize::try_from(limit).is_ok_and(|it| taken >= it);
    let Some(limit) = policy.concurrency_per_host else { return Vec::new() };
    if is_full(status.active.len(), policy.concurrency) {
        return Vec::new();
    }
    let mut taken: BTreeMap<&String, usize> = BTreeMap::new();
    for host in status.active.iter().filter_map(|entry| entry.host.as_ref()) {
        *taken.entry(host).or_default() += 1;
    }
    taken
        .into_iter()
        .filter(|(_, taken)| is_full(*taken, limit))
        .map(|(it, _)| it.clone())
        .collect()
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
        let listed = after.snapshots.iter().chain(&before.snapshots);
        let changed = listed
            .filter(|entry| !(after.snapshots.contains(entry) && before.snapshots.contains(entry)));
        changed.for_each(|entry| wake(&Key::new(&entry.namespace, &entry.name)));
        wake_busy(&wake, &images, &before, &after);
        *before = after;
    });
}
