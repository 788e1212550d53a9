//! What is read to describe an image: its children by owner, its place from the ledger, Events. Nothing of it is needed:
//! what may not be read is named and left out.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use diskimage_controller::jobs;
use diskimage_controller::snapshots::VolumeSnapshot;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use otctl_types::diskimage::Phase;
use otctl_types::names::{IMAGE_QUEUE, OWNER_LABEL};
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, VMDiskImage};
use serde::de::DeserializeOwned;

use crate::client::{Cluster, lacks_kind};
use crate::kind::Standing;
use crate::out;
use crate::queue::table;

/// Everything that is told of an image.
pub(super) struct Facts {
    /// The image.
    pub(super) image: VMDiskImage,
    /// Where it stands.
    pub(super) standing: Standing,
    /// The ledger and the policy in effect.
    pub(super) ledger: Option<AdmissionQueueStatus>,
    /// Its place among those that wait.
    pub(super) place: Option<Place>,
    /// Its Jobs.
    pub(super) jobs: Vec<Job>,
    /// Their pods.
    pub(super) pods: Vec<Pod>,
    /// Its claims.
    pub(super) claims: Vec<PersistentVolumeClaim>,
    /// Its snapshots.
    pub(super) snapshots: Vec<VolumeSnapshot>,
    /// Events, by the UID of what they are about: the image, and children that are not as they should be.
    pub(super) events: BTreeMap<String, Vec<Event>>,
    /// What could not be read, each with why.
    pub(super) unread: Vec<String>,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Among those that start as soon as there is room, from 1; none for one that is held back.
    pub(super) position: Option<usize>,
    /// How many wait.
    pub(super) waiting: usize,
}

/// Reads everything.
pub(super) async fn observe(cluster: &Cluster, image: VMDiskImage, standing: Standing) -> Facts {
    let (jobs, pods, claims, snapshots, ledger) = tokio::join!(
        children(cluster, &image, "Jobs"),
        children(cluster, &image, "pods"),
        children(cluster, &image, "claims"),
        children(cluster, &image, "snapshots"),
        ledger(cluster),
    );
    let mut unread = Vec::new();
    let mut facts = Facts {
        jobs: owned(taken(jobs, &mut unread), &[image.uid()]),
        pods: taken(pods, &mut unread),
        claims: owned(taken(claims, &mut unread), &[image.uid()]),
        snapshots: owned(taken(snapshots, &mut unread), &[image.uid()]),
        ledger: taken(ledger, &mut unread),
        place: None,
        events: BTreeMap::new(),
        image,
        standing,
        unread,
    };
    let makers: Vec<_> = facts.jobs.iter().map(ResourceExt::uid).collect();
    facts.pods = owned(facts.pods, &makers);
    facts.find_place(cluster).await;
    facts.find_events(cluster).await;
    facts
}

/// What was read; nothing, and a remark, for what was not.
fn taken<T: Default>(read: Result<T, String>, unread: &mut Vec<String>) -> T {
    read.unwrap_or_else(|why| {
        unread.push(why);
        T::default()
    })
}

/// What may be a child, by its label: lists go by it, ownership does not.
async fn children<K>(cluster: &Cluster, image: &VMDiskImage, what: &str) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let namespace = image.namespace().unwrap_or_default();
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &namespace);
    let label = format!("{OWNER_LABEL}={}", image.uid().unwrap_or_default());
    match api.list(&ListParams::default().labels(&label)).await {
        Ok(list) => Ok(list.items),
        // A cluster without snapshots has none of this image.
        Err(error) if lacks_kind(&error) => Ok(Vec::new()),
        Err(error) => Err(unreadable(cluster, what, error)),
    }
}

/// Those whose controller owner is one of these.
fn owned<K: Resource>(mut all: Vec<K>, owners: &[Option<String>]) -> Vec<K> {
    all.retain(|child| {
        let owner = jobs::controller_uid(child.meta());
        owner.is_some() && owners.iter().any(|uid| uid.as_deref() == owner)
    });
    all
}

async fn ledger(cluster: &Cluster) -> Result<Option<AdmissionQueueStatus>, String> {
    let read = super::ledger(cluster).await;
    read.map_err(|error| unreadable(cluster, "the ledger (AdmissionQueue)", error))
}

fn unreadable(cluster: &Cluster, what: &str, error: kube::Error) -> String {
    format!("{what} cannot be read: {}", out::causes(&cluster.explained(error)))
}

impl Facts {
    /// Positions need the images of all namespaces, which are listed only for one that waits.
    async fn find_place(&mut self, cluster: &Cluster) {
        let phase = self.image.status.as_ref().and_then(|status| status.phase);
        if !matches!(phase, None | Some(Phase::Queued)) || self.ledger.is_none() {
            return;
        }
        let images: Api<VMDiskImage> = Api::all(cluster.client.clone());
        let listed = images.list(&ListParams::default()).await;
        let listed = listed
            .map_err(|error| unreadable(cluster, "its place: images of all namespaces", error));
        let images = taken(listed.map(|list| list.items), &mut self.unread);
        let images: Vec<_> = images.into_iter().map(Arc::new).collect();
        let mut queue = AdmissionQueue::new(IMAGE_QUEUE, Default::default());
        queue.status = self.ledger.clone();
        let table = table(Some(&queue), &images, Timestamp::now());
        let is_this = |namespace: &str, name: &str| {
            (self.image.namespace().as_deref(), self.image.metadata.name.as_deref())
                == (Some(namespace), Some(name))
        };
        let row = table.images.iter().find(|row| is_this(&row.namespace, &row.name));
        self.place = row.map(|row| Place { position: row.position, waiting: table.counts.waiting });
    }

    async fn find_events(&mut self, cluster: &Cluster) {
        let uids = [self.image.uid()].into_iter().chain(self.unsettled()).flatten();
        let found = join_all(uids.map(|uid| events(cluster, &self.image, uid))).await;
        for read in found {
            match read {
                Ok((uid, events)) => drop(self.events.insert(uid, events)),
                Err(why) if self.unread.contains(&why) => {}
                Err(why) => self.unread.push(why),
            }
        }
    }

    /// Children of which Events may say why they are not further.
    fn unsettled(&self) -> Vec<Option<String>> {
        let jobs =
            self.jobs.iter().filter(|job| !jobs::job_has_ended(job) && !jobs::is_suspended(job));
        let has_run = |pod: &&Pod| !jobs::pod_has_run(pod) && !jobs::pod_has_ended(pod);
        let claims = self.claims.iter().filter(|claim| !jobs::is_bound(claim));
        let is_ready = |snapshot: &&VolumeSnapshot| {
            snapshot.status.as_ref().and_then(|status| status.ready_to_use) != Some(true)
        };
        jobs.map(ResourceExt::uid)
            .chain(self.pods.iter().filter(has_run).map(ResourceExt::uid))
            .chain(claims.map(ResourceExt::uid))
            .chain(self.snapshots.iter().filter(is_ready).map(ResourceExt::uid))
            .collect()
    }
}

async fn events(
    cluster: &Cluster,
    image: &VMDiskImage,
    uid: String,
) -> Result<(String, Vec<Event>), String> {
    let api: Api<Event> =
        Api::namespaced(cluster.client.clone(), &image.namespace().unwrap_or_default());
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    match api.list(&about).await {
        Ok(list) => Ok((uid, list.items)),
        Err(error) => Err(unreadable(cluster, "Events", error)),
    }
}
