//! A namespace is deleted with workspaces of every state in it: it ends, nothing of them is left anywhere, their slots go
//! to others, and they go on when one of that name is there again.

use std::time::Instant;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::Options;
use local_cluster::audit::AuditEntry;
use otctl::installation::{self, Policy};
use otctl_types::AdmissionQueue;
use otctl_types::condition::{CONTAINERS_READY, READY};
use otctl_types::names::WORKSPACE_QUEUE;
use otctl_types::workspace::Phase;
use serde_json::{Value, json};

use super::labs::Labs;
use super::{EXAMS, LABS};
use crate::stage::{told, until, until_found};

/// As many as never get ready: they have every slot when their namespace goes.
const POLICY: [(&str, &str); 1] = [("workspaceConcurrency", "4")];
const READY_ONES: usize = 8;
const SUSPENDED: usize = 2;
const WAITING: usize = 3;
const STARTING: usize = 4;
const QUEUED: usize = 3;
/// Some that are deleted while the namespace goes.
const DELETED: [&str; 4] = ["ready-0", "suspended-0", "starting-0", "queued-0"];
/// Keeps the namespace for as long as it is wanted.
const HOLD: &str = "hold";

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_twenty_workspaces_in_it_and_those_elsewhere_go_on() {
    let mut labs = Labs::set(&POLICY, Options::default()).await;
    labs.start();
    let names = twenty(&labs).await;
    hold(&labs).await;

    let mark = labs.stage.mark();
    let started = Instant::now();
    namespaces(&labs).delete(EXAMS, &DeleteParams::default()).await.unwrap();
    for name in DELETED {
        labs.delete(name).await;
    }
    for name in create(&labs, "elsewhere", 6, &container(LABS, "example.com/web:1")).await {
        labs.is(&name, Phase::Ready).await;
    }
    println!("those elsewhere were ready after {:.1?}", started.elapsed());
    for name in DELETED {
        labs.is_gone(name).await;
    }
    let namespace = namespaces(&labs).get(EXAMS).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_some(), "it was to be held");
    says_of_all(&labs, &names, "NamespaceTerminating").await;

    slots_are_free(&labs).await;
    release(&labs).await;
    until("the namespace is gone", async || {
        namespaces(&labs).get_opt(EXAMS).await.unwrap().is_none().then_some(())
    })
    .await;
    println!("the namespace was gone after {:.1?}", started.elapsed());
    says_of_all(&labs, &names, "NamespaceNotFound").await;
    let left = labs.all_children().await;
    let left: Vec<_> =
        left.iter().filter(|(_, it)| it.namespace().as_deref() == Some(EXAMS)).collect();
    assert!(left.is_empty(), "{left:?}");
    labs.create("later", container(LABS, "example.com/web:1")).await;
    labs.is("later", Phase::Ready).await;
    // Also of those that were isolated and had a finalizer.
    for name in ["ready-1", "starting-3", "waiting-0"] {
        labs.delete(name).await;
        labs.is_gone(name).await;
    }
    slots_are_free(&labs).await;
    expect_nothing_made(&labs.writes(mark));

    goes_on_when_it_is_back(&labs).await;
    leave_nothing(&labs).await;
    // With the namespace go the rights in it.
    labs.finish_but(|entry| entry.namespace == EXAMS).await;
}

/// Every workspace is deleted.
async fn leave_nothing(labs: &Labs) {
    let all = labs.workspaces().list(&ListParams::default()).await.unwrap().items;
    for workspace in &all {
        labs.delete(&workspace.name_any()).await;
    }
    for workspace in &all {
        labs.is_gone(&workspace.name_any()).await;
    }
    until_found("nothing is left", async || {
        let left: Vec<String> = labs.all_children().await.into_keys().collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}

/// Its finalizers are taken off by hand, as people do with one that does not end: what is in it stays, in no namespace.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_forced_away_keeps_no_workspace() {
    let mut labs = Labs::set(&POLICY, Options::default()).await;
    labs.start();
    for name in ["goes", "stays"] {
        labs.create(name, container(EXAMS, "example.com/web:1")).await;
        labs.is(name, Phase::Ready).await;
    }
    let pods: Api<Pod> = Api::namespaced(labs.stage.client.clone(), EXAMS);
    let held: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(|pod| pod.name_any())
        .collect();
    assert_eq!(held.len(), 2);
    for pod in &held {
        finalizers_of(&pods, pod, json!(["example.com/hold"])).await;
    }
    namespaces(&labs).delete(EXAMS, &DeleteParams::default()).await.unwrap();
    labs.says("stays", READY, "NamespaceTerminating").await;
    until("every pod is to end", async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    force_away(&labs).await;
    assert!(namespaces(&labs).get_opt(EXAMS).await.unwrap().is_none());
    labs.says("stays", READY, "NamespaceNotFound").await;
    labs.delete("goes").await;
    labs.is_gone("goes").await;
    let left = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), held.len(), "they outlived their namespace");
    // One that is there again takes new ones; the set of pods that stayed in no namespace is its own controller's to wake.
    installation::apply(&labs.stage.client, Policy::new(), &[LABS, EXAMS]).await.unwrap();
    labs.stage.policy(&POLICY).await;
    for pod in &held {
        finalizers_of(&pods, pod, json!(null)).await;
    }
    let is_held = |pod: &Pod| held.contains(&pod.name_any());
    until("the held pods are gone", async || {
        let left = pods.list(&ListParams::default()).await.unwrap().items;
        (!left.iter().any(is_held)).then_some(())
    })
    .await;
    labs.create("comes", container(EXAMS, "example.com/web:1")).await;
    labs.is("comes", Phase::Ready).await;
    for name in ["stays", "comes"] {
        labs.delete(name).await;
        labs.is_gone(name).await;
    }
    labs.finish_but(|entry| entry.namespace == EXAMS).await;
}

