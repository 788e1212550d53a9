//! The model's facts as the objects that the product reads. Names, owners and labels are the product's own; claims and
//! the look at the source are there from the beginning, since no promise of the ledger rests on them.

use std::cell::RefCell;
use std::collections::HashMap;

use clap::Parser;
use diskimage_controller::children::{Facts, import, probe as probing};
use diskimage_controller::names::{self, JobRole, job_name};
use diskimage_controller::surroundings::Surroundings;
use diskimage_controller::{Args, jobs, slim};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus,
    PersistentVolumeClaim, Pod, PodStatus,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;
use otctl_types::diskimage::{AccessMode, VMDiskImageSpec};
use otctl_types::import::{ImageFormat, ImportOutcome, ImportReason, ImportReport, SourceFacts};
use otctl_types::names::{
    DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, DISK_CHECKSUM_ANNOTATION, IMAGE_QUEUE, OWNER_LABEL,
    RETRY_ANNOTATION, ROLE_LABEL,
};
use otctl_types::queue::AdmissionQueueStatus;
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage, VMDiskImageStatus};
use policy::Policy;

use crate::state::{Image, Import, JobId, JobState, PodState, Uid};

const NAMESPACE: &str = "lab";

/// When everything happens: time plays no part in the protocol.
pub(crate) fn noon() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().expect("a constant")
}

/// resourceVersion of every image that is given to the product; which version it stands for, the pass remembers.
pub(crate) const IMAGE_VERSION: &str = "100";
/// The same of the ledger.
pub(crate) const LEDGER_VERSION: &str = "200";

pub(crate) fn image_name(name: u8) -> String {
    format!("i{name}")
}

pub(crate) fn uid_text(uid: Uid) -> String {
    format!("i{}-{}", uid.name, uid.life)
}

pub(crate) fn job_text(job: JobId) -> String {
    format!("{}-{}-{}", uid_text(job.image), job.number, job.serial)
}

pub(crate) fn uid_of(text: &str) -> Option<Uid> {
    let (name, life) = text.strip_prefix('i')?.split_once('-')?;
    Some(Uid { name: name.parse().ok()?, life: life.parse().ok()? })
}

pub(crate) fn job_of(text: &str) -> Option<JobId> {
    let (rest, serial) = text.rsplit_once('-')?;
    let (image, number) = rest.rsplit_once('-')?;
    Some(JobId {
        image: uid_of(image)?,
        number: number.parse().ok()?,
        serial: serial.parse().ok()?,
    })
}

fn spec(name: u8) -> VMDiskImageSpec {
    VMDiskImageSpec {
        url: format!("http://host/{name}"),
        access_modes: vec![AccessMode::ReadWriteOnce],
        ..VMDiskImageSpec::default()
    }
}

pub(crate) fn image(name: u8, image: &Image, status: &VMDiskImageStatus) -> VMDiskImage {
    let mut object = VMDiskImage::new(&image_name(name), spec(name));
    object.spec.suspend = image.is_suspended;
    let asked = (RETRY_ANNOTATION.to_owned(), image.asked.to_string());
    object.metadata = ObjectMeta {
        name: object.metadata.name,
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(uid_text(Uid { name, life: image.life })),
        resource_version: Some(IMAGE_VERSION.to_owned()),
        generation: Some(1),
        creation_timestamp: Some(Time(
            noon() - SignedDuration::from_hours(2)
                + SignedDuration::from_secs(i64::from(image.born)),
        )),
        deletion_timestamp: image.is_deleting.then(|| Time(noon())),
        annotations: (image.asked > 0).then(|| [asked].into()),
        ..ObjectMeta::default()
    };
    object.status = Some(status.clone());
    object
}

/// The image of that UID, for readers of its UID alone.
pub(crate) fn bare_image(uid: Uid) -> VMDiskImage {
    image(uid.name, &Image::new(uid.life), &VMDiskImageStatus::default())
}

/// What a new budget is known by, for the `asked`-th one.
pub(crate) fn budget_key(name: u8, asked: u8) -> String {
    let facts = Image { asked, ..Image::new(1) };
    names::budget_key(&image(name, &facts, &VMDiskImageStatus::default()))
}

pub(crate) fn queue(status: &AdmissionQueueStatus) -> AdmissionQueue {
    let mut queue = AdmissionQueue::new(IMAGE_QUEUE, AdmissionQueueSpec::default());
    queue.metadata.uid = Some("queue".to_owned());
    queue.metadata.resource_version = Some(LEDGER_VERSION.to_owned());
    queue.status = Some(status.clone());
    queue
}

