//! Containers that cannot run are told in the words of whoever refuses them, and recover when the cause goes.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use local_cluster::Options;
use local_cluster::node::Room;
use otctl_types::condition::CONTAINERS_READY;
use otctl_types::workspace::Phase;
use serde_json::{Value, json};

use super::labs::Labs;
use super::{EXAMS, LABS, pipeline};
use crate::stage::{pod_phase, until};

/// Little enough that a pod can fill a node.
const ROOM: &str = "4";

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_told_in_the_words_of_who_refuses_it_and_recovers() {
    let room = Room { cpu: ROOM.to_owned(), ..Room::default() };
    let options = Options { nodes: 1, room, ..Options::default() };
    let policy = [("workspaceConcurrency", "4")];
    let mut labs = Labs::set(&policy, options).await;
    labs.start();
    let (pulled, crashes, refused, waits) = tokio::join!(
        cannot_be_pulled(&labs),
        crashes(&labs),
        is_refused_by_quota(&labs),
        finds_no_node(&labs),
    );
    pipeline::a_pipeline_tells_ready_failed_and_timed_out_apart(&labs).await;
    println!("pull: {pulled}\ncrash: {crashes}\nquota: {refused}\nno node: {waits}");
    labs.finish_but(|_| false).await;
}

fn container(image: &str) -> Value {
    json!({"containers": [{"name": "web", "image": image}]})
}

/// With the tag mended it runs; the controller is not touched.
async fn cannot_be_pulled(labs: &Labs) -> String {
    labs.create("pulls", container("example.com/absent:1")).await;
    let words = labs.says("pulls", CONTAINERS_READY, "ImagePullBackOff").await;
    assert!(words.contains("example.com/absent:1"), "{words}");
    expect_in_the_words_of_the_kubelet(labs, LABS, &words).await;
    labs.edit("pulls", container("example.com/web:1")).await;
    labs.is("pulls", Phase::Ready).await;
    words
}

/// Never failed: it may yet run.
async fn crashes(labs: &Labs) -> String {
    labs.create("crashes", container("example.com/crash:1")).await;
    let words = labs.says("crashes", CONTAINERS_READY, "CrashLoopBackOff").await;
    assert!(words.contains("exit code 3"), "{words}");
    labs.is("crashes", Phase::Provisioning).await;
    labs.edit("crashes", container("example.com/web:1")).await;
    labs.is("crashes", Phase::Ready).await;
    words
}

/// It goes on when the quota is gone, without an edit.
async fn is_refused_by_quota(labs: &Labs) -> String {
    let quotas: Api<ResourceQuota> = Api::namespaced(labs.stage.client.clone(), EXAMS);
    let none = json!({"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}});
    let none = serde_json::from_value(none).unwrap();
    quotas.create(&PostParams::default(), &none).await.unwrap();
    until("the quota counts", async || {
        let quota = quotas.get("no-pods").await.unwrap();
        quota.status.and_then(|status| status.used).map(drop)
    })
    .await;
    let mut spec = container("example.com/web:1");
    spec["namespace"] = json!(EXAMS);
    labs.create("refused", spec).await;
    let words = labs.says("refused", CONTAINERS_READY, "QuotaExceeded").await;
    assert!(words.contains("exceeded quota: no-pods, requested: pods=1"), "{words}");
    quotas.delete("no-pods", &DeleteParams::default()).await.unwrap();
    labs.is("refused", Phase::Ready).await;
    words
}

/// A neighbour fills the only node; when it goes there is room.
async fn finds_no_node(labs: &Labs) -> String {
    let pods: Api<Pod> = Api::namespaced(labs.stage.client.clone(), "default");
    let neighbour = json!({
        "metadata": {"name": "neighbour"},
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "example.com/web:1", "resources": {"requests": {"cpu": "2"}},
            }],
        },
    });
    let neighbour = serde_json::from_value(neighbour).unwrap();
    pods.create(&PostParams::default(), &neighbour).await.unwrap();
    until("the neighbour runs", async || {
        (pod_phase(&pods.get("neighbour").await.unwrap()) == "Running").then_some(())
    })
    .await;
    let mut spec = container("example.com/web:1");
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    labs.create("waits", spec).await;
    let words = labs.says("waits", CONTAINERS_READY, "Unschedulable").await;
    assert!(words.contains("0/1 nodes are available: 1 Insufficient cpu"), "{words}");
    labs.is("waits", Phase::Provisioning).await;
    pods.delete("neighbour", &DeleteParams::default()).await.unwrap();
    labs.is("waits", Phase::Ready).await;
    words
}

/// What status says stands in the pod's own, word for word.
async fn expect_in_the_words_of_the_kubelet(labs: &Labs, namespace: &str, words: &str) {
    let pods: Api<Pod> = Api::namespaced(labs.stage.client.clone(), namespace);
    until(&format!("a pod says what status says: {words}"), async || {
        let pods = pods.list(&Default::default()).await.unwrap().items;
        let statuses =
            pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let waiting = statuses.flatten().filter_map(|it| it.state.as_ref()?.waiting.as_ref());
        let mut told = waiting.filter_map(|waiting| waiting.message.as_deref());
        told.any(|told| words.contains(told)).then_some(())
    })
    .await;
}
