//! The Job controller, for Jobs of one pod that is not replaced: `completions` 1, `backoffLimit` 0,
//! `podReplacementPolicy: Failed`. The tracking finalizer of its pods is left out: a pod that is gone without an end
//! counts as failed all the same.

use jiff::{SignedDuration, Timestamp};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::Id;
use super::kubelet::is_ended;
use super::objects::State;
use crate::json::{is_condition_true, is_deleting, set_condition, text, uid};

/// What is due for a Job.
pub(super) enum Deed {
    /// Say that it is suspended, and forget the pod it had.
    NoteSuspended,
    /// Make its pod.
    MakePod,
    /// Delete its pod, because the Job was suspended.
    StopPod(Id),
    /// Its deadline has passed: announce the failure and delete its pod.
    Exceed(Id),
    /// Its pod has ended: `Complete` or `Failed`.
    Finish(&'static str),
    /// Its time after the end has passed.
    Expire,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let job = state.get(id).filter(|_| id.kind == "Job")?;
    if is_deleting(job) {
        return None;
    }
    if is_finished(job) {
        return deadline(state, id).filter(|at| *at <= state.now()).map(|_| Deed::Expire);
    }
    let made = state.pods_of_jobs.get(uid(job));
    let pod = made.and_then(|pod| state.get(pod)).filter(|pod| owner(pod) == uid(job));
    if job["spec"]["suspend"] == json!(true) {
        return due_while_suspended(job, made, pod);
    }
    match (made, pod) {
        (None, _) => Some(Deed::MakePod),
        (Some(_), None) => Some(Deed::Finish("Failed")),
        (Some(_), Some(pod)) if text(&pod["status"]["phase"]) == "Succeeded" => {
            Some(Deed::Finish("Complete"))
        }
        (Some(_), Some(pod)) if is_ended(pod) => Some(Deed::Finish("Failed")),
        (Some(made), Some(pod)) => {
            let is_late = deadline(state, id).is_some_and(|at| at <= state.now());
            (is_late && !is_deleting(pod)).then(|| Deed::Exceed(made.clone()))
        }
    }
}

fn due_while_suspended(job: &Value, made: Option<&Id>, pod: Option<&Value>) -> Option<Deed> {
    match (made, pod) {
        (Some(made), Some(pod)) if !is_ended(pod) => {
            (!is_deleting(pod)).then(|| Deed::StopPod(made.clone()))
        }
        (Some(_), _) => Some(Deed::NoteSuspended),
        (None, _) => (!is_condition_true(job, "Suspended")).then_some(Deed::NoteSuspended),
    }
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    let name = &id.key;
    match deed {
        Deed::NoteSuspended => {
            note_suspended(state, id);
            format!("Job {name} is suspended")
        }
        Deed::MakePod => format!("Job {name} makes Pod {}", make_pod(state, id)),
        Deed::StopPod(pod) => {
            state.delete(&pod, Propagation::Background);
            format!("Job {name} is suspended and stops its pod")
        }
        Deed::Exceed(pod) => {
            let time = state.timestamp();
            state.update_status(id, |job| {
                set_condition(job, "FailureTarget", "True", "DeadlineExceeded", &time)
            });
            state.delete(&pod, Propagation::Background);
            format!("Job {name} exceeded its deadline and stops its pod")
        }
        Deed::Finish(condition) => {
            finish(state, id, condition);
            format!("Job {name} is {condition}")
        }
        Deed::Expire => {
            state.delete(id, Propagation::Foreground);
            format!("Job {name} expired")
        }
    }
}

fn note_suspended(state: &mut State, id: &Id) {
    let time = state.timestamp();
    let job_uid = state.get(id).map(|job| uid(job).to_owned()).unwrap_or_default();
    state.pods_of_jobs.remove(&job_uid);
    state.update_status(id, |job| {
        job["status"]["active"] = json!(0);
        set_condition(job, "Suspended", "True", "JobSuspended", &time);
    });
}

fn make_pod(state: &mut State, id: &Id) -> Key {
    let job = state.get(id).expect("a deed is about what is held").clone();
    let key = Key::new(&id.key.namespace, &format!("{}-{}", id.key.name, state.suffix()));
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": job["spec"]["template"]["metadata"],
        "spec": job["spec"]["template"]["spec"],
        "status": {"phase": "Pending"},
    });
    pod["metadata"]["name"] = json!(key.name);
    pod["metadata"]["generateName"] = json!(format!("{}-", id.key.name));
    pod["metadata"]["namespace"] = json!(key.namespace);
    pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!(id.key.name);
    pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = json!(uid(&job));
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": id.key.name, "uid": uid(&job),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let made = Id::new("Pod", &key);
    state.insert(made.clone(), pod);
    state.pods_of_jobs.insert(uid(&job).to_owned(), made);
    let time = state.timestamp();
    state.update_status(id, |job| {
        job["status"]["active"] = json!(1);
        job["status"]["startTime"] = json!(time);
        if is_condition_true(job, "Suspended") {
            set_condition(job, "Suspended", "False", "JobResumed", &time);
        }
    });
    key
}

fn finish(state: &mut State, id: &Id, condition: &'static str) {
    let time = state.timestamp();
    state.update_status(id, |job| {
        let is_late = is_condition_true(job, "FailureTarget");
        let (count, interim, reason) = match condition {
            "Complete" => ("succeeded", "SuccessCriteriaMet", "CompletionsReached"),
            _ if is_late => ("failed", "FailureTarget", "DeadlineExceeded"),
            _ => ("failed", "FailureTarget", "BackoffLimitExceeded"),
        };
        job["status"]["active"] = json!(0);
        job["status"][count] = json!(1);
        set_condition(job, interim, "True", reason, &time);
        set_condition(job, condition, "True", reason, &time);
        if condition == "Complete" {
            job["status"]["completionTime"] = json!(time);
        }
    });
}

/// When the clock alone makes something due: the end of a finished Job's time to live, or a running one's deadline.
pub(super) fn deadline(state: &State, id: &Id) -> Option<Timestamp> {
    let job = state.get(id).filter(|_| id.kind == "Job")?;
    let (seconds, from) = match finish_time(job) {
        Some(end) => (job["spec"]["ttlSecondsAfterFinished"].as_i64()?, end),
        None if job["spec"]["suspend"] == json!(true) => return None,
        None => (
            job["spec"]["activeDeadlineSeconds"].as_i64()?,
            text(&job["status"]["startTime"]).parse().ok()?,
        ),
    };
    from.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn finish_time(job: &Value) -> Option<Timestamp> {
    let conditions = crate::json::items(&job["status"]["conditions"]).iter();
    let mut ends = conditions.filter(|condition| {
        (condition["type"] == "Complete" || condition["type"] == "Failed")
            && condition["status"] == "True"
    });
    text(&ends.next()?["lastTransitionTime"]).parse().ok()
}

/// Whether a Job is Complete or Failed for good.
fn is_finished(job: &Value) -> bool {
    is_condition_true(job, "Complete") || is_condition_true(job, "Failed")
}

fn owner(pod: &Value) -> &str {
    crate::json::controller(pod).map(|owner| text(&owner["uid"])).unwrap_or_default()
}
