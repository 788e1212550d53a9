//! Facts of the queue of images, beside the images.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reader::Reader;
use otctl_queue::Trace;
use otctl_types::VMDiskImage;
use otctl_types::names::OWNER_LABEL;
use otctl_types::queue::ActiveEntry;

use crate::children;
use crate::jobs;
use crate::known::Known;
use crate::names::{JobRole, attempt_number};
use crate::proof;
use crate::surroundings::Surroundings;
use crate::views::Views;

/// What the choice rests on beside images, ledger and policy.
#[derive(Clone, Debug)]
pub struct Facts {
    /// UIDs of images whose status does not tell of data that a copy proves: they say so before they want anything.
    pub proven: BTreeSet<String>,
    /// The highest numbers whose result is known to Jobs alone, by UID: of images whose status has lost them.
    pub used: BTreeMap<String, i64>,
    /// Classes of the cluster.
    pub around: Surroundings,
    /// UIDs of images whose snapshot was asked for and is not ready.
    pub snapshotted: BTreeSet<String>,
    /// UIDs of images that are listed for a snapshot and that a consistent read did not find.
    pub gone: BTreeSet<String>,
    /// Ended pods that nobody owns, with their UIDs: the claims that they mount cannot go before them.
    pub strays: Vec<(Target, String)>,
}

impl Facts {
    /// As the watches tell.
    pub(super) fn of(views: &Views, images: &[Arc<Known>]) -> Self {
        Self {
            proven: proven(views, images),
            used: used(views, images),
            around: Surroundings::of(views),
            snapshotted: snapshotted(views),
            gone: BTreeSet::new(),
            strays: strays(views),
        }
    }
}

/// Images with a copy of their data that their status has forgotten.
fn proven(views: &Views, images: &[Arc<Known>]) -> BTreeSet<String> {
    let forgetful = images.iter().filter(|image| !image.record.is_current());
    let is_proven = |image: &&Arc<Known>| proof::of_views(views, image, &image.record.revision);
    forgetful.filter(is_proven).map(|image| image.uid.clone()).collect()
}

/// Numbers that a lost status has forgotten: an old result must not be taken for that of a new attempt. One that
/// brought the data is left to be read.
fn used(views: &Views, images: &[Arc<Known>]) -> BTreeMap<String, i64> {
    let forgetful = images.iter().filter(|image| image.record.last() == 0);
    forgetful
        .map(|image| (image.uid.clone(), highest_ended(views, &image.uid)))
        .filter(|(_, number)| *number > 0)
        .collect()
}

/// Owners of snapshots that are being taken.
fn snapshotted(views: &Views) -> BTreeSet<String> {
    let snapshots = views.snapshots.all();
    let taken = snapshots.iter().filter(|snapshot| !proof::is_ready(snapshot));
    taken
        .filter_map(|snapshot| jobs::controller_uid(&snapshot.metadata).map(str::to_owned))
        .collect()
}

fn strays(views: &Views) -> Vec<(Target, String)> {
    let pods = views.pods.all();
    let strays = pods.iter().filter(|pod| jobs::is_stray(pod));
    strays.map(|pod| (children::target(&**pod), pod.uid().unwrap_or_default())).collect()
}

fn highest_ended(views: &Views, uid: &str) -> i64 {
    let jobs = views.jobs.owned_by(uid);
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

/// Q3: image absent or of another UID, then its Job, then its pods.
pub(super) async fn trace(entry: &ActiveEntry, reader: &Reader) -> Result<Trace, ApiError> {
    let uid = reader.uid::<VMDiskImage>(Some(&entry.namespace), &entry.name).await?;
    if uid.as_ref() == Some(&entry.uid) {
        return Ok(Trace::Alive);
    }
    let selector = format!("{OWNER_LABEL}={}", entry.uid);
    let jobs = reader.list::<Job>(Some(&entry.namespace), &selector).await?;
    let is_it = |job: &&Job| {
        let owner = jobs::controller(&job.metadata).filter(|owner| jobs::is_image(owner));
        owner.is_some_and(|owner| owner.uid == entry.uid)
            && attempt_number(&job.name_any(), JobRole::Import) == Some(entry.attempt)
    };
    if let Some(job) = jobs.iter().find(is_it) {
        let target = Target::new::<Job>(Some(&entry.namespace), &job.name_any());
        return Ok(Trace::Left { target, uid: job.uid().unwrap_or_default() });
    }
    let pods = reader.list::<Pod>(Some(&entry.namespace), &selector).await?;
    Ok(if pods.iter().any(|pod| !jobs::pod_has_ended(pod)) { Trace::Runs } else { Trace::Nothing })
}