pub(crate) fn policy(concurrency: u32, retry_limit: u32) -> ConfigMap {
    let entries = [
        ("concurrency".to_owned(), concurrency.to_string()),
        ("retryLimit".to_owned(), retry_limit.to_string()),
    ];
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(DEFAULT_POLICY_NAME.to_owned()),
            namespace: Some(DEFAULT_NAMESPACE.to_owned()),
            uid: Some("policy".to_owned()),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(entries.into()),
        ..ConfigMap::default()
    }
}

pub(crate) fn storage_class() -> StorageClass {
    let default = ("storageclass.kubernetes.io/is-default-class".to_owned(), "true".to_owned());
    StorageClass {
        metadata: ObjectMeta {
            name: Some("fast".to_owned()),
            resource_version: Some("1".to_owned()),
            annotations: Some([default].into()),
            ..ObjectMeta::default()
        },
        provisioner: "csi".to_owned(),
        ..StorageClass::default()
    }
}

/// The claims of an image: the disk until it was given up, the download until it is done.
pub(crate) fn claims(name: u8, life: u8, status: &VMDiskImageStatus) -> Vec<PersistentVolumeClaim> {
    use otctl_types::diskimage::Phase;
    if status.phase == Some(Phase::Failed) {
        return Vec::new();
    }
    let revision = names::revision(&spec(name));
    let uid = Uid { name, life };
    let mut disk = claim(names::data_name(&image_name(name), &revision), uid);
    if status.current.is_some() {
        let proof = (DISK_CHECKSUM_ANNOTATION.to_owned(), "sha256:d".to_owned());
        disk.metadata.annotations = Some([proof].into());
        return vec![disk];
    }
    vec![disk, claim(names::scratch_name(&image_name(name), &revision), uid)]
}

fn claim(name: String, uid: Uid) -> PersistentVolumeClaim {
    let metadata = ObjectMeta {
        uid: Some(format!("claim-{name}")),
        name: Some(name),
        namespace: Some(NAMESPACE.to_owned()),
        resource_version: Some("1".to_owned()),
        owner_references: Some(vec![owned_by(
            "VMDiskImage",
            &image_name(uid.name),
            &uid_text(uid),
        )]),
        ..ObjectMeta::default()
    };
    PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() }
}

/// The Job of an import.
pub(crate) fn job(import: &Import) -> Job {
    let mut job = bare_job(import.id, JobRole::Import);
    job.metadata.resource_version = Some(import.job_version().to_string());
    job.metadata.deletion_timestamp = import.is_going.then(|| Time(noon()));
    let is_suspended = import.job == JobState::Suspended;
    job.metadata.generation = Some(if is_suspended { 1 } else { 2 });
    job.spec.get_or_insert_default().suspend = Some(is_suspended);
    let ended = match import.job {
        JobState::Complete => Some(("Complete", None)),
        JobState::Failed => Some(("Failed", Some("BackoffLimitExceeded"))),
        JobState::Absent | JobState::Suspended | JobState::Started => None,
    };
    job.status = ended.map(|(kind, reason)| ended_as(kind, reason));
    job
}

/// The pod of an import.
pub(crate) fn pod(import: &Import) -> Pod {
    let report = |outcome, reason| ImportReport {
        outcome,
        reason,
        message: String::new(),
        download_started: true,
        bytes: 0,
        source: Some(source()),
        checksum: Some("sha256:s".to_owned()),
        disk_checksum: Some("sha256:d".to_owned()),
        retry_after_seconds: None,
    };
    let failed = || report(ImportOutcome::Failed, Some(ImportReason::ServerError));
    let told = match import.pod {
        PodState::Succeeded => Some(("Succeeded", report(ImportOutcome::Complete, None))),
        PodState::Failed => Some(("Failed", failed())),
        PodState::None | PodState::Running => None,
    };
    bare_pod(import.id, JobRole::Import, told)
}

/// The look at the source that an attempt begins with: over, and all is well. Which probe was made when plays no part in
/// the protocol.
pub(crate) fn probe(image: Uid, number: u8) -> (Job, Pod) {
    let id = JobId { image, number, serial: 0 };
    let mut job = bare_job(id, JobRole::Probe);
    job.metadata.resource_version = Some("1".to_owned());
    job.status = Some(ended_as("Complete", None));
    let report = ImportReport {
        outcome: ImportOutcome::Complete,
        reason: None,
        message: String::new(),
        download_started: false,
        bytes: 0,
        source: Some(source()),
        checksum: None,
        disk_checksum: None,
        retry_after_seconds: None,
    };
    (job, bare_pod(id, JobRole::Probe, Some(("Succeeded", report))))
}

