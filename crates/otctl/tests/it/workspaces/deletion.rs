//! Somebody's admission refuses that children are deleted: the workspace stays and says so in the words of admission, and
//! goes by itself once nobody refuses any more.

use std::collections::BTreeMap;

use image_server::Content;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::Options;
use local_cluster::audit::AuditEntry;
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use otctl_types::condition::DELETING;
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::workspace::Phase;
use serde_json::{Value, json};

use super::LABS;
use super::labs::Labs;
use crate::stage::{until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
/// Workspaces, and as what the deletion of their children is refused: the code of it, and what admission is told to say.
const REFUSED: [(&str, u16, &str); 2] =
    [("forbidden", 403, "Forbidden"), ("invalid", 422, "Invalid")];
/// What it says.
const WORDS: &str = "nothing is deleted while grades are open";
/// Refusals that are waited for, so that it is known to try again.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn children_that_nobody_may_delete_keep_their_workspace_which_says_so_and_goes_by_itself() {
    let mut labs = Labs::set(&[("workspaceConcurrency", "2")], Options::default()).await;
    let _kubevirt = labs.stage.cluster().install_kubevirt().await.unwrap();
    labs.start();
    let mut kept = BTreeMap::new();
    for (name, ..) in REFUSED {
        labs.create(name, lab(&labs, name)).await;
        labs.is(name, Phase::Ready).await;
        kept.insert(name, uids(&labs, name).await);
    }
    for (name, code, reason) in REFUSED {
        refuse(&labs, name, code, reason).await;
    }
    let mark = labs.stage.mark();
    for (name, ..) in REFUSED {
        labs.delete(name).await;
    }
    for (name, code, _) in REFUSED {
        let words = stays(&labs, name).await;
        println!("{name}: {words}");
        until(&format!("{name} was tried {TRIES} times"), async || {
            let tries = labs.writes(mark);
            (tries.iter().filter(|it| is_refused(it, name, code)).count() >= TRIES).then_some(())
        })
        .await;
        assert_eq!(uids(&labs, name).await, kept[name], "nothing of {name} went");
    }

    for (name, ..) in REFUSED {
        allow(&labs, name).await;
    }
    for (name, ..) in REFUSED {
        labs.is_gone(name).await;
    }
    nothing_is_left(&labs).await;
    let is_of_admission =
        |entry: &AuditEntry| REFUSED.iter().any(|(name, code, _)| is_refused(entry, name, *code));
    labs.finish_but(is_of_admission).await;
}

/// A child of every kind.
fn lab(labs: &Labs, name: &str) -> Value {
    labs.stage.server.add(name, Content::generated(SIZE, 1));
    labs.stage.server.behave(name, well_behaved()).unwrap();
    json!({
        "imageRetention": "Delete",
        "virtualMachines": [{"name": "db", "spec": {
            "VMDiskImageName": name,
            "image": {
                "url": labs.stage.server.url(name), "sourceType": "http", "diskSize": "1Mi",
                "storageClass": IMMEDIATE_CLASS, "snapshotClass": SNAPSHOT_CLASS,
            },
            "instance": {"memory": "64Mi"},
        }}],
        "containers": [{"name": "web", "image": "example.com/web:1", "ports": [{"containerPort": 8080}]}],
    })
}

async fn uids(labs: &Labs, workspace: &str) -> BTreeMap<String, String> {
    let children = labs.children(workspace).await.into_iter();
    children.map(|(name, child)| (name, child.uid().unwrap())).collect()
}

/// From now on nobody deletes what was made for this workspace.
async fn refuse(labs: &Labs, name: &str, code: u16, reason: &str) {
    let client = &labs.stage.client;
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["services", "persistentvolumeclaims"]},
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["deployments"]},
                {"apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["networkpolicies"]},
                {"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["virtualmachines"]},
            ]},
            "matchConditions": [{
                "name": "its-own", "expression": format!("oldObject.metadata.name.startsWith('{name}--')"),
            }],
            "validations": [{"expression": "false", "message": WORDS, "reason": reason}],
        },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policy = serde_json::from_value(policy).unwrap();
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let binding = json!({
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings(labs).create(&PostParams::default(), &binding).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), LABS);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    until("a policy acts", async || {
        match deployments.delete(&format!("{name}--web"), &dry).await {
            Err(kube::Error::Api(answer)) => (answer.code == code).then_some(()),
            _ => None,
        }
    })
    .await;
}

async fn allow(labs: &Labs, name: &str) {
    bindings(labs).delete(name, &DeleteParams::default()).await.unwrap();
}

fn bindings(labs: &Labs) -> Api<ValidatingAdmissionPolicyBinding> {
    Api::all(labs.stage.client.clone())
}

/// It is being deleted, says why it is still there; gives what it says.
async fn stays(labs: &Labs, name: &str) -> String {
    let is_told = async || {
        let workspace = labs.workspaces().get(name).await.unwrap();
        assert!(workspace.metadata.deletion_timestamp.is_some(), "{name}");
        let status = workspace.status.unwrap_or_default();
        let told = status.conditions.into_iter().find(|it| it.type_ == DELETING);
        told.map(|told| told.message).filter(|message| message.contains(WORDS))
    };
    until(&format!("{name} says who keeps it"), is_told).await
}

fn is_refused(entry: &AuditEntry, name: &str, code: u16) -> bool {
    entry.verb == "delete" && entry.code == code && entry.name.starts_with(&format!("{name}--"))
}

/// No child and no pod of any workspace, and no image that they made.
async fn nothing_is_left(labs: &Labs) {
    let pods: Api<Pod> = Api::all(labs.stage.client.clone());
    let ours = ListParams::default().labels(WORKSPACE_LABEL);
    until("nothing is left", async || {
        let children = labs.all_children().await;
        let pods = pods.list_metadata(&ours).await.unwrap().items;
        let images = labs.stage.images().list(&ListParams::default()).await.unwrap().items;
        (children.is_empty() && pods.is_empty() && images.is_empty()).then_some(())
    })
    .await;
}
