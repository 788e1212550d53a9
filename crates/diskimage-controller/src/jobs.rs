//! What a Job or a pod says of itself, as named predicates.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, PersistentVolumeClaim, Pod, PodCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use otctl_types::import::ImportReport;
use otctl_types::names::{GROUP, OWNER_LABEL, ROLE_LABEL};

/// The owner that controls an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether this owner is an image of ours. The garbage collector takes away what claims an owner of a served kind that
/// is not there; a made-up group it leaves.
pub fn is_image(owner: &OwnerReference) -> bool {
    owner.kind == "VMDiskImage" && is_of_group(owner, GROUP)
}

/// Whether this owner is a Job.
pub fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && is_of_group(owner, "batch")
}

fn is_of_group(owner: &OwnerReference, group: &str) -> bool {
    owner.api_version.split_once('/').is_some_and(|(found, _)| found == group)
}

/// UID of the owner that controls an object.
pub fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    controller(meta).map(|owner| owner.uid.as_str())
}

/// The label in which the Job controller names the Job that it made a pod for, by UID.
const MADE_BY_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// UID of the Job that a pod was made for: the one that controls it, or, of a pod that runs on without an owner (its Job
/// was deleted with `--cascade=orphan`), the one that its label names.
pub fn made_by(pod: &Pod) -> Option<&str> {
    let label = || pod.metadata.labels.as_ref()?.get(MADE_BY_LABEL).map(String::as_str);
    controller_uid(&pod.metadata).or_else(label)
}

/// Whether it is an ended pod of ours that nobody owns, so that nobody takes it away: its Job was deleted with
/// `--cascade=orphan`. Labels alone tell it, and anybody can set those; it has ended, so nothing is lost with it.
pub fn is_stray(pod: &Pod) -> bool {
    let has = |label: &str| pod.metadata.labels.as_ref().is_some_and(|all| all.contains_key(label));
    controller(&pod.metadata).is_none()
        && pod_has_ended(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && [MADE_BY_LABEL, OWNER_LABEL, ROLE_LABEL].into_iter().all(has)
}

/// Not started yet.
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// Created suspended and not edited since.
pub fn was_never_started(job: &Job) -> bool {
    is_suspended(job) && job.metadata.generation.is_none_or(|generation| generation == 1)
}

/// Complete or Failed. With `podReplacementPolicy: Failed` neither is set before its pod has ended; interim conditions
/// (FailureTarget, SuccessCriteriaMet) do not count, since the pod may still run.
pub fn job_has_ended(job: &Job) -> bool {
    is_complete(job) || has_condition(job, "Failed")
}

/// Why the Job failed, in the Job controller's word: `DeadlineExceeded`, `BackoffLimitExceeded`.
pub fn failure_reason(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Failed" && c.status == "True")?.reason.as_deref()
}

/// It has done what it was there for: its pod ended well, whether or not it is still there.
pub fn is_complete(job: &Job) -> bool {
    has_condition(job, "Complete")
}

fn has_condition(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True")
}

/// Succeeded or Failed: none of its processes runs any more.
pub fn pod_has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// Whether its container was started once.
pub fn pod_has_run(pod: &Pod) -> bool {
    let states = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    states
        .filter_map(|status| status.state.as_ref())
        .any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Since when its container runs.
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let running = statuses.iter().find_map(|status| status.state.as_ref()?.running.as_ref())?;
    running.started_at.as_ref().map(|at| at.0)
}

/// How long its pod may run.
pub fn time_of_pod(job: &Job) -> Option<Duration> {
    let seconds = job.spec.as_ref()?.template.spec.as_ref()?.active_deadline_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// When the Job was started.
pub fn start_time(job: &Job) -> Option<Timestamp> {
    job.status.as_ref()?.start_time.as_ref().map(|at| at.0)
}

/// When its pod was given to a node; none while it was not.
pub fn scheduled_at(pod: &Pod) -> Option<Timestamp> {
    let scheduled = scheduling(pod).filter(|condition| condition.status == "True")?;
    scheduled.last_transition_time.as_ref().map(|at| at.0)
}

/// Why its pod was not given to a node, in the scheduler's words.
pub fn unscheduled_reason(pod: &Pod) -> Option<String> {
    scheduling(pod).filter(|condition| condition.status == "False")?.message.clone()
}

fn scheduling(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "PodScheduled")
}

/// Whether a claim has its volume.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Why its container is not running yet, in the kubelet's words.
pub fn waiting_reason(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.iter().find_map(|status| status.state.as_ref()?.waiting.as_ref())?;
    let words = [waiting.reason.clone(), waiting.message.clone()];
    Some(words.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// Pending, Running, Succeeded, Failed.
pub fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// How its container ended.
pub fn termination(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find_map(|status| status.state.as_ref()?.terminated.as_ref())
}

/// What the importer reported, if it lived to do so.
pub fn report(pod: &Pod) -> Option<ImportReport> {
    ImportReport::from_termination_message(termination(pod)?.message.as_deref()?).ok()
}
