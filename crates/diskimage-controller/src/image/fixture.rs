//! Facts of an image in verbs, for the tables of `verdict` and `decide`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_kit::attempt::Confirmed;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{
    Attempt, Budget, Current, OpenAttempt, VMDiskImageSpec, VMDiskImageStatus,
};
use otctl_types::import::{ImageFormat, ImportOutcome, ImportReason, ImportReport, SourceFacts};
use otctl_types::names::DISK_CHECKSUM_ANNOTATION;
use otctl_types::queue::ActiveEntry;
use policy::Policy;

use crate::image::observe::{Observed, Presence, Work};
use crate::names::{JobRole, job_name};
use crate::record::{Record, SUCCEEDED};
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotStatus};
use crate::surroundings::Surroundings;

const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";

/// Noon, when every table is judged.
pub(crate) fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().expect("a constant")
}

/// An image that was just created, in a cluster with the classes `fast` and `snap`.
pub(crate) fn image() -> Facts {
    let mut image = VMDiskImage::new(
        "web",
        VMDiskImageSpec { url: "http://host/web.qcow2".to_owned(), ..VMDiskImageSpec::default() },
    );
    image.metadata.namespace = Some("lab".to_owned());
    image.metadata.uid = Some(UID.to_owned());
    image.metadata.generation = Some(1);
    let around = Surroundings {
        storage: [("fast".to_owned(), "csi".to_owned())].into(),
        default_storage: Some("fast".to_owned()),
        snapshot: Some([("snap".to_owned(), "csi".to_owned())].into()),
        retaining: [].into(),
    };
    Facts { image, around, policy: Policy::default(), seen: Seen::default() }
}

/// What is known, before it becomes an `Observed`.
pub(crate) struct Facts {
    image: VMDiskImage,
    around: Surroundings,
    policy: Policy,
    seen: Seen,
}

struct Seen {
    entry: Option<i64>,
    imports: Vec<Work>,
    probes: Vec<Work>,
    confirmed: Confirmed,
    claim: Presence<PersistentVolumeClaim>,
    snapshot: Presence<VolumeSnapshot>,
    is_bound: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            entry: None,
            imports: Vec::new(),
            probes: Vec::new(),
            confirmed: Confirmed::Nothing,
            claim: Presence::Unseen,
            snapshot: Presence::Unseen,
            is_bound: false,
        }
    }
}

impl Facts {
    pub(crate) fn spec(mut self, change: impl FnOnce(&mut VMDiskImageSpec)) -> Self {
        change(&mut self.image.spec);
        self
    }

    pub(crate) fn snapshotted(self) -> Self {
        self.spec(|spec| spec.snapshot_class = Some("snap".to_owned()))
    }

    pub(crate) fn status(mut self, change: impl FnOnce(&mut VMDiskImageStatus)) -> Self {
        change(self.image.status.get_or_insert_default());
        self
    }

    pub(crate) fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    pub(crate) fn deleted(mut self) -> Self {
        self.image.metadata.deletion_timestamp = Some(Time(now()));
        self
    }

    pub(crate) fn without_storage(mut self) -> Self {
        self.around.storage.clear();
        self
    }

    pub(crate) fn ticket(self, ticket: &str) -> Self {
        self.status(|status| status.ticket = Some(ticket.to_owned()))
    }

    /// Holds a slot for attempt `number`.
    pub(crate) fn slot(mut self, number: i64) -> Self {
        self.seen.entry = Some(number);
        self
    }

    /// Attempt `number` is on record as running.
    pub(crate) fn open(self, number: i64) -> Self {
        let record = Record::of(&self.image);
        self.status(|status| {
            status.last_attempt = Some(number);
            status.revision = Some(record.revision);
            status.source = Some(source());
            status.open_attempt = Some(OpenAttempt {
                number,
                job_uid: format!("job-{number}"),
                started_at: Some(Time(now())),
                ticket: Some("1".to_owned()),
                budget: None,
            });
        })
    }

    /// The source was looked at by an earlier attempt.
    pub(crate) fn known_source(self) -> Self {
        let revision = Record::of(&self.image).revision;
        self.status(|status| {
            status.source = Some(source());
            status.revision = Some(revision);
        })
    }

