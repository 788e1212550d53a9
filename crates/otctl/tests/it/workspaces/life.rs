//! Workspaces that are made before their images, from nothing to Ready, in the order that the API server tells.

use std::collections::BTreeSet;
use std::fs;

use image_server::Content;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use local_cluster::Options;
use local_cluster::container::sums_in;
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use otctl_types::condition::READY;
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::workspace::{Phase, WorkspaceStatus};
use serde_json::{Value, json};
use testbed::check;
use testbed::world::{Verb, Version};

use super::LABS;
use super::healing;
use super::labs::Labs;
use crate::stage::{told, well_behaved};
use crate::timeline::Timeline;

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
const DISK: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_made_before_its_images_becomes_ready_by_itself_and_in_order() {
    let mut labs = Labs::set(&[("concurrency", "2")], Options::default()).await;
    let mut timeline = Timeline::of_workspaces(&labs.stage.client).await;
    labs.start();

    labs.create("lab", lab(&labs, "lab")).await;
    waits_for_its_image(&labs, "lab").await;
    labs.stage.create(&image(&labs, "lab-files", 2)).await;
    let words = labs.says("lab", READY, "KubeVirtNotInstalled").await;
    assert!(words.contains("install it, and this goes on by itself"), "{words}");
    let _kubevirt = labs.stage.cluster().install_kubevirt().await.unwrap();
    expect_in_the_users_form(&labs.is("lab", Phase::Ready).await);
    for (machine, seed) in [("db", 1), ("files", 2)] {
        let sum = Content::generated(SIZE, seed).disk_hash(DISK).unwrap().hex();
        assert_eq!(disk_of(&labs, "lab", machine).await, [sum], "the bytes of {machine}");
    }

    timeline.watch_machines().await;
    labs.create("next", lab(&labs, "next")).await;
    waits_for_its_image(&labs, "next").await;
    labs.stage.create(&image(&labs, "next-files", 2)).await;
    labs.is("next", Phase::Ready).await;
    expect_nothing_written_by_a_restart(&mut labs).await;

    let history = timeline.history().await;
    check::expect_none(&check::turns::intact(&history));
    check::expect_none(&check::turns::made_in_turns(&history));
    check::expect_none(&check::parts::intact(&history));
    expect_order(&history, "next");
    expect_labels_from_birth(&history);
    healing::every_child_that_is_deleted_comes_back_alone(&labs).await;
    healing::every_field_of_ours_is_put_right_alone(&labs).await;
    healing::no_child_goes_when_the_garbage_collector_is_restarted(&mut labs).await;
    labs.finish_but(|_| false).await;
}

/// Two machines, of which one brings its image, and three containers.
fn lab(labs: &Labs, name: &str) -> Value {
    let own = format!("{name}-db");
    labs.stage.server.add(&own, Content::generated(SIZE, 1));
    labs.stage.server.behave(&own, well_behaved()).unwrap();
    let instance = |port: u16| json!({"memory": "64Mi", "ports": [{"port": port}]});
    json!({
        "namespace": LABS,
        "virtualMachines": [
            {"name": "db", "spec": {
                "VMDiskImageName": own, "instance": instance(5432),
                "image": {
                    "url": labs.stage.server.url(&own), "sourceType": "http", "diskSize": "1Mi",
                    "storageClass": IMMEDIATE_CLASS, "snapshotClass": SNAPSHOT_CLASS,
                },
            }},
            {"name": "files", "spec": {
                "VMDiskImageName": format!("{name}-files"), "instance": instance(2049),
            }},
        ],
        "containers": [
            {"name": "web", "image": "example.com/web:1", "replicas": 2, "ports": [{"containerPort": 8080}]},
            {"name": "api", "image": "example.com/web:2", "ports": [{"containerPort": 9090}]},
            {"name": "worker", "image": "example.com/web:1"},
        ],
        "network": null,
    })
}

fn image(labs: &Labs, name: &str, seed: u64) -> otctl_types::VMDiskImage {
    let mut image = labs.stage.image(name, Content::generated(SIZE, seed), well_behaved());
    image.spec.secret_ref = None;
    image
}

