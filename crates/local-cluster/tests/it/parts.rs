//! A cluster with nodes and storage, as others start it.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    runtime::wait::await_condition,
};
use local_cluster::{LocalCluster, Options};
use serde_json::json;

use crate::support::SOON;

#[tokio::test]
async fn the_default_is_two_nodes_with_storage() {
    let cluster = LocalCluster::start(Options::default()).await.unwrap();
    let admin = cluster.admin();
    for node in ["node-1", "node-2"] {
        let ready =
            await_condition(Api::<Node>::all(admin.clone()), node, |node: Option<&Node>| {
                let status = node.and_then(|node| node.status.as_ref());
                let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter());
                conditions.any(|conditions| {
                    conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
                })
            });
        tokio::time::timeout(SOON, ready).await.unwrap().unwrap();
    }
    assert_eq!(cluster.nodes().len(), 2);
    assert!(cluster.storage().is_some());

    let kinds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let kinds = kinds.list(&ListParams::default()).await.unwrap().items;
    let kinds: BTreeSet<_> = kinds.iter().map(|kind| kind.spec.names.plural.as_str()).collect();
    let snapshot_kinds = ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"];
    assert_eq!(kinds, BTreeSet::from(snapshot_kinds));
    let classes: Api<StorageClass> = Api::all(admin);
    assert!(!classes.list(&ListParams::default()).await.unwrap().items.is_empty());
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_runs_and_neither_nodes_nor_storage_lack_a_right() {
    let cluster = LocalCluster::start(Options::default()).await.unwrap();
    let namespace = cluster.namespace("pods").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), &namespace);
    let pod = json!({
        "metadata": { "name": "idle" },
        "spec": { "containers": [{ "name": "main", "image": "none", "command": ["sleep"] }] },
    });
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let runs = await_condition(pods.clone(), "idle", |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Running")
    });
    tokio::time::timeout(SOON, runs).await.unwrap().unwrap();
    pods.delete("idle", &Default::default()).await.unwrap();
    let gone = await_condition(pods, "idle", |pod: Option<&Pod>| pod.is_none());
    tokio::time::timeout(SOON, gone).await.unwrap().unwrap();

    let leases: Api<Lease> = Api::namespaced(cluster.admin(), "kube-node-lease");
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 2);
    let mut refused = cluster.audit().entries().unwrap();
    refused.retain(|entry| entry.is_forbidden());
    let refused: BTreeSet<_> =
        refused.iter().map(|entry| (&*entry.user, &*entry.verb, entry.target())).collect();
    assert_eq!(refused, BTreeSet::new());
    cluster.shutdown().await;
}
