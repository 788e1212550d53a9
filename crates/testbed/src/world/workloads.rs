//! What runs pods for good: the Deployment controller, KubeVirt, and the kubelet as far as it is about such pods. A
//! Deployment makes its pods itself, without a ReplicaSet between them; one act replaces all old pods at once.

use std::collections::BTreeMap;

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::objects::State;
use super::{Id, namespaces};
use crate::json::{controller, is_deleting, items, set_condition, text, uid};

/// How the pods of an entry fare, as their labels and status tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// They become ready.
    #[default]
    Fine,
    /// They run and never become ready.
    NeverReady,
    /// Their image cannot be pulled; the kubelet's words.
    NoImage(String),
    /// They end with this code, again and again.
    Crashing(i64),
    /// No node takes them; the scheduler's words.
    Unschedulable(String),
    /// The API server refuses them; its words.
    Refused(String),
}

/// How the pods of each entry fare, by the value of their label `pelotech.ot/entry`.
pub(super) type Fates = BTreeMap<String, Health>;

/// What is due for a workload or one of its pods.
pub(super) enum Deed {
    /// Make a pod.
    Make,
    /// Delete pods that are of an old template, or too many.
    Delete(Vec<Id>),
    /// Say how many pods there are, and how they are.
    Tell(Value),
    /// A pod comes to be as its entry fares.
    Fare(Value),
    /// A pod that was deleted has stopped.
    Stop,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let object = state.get(id)?;
    match id.kind.as_str() {
        "Pod" if is_of_workload(object) && is_deleting(object) => {
            items(&object["metadata"]["finalizers"]).is_empty().then_some(Deed::Stop)
        }
        _ if is_deleting(object) => None,
        "Deployment" | "VirtualMachine" => of_workload(state, id, object),
        "Pod" if is_of_workload(object) => {
            let status = fare(health(state, object), object);
            (object["status"] != status).then_some(Deed::Fare(status))
        }
        _ => None,
    }
}

/// Whether a pod runs for good, and so is no Job's.
pub(super) fn is_of_workload(pod: &Value) -> bool {
    let kind = controller(pod).map(|owner| text(&owner["kind"]));
    kind.is_some_and(|kind| kind == "Deployment" || kind == "VirtualMachine")
}

fn of_workload(state: &State, id: &Id, object: &Value) -> Option<Deed> {
    let pods: Vec<(&Id, &Value)> = state
        .dependents(uid(object))
        .filter(|(id, pod)| id.kind == "Pod" && !is_deleting(pod))
        .collect();
    let template = text_of_template(object);
    // A running machine stays as it is until somebody starts it again.
    let is_old = |pod: &Value| {
        id.kind == "Deployment" && text(&pod["metadata"]["annotations"]["template"]) != template
    };
    let (old, new): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(_, pod)| is_old(pod));
    let wanted = wanted(object);
    let excess = new.iter().skip(wanted).chain(&old).map(|(id, _)| (*id).clone());
    let excess: Vec<Id> = excess.collect();
    if !excess.is_empty() {
        return Some(Deed::Delete(excess));
    }
    let is_refused = matches!(state.fates.get(entry(object)), Some(Health::Refused(_)));
    let is_taken = namespaces::admit(state, id).is_ok();
    if new.len() < wanted && !is_refused && is_taken && has_its_claims(state, id, object) {
        return Some(Deed::Make);
    }
    let ready = new.iter().filter(|(_, pod)| is_ready(pod)).count();
    let told = if id.kind == "Deployment" {
        told_of_deployment(state, object, (new.len(), ready))
    } else {
        told_of_machine(object, ready)
    };
    (object["status"] != told).then_some(Deed::Tell(told))
}

fn wanted(object: &Value) -> usize {
    match text(&object["kind"]) {
        "VirtualMachine" => {
            usize::from(!matches!(text(&object["spec"]["runStrategy"]), "Halted" | "Manual"))
        }
        _ => {
            usize::try_from(object["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX)
        }
    }
}

/// KubeVirt makes no pod before the claims of its machine are there.
fn has_its_claims(state: &State, id: &Id, object: &Value) -> bool {
    claims_of(object).all(|name| {
        let key = Key::new(&id.key.namespace, name);
        state.get(&Id::new("PersistentVolumeClaim", &key)).is_some()
    })
}

fn claims_of(object: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(&object["spec"]["template"]["spec"]["volumes"]).iter();
    let names = volumes.map(|volume| text(&volume["persistentVolumeClaim"]["claimName"]));
    names.filter(|name| !name.is_empty())
}

fn text_of_template(object: &Value) -> String {
    object["spec"]["template"].to_string()
}

fn entry(object: &Value) -> &str {
    text(&object["metadata"]["labels"]["pelotech.ot/entry"])
}

fn health(state: &State, pod: &Value) -> Health {
    state.fates.get(entry(pod)).cloned().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    crate::json::is_condition_true(pod, "Ready")
}

fn told_of_deployment(state: &State, object: &Value, (made, ready): (usize, usize)) -> Value {
    let mut told = json!({
        "observedGeneration": object["metadata"]["generation"],
        "replicas": made, "updatedReplicas": made, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": wanted(object) - ready,
    });
    let was = progress(object).map_or("NewReplicaSetCreated", |it| text(&it["reason"]));
    let is_complete = made == wanted(object) && ready == made;
    told["conditions"] = json!([progressing(if is_complete { COMPLETE } else { was })]);
    if let Some(Health::Refused(words)) = state.fates.get(entry(object)) {
        crate::json::list(&mut told["conditions"]).push(json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words,
        }));
    }
    told
}