/// It says which image it waits for and both ways out, and makes nothing that runs.
async fn waits_for_its_image(labs: &Labs, name: &str) {
    let words = labs.says(name, READY, "ImageNotFound").await;
    assert!(words.contains(&format!("{name}-files")), "{words}");
    labs.is(name, Phase::Provisioning).await;
    assert_eq!(labs.children(name).await.len(), 0);
}

fn expect_in_the_users_form(status: &WorkspaceStatus) {
    let status = serde_json::to_value(status).unwrap();
    let parts = &status["resourceStatus"];
    let of = |list: &str, fields: [&str; 3]| -> Vec<String> {
        let told = |part: &Value| fields.map(|field| part[field].as_str().unwrap()).join(" ");
        parts[list].as_array().unwrap().iter().map(told).collect()
    };
    assert_eq!(status["readyParts"], "5/5");
    assert_eq!(
        of("virtualMachines", ["name", "phase", "machine"]),
        ["db Succeeded Running", "files Succeeded Running"]
    );
    assert_eq!(
        of("containers", ["name", "status", "service"]),
        ["web Running lab--web", "api Running lab--api", "worker Running lab--worker"]
    );
    assert_eq!(parts["network"]["policy"], "lab--network");
    let conditions = status["conditions"].as_array().unwrap().iter();
    let told = |it: &Value| {
        let [kind, status, reason] =
            ["type", "status", "reason"].map(|field| it[field].as_str().unwrap());
        format!("{kind}={status}/{reason}")
    };
    let conditions: Vec<String> = conditions.map(told).collect();
    assert_eq!(
        conditions,
        [
            "Accepted=True/Accepted",
            "Admitted=True/Admitted",
            "CreatingWorks=False/AllCreated",
            "NetworkReady=True/Isolated",
            "ImagesReady=True/AllReady",
            "VirtualMachinesReady=True/AllReady",
            "ContainersReady=True/AllReady",
            "Ready=True/AllReady",
        ]
    );
}

/// What the machine of an entry has read from its disk.
async fn disk_of(labs: &Labs, workspace: &str, machine: &str) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(labs.stage.client.clone(), LABS);
    let prefix = format!("virt-launcher-{workspace}--{machine}-");
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let pod = pods.into_iter().find(|pod| pod.name_any().starts_with(&prefix)).unwrap();
    let node = pod.spec.as_ref().unwrap().node_name.as_deref();
    let node = labs.stage.cluster().nodes().iter().find(|it| Some(it.name()) == node).unwrap();
    let log = fs::read_to_string(node.kept_log(&pod)).unwrap();
    sums_in(&log).into_iter().map(str::to_owned).collect()
}

/// One that is made later is ready, so everything was looked at, and of those that were ready nothing was written.
async fn expect_nothing_written_by_a_restart(labs: &mut Labs) {
    labs.kill().await;
    let mark = labs.stage.mark();
    labs.start();
    labs.create("later", json!({"containers": [{"name": "web", "image": "example.com/web:1"}]}))
        .await;
    labs.is("later", Phase::Ready).await;
    let writes = labs.writes(mark);
    assert!(writes.len() > 4, "the one that is made later is written of");
    let others =
        writes.iter().filter(|it| it.name.starts_with("lab") || it.name.starts_with("next"));
    let others: Vec<String> = others.map(told).collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// Every step was taken, one after the other.
fn expect_order(history: &[Version], name: &str) {
    let steps = check::steps::of_workspace(history, name);
    assert_eq!(steps.len(), 7, "{steps:#?}");
    assert!(steps.is_sorted_by_key(|(_, revision)| revision), "{steps:#?}");
}

/// Every pod that came from a workspace: 6 of each of the first two, one of the last.
fn expect_labels_from_birth(history: &[Version]) {
    let births = history.iter().filter(|it| it.id.kind == "Pod" && it.verb == Verb::Created);
    let labelled = births.filter(|it| !it.object["metadata"]["labels"][WORKSPACE_LABEL].is_null());
    let pods: BTreeSet<_> = labelled.map(|it| it.object["metadata"]["uid"].as_str()).collect();
    assert_eq!(pods.len(), 13);
}
