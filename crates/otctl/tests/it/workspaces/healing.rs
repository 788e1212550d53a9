//! Everything that is ours in what a workspace has made is held, and nothing else is touched meanwhile. What is ours the
//! API server knows: it keeps for every field who applied it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::programs::Program;
use otctl_types::names::WORKSPACE_CONTROLLER;
use otctl_types::workspace::Phase;
use serde_json::{Map, Value, json};

use super::LABS;
use super::labs::Labs;
use crate::end_state::at_rest;
use crate::stage::until;

/// Who edits by hand.
const PERSON: &str = "kubectl-edit";
/// Of each kind one child, in which every field is edited, and the fields that an API server lets nobody change.
const EDITED: [(&str, &[&str]); 5] = [
    ("NetworkPolicy/lab--network", &[]),
    ("Service/lab--web", &["/spec/clusterIP"]),
    (
        "Deployment/lab--api",
        &[
            "/spec/selector",
            "/spec/template/metadata/labels/pelotech.ot~1entry",
            "/spec/template/metadata/labels/pelotech.ot~1workspace-uid",
            "/spec/template/spec/restartPolicy",
        ],
    ),
    (
        "PersistentVolumeClaim/lab--db-",
        &[
            "/spec/accessModes",
            "/spec/dataSource",
            "/spec/resources/requests/storage",
            "/spec/storageClassName",
            "/spec/volumeMode",
        ],
    ),
    // Nobody but the controller sets it.
    ("VirtualMachine/lab--db", &["/spec/template/metadata/labels/pelotech.ot~1workspace-uid"]),
];
/// Values that may not be any other text, and another that they may be.
const INSTEAD: [(&str, &str); 2] = [("ClusterIP", "NodePort"), ("RuntimeDefault", "Unconfined")];

/// Each child is deleted and comes back, and no other one is written.
pub(super) async fn every_child_that_is_deleted_comes_back_alone(labs: &Labs) {
    for (name, child) in labs.children("lab").await {
        // A claim stays until nothing uses it.
        if name.starts_with("PersistentVolumeClaim/") {
            continue;
        }
        let before = others_at_rest(labs, &name).await;
        let (api, uid) = (labs.place(&name, &child), child.uid().unwrap());
        api.delete(&child.name_any(), &DeleteParams::background()).await.unwrap();
        let again = until(&format!("{name} is back"), async || {
            let found = api.get_opt(&child.name_any()).await.unwrap();
            found.filter(|found| found.uid().as_ref() != Some(&uid))
        })
        .await;
        assert_eq!(again.data["spec"]["clusterIP"], child.data["spec"]["clusterIP"], "{name}");
        is_ready_since(labs, &again).await;
        assert_eq!(others(labs, &name).await, before, "while {name} was deleted");
    }
}

/// Waits until its status says that it is ready, and was written after this child was made.
async fn is_ready_since(labs: &Labs, child: &DynamicObject) {
    let made = revision(child);
    until(&format!("it is ready with the new {}", child.name_any()), async || {
        let workspace = labs.workspaces().get("lab").await.unwrap();
        let phase = workspace.status.as_ref().and_then(|status| status.phase);
        (revision(&workspace) > made && phase == Some(Phase::Ready)).then_some(())
    })
    .await;
}

fn revision(object: &impl kube::Resource) -> u64 {
    object.meta().resource_version.as_ref().unwrap().parse().unwrap()
}

/// Who collects garbage begins anew, again and again, and finds the owner of every child.
pub(super) async fn no_child_goes_when_the_garbage_collector_is_restarted(labs: &mut Labs) {
    let before = uids(labs).await;
    for number in 0..3 {
        labs.stage.cluster_mut().restart(Program::KubeControllerManager).await.unwrap();
        // Of another owner that is not there it takes what is left: by then it has looked at everything.
        let maps: Api<ConfigMap> = Api::namespaced(labs.stage.client.clone(), LABS);
        let name = format!("left-{number}");
        let owner = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "name": name, "uid": name,
        });
        let left = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        let left = serde_json::from_value(left).unwrap();
        maps.create(&PostParams::default(), &left).await.unwrap();
        until(&format!("{name} is collected"), async || {
            maps.get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(uids(labs).await, before);
    }
}

async fn uids(labs: &Labs) -> BTreeMap<String, String> {
    let children = labs.children("lab").await.into_iter();
    children.map(|(name, child)| (name, child.uid().unwrap())).collect()
}

/// Each field that we have applied is edited, one after the other, and put right, and no other child is written. What
/// nobody can edit is known.
pub(super) async fn every_field_of_ours_is_put_right_alone(labs: &Labs) {
    let (mut wanted, mut found) = (BTreeSet::new(), BTreeSet::new());
    for (start, fixed) in EDITED {
        let children = labs.children("lab").await;
        let (name, child) = children.iter().find(|(name, _)| name.starts_with(start)).unwrap();
        let (api, fields) = (labs.place(name, child), owned(child));
        let before = others_at_rest(labs, name).await;
        let mut refused = Vec::new();
        for pointer in &fields {
            if edit(&api, child, pointer).await {
                is_as_it_was(&api, child, pointer).await;
                assert_eq!(others(labs, name).await, before, "while {name} was edited: {pointer}");
            } else {
                refused.push(pointer);
            }
        }
        let right = fields.len() - refused.len();
        println!("{name}: {right} fields put right, {} that nobody can edit", refused.len());
        let told = |pointer: &str| format!("{start} {pointer}");
        wanted.extend(fixed.iter().map(|pointer| told(pointer)));
        found.extend(refused.into_iter().map(|pointer| told(pointer)));
        labs.is("lab", Phase::Ready).await;
    }
    assert_eq!(found, wanted, "what nobody can edit");
}