/// What is said of a Deployment whose last change is carried out, until there is another one.
const COMPLETE: &str = "NewReplicaSetAvailable";

fn progressing(reason: &str) -> Value {
    json!({"type": "Progressing", "status": "True", "reason": reason})
}

fn progress(deployment: &Value) -> Option<&Value> {
    let mut conditions = items(&deployment["status"]["conditions"]).iter();
    conditions.find(|it| it["type"] == "Progressing")
}

fn told_of_machine(object: &Value, ready: usize) -> Value {
    let (is_running, is_wanted) = (ready > 0, wanted(object) > 0);
    let state = match (is_wanted, is_running) {
        (true, true) => "Running",
        (true, false) => "Starting",
        (false, _) => "Stopped",
    };
    json!({
        "observedGeneration": object["metadata"]["generation"],
        "created": is_running, "ready": is_running, "printableStatus": state,
    })
}

/// The status of a pod whose entry fares so.
fn fare(health: Health, pod: &Value) -> Value {
    let time = text(&pod["metadata"]["creationTimestamp"]);
    let name = pod["spec"]["containers"][0]["name"].clone();
    let waiting =
        |reason: &str, words: &str| json!({"waiting": {"reason": reason, "message": words}});
    let container = |state: Value, ready: bool| json!([{"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": 0, "state": state}]);
    let mut status = match health {
        Health::Fine | Health::NeverReady => {
            let ready = health == Health::Fine;
            json!({"phase": "Running", "containerStatuses": container(json!({"running": {"startedAt": time}}), ready)})
        }
        Health::NoImage(words) => {
            json!({"phase": "Pending", "containerStatuses": container(waiting("ImagePullBackOff", &words), false)})
        }
        Health::Crashing(code) => {
            let words = "back-off 10s restarting failed container";
            let mut all = container(waiting("CrashLoopBackOff", words), false);
            all[0]["restartCount"] = json!(3);
            all[0]["lastState"] = json!({"terminated": {"exitCode": code, "reason": "Error"}});
            json!({"phase": "Running", "containerStatuses": all})
        }
        Health::Unschedulable(words) => {
            let refused = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
            });
            return json!({"phase": "Pending", "conditions": [refused]});
        }
        Health::Refused(_) => json!({"phase": "Pending"}),
    };
    let ready = status["containerStatuses"][0]["ready"] == json!(true);
    let mut wrapped = json!({"status": status.take()});
    set_condition(&mut wrapped, "Ready", if ready { "True" } else { "False" }, "", time);
    wrapped["status"].take()
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    match deed {
        Deed::Make => format!("{id} makes Pod {}", make(state, id)),
        Deed::Delete(pods) => {
            if is_roll(state, id, &pods) {
                state.update_status(id, |object| {
                    object["status"]["conditions"] = json!([progressing("ReplicaSetUpdated")]);
                });
            }
            pods.iter().for_each(|pod| state.delete(pod, Propagation::Background));
            format!("{id} stops {} pods", pods.len())
        }
        Deed::Tell(told) => {
            state.update_status(id, |object| object["status"] = told);
            format!("{id} tells how it is")
        }
        Deed::Fare(status) => {
            let phase = text(&status["phase"]).to_owned();
            let is_scheduled = !status["containerStatuses"].is_null();
            state.update_status(id, |pod| {
                pod["status"] = status;
                if is_scheduled {
                    pod["spec"]["nodeName"] = json!("node-1");
                }
            });
            format!("{id} is {phase}")
        }
        Deed::Stop => {
            state.remove(id);
            format!("{id} has stopped")
        }
    }
}

/// Whether a pod of another template is among those that go.
fn is_roll(state: &State, id: &Id, pods: &[Id]) -> bool {
    let object = state.get(id).filter(|_| id.kind == "Deployment");
    let template = object.map(text_of_template);
    let of = |pod: &Id| state.get(pod).map(|pod| text(&pod["metadata"]["annotations"]["template"]));
    template.is_some_and(|template| pods.iter().any(|pod| of(pod) != Some(&*template)))
}

fn make(state: &mut State, id: &Id) -> Key {
    let object = state.get(id).expect("a deed is about what is held").clone();
    let key = Key::new(&id.key.namespace, &format!("{}-{}", id.key.name, state.suffix()));
    let template = &object["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
    });
    if id.kind == "VirtualMachine" {
        let claims = claims_of(&object)
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let claims: Vec<Value> = claims.collect();
        pod["spec"] = json!({"containers": [{"name": "compute"}], "volumes": claims});
    }
    pod["metadata"]["name"] = json!(key.name);
    pod["metadata"]["generateName"] = json!(format!("{}-", id.key.name));
    pod["metadata"]["namespace"] = json!(key.namespace);
    pod["metadata"]["annotations"]["template"] = json!(text_of_template(&object));
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": object["apiVersion"], "kind": id.kind, "name": id.key.name, "uid": uid(&object),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    state.insert(Id::new("Pod", &key), pod);
    key
}

/// What the API server adds to a new Service: an address, the one that is asked for if it is free.
pub(super) fn address(state: &State, service: &mut Value) {
    let asked = text(&service["spec"]["clusterIP"]).to_owned();
    if !asked.is_empty() {
        return;
    }
    let taken: Vec<&str> =
        state.of_kind("Service").map(|(_, it)| text(&it["spec"]["clusterIP"])).collect();
    let free =
        (1..=u8::MAX).map(|n| format!("10.96.0.{n}")).find(|ip| !taken.contains(&ip.as_str()));
    service["spec"]["clusterIP"] = json!(free.expect("a world has fewer Services"));
}

#[cfg(test)]
mod tests;
