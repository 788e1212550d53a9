//! The open attempt: whether it may go on, whether it must be ended, and how it has ended.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::import::FailureClass;

use super::stuck::stuck;
use super::{Verdict, suspended};
use crate::image::ending::{self, Ending};
use crate::image::observe::{Observed, Work};
use crate::jobs;
use crate::names::{self, JobRole};

/// An attempt runs: left alone unless it will not come to an end.
pub(super) fn running(observed: &Observed, job: &str, now: Timestamp) -> Verdict {
    let stuck = observed.import(job).and_then(|work| stuck(observed, work, now));
    stuck.map_or(Verdict::Importing, Verdict::Cutting)
}

/// Whether the open attempt still serves the spec.
pub(super) fn may_go_on(image: &VMDiskImage, observed: &Observed) -> bool {
    let is_wanted = image.metadata.deletion_timestamp.is_none() && !image.spec.suspend;
    let is_cut =
        observed.record.status.open_attempt.as_ref().is_some_and(|open| open.cut.is_some());
    is_wanted
        && !is_cut
        && !is_superseded(image, observed)
        && !was_stopped(observed)
        && !cannot_run(observed)
}

/// Its Job was made for another spec, or, by a record that somebody wrote, for another attempt. Without the Job, the
/// record tells what it was made for.
fn is_superseded(image: &VMDiskImage, observed: &Observed) -> bool {
    let status = &observed.record.status;
    let Some(open) = &status.open_attempt else {
        return false;
    };
    match observed.import(&open.job_uid) {
        Some(work) => work.number != open.number || !serves(image, observed, work),
        None => open.revision.as_ref().is_some_and(|made| *made != observed.record.revision),
    }
}

/// Its Job was started and is suspended again. Not by us: starting it once more would be a fight, so the attempt ends
/// and the next one waits its time.
fn was_stopped(observed: &Observed) -> bool {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let was_stopped = |job: &Job| jobs::is_suspended(job) && !jobs::was_never_started(job);
    work.is_some_and(|work| was_stopped(&work.job))
}

/// Whether a Job was made for the spec as it is now: its name tells.
pub(super) fn serves(image: &VMDiskImage, observed: &Observed, work: &Work) -> bool {
    let uid = image.metadata.uid.as_deref().unwrap_or_default();
    let name = image.metadata.name.as_deref().unwrap_or_default();
    let expected =
        names::job_name(name, uid, &observed.record.revision, JobRole::Import, work.number);
    work.job.metadata.name.as_ref() == Some(&expected)
}

/// Its pod has not run, and a claim of it is being deleted: no kubelet starts a pod on such a claim, and the claim waits
/// for the pod.
fn cannot_run(observed: &Observed) -> bool {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let has_run = |work: &Work| work.pods.iter().any(|pod| jobs::pod_has_run(pod));
    observed.leaving.is_some() && work.is_some_and(|work| !has_run(work))
}

/// How the open attempt ended. What a person asked for goes before what the importer made of being stopped.
pub(super) fn end_of_attempt(image: &VMDiskImage, observed: &Observed) -> Ending {
    let open = observed.record.status.open_attempt.as_ref();
    let work = open.and_then(|open| observed.import(&open.job_uid));
    let ended = work.filter(|work| work.has_ended());
    let ending = ended.map_or_else(|| ending::of_nothing(open), ending::of_import);
    if is_superseded(image, observed) {
        // What it brought, be it complete, is the data of another spec.
        return Ending {
            bytes: ending.bytes,
            is_charged: ending.is_charged,
            ..Ending::failed(Reason::Superseded, FailureClass::Waiting, "the spec was changed")
        };
    }
    if let Some(cut) = open.and_then(|open| open.cut.as_ref()).filter(|_| ending.failure.is_some())
    {
        return Ending { bytes: ending.bytes, ..Ending::of_cut(cut) };
    }
    if image.spec.suspend && ending.failure.is_some() {
        return Ending { bytes: ending.bytes, ..suspended() };
    }
    ending
}
