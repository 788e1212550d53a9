//! What is left when a run is over, made comparable with what is left of another.

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

impl Stage {
    /// Images, the ledger, and everything that was made for the images, masked, once nothing is on its way out any
    /// more and every Job has been judged.
    pub(crate) async fn end_state(&self) -> EndState {
        let objects = until("everything has settled", async || {
            Some(self.everything().await).filter(|objects| objects.iter().all(has_settled))
        })
        .await;
        end_state(objects)
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

fn has_settled(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let is_judged =
        |condition: &Value| condition["type"] == "Complete" || condition["type"] == "Failed";
    let is_over = object["kind"] != "Job" || conditions.into_iter().flatten().any(is_judged);
    is_over && object["metadata"]["deletionTimestamp"].is_null()
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
