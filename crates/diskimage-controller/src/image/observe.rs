//! Reads the facts of one image. From the watches, but for what must not be stale: the ledger before a Job is started,
//! the absence of a Job and its pods before an attempt is closed without a result, the absence of data before it is
//! called lost.

mod confirm;
mod facts;
mod kin;

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use otctl_kit::attempt::Confirmed;
use otctl_kit::cluster::ApiError;
use otctl_kit::ledger;
use otctl_kit::store::Key;
use otctl_types::VMDiskImage;
use otctl_types::condition;
use otctl_types::diskimage::VMDiskImageStatus;
use otctl_types::queue::AdmissionQueueStatus;

pub use self::facts::{Hall, Lane, Observed, Presence, Work};

use crate::image::Image;
use crate::imports::Import;
use crate::jobs;
use crate::names::{self, JobRole, attempt_number};
use crate::record::Record;
use crate::source;
use crate::surroundings::Surroundings;
use crate::views::effective_policy;

impl Image {
    /// Reads the facts.
    pub(super) async fn look(&self, key: &Key) -> Result<Observed, ApiError> {
        let image = self.views.images.get(key);
        let mut observed = self.seen(image);
        if observed.image.is_some() {
            self.complete_reports(&mut observed).await?;
            observed.confirmed = self.confirm(&mut observed).await?;
            observed.hall.has_bandwidth = self.has_bandwidth(&observed);
            self.confirm_data(&mut observed).await?;
            self.confirm_lane(&mut observed).await?;
        }
        Ok(observed)
    }

    /// What the watches tell.
    fn seen(&self, image: Option<Arc<VMDiskImage>>) -> Observed {
        let queue = self.views.queue();
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let blank = Arc::default();
        let subject = image.as_ref().unwrap_or(&blank);
        let (uid, record) = (subject.uid().unwrap_or_default(), Record::of_shared(subject));
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
            foreign: self.foreign(subject, &record),
            talk: record
                .status
                .open_attempt
                .as_ref()
                .and_then(|open| self.talk.book.talk(&open.job_uid)),
            hall: hall(status, subject),
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

    /// How many others with a lower ticket wait. Only told when the image begins to wait, so only counted then.
    fn ahead(&self, status: &VMDiskImageStatus) -> usize {
        let ticket = status.ticket.as_deref().and_then(|text| text.parse().ok());
        match (ticket, status.phase) {
            (Some(own), None) => self.line.ahead(own, &self.views),
            _ => 0,
        }
    }

    /// Whether the bandwidth has room for the import that is about to start. To ask is to be counted from now on.
    fn has_bandwidth(&self, observed: &Observed) -> bool {
        let open = observed.record.status.open_attempt.as_ref();
        let work = open.and_then(|open| observed.import(&open.job_uid));
        let is_due = observed.confirmed == Confirmed::Held(true);
        work.filter(|work| is_due && jobs::is_suspended(&work.job)).is_none_or(|work| {
            self.talk.bandwidth.reserve(&Import::of(&work.job), &observed.policy)
        })
    }
}

/// What the ledger tells, as last seen.
fn hall(status: Option<&AdmissionQueueStatus>, image: &VMDiskImage) -> Hall {
    let Some(status) = status else { return Hall::default() };
    let policy = effective_policy(Some(status));
    let host = source::host(&image.spec.url);
    let held = status.active.iter().filter(|entry| entry.host == host).count();
    let is_full = |taken: usize, limit: u32| usize::try_from(limit).is_ok_and(|it| taken >= it);
    let is_lane_full = policy.concurrency_per_host.is_some_and(|limit| is_full(held, limit));
    let uid = image.uid().unwrap_or_default();
    let lane = match status.snapshots.iter().any(|entry| entry.uid == uid) {
        true => Lane::Held,
        false if is_full(status.snapshots.len(), policy.snapshot_concurrency) => Lane::Full,
        false => Lane::Open,
    };
    Hall {
        is_host_busy: is_lane_full && !is_full(status.active.len(), policy.concurrency),
        has_bandwidth: true,
        lane,
        is_policy_valid: condition::find(&status.conditions, condition::POLICY_VALID)
            .is_none_or(|valid| valid.status == "True"),
    }
}

/// 128 random bits from the operating system's generator, in hexadecimal.
fn fresh_key() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}
