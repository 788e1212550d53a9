//! The facts that an image is decided on, and what the protocol asks of them. Reading them is `observe`'s.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use otctl_kit::attempt::{AttemptFacts, Confirmed, JobFacts};
use otctl_kit::cluster::Target;
use otctl_kit::reconciler::{Observation, Subject};
use otctl_types::VMDiskImage;
use otctl_types::queue::ActiveEntry;
use policy::Policy;

use crate::config::Settings;
use crate::jobs;
use crate::names::{self, JobRole};
use crate::progress::Talk;
use crate::record::Record;
use crate::snapshots::VolumeSnapshot;
use crate::surroundings::{Surroundings, snapshot_class};

/// Everything an image is decided on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The image; none when it is gone.
    pub image: Option<Arc<VMDiskImage>>,
    /// What its status remembers, with the hashes of its spec.
    pub record: Record,
    /// Settings of the Deployment.
    pub settings: Arc<Settings>,
    /// The policy in effect.
    pub policy: Policy,
    /// Its slot, as last seen.
    pub entry: Option<ActiveEntry>,
    /// How many with a lower ticket wait.
    pub ahead: usize,
    /// Classes of the cluster.
    pub around: Surroundings,
    /// Its import Jobs.
    pub imports: Vec<Work>,
    /// Its probe Jobs.
    pub probes: Vec<Work>,
    /// The consistent read that the attempt protocol asked for.
    pub confirmed: Confirmed,
    /// The claim of this revision's disk.
    pub claim: Presence<PersistentVolumeClaim>,
    /// The claim of this revision's download.
    pub scratch: Presence<PersistentVolumeClaim>,
    /// The snapshot of this revision's disk.
    pub snapshot: Presence<VolumeSnapshot>,
    /// Whether that snapshot and its content name each other.
    pub is_bound: bool,
    /// Claims and snapshots of other revisions.
    pub outdated: Vec<(Target, String)>,
    /// What holds the name of a child of this revision and is on its way out: the same child of an earlier image of this
    /// name, or of an earlier try.
    pub leaving: Option<Target>,
    /// Someone else's object of a child's name, as far as the views show it.
    pub foreign: Option<Target>,
    /// How the talk with the running import stands; none while nobody has asked it.
    pub talk: Option<Talk>,
    /// What the ledger and the rest of the queue tell it besides its slot.
    pub hall: Hall,
    /// A fresh random key, for a Job that is made in this pass.
    pub progress_key: String,
}

/// What the queue tells an image besides its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hall {
    /// Whether slots are free and its source's host has none.
    pub is_host_busy: bool,
    /// Whether the bandwidth has room for one more import; asked when its own is about to start.
    pub has_bandwidth: bool,
    /// Whether it may take its snapshot.
    pub lane: Lane,
    /// Whether every key of the policy could be read.
    pub is_policy_valid: bool,
}

impl Default for Hall {
    fn default() -> Self {
        Self { is_host_busy: false, has_bandwidth: true, lane: Lane::Open, is_policy_valid: true }
    }
}

/// Where an image stands that wants a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Not listed yet, and there is room.
    Open,
    /// Not listed, and as many are as may be.
    Full,
    /// Listed: the snapshot may be asked for.
    Held,
}

/// A Job and the end of its pod.
#[derive(Clone, Debug)]
pub struct Work {
    /// The Job.
    pub job: Arc<Job>,
    /// Number of the attempt, from its name.
    pub number: i64,
    /// Its pods, as far as seen.
    pub pods: Vec<Arc<Pod>>,
}

/// Whether a child is there.
#[derive(Clone, Debug)]
pub enum Presence<K> {
    /// Not seen, and nobody asked the API server.
    Unseen,
    /// The API server has none that is ours.
    Absent,
    /// It is there and ours.
    Present(Arc<K>),
}

impl<K> Presence<K> {
    /// The object, if it is there.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unseen | Self::Absent => None,
        }
    }
}

impl Observation for Observed {
    fn subject(&self) -> Option<Subject> {
        let image = self.image.as_ref()?;
        Some(Subject {
            target: Target::new::<VMDiskImage>(image.namespace().as_deref(), &image.name_any()),
            uid: image.uid().unwrap_or_default(),
            resource_version: image.resource_version().unwrap_or_default(),
            status: serde_json::to_value(&image.status).expect("a status serialises"),
        })
    }
}

impl Observed {
    /// The facts as the attempt protocol asks them.
    pub fn attempt<'a>(
        &'a self,
        jobs: &'a [JobFacts],
        may_start: bool,
        may_go_on: bool,
    ) -> AttemptFacts<'a> {
        AttemptFacts {
            last: self.record.last(),
            open: self.record.status.open_attempt.as_ref(),
            entry: self.entry.as_ref().map(|entry| entry.attempt),
            jobs,
            may_start,
            may_go_on,
            confirmed: self.confirmed,
        }
    }

    /// The import Jobs as the attempt protocol asks them.
    pub fn job_facts(&self) -> Vec<JobFacts> {
        self.imports.iter().map(Work::facts).collect()
    }

    /// The import with that UID.
    pub fn import(&self, job_uid: &str) -> Option<&Work> {
        self.imports.iter().find(|work| work.job.uid().as_deref() == Some(job_uid))
    }

    /// The class of the snapshot, if one is wanted. What was promised when the data became complete stays: a policy that
    /// changes afterwards neither loses nor rewrites finished images.
    pub fn snapshot_class(&self) -> Option<String> {
        let image = self.image.as_ref()?;
        if let Some(promised) = self.record.promised_class() {
            return promised.map(str::to_owned);
        }
        let proof = self.snapshot.object();
        let of_proof = proof.and_then(|found| found.spec.volume_snapshot_class_name.clone());
        of_proof.or_else(|| snapshot_class(&image.spec, &self.policy).map(str::to_owned))
    }

    /// The probe of this number for the revision in spec.
    pub fn probe(&self, number: i64) -> Option<&Work> {
        let image = self.image.as_ref()?;
        let uid = image.uid().unwrap_or_default();
        let name =
            names::job_name(&image.name_any(), &uid, &self.record.revision, JobRole::Probe, number);
        self.probes.iter().find(|work| work.job.name_any() == name)
    }
}

impl Work {
    fn facts(&self) -> JobFacts {
        JobFacts {
            number: self.number,
            uid: self.job.uid().unwrap_or_default(),
            resource_version: self.job.resource_version().unwrap_or_default(),
            is_suspended: jobs::is_suspended(&self.job),
            has_ended: self.has_ended(),
            is_deleting: self.job.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The Job has ended, and so has every pod of it that was seen.
    pub fn has_ended(&self) -> bool {
        jobs::job_has_ended(&self.job) && self.pods.iter().all(|pod| jobs::pod_has_ended(pod))
    }

    /// The pod that ended last.
    pub fn ended_pod(&self) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| jobs::pod_has_ended(pod))
    }
}