fn source() -> SourceFacts {
    SourceFacts {
        size: Some(1 << 20),
        etag: None,
        accepts_ranges: true,
        format: ImageFormat::Qcow2,
        compression: None,
        virtual_size: Some(1 << 30),
    }
}

fn bare_job(id: JobId, role: JobRole) -> Job {
    let uid = uid_text(id.image);
    let labels =
        [(OWNER_LABEL.to_owned(), uid.clone()), (ROLE_LABEL.to_owned(), role.as_str().to_owned())];
    let owner = owned_by("VMDiskImage", &image_name(id.image.name), &uid);
    let metadata = ObjectMeta {
        name: Some(name_of(id, role)),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(format!("{}{}", prefix(role), job_text(id))),
        creation_timestamp: Some(Time(noon())),
        labels: Some(labels.into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: Some(carried_out(id.image.name, role)), ..Job::default() }
}

/// What the product's own Jobs of that image do, as the watches keep it; made once.
fn carried_out(name: u8, role: JobRole) -> JobSpec {
    thread_local! {
        static MADE: RefCell<HashMap<(u8, &'static str), JobSpec>> = RefCell::default();
    }
    MADE.with_borrow_mut(|made| {
        made.entry((name, role.as_str())).or_insert_with(|| build(name, role)).clone()
    })
}

fn build(name: u8, role: JobRole) -> JobSpec {
    let image = VMDiskImage::new(&image_name(name), spec(name));
    let facts = Facts {
        image: &image,
        revision: &names::revision(&image.spec),
        settings: &Args::parse_from(["diskimage-controller"]).settings,
        policy: &Policy::default(),
        around: &Surroundings::default(),
        source: Some(source()),
        number: 1,
        progress_key: "key",
        checksum: None,
        disk_checksum: None,
        snapshot_class: None,
        restore_size: None,
        claim: None,
    };
    let mut job = match role {
        JobRole::Import => import::job(&facts),
        JobRole::Probe => probing::job(&facts),
    };
    slim::job(&mut job);
    job.spec.expect("a Job that was made has a spec")
}

fn bare_pod(id: JobId, role: JobRole, told: Option<(&str, ImportReport)>) -> Pod {
    let job = bare_job(id, role);
    let job_uid = job.metadata.uid.clone().unwrap_or_default();
    let mut status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
    let mut state =
        ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() };
    if let Some((phase, report)) = told {
        status.phase = Some(phase.to_owned());
        let message = serde_json::to_string(&report).expect("a report serialises");
        let ended = ContainerStateTerminated { message: Some(message), ..Default::default() };
        state = ContainerState { terminated: Some(ended), ..Default::default() };
    }
    status.container_statuses =
        Some(vec![ContainerStatus { state: Some(state), ..ContainerStatus::default() }]);
    let metadata = ObjectMeta {
        name: Some(format!("{}-{}", name_of(id, role), id.serial)),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(format!("pod-{job_uid}")),
        resource_version: Some("1".to_owned()),
        labels: job.metadata.labels.clone(),
        owner_references: Some(vec![owned_by("Job", &name_of(id, role), &job_uid)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, status: Some(status), ..Pod::default() }
}

fn prefix(role: JobRole) -> &'static str {
    match role {
        JobRole::Probe => "probe-",
        JobRole::Import => "",
    }
}

fn name_of(id: JobId, role: JobRole) -> String {
    let revision = names::revision(&spec(id.image.name));
    job_name(&image_name(id.image.name), &uid_text(id.image), &revision, role, i64::from(id.number))
}

fn ended_as(kind: &str, reason: Option<&str>) -> JobStatus {
    let condition = JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: reason.map(str::to_owned),
        ..JobCondition::default()
    };
    JobStatus { conditions: Some(vec![condition]), ..JobStatus::default() }
}

fn owned_by(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: if kind == "Job" { "batch/v1" } else { "pelotech.ot/v1alpha1" }.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// UID of the image that controls an object.
pub(crate) fn owner_of(metadata: &ObjectMeta) -> Option<Uid> {
    uid_of(jobs::controller_uid(metadata)?)
}
