//! What is left when a run is over, made comparable with what is left of another.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use otctl_types::import::PROGRESS_KEY_VARIABLE;
use otctl_types::{AdmissionQueue, VMDiskImage};
use serde_json::{Value, json};
use testbed::mask::{EndState, end_state};

use crate::stage::{Stage, until};

const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// What does not change for so long is at rest.
const QUIET: Duration = Duration::from_secs(2);

impl Stage {
    /// Images, the ledger, and everything that was made for the images, masked, once nothing is on its way out any
    /// more, every Job has been judged and nothing changes.
    pub(crate) async fn end_state(&self) -> EndState {
        at_rest(async || {
            let objects = self.everything().await;
            objects.iter().all(has_settled).then(|| end_state(objects))
        })
        .await
    }

    /// The same of one namespace, without the ledger and without the namespace's name; nothing while something has not
    /// settled, or is owned by nobody that is there.
    pub(crate) async fn end_state_in(&self, namespace: &str) -> Option<EndState> {
        let everything = self.everything().await;
        let alive: BTreeSet<String> =
            everything.iter().map(|object| object["metadata"]["uid"].to_string()).collect();
        let is_in = |object: &Value| {
            let of_content = &object["spec"]["volumeSnapshotRef"]["namespace"];
            object["metadata"]["namespace"] == namespace || *of_content == namespace
        };
        let objects: Vec<Value> = everything.into_iter().filter(is_in).collect();
        let is_settled = |object: &Value| has_settled(object) && !is_orphan(object, &alive);
        objects.iter().all(is_settled).then(|| {
            let nameless = |object: Value| object.to_string().replace(namespace, "<namespace>");
            end_state(objects.into_iter().map(nameless).map(|text| {
                serde_json::from_str(&text).expect("a name in JSON is replaced by a name")
            }))
        })
    }

    async fn everything(&self) -> Vec<Value> {
        let kinds = [
            ApiResource::erase::<VMDiskImage>(&()),
            ApiResource::erase::<AdmissionQueue>(&()),
            ApiResource::erase::<PersistentVolumeClaim>(&()),
            ApiResource::erase::<Job>(&()),
            ApiResource::erase::<Pod>(&()),
            snapshot_kind("VolumeSnapshot", "volumesnapshots"),
            snapshot_kind("VolumeSnapshotContent", "volumesnapshotcontents"),
        ];
        let mut objects = Vec::new();
        for kind in &kinds {
            objects.extend(list(&self.client, kind).await);
        }
        objects
    }
}

/// What `look` finds once it has not changed for a while: who has just succeeded has still to clean up.
pub(crate) async fn at_rest<T: Clone + PartialEq>(look: impl AsyncFn() -> Option<T>) -> T {
    let (mut since, mut last) = (Instant::now(), None);
    until("everything has settled", async || {
        let found = look().await;
        if found != last {
            (since, last) = (Instant::now(), found);
        }
        last.clone().filter(|_| since.elapsed() > QUIET)
    })
    .await
}

fn has_settled(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let is_judged =
        |condition: &Value| condition["type"] == "Complete" || condition["type"] == "Failed";
    let is_over = object["kind"] != "Job" || conditions.into_iter().flatten().any(is_judged);
    is_over && object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether it has owners, and none of them is there.
fn is_orphan(object: &Value, alive: &BTreeSet<String>) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_gone = |owner: &Value| !alive.contains(&owner["uid"].to_string());
    owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(is_gone))
}

fn snapshot_kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: SNAPSHOT_GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{SNAPSHOT_GROUP}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

async fn list(client: &Client, kind: &ApiResource) -> Vec<Value> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    let listed = api.list(&ListParams::default()).await.unwrap();
    listed.into_iter().map(|object| told(&kind.kind, &object)).collect()
}

/// The object without what is by chance: where a pod ran, which secret was made up for a Job, a driver's own clock.
fn told(kind: &str, object: &DynamicObject) -> Value {
    let mut told = serde_json::to_value(object).unwrap();
    told["kind"] = json!(kind);
    match kind {
        "Pod" => {
            told["spec"] = Value::Null;
            told["status"] = json!({"phase": told["status"]["phase"]});
        }
        "Job" => mask_progress_key(&mut told),
        "VolumeSnapshotContent" => {
            for field in ["creationTime", "snapshotHandle"] {
                told["status"][field] = Value::Null;
            }
            told["spec"]["volumeSnapshotRef"]["resourceVersion"] = Value::Null;
        }
        _ => {}
    }
    told
}

fn mask_progress_key(job: &mut Value) {
    let environment = job.pointer_mut("/spec/template/spec/containers/0/env");
    for variable in environment.and_then(Value::as_array_mut).into_iter().flatten() {
        if variable["name"] == PROGRESS_KEY_VARIABLE {
            variable["value"] = json!("<key>");
        }
    }
}