/// The versions of every other child, once Kubernetes has written down what became of their pods.
async fn others_at_rest(labs: &Labs, name: &str) -> BTreeMap<String, String> {
    at_rest(async || Some(others(labs, name).await)).await
}

/// The versions of every other child.
async fn others(labs: &Labs, name: &str) -> BTreeMap<String, String> {
    let children = labs.children("lab").await.into_iter();
    let others = children.filter(|(other, _)| other != name);
    others.map(|(other, child)| (other, child.resource_version().unwrap())).collect()
}

/// Changes or else removes a field, as a person does; whether the API server took it and it made a difference.
async fn edit(api: &Api<DynamicObject>, child: &DynamicObject, pointer: &str) -> bool {
    let before = serde_json::to_value(child).unwrap();
    let changed = changed(before.pointer(pointer).unwrap());
    let replace = json!([{"op": "replace", "path": pointer, "value": changed}]);
    let remove = json!([{"op": "remove", "path": pointer}]);
    let mut patches = vec![replace, remove];
    if pointer == "/spec/strategy/type" {
        // What stands beside it goes with one kind of strategy alone.
        patches.push(
            json!([{"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}}]),
        );
    }
    for patch in patches {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        let params =
            PatchParams { field_manager: Some(PERSON.to_owned()), ..PatchParams::default() };
        let Ok(after) = api.patch(&child.name_any(), &params, &patch).await else { continue };
        // What is taken away may be what the API server puts there itself.
        let after = serde_json::to_value(after).unwrap();
        if after.pointer(pointer) != before.pointer(pointer) {
            return true;
        }
    }
    false
}

fn changed(value: &Value) -> Value {
    match value {
        Value::Bool(is_so) => json!(!is_so),
        Value::Number(number) => json!(number.as_i64().unwrap() + 1),
        Value::String(text) => {
            let instead = INSTEAD.iter().find(|(value, _)| value == text);
            instead.map_or_else(|| json!(format!("{text}-x")), |(_, instead)| json!(instead))
        }
        // Without any, some lists are filled in again as they were.
        Value::Array(items) => json!(items[..items.len().saturating_sub(1)]),
        Value::Object(_) => json!({}),
        Value::Null => json!("x"),
    }
}

/// Waits until an object says again what it said before.
async fn is_as_it_was(api: &Api<DynamicObject>, child: &DynamicObject, pointer: &str) {
    let before = said(child);
    until(&format!("{pointer} of {} is put right", child.name_any()), async || {
        (said(&api.get(&child.name_any()).await.unwrap()) == before).then_some(())
    })
    .await;
}

/// What an object says, without what Kubernetes counts in it.
fn said(object: &DynamicObject) -> Value {
    let mut annotations = object.annotations().clone();
    annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
    json!({
        "labels": object.labels(), "annotations": annotations, "owners": object.owner_references(),
        "spec": object.data["spec"],
    })
}

/// JSON pointers to the fields that our controller has applied, the deepest ones.
fn owned(child: &DynamicObject) -> Vec<String> {
    let mut pointers = Vec::new();
    let json = serde_json::to_value(child).unwrap();
    for entry in child.managed_fields() {
        let is_ours = entry.manager.as_deref() == Some(WORKSPACE_CONTROLLER);
        if let Some(fields) = entry.fields_v1.as_ref().filter(|_| is_ours) {
            collect(fields.0.as_object().unwrap(), &json, "", &mut pointers);
        }
    }
    assert!(!pointers.is_empty(), "nothing of {} was applied", child.name_any());
    pointers
}

/// Goes down a tree of `f:FIELD` and `k:{KEYS}`, and the object beside it. What tells items of a list apart is left out: with
/// another key it is another item, which is the editor's. So is what tells an owner: without it the child is nobody's, and
/// the garbage collector takes it.
fn collect(fields: &Map<String, Value>, object: &Value, at: &str, pointers: &mut Vec<String>) {
    let below: Vec<_> = fields.iter().filter(|(key, _)| *key != ".").collect();
    let is_owner = at.starts_with("/metadata/ownerReferences/") && !object.is_boolean();
    // Empty ones, such as the time at which a template was made, are owned and not there.
    if below.is_empty() && !is_owner && !object.is_null() {
        pointers.push(at.to_owned());
    }
    for (key, fields) in below {
        let fields = fields.as_object().unwrap();
        let (step, keys) = step(key, object);
        let mut fields = fields.clone();
        fields.retain(|field, _| !keys.contains(&field.trim_start_matches("f:").to_owned()));
        let below = object.pointer(&format!("/{step}")).unwrap_or(&Value::Null);
        collect(&fields, below, &format!("{at}/{step}"), pointers);
    }
}

/// One step of a JSON pointer, and by which fields the item is known there.
fn step(key: &str, object: &Value) -> (String, Vec<String>) {
    let Some(keys) = key.strip_prefix("k:") else {
        let field = key.strip_prefix("f:").unwrap();
        return (field.replace('~', "~0").replace('/', "~1"), Vec::new());
    };
    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap();
    let is_it = |item: &Value| keys.iter().all(|(key, value)| item[key] == *value);
    let index = object.as_array().unwrap().iter().position(is_it).unwrap();
    (index.to_string(), keys.into_iter().map(|(key, _)| key).collect())
}
