//! Reads what an admission rests on. Images and the ledger come from the watches; whatever could admit too many if it
//! were stale is read from the API server, after the version of the ledger that the admission will replace: the policy,
//! then Jobs, then pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::ledger::Unfinished;
use otctl_kit::reconciler::{Observation, Subject};
use otctl_kit::store::Key;
use otctl_types::names::{OWNER_LABEL, ROLE_LABEL};
use otctl_types::queue::ActiveEntry;
use otctl_types::{AdmissionQueue, VMDiskImage};

use crate::jobs;
use crate::names::{JobRole, attempt_number};
use crate::proof;
use crate::queue::{Queue, decide};
use crate::record::Record;
use crate::surroundings::Surroundings;

/// Everything the queue decides on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The ledger; none before it was made.
    pub queue: Option<Arc<AdmissionQueue>>,
    /// Every image.
    pub images: Vec<Arc<VMDiskImage>>,
    /// UIDs of images whose status does not tell of data that a copy proves: they say so before they want anything.
    pub proven: BTreeSet<String>,
    /// The highest numbers whose result is known to Jobs alone, by UID: of images whose status has lost them.
    pub used: BTreeMap<String, i64>,
    /// Classes of the cluster.
    pub around: Surroundings,
    /// The policy ConfigMap.
    pub document: Document,
    /// What became of holders that are not among `images`, by UID.
    pub missing: BTreeMap<String, Trace>,
    /// Unfinished work, if it was listed: without it nobody is admitted.
    pub work: Option<Work>,
}

/// What a look at the policy ConfigMap gave.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// It is there.
    Present {
        /// Its entries.
        entries: BTreeMap<String, String>,
        /// For Events about it.
        reference: Box<ObjectReference>,
    },
    /// A consistent read found none.
    Absent,
    /// It could not be read; the cause.
    Unreadable(String),
}

/// What consistent reads found of a holder that is gone from the images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The image is there after all: the view is behind.
    Alive,
    /// The image is gone, this Job of it is not.
    Job {
        /// Which Job.
        target: Target,
        /// Its UID.
        uid: String,
    },
    /// Image and Job are gone, a pod is not.
    Pod,
    /// Nothing of it is left.
    Nothing,
}

/// Unfinished work, from consistent lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Jobs and pods whose owner is an image.
    pub unfinished: Vec<Unfinished>,
    /// Pods that run without a Job that tells whose they are.
    pub unaccounted: usize,
}

impl Observation for Observed {
    fn subject(&self) -> Option<Subject> {
        let queue = self.queue.as_ref()?;
        Some(Subject {
            target: Target::new::<AdmissionQueue>(None, &queue.name_any()),
            uid: queue.uid().unwrap_or_default(),
            resource_version: queue.resource_version().unwrap_or_default(),
            status: serde_json::to_value(&queue.status).expect("a status serialises"),
        })
    }
}

impl Queue {
    /// Reads the facts.
    pub(super) async fn look(&self) -> Result<Observed, ApiError> {
        let mut observed = Observed {
            queue: self.views.queue(),
            proven: self.proven(),
            used: self.used(),
            images: self.views.images.all(),
            around: Surroundings::of(&self.views),
            document: self.document_as_seen().await,
            missing: BTreeMap::new(),
            work: None,
        };
        if decide::changes_policy(&observed) {
            observed.document = self.document_now().await;
        }
        for entry in decide::missing_holders(&observed) {
            observed.missing.insert(entry.uid.clone(), self.trace(&entry).await?);
        }
        if decide::needs_work(&observed, self.clock.now()) {
            observed.document = self.document_now().await;
            observed.work = Some(self.work().await?);
        }
        Ok(observed)
    }

    /// Images with a copy of their data that their status has forgotten.
    fn proven(&self) -> BTreeSet<String> {
        let images = self.views.images.all();
        let forgetful = images
            .iter()
            .filter(|image| image.status.as_ref().is_none_or(|status| status.current.is_none()));
        forgetful
            .filter(|image| proof::of_views(&self.views, image))
            .filter_map(|image| image.uid())
            .collect()
    }

    /// Numbers that a lost status has forgotten: an old result must not be taken for that of a new attempt. One that
    /// brought the data is left to be read.
    fn used(&self) -> BTreeMap<String, i64> {
        let images = self.views.images.all();
        let forgetful = images.iter().filter(|image| Record::of(image).last() == 0);
        forgetful
            .filter_map(|image| Some((image.uid()?, self.highest_ended(&image.uid()?))))
            .filter(|(_, number)| *number > 0)
            .collect()
    }

    fn highest_ended(&self, uid: &str) -> i64 {
        let jobs = self.views.jobs.owned_by(uid);
        let number = |job: &Job| {
            let name = job.name_any();
            attempt_number(&name, JobRole::Import).or(attempt_number(&name, JobRole::Probe))
        };
        let ended = || jobs.iter().filter(|job| jobs::job_has_ended(job));
        let highest = ended().filter_map(|job| number(job)).max().unwrap_or(0);
        let has_brought = |job: &Job| {
            attempt_number(&job.name_any(), JobRole::Import) == Some(highest)
                && jobs::failure_reason(job).is_none()
        };
        if ended().any(|job| has_brought(job)) { highest - 1 } else { highest }
    }

