//! Scheduler and kubelet: a pod runs once its claims are bound, ends as its image's script says, and stops when it is
//! deleted. What an import leaves on its volumes is recorded here.

use otctl_kit::store::Key;
use otctl_types::import::{ImportOutcome, ImportReason, ImportReport};
use otctl_types::names::ROLE_LABEL;
use serde_json::{Value, json};

use super::objects::{State, grand_owner};
use super::{Id, Verb, workloads};
use crate::json::{is_deleting, items, text, uid};
use crate::script::{Ending, Role};

/// One run of the importer that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The image it was for.
    pub image: Key,
    /// What it was there for.
    pub role: Role,
    /// UID of its pod.
    pub pod_uid: String,
    /// Whether it asked its source for the data.
    pub download_started: bool,
    /// Whether it did what it was there for.
    pub complete: bool,
}

/// What is due for a pod.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    Run,
    End,
    Stop,
    Remove,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let pod = state.get(id).filter(|_| id.kind == "Pod")?;
    if workloads::is_of_workload(pod) {
        return None;
    }
    match (text(&pod["status"]["phase"]), is_deleting(pod)) {
        ("Succeeded" | "Failed", true) => {
            items(&pod["metadata"]["finalizers"]).is_empty().then_some(Deed::Remove)
        }
        ("Running", true) => Some(Deed::Stop),
        ("Running", false) => (next_ending(state, pod) != Ending::Never).then_some(Deed::End),
        ("Pending" | "", false) => {
            has_its_claims(state, &id.key.namespace, pod).then_some(Deed::Run)
        }
        _ => None,
    }
}

/// Whether what is due for a pod is its end.
pub(super) fn is_end(state: &State, id: &Id) -> bool {
    matches!(due(state, id), Some(Deed::End))
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    let name = &id.key;
    match deed {
        Deed::Run => {
            run(state, id);
            format!("Pod {name} runs")
        }
        Deed::End => format!("Pod {name} ended: {}", end(state, id)),
        Deed::Stop => {
            stop(state, id);
            format!("Pod {name} was stopped")
        }
        Deed::Remove => {
            state.remove(id);
            format!("Pod {name} is gone")
        }
    }
}

/// Whether a pod has ended for good.
pub(super) fn is_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

/// Whether an object is a pod that a kubelet knows.
pub(super) fn has_node(id: &Id, object: &Value) -> bool {
    id.kind == "Pod" && !text(&object["spec"]["nodeName"]).is_empty()
}

/// Names of the claims a pod mounts.
pub(super) fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(&pod["spec"]["volumes"]).iter();
    volumes
        .map(|volume| text(&volume["persistentVolumeClaim"]["claimName"]))
        .filter(|name| !name.is_empty())
}

fn has_its_claims(state: &State, namespace: &str, pod: &Value) -> bool {
    claims(pod).all(|name| {
        let claim = state.get(&Id::new("PersistentVolumeClaim", &Key::new(namespace, name)));
        claim.is_some_and(|claim| claim["status"]["phase"] == "Bound" && !is_deleting(claim))
    })
}

fn run(state: &mut State, id: &Id) {
    let mut pod = state.get(id).expect("a deed is about what is held").clone();
    let time = state.timestamp();
    pod["spec"]["nodeName"] = json!("node-1");
    pod["status"]["phase"] = json!("Running");
    pod["status"]["startTime"] = json!(time);
    pod["status"]["containerStatuses"] =
        json!([container(&pod, &json!({"running": {"startedAt": time}}))]);
    state.update(id, pod, Verb::Status);
}

fn next_ending(state: &State, pod: &Value) -> Ending {
    let image = grand_owner(state, pod).unwrap_or_else(|| Key::new("", ""));
    state.scripts.peek(&image, role(pod))
}