async fn finalizers_of(pods: &Api<Pod>, pod: &str, finalizers: Value) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    pods.patch(pod, &PatchParams::default(), &patch).await.unwrap();
}

async fn force_away(labs: &Labs) {
    let mut namespace = namespaces(labs).get(EXAMS).await.unwrap();
    namespace.spec.get_or_insert_default().finalizers = None;
    let params = PostParams::default();
    namespaces(labs).replace_subresource("finalize", EXAMS, &params, &namespace).await.unwrap();
}

fn container(namespace: &str, image: &str) -> Value {
    json!({"namespace": namespace, "containers": [{"name": "web", "image": image}]})
}

/// Workspaces of every state, at rest; their names.
async fn twenty(labs: &Labs) -> Vec<String> {
    let runs = container(EXAMS, "example.com/web:1");
    let mut names = create(labs, "ready", READY_ONES, &runs).await;
    names.extend(create(labs, "suspended", SUSPENDED, &runs).await);
    for name in &names {
        labs.is(name, Phase::Ready).await;
    }
    for name in &names[READY_ONES..] {
        labs.edit(name, json!({"suspended": true})).await;
        labs.is(name, Phase::Suspended).await;
    }
    let mut no_image = runs.clone();
    no_image["virtualMachines"] = json!([{"name": "db", "spec": {"VMDiskImageName": "absent"}}]);
    for name in create(labs, "waiting", WAITING, &no_image).await {
        labs.says(&name, READY, "ImageNotFound").await;
        names.push(name);
    }
    for name in create(labs, "starting", STARTING, &container(EXAMS, "example.com/absent:1")).await
    {
        labs.says(&name, CONTAINERS_READY, "ImagePullBackOff").await;
        names.push(name);
    }
    for name in create(labs, "queued", QUEUED, &runs).await {
        labs.says(&name, READY, "SlotsBusy").await;
        names.push(name);
    }
    assert_eq!(names.len(), 20);
    assert_eq!(active(labs).await.len(), STARTING, "every slot is taken");
    names
}

async fn create(labs: &Labs, kind: &str, count: usize, spec: &Value) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("{kind}-{number}")).collect();
    for name in &names {
        labs.create(name, spec.clone()).await;
    }
    names
}

fn namespaces(labs: &Labs) -> Api<Namespace> {
    Api::all(labs.stage.client.clone())
}

fn maps(labs: &Labs) -> Api<ConfigMap> {
    Api::namespaced(labs.stage.client.clone(), EXAMS)
}

/// The namespace does not end before [`release`].
async fn hold(labs: &Labs) {
    let hold = json!({"metadata": {"name": HOLD, "finalizers": ["example.com/hold"]}});
    let hold = serde_json::from_value(hold).unwrap();
    maps(labs).create(&PostParams::default(), &hold).await.unwrap();
}

async fn release(labs: &Labs) {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps(labs).patch(HOLD, &PatchParams::default(), &free).await.unwrap();
}

/// Every one that is neither deleted nor suspended says why it is not ready.
async fn says_of_all(labs: &Labs, names: &[String], reason: &str) {
    let is_asked =
        |name: &&String| !DELETED.contains(&name.as_str()) && !name.starts_with("suspended");
    for name in names.iter().filter(is_asked) {
        labs.says(name, READY, reason).await;
    }
}

async fn active(labs: &Labs) -> Vec<String> {
    let queues: Api<AdmissionQueue> = Api::all(labs.stage.client.clone());
    let status = queues.get(WORKSPACE_QUEUE).await.unwrap().status.unwrap_or_default();
    status.active.into_iter().map(|entry| entry.name).collect()
}

async fn slots_are_free(labs: &Labs) {
    until("every slot is free", async || active(labs).await.is_empty().then_some(())).await;
}

/// In a namespace that goes.
fn expect_nothing_made(writes: &[AuditEntry]) {
    let made = writes.iter().filter(|it| it.verb == "create" && it.namespace == EXAMS);
    let made: Vec<String> = made.map(told).collect();
    assert!(made.is_empty(), "{}", made.join("\n"));
}

/// The namespace and the rights in it.
async fn goes_on_when_it_is_back(labs: &Labs) {
    installation::apply(&labs.stage.client, Policy::new(), &[LABS, EXAMS]).await.unwrap();
    labs.stage.policy(&POLICY).await;
    for number in 2..READY_ONES {
        labs.is(&format!("ready-{number}"), Phase::Ready).await;
    }
    labs.edit("suspended-1", json!({"suspended": false})).await;
    labs.edit("starting-1", container(EXAMS, "example.com/web:1")).await;
    for name in ["suspended-1", "starting-1", "queued-1", "queued-2"] {
        labs.is(name, Phase::Ready).await;
    }
}