    /// Attempts ended with this reason, `minutes` before noon; `charged` of them from the budget.
    pub(crate) fn failed(self, reason: &str, charged: i32, is_final: bool) -> Self {
        let record = Record::of(&self.image);
        self.status(|status| {
            status.last_attempt = Some(i64::from(charged).max(1));
            status.budget = Some(Budget { key: record.budget_key.clone(), charged });
            status.revision = Some(record.revision.clone());
            status.attempts = vec![Attempt {
                number: i64::from(charged).max(1),
                ticket: status.ticket.clone(),
                charged: charged > 0,
                reason: Some(reason.to_owned()),
                message: Some("what happened".to_owned()),
                budget: Some(record.budget_key),
                revision: Some(record.revision),
                is_final,
                ..Attempt::default()
            }];
        })
    }

    pub(crate) fn retry_in(self, minutes: i64) -> Self {
        let at = now() + SignedDuration::from_mins(minutes);
        self.status(|status| status.next_retry_at = Some(Time(at)))
    }

    /// The data was brought, with the snapshot that the spec asks for promised.
    pub(crate) fn fetched(self) -> Self {
        let class = self.image.spec.snapshot_class.clone();
        self.failed(SUCCEEDED, 1, false).status(|status| status.attempts[0].snapshot_class = class)
    }

    pub(crate) fn current(self, snapshot: bool) -> Self {
        let record = Record::of(&self.image);
        let name = crate::names::data_name("web", &record.revision);
        self.status(|status| {
            status.current = Some(Current {
                revision: record.revision,
                volume: Some(name.clone()),
                snapshot: snapshot.then_some(name),
                snapshot_class: snapshot.then(|| "snap".to_owned()),
                ..Current::default()
            });
        })
    }

    pub(crate) fn import(self, number: i64, state: State) -> Self {
        self.work(JobRole::Import, number, state)
    }

    pub(crate) fn probe(self, number: i64, state: State) -> Self {
        self.work(JobRole::Probe, number, state)
    }

    pub(crate) fn confirmed(mut self, confirmed: Confirmed) -> Self {
        self.seen.confirmed = confirmed;
        self
    }

    pub(crate) fn claim(mut self) -> Self {
        self.seen.claim = Presence::Present(Arc::default());
        self
    }

    pub(crate) fn going_claim(mut self) -> Self {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.deletion_timestamp = Some(Time(now()));
        self.seen.claim = Presence::Present(Arc::new(claim));
        self
    }

    pub(crate) fn finished_claim(mut self) -> Self {
        let mut claim = PersistentVolumeClaim::default();
        let proof = (DISK_CHECKSUM_ANNOTATION.to_owned(), "sha256:d".to_owned());
        claim.metadata.annotations = Some([proof].into());
        self.seen.claim = Presence::Present(Arc::new(claim));
        self
    }

    pub(crate) fn no_claim(mut self) -> Self {
        self.seen.claim = Presence::Absent;
        self
    }

    pub(crate) fn no_snapshot(mut self) -> Self {
        self.seen.snapshot = Presence::Absent;
        self
    }

    pub(crate) fn snapshot(mut self, is_ready: bool, is_bound: bool) -> Self {
        let name = crate::names::data_name("web", &Record::of(&self.image).revision);
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = Some(name);
        snapshot.status = Some(VolumeSnapshotStatus {
            ready_to_use: Some(is_ready),
            ..VolumeSnapshotStatus::default()
        });
        self.seen.snapshot = Presence::Present(Arc::new(snapshot));
        self.seen.is_bound = is_bound;
        self
    }

    /// The spec was edited after everything else was seen.
    pub(crate) fn edited(self) -> Self {
        self.spec(|spec| spec.url = "http://host/other.qcow2".to_owned())
    }

    /// The object alone.
    pub(crate) fn build(self) -> VMDiskImage {
        self.image
    }