fn end(state: &mut State, id: &Id) -> String {
    let pod = state.get(id).expect("a deed is about what is held").clone();
    let image = grand_owner(state, &pod).unwrap_or_else(|| Key::new("", ""));
    let scratch = volume_uids(state, &id.key.namespace, &pod, true);
    let is_fetched = scratch.iter().any(|uid| state.complete.contains(uid));
    let ending = match role(&pod) {
        Role::Import if is_fetched => found_complete(),
        role => state.scripts.take(&image, role),
    };
    let (phase, terminated, told) = match &ending {
        Ending::Report(report) if report.outcome == ImportOutcome::Complete => (
            "Succeeded",
            json!({"exitCode": 0, "message": report.to_termination_message()}),
            "complete".to_owned(),
        ),
        Ending::Report(report) => {
            let reason = report.reason.map_or("failed", ImportReason::as_str);
            (
                "Failed",
                json!({"exitCode": 1, "message": report.to_termination_message()}),
                reason.to_owned(),
            )
        }
        Ending::Evicted => {
            ("Failed", json!({"exitCode": 137, "reason": "Error"}), "evicted".to_owned())
        }
        Ending::Killed | Ending::Never => {
            ("Failed", json!({"exitCode": 137, "reason": "Error"}), "killed".to_owned())
        }
    };
    let reason = if ending == Ending::Evicted { Some("Evicted") } else { None };
    terminate(state, id, phase, terminated, reason);
    record(state, id, &pod, image, &ending);
    told
}

/// A stopped importer says so, and keeps what it has.
fn stop(state: &mut State, id: &Id) {
    let pod = state.get(id).expect("a deed is about what is held").clone();
    let image = grand_owner(state, &pod).unwrap_or_else(|| Key::new("", ""));
    let ending = Ending::failed(role(&pod), ImportReason::Interrupted);
    if let Ending::Report(report) = &ending {
        let terminated = json!({"exitCode": 1, "message": report.to_termination_message()});
        terminate(state, id, "Failed", terminated, None);
    }
    record(state, id, &pod, image, &ending);
}

fn terminate(state: &mut State, id: &Id, phase: &str, mut terminated: Value, reason: Option<&str>) {
    let time = state.timestamp();
    terminated["finishedAt"] = json!(time);
    state.update_status(id, |pod| {
        pod["status"]["phase"] = json!(phase);
        if let Some(reason) = reason {
            pod["status"]["reason"] = json!(reason);
        }
        let status = container(pod, &json!({"terminated": terminated}));
        pod["status"]["containerStatuses"] = json!([status]);
    });
}

fn record(state: &mut State, id: &Id, pod: &Value, image: Key, ending: &Ending) {
    let role = role(pod);
    let report = match ending {
        Ending::Report(report) => Some(report),
        Ending::Killed | Ending::Evicted | Ending::Never => None,
    };
    let complete = report.is_some_and(|report| report.outcome == ImportOutcome::Complete);
    let download_started =
        role == Role::Import && report.is_none_or(|report| report.download_started);
    state.runs.push(Run { image, role, pod_uid: uid(pod).to_owned(), download_started, complete });
    if role == Role::Import && complete {
        let mut volumes = volume_uids(state, &id.key.namespace, pod, false);
        volumes.extend(volume_uids(state, &id.key.namespace, pod, true));
        state.complete.extend(volumes);
    }
}

/// The importer finds the whole download on its scratch volume and asks the source for nothing.
fn found_complete() -> Ending {
    match Ending::complete(Role::Import) {
        Ending::Report(report) => {
            Ending::Report(ImportReport { download_started: false, bytes: 0, ..report })
        }
        other => other,
    }
}

/// UIDs of the scratch claims of a pod, or of its other ones.
fn volume_uids(state: &State, namespace: &str, pod: &Value, scratch: bool) -> Vec<String> {
    let names = claims(pod).filter(|name| name.ends_with("-scratch") == scratch);
    let held = names.filter_map(|name| {
        state.get(&Id::new("PersistentVolumeClaim", &Key::new(namespace, name)))
    });
    held.map(|claim| uid(claim).to_owned()).collect()
}

fn role(pod: &Value) -> Role {
    Role::parse(text(&pod["metadata"]["labels"][ROLE_LABEL]))
}

fn container(pod: &Value, state: &Value) -> Value {
    let spec = &pod["spec"]["containers"][0];
    json!({
        "name": spec["name"], "image": spec["image"], "imageID": "", "ready": !state["running"].is_null(),
        "restartCount": 0, "state": state,
    })
}