    /// The ConfigMap from the watch; only its absence is confirmed, since absence puts defaults in effect.
    async fn document_as_seen(&self) -> Document {
        match self.views.policies.get(&Key::new(&self.policy.namespace, &self.policy.name)) {
            Some(map) => present(&map),
            None => self.document_now().await,
        }
    }

    async fn document_now(&self) -> Document {
        match self.reader.get::<ConfigMap>(Some(&self.policy.namespace), &self.policy.name).await {
            Ok(Some(map)) => present(&map),
            Ok(None) => Document::Absent,
            Err(error) => Document::Unreadable(error.to_string()),
        }
    }

    /// Q3: image absent or of another UID, then its Job, then its pods.
    async fn trace(&self, entry: &ActiveEntry) -> Result<Trace, ApiError> {
        let image = self.reader.get::<VMDiskImage>(Some(&entry.namespace), &entry.name).await?;
        if image.is_some_and(|image| image.uid().as_deref() == Some(&entry.uid)) {
            return Ok(Trace::Alive);
        }
        let selector = format!("{OWNER_LABEL}={}", entry.uid);
        let jobs = self.reader.list::<Job>(Some(&entry.namespace), &selector).await?;
        if let Some(job) = jobs
            .iter()
            .find(|job| attempt_number(&job.name_any(), JobRole::Import) == Some(entry.attempt))
        {
            let target = Target::new::<Job>(Some(&entry.namespace), &job.name_any());
            return Ok(Trace::Job { target, uid: job.uid().unwrap_or_default() });
        }
        let pods = self.reader.list::<Pod>(Some(&entry.namespace), &selector).await?;
        Ok(if pods.iter().any(|pod| !jobs::pod_has_ended(pod)) {
            Trace::Pod
        } else {
            Trace::Nothing
        })
    }

    /// Jobs, then pods, that have not ended.
    async fn work(&self) -> Result<Work, ApiError> {
        let selector = format!("{ROLE_LABEL}={}", JobRole::Import.as_str());
        let jobs = self.reader.list::<Job>(None, &selector).await?;
        let pods = self.reader.list::<Pod>(None, &selector).await?;
        let images = self.views.images.all().iter().filter_map(|image| image.uid()).collect();
        Ok(unfinished(&jobs, &pods, &images))
    }
}

fn present(map: &ConfigMap) -> Document {
    let reference = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: map.namespace(),
        name: Some(map.name_any()),
        uid: map.uid(),
        ..ObjectReference::default()
    };
    Document::Present {
        entries: map.data.clone().unwrap_or_default(),
        reference: Box::new(reference),
    }
}

/// What has not ended, as entries of the ledger.
fn unfinished(jobs: &[Job], pods: &[Pod], images: &BTreeSet<String>) -> Work {
    let mut work = Work::default();
    let by_uid: BTreeMap<String, &Job> =
        jobs.iter().filter_map(|job| Some((job.uid()?, job))).collect();
    for job in jobs.iter().filter(|job| !jobs::job_has_ended(job)) {
        work.unfinished.extend(
            entry_of(job).map(|entry| Unfinished { entry, is_started: !jobs::is_suspended(job) }),
        );
    }
    for pod in pods.iter().filter(|pod| !jobs::pod_has_ended(pod)) {
        let job = jobs::controller_uid(&pod.metadata).and_then(|uid| by_uid.get(uid).copied());
        match job.and_then(entry_of) {
            Some(entry) => work.unfinished.push(Unfinished { entry, is_started: true }),
            None if is_of_an_image(pod, images) => work.unaccounted += 1,
            None => {}
        }
    }
    work
}

/// Whether a pod whose Job is gone was made by an import Job of an image that is there. A label alone is not enough:
/// whoever may label a pod could keep everybody waiting.
fn is_of_an_image(pod: &Pod, images: &BTreeSet<String>) -> bool {
    let is_import = |owner: &&OwnerReference| {
        owner.kind == "Job" && attempt_number(&owner.name, JobRole::Import).is_some()
    };
    let owner = pod.labels().get(OWNER_LABEL);
    jobs::controller(&pod.metadata).filter(is_import).is_some()
        && owner.is_some_and(|uid| images.contains(uid))
}

/// The entry that a Job should have. Its ticket is unknown here; nothing is ordered by it.
fn entry_of(job: &Job) -> Option<ActiveEntry> {
    let owner = jobs::controller(&job.metadata).filter(|owner| owner.kind == "VMDiskImage")?;
    Some(ActiveEntry {
        namespace: job.namespace()?,
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        attempt: attempt_number(&job.name_any(), JobRole::Import)?,
        ticket: "0".to_owned(),
        host: None,
        since: job.creation_timestamp().unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
    })
}
