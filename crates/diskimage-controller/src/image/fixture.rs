//! Facts of an image in verbs, for the tables of `verdict` and `decide`.

mod jobs;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_kit::attempt::Confirmed;
use otctl_kit::cluster::Target;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{
    Attempt, Budget, Current, OpenAttempt, VMDiskImageSpec, VMDiskImageStatus,
};
use otctl_types::import::{ImportPhase, Progress};
use otctl_types::names::DISK_CHECKSUM_ANNOTATION;
use otctl_types::queue::ActiveEntry;
use policy::Policy;

use self::jobs::source;
pub(crate) use self::jobs::{State, complete_report, failed_report, made_import};
use crate::image::observe::{Hall, Lane, Observed, Presence, Work};
use crate::names::JobRole;
use crate::progress::Talk;
use crate::record::{Record, SUCCEEDED};
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotError, VolumeSnapshotStatus};
use crate::surroundings::Surroundings;

const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";
const SNAPSHOT_UID: &str = "snapshot";

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
    foreign: Option<Target>,
    talk: Option<Talk>,
    hall: Hall,
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
            foreign: None,
            talk: None,
            hall: Hall::default(),
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
            status.revision = Some(record.revision.clone());
            status.source = Some(source());
            status.open_attempt = Some(OpenAttempt {
                number,
                job_uid: format!("job-{number}"),
                started_at: Some(Time(now())),
                ticket: Some("1".to_owned()),
                budget: None,
                revision: Some(record.revision),
                never_ran: false,
                cut: None,
            });
        })
    }

    /// The revision in spec stands in the status.
    pub(crate) fn told(self) -> Self {
        let revision = Record::of(&self.image).revision;
        self.status(|status| status.revision = Some(revision))
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
                snapshot_uid: snapshot.then(|| SNAPSHOT_UID.to_owned()),
                snapshot_class: snapshot.then(|| "snap".to_owned()),
                ..Current::default()
            });
        })
    }

    pub(crate) fn import(self, number: i64, state: State) -> Self {
        self.work(JobRole::Import, number, state)
    }

    /// The Job of that number was made by somebody else, and does something else.
    pub(crate) fn forged(mut self) -> Self {
        for work in self.seen.imports.iter_mut().chain(&mut self.seen.probes) {
            let spec = Arc::make_mut(&mut work.job).spec.get_or_insert_default();
            spec.template = PodTemplateSpec::default();
        }
        self
    }

    pub(crate) fn probe(self, number: i64, state: State) -> Self {
        self.work(JobRole::Probe, number, state)
    }

    /// How the talk with its import stands: silent for so long, as told.
    pub(crate) fn talk(mut self, change: impl FnOnce(&mut Talk)) -> Self {
        let told = Progress {
            phase: ImportPhase::Fetching,
            bytes: 2048,
            total_bytes: Some(4096),
            received: 2048,
            percent: 50,
        };
        let mut talk = Talk {
            progress: Some(told),
            still_for: Duration::ZERO,
            mute_for: None,
            unknown_for: None,
        };
        change(&mut talk);
        self.seen.talk = Some(talk);
        self
    }

    pub(crate) fn hall(mut self, change: impl FnOnce(&mut Hall)) -> Self {
        change(&mut self.seen.hall);
        self
    }

    /// The queue lists it for a snapshot.
    pub(crate) fn listed(self) -> Self {
        self.hall(|hall| hall.lane = Lane::Held)
    }

    /// Somebody's object of that kind has the name of a child.
    pub(crate) fn foreign<K: kube::Resource<DynamicType = ()>>(mut self) -> Self {
        self.seen.foreign = Some(Target::new::<K>(Some("lab"), "web-x"));
        self
    }

    pub(crate) fn confirmed(mut self, confirmed: Confirmed) -> Self {
        self.seen.confirmed = confirmed;
        self
    }

    pub(crate) fn claim(mut self) -> Self {
        self.seen.claim = Presence::Present(Arc::default());
        self
    }

    /// It was made `minutes` before noon, and has no volume.
    pub(crate) fn unbound_claim(mut self, minutes: i64) -> Self {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some("web-disk".to_owned());
        let made = now() - SignedDuration::from_mins(minutes);
        claim.metadata.creation_timestamp = Some(Time(made));
        self.seen.claim = Presence::Present(Arc::new(claim));
        self
    }

    /// Its volume is gone.
    pub(crate) fn lost_claim(self) -> Self {
        self.claim_in("Lost", false)
    }

    /// It is to be restored from the snapshot, and nobody uses it yet.
    pub(crate) fn unrestored_claim(self) -> Self {
        self.claim_in("Pending", true)
    }

    fn claim_in(mut self, phase: &str, is_restored: bool) -> Self {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some("web-disk".to_owned());
        claim.metadata.uid = Some("claim".to_owned());
        let proof = (DISK_CHECKSUM_ANNOTATION.to_owned(), "sha256:d".to_owned());
        claim.metadata.annotations = Some([proof].into());
        claim.spec.get_or_insert_default().data_source = is_restored.then(Default::default);
        claim.status.get_or_insert_default().phase = Some(phase.to_owned());
        self.seen.claim = Presence::Present(Arc::new(claim));
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

    /// A snapshot that was asked for `minutes` before noon and is not ready; the driver says this.
    pub(crate) fn late_snapshot(mut self, minutes: i64, error: Option<&str>) -> Self {
        self = self.snapshot(false, false);
        let Presence::Present(snapshot) = &mut self.seen.snapshot else { unreachable!() };
        let snapshot = Arc::make_mut(snapshot);
        let asked = now() - SignedDuration::from_mins(minutes);
        snapshot.metadata.creation_timestamp = Some(Time(asked));
        let error = error.map(|text| VolumeSnapshotError { message: Some(text.to_owned()) });
        snapshot.status.get_or_insert_default().error = error;
        self
    }

    pub(crate) fn going_snapshot(mut self) -> Self {
        let Presence::Present(snapshot) = &mut self.seen.snapshot else { unreachable!() };
        Arc::make_mut(snapshot).metadata.deletion_timestamp = Some(Time(now()));
        self
    }

    pub(crate) fn snapshot(mut self, is_ready: bool, is_bound: bool) -> Self {
        let name = crate::names::data_name("web", &Record::of(&self.image).revision);
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = Some(name);
        snapshot.metadata.uid = Some(SNAPSHOT_UID.to_owned());
        snapshot.metadata.resource_version = Some("7".to_owned());
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
            foreign: self.seen.foreign,
            talk: self.seen.talk,
            hall: self.seen.hall,
            progress_key: "key".to_owned(),
        }
    }
}
