//! The Node object and its lease.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::{NodeContext, Room};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Creates the Node if it is not there and reports it Ready, with a fresh lease.
pub(super) async fn register(context: &NodeContext) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    match nodes.create(&PostParams::default(), &node(&context.name)).await {
        Err(kube::Error::Api(answer)) if answer.is_already_exists() => {}
        other => drop(other?),
    }
    report_ready(context).await?;
    renew_lease(context).await
}

/// Renews the lease, and reports the node Ready again whenever somebody has said otherwise.
pub(super) async fn keep(context: Arc<NodeContext>) {
    let mut beat = tokio::time::interval(context.heartbeat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        context.link.up().await;
        if let Err(error) = beat_once(&context).await {
            tracing::debug!(%error, node = context.name, "a heartbeat was lost");
        }
    }
}

async fn beat_once(context: &NodeContext) -> Result<(), kube::Error> {
    renew_lease(context).await?;
    let nodes: Api<Node> = Api::all(context.client.clone());
    let seen_ready = nodes.get_opt(&context.name).await?.is_none_or(|node| is_ready(&node));
    if seen_ready { Ok(()) } else { report_ready(context).await }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

pub(super) async fn report_ready(context: &NodeContext) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let patch = Patch::Strategic(json!({"status": status(context)}));
    nodes.patch_status(&context.name, &PatchParams::default(), &patch).await.map(drop)
}

async fn renew_lease(context: &NodeContext) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), LEASE_NAMESPACE);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": context.name},
        "spec": {
            "holderIdentity": context.name,
            "leaseDurationSeconds": context.heartbeat.as_secs().max(1) * 4,
            "renewTime": MicroTime(Timestamp::now()),
        },
    });
    let params = PatchParams::apply("kubelet").force();
    leases.patch(&context.name, &params, &Patch::Apply(&lease)).await.map(drop)
}

fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", std::env::consts::OS),
        ("kubernetes.io/arch", go_architecture()),
    ];
    node.metadata.labels =
        Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    node
}

/// The architecture as Kubernetes names it.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn status(context: &NodeContext) -> Value {
    let Room { cpu, memory } = context.room();
    let room = json!({"cpu": cpu, "memory": memory, "ephemeral-storage": "200Gi", "pods": "110"});
    json!({
        "capacity": room,
        "allocatable": room,
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": context.name},
        ],
        "conditions": conditions(),
        "nodeInfo": {
            "architecture": go_architecture(),
            "operatingSystem": std::env::consts::OS,
            "kubeletVersion": "v1.34.3",
            "containerRuntimeVersion": "process://1",
            "osImage": "process node",
            "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "systemUUID": "",
        },
    })
}

fn conditions() -> Value {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!([
        condition("Ready", "True", "KubeletReady"),
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
    ])
}
