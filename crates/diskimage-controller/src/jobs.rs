//! What a Job or a pod says of itself, as named predicates.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use otctl_types::import::ImportReport;

/// The owner that controls an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// UID of the owner that controls an object.
pub fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    controller(meta).map(|owner| owner.uid.as_str())
}

/// Not started yet.
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// Complete or Failed. With `podReplacementPolicy: Failed` neither is set before its pod has ended; interim conditions
/// (FailureTarget, SuccessCriteriaMet) do not count, since the pod may still run.
pub fn job_has_ended(job: &Job) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

/// Why the Job failed, in the Job controller's word: `DeadlineExceeded`, `BackoffLimitExceeded`.
pub fn failure_reason(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Failed" && c.status == "True")?.reason.as_deref()
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
    serde_json::from_str(termination(pod)?.message.as_deref()?).ok()
}
