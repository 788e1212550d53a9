//! What must not be stale, asked of the API server: only what the decision at hand rests on.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::NamespaceResourceScope;
use otctl_kit::attempt::{Confirmed, Need};
use otctl_kit::cluster::ApiError;
use otctl_kit::ledger;
use otctl_types::diskimage::OpenAttempt;
use otctl_types::names::OWNER_LABEL;
use otctl_types::{AdmissionQueue, VMDiskImage};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Lane, Observed, Presence, Work};
use crate::image::Image;
use crate::image::verdict::{has_data, keeps_volume};
use crate::jobs;
use crate::names::{self};
use crate::proof::{is_going, is_hollow, is_ready};
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use crate::views::queue_key;

impl Image {
    /// A Job that has ended without a pod that was seen: the pods' watch is behind, or the pod is gone.
    pub(super) async fn complete_reports(&self, observed: &mut Observed) -> Result<(), ApiError> {
        let namespace = observed.image.as_ref().and_then(|image| image.namespace());
        for work in observed.imports.iter_mut().chain(&mut observed.probes) {
            let is_due = jobs::job_has_ended(&work.job) && work.ended_pod().is_none();
            if !is_due || observed.record.last() > work.number {
                continue;
            }
            let uid = work.job.uid().unwrap_or_default();
            work.pods =
                self.pods_of(namespace.as_deref(), &uid, &work.job.labels().clone()).await?;
        }
        Ok(())
    }

