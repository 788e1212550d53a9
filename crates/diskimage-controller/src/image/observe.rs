//! Reads the facts of one image. From the watches, but for what must not be stale: the ledger before a Job is started,
//! the absence of a Job and its pods before an attempt is closed without a result, the absence of data before it is
//! called lost.

mod confirm;

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use otctl_kit::attempt::{AttemptFacts, Confirmed, JobFacts};
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::ledger;
use otctl_kit::reconciler::{Observation, Subject};
use otctl_kit::store::{Key, Store};
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::import::Progress;
use otctl_types::queue::ActiveEntry;
use policy::{Policy, Ticket};

use crate::config::Settings;
use crate::image::Image;
use crate::jobs;
use crate::names::{self, JobRole, attempt_number};
use crate::record::Record;
use crate::snapshots::VolumeSnapshot;
use crate::surroundings::{Surroundings, snapshot_class};
use crate::views::effective_policy;

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
    /// What the running import last told.
    pub progress: Option<Progress>,
    /// A fresh random key, for a Job that is made in this pass.
    pub progress_key: String,
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

impl Image {
    /// Reads the facts.
    pub(super) async fn look(&self, key: &Key) -> Result<Observed, ApiError> {
        let image = self.views.images.get(key);
        let mut observed = self.seen(image);
        if observed.image.is_some() {
            self.complete_reports(&mut observed).await?;
            observed.confirmed = self.confirm(&mut observed).await?;
            self.confirm_data(&mut observed).await?;
        }
        Ok(observed)
    }

    /// What the watches tell.
    fn seen(&self, image: Option<Arc<VMDiskImage>>) -> Observed {
        let queue = self.views.queue();
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let blank = VMDiskImage::default();
        let subject = image.as_deref().unwrap_or(&blank);
        let (uid, record) = (subject.uid().unwrap_or_default(), Record::of(subject));
        Observed {
            settings: self.settings.clone(),
            policy: effective_policy(status),
            entry: ledger::entry(status, &uid).cloned(),
            ahead: self.ahead(&record.status),
            around: Surroundings::of(&self.views),
            imports: self.work(&uid, JobRole::Import),
            probes: self.work(&uid, JobRole::Probe),
            confirmed: Confirmed::Nothing,
            claim: self.child(
                &self.views.claims,
                subject,
                &names::data_name(&subject.name_any(), &record.revision),
            ),
            scratch: self.child(
                &self.views.claims,
                subject,
                &names::scratch_name(&subject.name_any(), &record.revision),
            ),
            snapshot: self.child(
                &self.views.snapshots,
                subject,
                &names::data_name(&subject.name_any(), &record.revision),
            ),
            is_bound: false,
            outdated: self.outdated(subject, &record),
            leaving: self.leaving(subject, &record),
            progress: self.progress.get(&uid),
            progress_key: fresh_key(),
            record,
            image,
        }
    }

    fn work(&self, uid: &str, role: JobRole) -> Vec<Work> {
        let numbered =
            |job: Arc<Job>| attempt_number(&job.name_any(), role).map(|number| (job, number));
        let jobs = self.views.jobs.owned_by(uid).into_iter().filter_map(numbered);
        jobs.map(|(job, number)| Work {
            pods: self.views.pods.owned_by(&job.uid().unwrap_or_default()),
            job,
            number,
        })
        .collect()
    }

    /// The child of that name that is owned by this UID. A foreign object is not seen here; making the child will tell.
    fn child<K>(&self, store: &Store<K>, image: &VMDiskImage, name: &str) -> Presence<K>
    where
        K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let found = store.get(&Key::new(&image.namespace().unwrap_or_default(), name));
        let ours =
            found.filter(|child| jobs::controller_uid(child.meta()) == image.uid().as_deref());
        ours.map_or(Presence::Unseen, Presence::Present)
    }

    fn outdated(&self, image: &VMDiskImage, record: &Record) -> Vec<(Target, String)> {
        let uid = image.uid().unwrap_or_default();
        let name = image.name_any();
        let kept = record.status.current.as_ref().map(|current| current.revision.as_str());
        let revisions = [Some(record.revision.as_str()), kept];
        let data: Vec<String> =
            revisions.iter().flatten().map(|revision| names::data_name(&name, revision)).collect();
        let scratch = names::scratch_name(&name, &record.revision);
        let claims = self.views.claims.owned_by(&uid).into_iter().filter(|claim| {
            !data.contains(&claim.name_any())
                && claim.name_any() != scratch
                && claim.metadata.deletion_timestamp.is_none()
        });
        let snapshots = self.views.snapshots.owned_by(&uid).into_iter().filter(|snapshot| {
            !data.contains(&snapshot.name_any()) && snapshot.metadata.deletion_timestamp.is_none()
        });
        let claims = claims.map(|claim| target_and_uid(&*claim));
        claims.chain(snapshots.map(|snapshot| target_and_uid(&*snapshot))).collect()
    }

    /// The first child of that kind.
    fn leaving(&self, image: &VMDiskImage, record: &Record) -> Option<Target> {
        let name = image.name_any();
        let data = names::data_name(&name, &record.revision);
        let scratch = names::scratch_name(&name, &record.revision);
        leaving(&self.views.claims, image, &data)
            .or_else(|| leaving(&self.views.claims, image, &scratch))
            .or_else(|| leaving(&self.views.snapshots, image, &data))
    }

    /// How many others with a lower ticket wait. Only told when the image begins to wait, so only counted then.
    fn ahead(&self, status: &VMDiskImageStatus) -> usize {
        let ticket = |status: &VMDiskImageStatus| {
            status.ticket.as_deref().and_then(|text| text.parse::<Ticket>().ok())
        };
        let (Some(own), None) = (ticket(status), status.phase) else {
            return 0;
        };
        let waits = |other: &VMDiskImageStatus| matches!(other.phase, None | Some(Phase::Queued));
        let images = self.views.images.all();
        let others =
            images.iter().filter_map(|image| image.status.as_ref()).filter(|other| waits(other));
        others.filter(|other| ticket(other).is_some_and(|theirs| theirs < own)).count()
    }
}

/// The object of that name, if it is on its way out: ours and being deleted, or of an image of the same name that is
/// gone, with which it goes.
fn leaving<K>(store: &Store<K>, image: &VMDiskImage, name: &str) -> Option<Target>
where
    K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let found = store.get(&Key::new(&image.namespace().unwrap_or_default(), name))?;
    let owner = jobs::controller(found.meta())?;
    let is_ours = Some(&owner.uid) == image.metadata.uid.as_ref();
    let is_going = is_ours && found.meta().deletion_timestamp.is_some();
    let is_of_the_dead = !is_ours && owner.kind == "VMDiskImage" && owner.name == image.name_any();
    (is_going || is_of_the_dead).then(|| target_and_uid(&*found).0)
}

fn target_and_uid<K: kube::Resource<DynamicType = ()>>(object: &K) -> (Target, String) {
    let meta = object.meta();
    let name = meta.name.clone().unwrap_or_default();
    (Target::new::<K>(meta.namespace.as_deref(), &name), meta.uid.clone().unwrap_or_default())
}

/// 128 random bits from the operating system's generator, in hexadecimal.
fn fresh_key() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}