    pub(crate) fn observed(self) -> Observed {
        let record = Record::of(&self.image);
        let entry = self.seen.entry.map(|attempt| ActiveEntry {
            namespace: "lab".to_owned(),
            name: "web".to_owned(),
            uid: UID.to_owned(),
            attempt,
            ticket: "1".to_owned(),
            host: None,
            since: Time(now()),
        });
        Observed {
            image: Some(Arc::new(self.image)),
            record,
            settings: Arc::new(crate::config::fixture()),
            policy: self.policy,
            entry,
            ahead: 0,
            around: self.around,
            imports: self.seen.imports,
            probes: self.seen.probes,
            confirmed: self.seen.confirmed,
            claim: self.seen.claim,
            scratch: Presence::Unseen,
            snapshot: self.seen.snapshot,
            is_bound: self.seen.is_bound,
            outdated: Vec::new(),
            leaving: None,
            progress: None,
            progress_key: "key".to_owned(),
        }
    }

    fn work(mut self, role: JobRole, number: i64, state: State) -> Self {
        let revision = Record::of(&self.image).revision;
        let mut job = Job::default();
        job.metadata.name = Some(job_name("web", UID, &revision, role, number));
        job.metadata.uid = Some(match role {
            JobRole::Import => format!("job-{number}"),
            JobRole::Probe => format!("probe-{number}"),
        });
        job.spec = Some(JobSpec { suspend: Some(state == State::Suspended), ..JobSpec::default() });
        let pods = match state {
            State::Suspended | State::Running => Vec::new(),
            State::NotStarted => {
                job.status = Some(complete());
                vec![Arc::new(unstarted_pod())]
            }
            State::Ended(report) => {
                job.status = Some(complete());
                vec![Arc::new(ended_pod(&report))]
            }
        };
        let work = Work { job: Arc::new(job), number, pods };
        match role {
            JobRole::Import => self.seen.imports.push(work),
            JobRole::Probe => self.seen.probes.push(work),
        }
        self
    }
}

/// Where a Job stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Suspended,
    Running,
    /// Failed, with a pod that was never started.
    NotStarted,
    Ended(Option<ImportReport>),
}

/// A report of success.
pub(crate) fn complete_report() -> State {
    State::Ended(Some(ImportReport {
        outcome: ImportOutcome::Complete,
        reason: None,
        message: String::new(),
        download_started: true,
        bytes: 4096,
        source: Some(source()),
        checksum: Some("sha256:c".to_owned()),
        disk_checksum: Some("sha256:d".to_owned()),
        retry_after_seconds: None,
    }))
}

/// A report of failure.
pub(crate) fn failed_report(reason: ImportReason) -> State {
    State::Ended(Some(ImportReport {
        outcome: ImportOutcome::Failed,
        reason: Some(reason),
        message: "what happened".to_owned(),
        download_started: true,
        bytes: 100,
        source: Some(source()),
        checksum: None,
        disk_checksum: None,
        retry_after_seconds: None,
    }))
}

fn source() -> SourceFacts {
    SourceFacts {
        size: Some(4096),
        etag: Some("\"v1\"".to_owned()),
        accepts_ranges: true,
        format: ImageFormat::Qcow2,
        virtual_size: Some(3 << 20),
    }
}

fn complete() -> JobStatus {
    let condition = JobCondition {
        type_: "Complete".to_owned(),
        status: "True".to_owned(),
        ..JobCondition::default()
    };
    JobStatus { conditions: Some(vec![condition]), ..JobStatus::default() }
}

fn unstarted_pod() -> Pod {
    let status = PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() };
    Pod { status: Some(status), ..Pod::default() }
}

fn ended_pod(report: &Option<ImportReport>) -> Pod {
    let message = report.as_ref().map(|report| serde_json::to_string(report).expect("serialises"));
    let terminated =
        ContainerStateTerminated { exit_code: 137, message, ..ContainerStateTerminated::default() };
    let state = ContainerState { terminated: Some(terminated), ..ContainerState::default() };
    let status = ContainerStatus { state: Some(state), ..ContainerStatus::default() };
    Pod {
        status: Some(PodStatus {
            phase: Some("Failed".to_owned()),
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    }
}