    async fn pods_of(
        &self,
        namespace: Option<&str>,
        job_uid: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Arc<Pod>>, ApiError> {
        let owner = labels.get(OWNER_LABEL).map(String::as_str).unwrap_or_default();
        let pods = self.reader.list::<Pod>(namespace, &format!("{OWNER_LABEL}={owner}")).await?;
        Ok(made_by(pods, job_uid))
    }

    /// The consistent read that the protocol asks for.
    pub(super) async fn confirm(&self, observed: &mut Observed) -> Result<Confirmed, ApiError> {
        let jobs = observed.job_facts();
        match observed.attempt(&jobs, true, true).need() {
            Need::Nothing => Ok(Confirmed::Nothing),
            Need::Ledger(number) => self.is_held(observed, number).await,
            Need::Absence(open) => {
                let open = open.clone();
                self.find_recorded(observed, &open).await
            }
        }
    }

    async fn is_held(&self, observed: &Observed, number: i64) -> Result<Confirmed, ApiError> {
        let queue = self.reader.get::<AdmissionQueue>(None, &queue_key().name).await?;
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let uid = observed.image.as_ref().and_then(|image| image.uid()).unwrap_or_default();
        Ok(Confirmed::Held(ledger::holds(status, &uid, number)))
    }

    /// I4: no Job of the recorded UID, then no pod of it. Without a selector: views go by label, and labels can be taken
    /// off a Job that runs. A Job that is there after all counts as seen; one that this image does not own any more is
    /// left alone, and counts as gone when it runs nothing.
    async fn find_recorded(
        &self,
        observed: &mut Observed,
        open: &OpenAttempt,
    ) -> Result<Confirmed, ApiError> {
        let namespace = observed.image.as_ref().and_then(|image| image.namespace());
        let jobs = self.reader.list::<Job>(namespace.as_deref(), "").await?;
        let recorded = jobs.into_iter().find(|job| job.uid().as_deref() == Some(&open.job_uid));
        let pods = self.reader.list::<Pod>(namespace.as_deref(), "").await?;
        let pods = made_by(pods, &open.job_uid);
        let Some(job) = recorded else {
            return Ok(Confirmed::Gone(pods.iter().all(|pod| jobs::pod_has_ended(pod))));
        };
        let uid = observed.image.as_ref().and_then(|image| image.uid());
        if jobs::controller_uid(&job.metadata) != uid.as_deref() {
            let may_run = !jobs::job_has_ended(&job) && !jobs::is_suspended(&job);
            let runs = pods.iter().any(|pod| !jobs::pod_has_ended(pod));
            return Ok(Confirmed::Gone(!may_run && !runs));
        }
        observed.imports.push(Work { job: Arc::new(job), number: open.number, pods });
        self.is_held(observed, open.number).await
    }

    /// Data that should be there and was not seen: asked of the API server before it is called lost. So is the snapshot
    /// before the volume beside it is deleted.
    pub(super) async fn confirm_data(&self, observed: &mut Observed) -> Result<(), ApiError> {
        let Some(image) = observed.image.clone() else {
            return Ok(());
        };
        if has_data(observed) {
            let name = names::data_name(&image.name_any(), &observed.record.revision);
            let seen = std::mem::replace(&mut observed.claim, Presence::Unseen);
            let is_hollow = seen.object().is_some_and(|claim| is_hollow(claim));
            let seen = if is_hollow { Presence::Unseen } else { seen };
            observed.claim = self.confirm_child(seen, &image, &name).await?;
            if observed.snapshot_class().is_some() {
                let is_doubtful = is_doubtful(&image, observed);
                let seen = std::mem::replace(&mut observed.snapshot, Presence::Unseen);
                let seen = if is_doubtful { Presence::Unseen } else { seen };
                observed.snapshot = self.confirm_child(seen, &image, &name).await?;
            }
        }
        let seen = observed.snapshot.object();
        let is_known = seen.is_some_and(|snapshot| observed.record.was_ready(&snapshot.metadata));
        observed.is_bound = is_known || self.is_bound(observed.snapshot.object()).await?;
        Ok(())
    }

    /// Whether the ledger lists this image for a snapshot that is about to be asked for.
    pub(super) async fn confirm_lane(&self, observed: &mut Observed) -> Result<(), ApiError> {
        let is_due = observed.hall.lane == Lane::Held
            && observed.snapshot_class().is_some()
            && matches!(observed.snapshot, Presence::Absent)
            && has_data(observed);
        if !is_due {
            return Ok(());
        }
        let queue = self.reader.get::<AdmissionQueue>(None, &queue_key().name).await?;
        let uid = observed.image.as_ref().and_then(|image| image.uid());
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let mut listed = status.iter().flat_map(|status| &status.snapshots);
        if !listed.any(|entry| Some(&entry.uid) == uid.as_ref()) {
            observed.hall.lane = Lane::Open;
        }
        Ok(())
    }

    async fn confirm_child<K>(
        &self,
        seen: Presence<K>,
        image: &VMDiskImage,
        name: &str,
    ) -> Result<Presence<K>, ApiError>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Serialize,
    {
        if matches!(seen, Presence::Present(_)) {
            return Ok(seen);
        }
        let found = self.reader.get::<K>(image.namespace().as_deref(), name).await?;
        let ours =
            found.filter(|child| jobs::controller_uid(child.meta()) == image.uid().as_deref());
        Ok(ours.map_or(Presence::Absent, |child| Presence::Present(Arc::new(child))))
    }

    /// Whether a ready snapshot and its content name each other.
    async fn is_bound(&self, snapshot: Option<&Arc<VolumeSnapshot>>) -> Result<bool, ApiError> {
        let Some(snapshot) = snapshot else {
            return Ok(false);
        };
        let status = snapshot.status.as_ref().filter(|status| status.ready_to_use == Some(true));
        let Some(content) =
            status.and_then(|status| status.bound_volume_snapshot_content_name.as_deref())
        else {
            return Ok(false);
        };
        let content = self.reader.get::<VolumeSnapshotContent>(None, content).await?;
        Ok(content
            .is_some_and(|content| content.spec.volume_snapshot_ref.uid == snapshot.metadata.uid))
    }
}

/// Whether a snapshot that was seen must be looked at again: an unready one before anything is called lost, a good one
/// before the volume beside it is deleted.
fn is_doubtful(image: &VMDiskImage, observed: &Observed) -> bool {
    let snapshot = observed.snapshot.object();
    let is_ready = snapshot.is_some_and(|snapshot| is_ready(snapshot));
    let was_ready = snapshot.is_some_and(|found| observed.record.was_ready(&found.metadata));
    match &observed.claim {
        Presence::Absent => !is_ready,
        Presence::Present(claim) if !is_going(&claim.metadata) => {
            (is_ready || was_ready) && !keeps_volume(image, observed)
        }
        Presence::Present(_) | Presence::Unseen => false,
    }
}

/// Those of `pods` that this Job made.
fn made_by(pods: Vec<Pod>, job_uid: &str) -> Vec<Arc<Pod>> {
    let made = pods.into_iter().filter(|pod| jobs::made_by(pod) == Some(job_uid));
    made.map(Arc::new).collect()
}
