//! The queue of images: who waits there, and what of them still runs. Order, limit and protocol are those of every queue
//! ([`otctl_queue`]); a lane of its own for snapshots stands in the same ledger.

mod facts;
pub mod lane;
pub mod work;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Cluster, Target};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::{Next, Write};
use otctl_kit::reader::Reader;
use otctl_kit::store::Version;
use otctl_queue::{Line, Member, Trace, Want, Work, delete};
use otctl_types::VMDiskImage;
use otctl_types::names::{DISKIMAGE_CONTROLLER, IMAGE_QUEUE, ROLE_LABEL};
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use policy::admission::Limits;
use policy::{Policy, Ticket};

pub use otctl_queue::PolicySource;

pub use self::facts::Facts;

use crate::children;
use crate::known::Known;
use crate::names::JobRole;
use crate::views::Views;
use crate::want::want_of;

/// The line of images.
pub struct Images {
    /// What the watches have seen.
    pub views: Views,
}

/// Everything that the queue of images decides on.
pub type Observed = otctl_queue::Observed<Images>;

/// The reconciler of the ledger of images.
pub type Queue = otctl_queue::Queue<Images>;

/// The reconciler of the ledger of images over these views.
pub fn queue(
    views: Views,
    cluster: Arc<dyn Cluster>,
    policy: PolicySource,
    clock: Arc<dyn Clock>,
) -> Queue {
    let seen = (views.queues.clone(), views.policies.clone());
    Queue::new(Images { views }, seen, policy, (cluster, clock))
}

impl Member for Known {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn target(&self) -> Target {
        children::target::<VMDiskImage>(self)
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn ticket_text(&self) -> Option<&str> {
        self.record.status.ticket.as_deref()
    }

    fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    fn spent(&self) -> Option<Ticket> {
        self.spent
    }

    fn last(&self) -> i64 {
        self.record.last()
    }

    fn open(&self) -> Option<i64> {
        self.record.status.open_attempt.as_ref().map(|open| open.number)
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn order(&self) -> (Option<&Time>, Version) {
        (self.order.0.as_ref(), self.order.1)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn backoff_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.record.backoff_until(now)
    }
}

impl Line for Images {
    type Member = Known;
    type Facts = Facts;
    const QUEUE: &'static str = IMAGE_QUEUE;
    const CONTROLLER: &'static str = DISKIMAGE_CONTROLLER;

    fn members(&self) -> Vec<Arc<Known>> {
        self.views.known.all(self.views.images.all())
    }

    fn facts(&self, members: &[Arc<Known>]) -> Facts {
        Facts::of(&self.views, members)
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.views.images.has_seen(expectation)
    }

    /// Whether who is listed for a snapshot and was not seen is gone.
    async fn complete(&self, observed: &mut Observed, reader: &Reader) -> Result<(), ApiError> {
        for entry in lane::missing(observed) {
            let uid = reader.uid::<VMDiskImage>(Some(&entry.namespace), &entry.name).await?;
            if uid.as_ref() != Some(&entry.uid) {
                observed.facts.gone.insert(entry.uid);
            }
        }
        Ok(())
    }

    async fn trace(&self, entry: &ActiveEntry, reader: &Reader) -> Result<Trace, ApiError> {
        facts::trace(entry, reader).await
    }

    /// Jobs, then pods, that have not ended.
    async fn work(&self, reader: &Reader) -> Result<Work, ApiError> {
        let selector = format!("{ROLE_LABEL}={}", JobRole::Import.as_str());
        let jobs = reader.list::<Job>(None, &selector).await?;
        let pods = reader.list::<Pod>(None, &selector).await?;
        let images = self.views.images.all();
        let images = images.iter().filter_map(|image| image.metadata.uid.clone()).collect();
        Ok(work::of(&jobs, &pods, &images))
    }

    fn limits(policy: &Policy) -> Limits {
        policy.admission_limits()
    }

    /// One whose data a copy proves says so before it wants anything.
    fn want(observed: &Observed, image: &Known, policy: &Policy, now: Timestamp) -> Want {
        if observed.facts.proven.contains(&image.uid) {
            return Want::Nothing;
        }
        want_of(image, &image.record, (policy, &observed.facts.around), now)
    }

    fn forgotten(observed: &Observed, image: &Known) -> i64 {
        observed.facts.used.get(&image.uid).copied().unwrap_or(0)
    }

    fn extend(
        observed: &Observed,
        policy: &Policy,
        before: &AdmissionQueueStatus,
        after: &mut AdmissionQueueStatus,
        now: Timestamp,
    ) {
        after.snapshots = lane::snapshots(observed, policy, &before.snapshots, now);
    }

    fn clear(observed: &Observed) -> Vec<Write> {
        let strays = observed.facts.strays.iter().cloned();
        strays
            .map(|(target, uid)| delete(target, uid, "it has ended, and no Job owns it"))
            .collect()
    }

    fn next(observed: &Observed, now: Timestamp) -> Next {
        lane::next(observed, now).map_or(Next::Wait, Next::At)
    }
}

#[cfg(test)]
mod tests;
