//! The workspace of the demo: what is asked for, and what its machines read from their disks.

use std::collections::BTreeMap;

use anyhow::Context as _;
use image_server::ImageServer;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use local_cluster::container::sums_in;
use local_cluster::node::ProcessNode;
use otctl_types::Workspace;
use otctl_types::names::ENTRY_LABEL;
use serde_json::json;

use super::scenario::{AWAITED, MADE, NAMESPACE, Scene};
use crate::local::{API_SERVER, WEB};

/// Its name.
pub(crate) const NAME: &str = "lab";
/// `workspaceConcurrency` of the demo's policy.
pub(crate) const CONCURRENCY: usize = 1;
/// Its virtual machines, and the image of each.
pub(crate) const MACHINES: [(&str, &str); 2] = [("database", AWAITED), ("analytics", MADE)];
/// Its containers, and the image of each.
const CONTAINERS: [(&str, &str); 2] = [("api-server", API_SERVER), ("web", WEB)];
/// Entries, each with one pod.
pub(crate) const PARTS: usize = MACHINES.len() + CONTAINERS.len();

/// What marks the pods in which KubeVirt runs machines.
const LAUNCHERS: &str = "kubevirt.io=virt-launcher";

/// What each machine read its disk to be, by the name of its entry: 64 hexadecimal digits, or why they are not known.
pub(crate) type Disks = BTreeMap<String, Result<String, String>>;

/// The object that asks for it.
pub(crate) fn workspace(server: &ImageServer, scenes: &[Scene]) -> serde_json::Result<Workspace> {
    let made = scenes.iter().find(|scene| scene.is_of_workspace).map(|scene| scene.spec(server));
    let instance = json!({"memory": "64Mi", "ports": [{"port": 5432}]});
    let [(database, awaited), (analytics, of_workspace)] = MACHINES;
    let containers = CONTAINERS.map(
        |(name, image)| json!({"name": name, "image": image, "ports": [{"containerPort": 8080}]}),
    );
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "virtualMachines": [
                {"name": database, "spec": {"VMDiskImageName": awaited, "instance": instance}},
                {"name": analytics, "spec": {"VMDiskImageName": of_workspace, "image": made, "instance": instance}},
            ],
            "containers": containers,
        },
    }))
}

/// What its machines read, as the pods in which they run have told it.
pub(crate) async fn disks(client: &Client, nodes: &[ProcessNode]) -> anyhow::Result<Disks> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let launchers = pods.list(&ListParams::default().labels(LAUNCHERS)).await;
    let launchers = launchers.context("the pods of machines cannot be listed")?;
    let read = launchers.iter().filter_map(|pod| {
        let entry = pod.labels().get(ENTRY_LABEL)?.clone();
        Some((entry, sum(pod, nodes).map_err(|error| format!("{error:#}"))))
    });
    Ok(read.collect())
}

/// What is said of the disk in the output of a launcher.
fn sum(launcher: &Pod, nodes: &[ProcessNode]) -> anyhow::Result<String> {
    let name = launcher.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let node = nodes.iter().find(|node| Some(node.name()) == name).context("it is on no node")?;
    let output = std::fs::read_to_string(node.kept_log(launcher)).context("it has no output")?;
    let sums = sums_in(&output);
    sums.last().map(|sum| (*sum).to_owned()).context("it has told of no disk")
}
