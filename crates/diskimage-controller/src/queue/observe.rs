//! Reads what an admission rests on. Images and the ledger come from the watches; whatever could admit too many if it
//! were stale is read from the API server, after the version of the ledger that the admission will replace: the policy,
//! then Jobs, then pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Pod};
use kube::ResourceExt;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reconciler::{Observation, Subject};
use otctl_kit::store::Key;
use otctl_types::names::{OWNER_LABEL, ROLE_LABEL};
use otctl_types::queue::ActiveEntry;
use otctl_types::{AdmissionQueue, VMDiskImage};

use crate::children;
use crate::jobs;
use crate::known::Known;
use crate::names::{JobRole, attempt_number};
use crate::proof;
use crate::queue::work::Work;
use crate::queue::{Queue, decide, lane};
use crate::surroundings::Surroundings;

/// Everything the queue decides on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The ledger; none before it was made.
    pub queue: Option<Arc<AdmissionQueue>>,
    /// Every image.
    pub images: Vec<Arc<Known>>,
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
    /// UIDs of images whose snapshot was asked for and is not ready.
    pub snapshotted: BTreeSet<String>,
    /// UIDs of images that are listed for a snapshot and that a consistent read did not find.
    pub gone: BTreeSet<String>,
    /// Ended pods that nobody owns, with their UIDs: the claims that they mount cannot go before them.
    pub strays: Vec<(Target, String)>,
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
        let images = self.views.known.all(self.views.images.all());
        let mut observed = Observed {
            queue: self.views.queue(),
            proven: self.proven(&images),
            used: self.used(&images),
            images,
            around: Surroundings::of(&self.views),
            document: self.document_as_seen().await,
            missing: BTreeMap::new(),
            work: None,
            snapshotted: self.snapshotted(),
            gone: BTreeSet::new(),
            strays: self.strays(),
        };
        if decide::changes_policy(&observed) {
            observed.document = self.document_now().await;
        }
        for entry in decide::missing_holders(&observed) {
            observed.missing.insert(entry.uid.clone(), self.trace(&entry).await?);
        }
        for entry in lane::missing(&observed) {
            let uid = self.reader.uid::<VMDiskImage>(Some(&entry.namespace), &entry.name).await?;
            if uid.as_ref() != Some(&entry.uid) {
                observed.gone.insert(entry.uid);
            }
        }
        if decide::needs_work(&observed, self.clock.now()) {
            observed.document = self.document_now().await;
            observed.work = Some(self.work().await?);
        }
        Ok(observed)
    }

    /// Images with a copy of their data that their status has forgotten.
    fn proven(&self, images: &[Arc<Known>]) -> BTreeSet<String> {
        let forgetful = images.iter().filter(|image| !image.record.is_current());
        let is_proven =
            |image: &&Arc<Known>| proof::of_views(&self.views, image, &image.record.revision);
        forgetful.filter(is_proven).map(|image| image.uid.clone()).collect()
    }

    /// Numbers that a lost status has forgotten: an old result must not be taken for that of a new attempt. One that
    /// brought the data is left to be read.
    fn used(&self, images: &[Arc<Known>]) -> BTreeMap<String, i64> {
        let forgetful = images.iter().filter(|image| image.record.last() == 0);
        forgetful
            .map(|image| (image.uid.clone(), self.highest_ended(&image.uid)))
            .filter(|(_, number)| *number > 0)
            .collect()
    }

    /// Owners of snapshots that are being taken.
    fn snapshotted(&self) -> BTreeSet<String> {
        let snapshots = self.views.snapshots.all();
        let taken = snapshots.iter().filter(|snapshot| !proof::is_ready(snapshot));
        taken
            .filter_map(|snapshot| jobs::controller_uid(&snapshot.metadata).map(str::to_owned))
            .collect()
    }

    fn strays(&self) -> Vec<(Target, String)> {
        let pods = self.views.pods.all();
        let strays = pods.iter().filter(|pod| jobs::is_stray(pod));
        strays.map(|pod| (children::target(&**pod), pod.uid().unwrap_or_default())).collect()
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
        let uid = self.reader.uid::<VMDiskImage>(Some(&entry.namespace), &entry.name).await?;
        if uid.as_ref() == Some(&entry.uid) {
            return Ok(Trace::Alive);
        }
        let selector = format!("{OWNER_LABEL}={}", entry.uid);
        let jobs = self.reader.list::<Job>(Some(&entry.namespace), &selector).await?;
        let is_it = |job: &&Job| {
            let owner = jobs::controller(&job.metadata).filter(|owner| jobs::is_image(owner));
            owner.is_some_and(|owner| owner.uid == entry.uid)
                && attempt_number(&job.name_any(), JobRole::Import) == Some(entry.attempt)
        };
        if let Some(job) = jobs.iter().find(is_it) {
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
        Ok(Work::of(&jobs, &pods, &images))
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
    Document::Present { entries: entries(map), reference: Box::new(reference) }
}

/// All that stands in it as text. A value that is none cannot be read as any key's, and is told like every such value.
fn entries(map: &ConfigMap) -> BTreeMap<String, String> {
    let text = |(key, bytes): (&String, &ByteString)| {
        (key.clone(), String::from_utf8_lossy(&bytes.0).into_owned())
    };
    let mut entries = map.data.clone().unwrap_or_default();
    entries.extend(map.binary_data.iter().flatten().map(text));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_holds_as_bytes_is_read_like_its_texts() {
        let bytes = |text: &[u8]| ByteString(text.to_vec());
        let map = ConfigMap {
            data: Some([("retryLimit".to_owned(), "7".to_owned())].into()),
            binary_data: Some(
                [
                    ("concurrency".to_owned(), bytes(b"3")),
                    ("stallTimeout".to_owned(), bytes(b"\xff")),
                ]
                .into(),
            ),
            ..ConfigMap::default()
        };
        let (policy, problems) = policy::document(&entries(&map), &policy::Policy::default());
        assert_eq!((policy.concurrency, policy.retry_limit), (3, 7));
        assert_eq!(
            problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(),
            ["stallTimeout"]
        );
    }
}
