//! What consistent lists of Jobs and pods tell to be unfinished: what the ledger is made whole from. Strangers may label
//! and name what they like; only what an image of ours controls, or is left of it, takes a slot.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use otctl_queue::Work;
use otctl_types::names::OWNER_LABEL;
use otctl_types::queue::ActiveEntry;

use crate::jobs;
use crate::names::{JobRole, attempt_number};

/// What has not ended of `jobs` and `pods`; `images` are the UIDs of those that are there.
pub fn of(jobs: &[Job], pods: &[Pod], images: &BTreeSet<String>) -> Work {
    let by_uid: BTreeMap<String, &Job> =
        jobs.iter().filter_map(|job| Some((job.uid()?, job))).collect();
    let running = jobs.iter().filter(|job| !jobs::job_has_ended(job));
    let (suspended, started): (Vec<&Job>, Vec<&Job>) =
        running.partition(|job| jobs::is_suspended(job));
    let mut work = Work::default();
    work.started(started.into_iter().filter_map(entry_of));
    work.unstarted(one_of_each(suspended));
    for pod in pods.iter().filter(|pod| !jobs::pod_has_ended(pod)) {
        let job = jobs::made_by(pod).and_then(|uid| by_uid.get(uid).copied());
        match job.and_then(entry_of) {
            Some(entry) => work.started([entry]),
            None => work.unaccounted.extend(image_of(pod).filter(|uid| images.contains(uid))),
        }
    }
    work
}

/// One of each image: it has one attempt at a time, however many Jobs somebody made in its name. One that is being
/// deleted is not started any more.
fn one_of_each(jobs: Vec<&Job>) -> impl Iterator<Item = ActiveEntry> {
    let staying = jobs.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none());
    let by_image: BTreeMap<String, ActiveEntry> =
        staying.filter_map(entry_of).map(|entry| (entry.uid.clone(), entry)).collect();
    by_image.into_values()
}

/// The image that a pod whose Job is gone was made for. A label alone is not enough: an import Job must have made it.
fn image_of(pod: &Pod) -> Option<String> {
    let is_import = |owner: &OwnerReference| {
        jobs::is_job(owner) && attempt_number(&owner.name, JobRole::Import).is_some()
    };
    let is_ours = match jobs::controller(&pod.metadata) {
        Some(owner) => is_import(owner),
        // Its Job was deleted and it was not: `--cascade=orphan`.
        None => jobs::made_by(pod).is_some(),
    };
    pod.labels().get(OWNER_LABEL).filter(|_| is_ours).cloned()
}

/// The entry that a Job should have. Its ticket is unknown here; nothing is ordered by it.
fn entry_of(job: &Job) -> Option<ActiveEntry> {
    let owner = jobs::controller(&job.metadata).filter(|owner| jobs::is_image(owner))?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, api_version: &str, suspend: bool) -> Job {
        let owner = json!({"apiVersion": api_version, "kind": "VMDiskImage", "name": "web", "uid": "u", "controller": true});
        let metadata =
            json!({"name": name, "namespace": "lab", "uid": name, "ownerReferences": [owner]});
        let job = json!({"metadata": metadata, "spec": {"suspend": suspend, "template": {}}});
        serde_json::from_value(job).unwrap()
    }

    fn pod(owner: Option<&str>, labels: &[(&str, &str)]) -> Pod {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let owner = owner.map(|api_version| json!({"apiVersion": api_version, "kind": "Job", "name": "web-a1", "uid": "web-a1", "controller": true}));
        let owners: Vec<_> = owner.into_iter().collect();
        let metadata =
            json!({"name": "p", "namespace": "lab", "labels": labels, "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": "Running"}}))
            .unwrap()
    }

    /// `u#1 started`, and the images with a pod that nothing accounts for.
    fn check(jobs: &[Job], pods: &[Pod], expected: &[&str]) {
        let work = of(jobs, pods, &["u".to_owned()].into());
        let state = |is_started| if is_started { "started" } else { "unstarted" };
        let found = work.unfinished.iter().map(|one| {
            format!("{}#{} {}", one.entry.uid, one.entry.attempt, state(one.is_started))
        });
        let lost = work.unaccounted.iter().map(|uid| format!("{uid} unaccounted"));
        assert_eq!(found.chain(lost).collect::<Vec<_>>(), expected);
    }

    const OURS: &str = "pelotech.ot/v1alpha1";
    const LABEL: (&str, &str) = (OWNER_LABEL, "u");
    const MADE_BY: (&str, &str) = ("batch.kubernetes.io/controller-uid", "web-a1");

    #[test]
    fn what_an_image_controls_takes_a_slot() {
        check(&[job("web-a2", OURS, false)], &[], &["u#2 started"]);
        check(&[job("web-a2", OURS, true)], &[], &["u#2 unstarted"]);
    }

    #[test]
    fn what_strangers_make_takes_none() {
        check(&[job("web-a1", "example.com/v1", false)], &[], &[]);
        check(&[job("web-a0", OURS, false), job("web-a9223372036854775807", OURS, true)], &[], &[]);
        check(&[], &[pod(Some("example.com/v1"), &[LABEL]), pod(None, &[LABEL])], &[]);
    }

    #[test]
    fn however_many_jobs_are_made_in_its_name_an_image_waits_for_one_slot() {
        let mut going = job("web-a7", OURS, true);
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let jobs = [job("web-a1", OURS, true), job("web-a2", OURS, true), going];
        check(&jobs, &[], &["u#2 unstarted"]);
    }

    #[test]
    fn a_pod_that_outlives_its_job_takes_the_slot_of_its_image() {
        check(&[], &[pod(Some("batch/v1"), &[LABEL])], &["u unaccounted"]);
        check(&[], &[pod(None, &[LABEL, MADE_BY])], &["u unaccounted"]);
        check(
            &[job("web-a1", OURS, true)],
            &[pod(None, &[LABEL, MADE_BY])],
            &["u#1 unstarted", "u#1 started"],
        );
    }
}
