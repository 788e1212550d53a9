//! What a workspace says is what Kubernetes reads: its parts become parts of Kubernetes' kinds by their JSON.

use k8s_openapi::api::core::v1::{self as core, LocalObjectReference, Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use otctl_types::Workspace;
use otctl_types::workspace::container::Container;
use otctl_types::workspace::network::Peer;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::full;
use crate::judge::schema;
use crate::support::Kubectl;

fn workspace() -> Workspace {
    serde_json::from_value(full()).unwrap()
}

/// The same as a type of Kubernetes, which must lose nothing of it.
fn taken_as<T: Serialize + DeserializeOwned>(ours: &impl Serialize) -> T {
    let ours = serde_json::to_value(ours).unwrap();
    let theirs: T = serde_json::from_value(ours.clone()).unwrap();
    assert_eq!(serde_json::to_value(&theirs).unwrap(), ours);
    theirs
}

/// Two fields of an entry are of the Deployment and of the pod.
fn container(entry: &Container) -> core::Container {
    let mut entry = serde_json::to_value(entry).unwrap();
    for field in ["replicas", "imagePullSecrets"] {
        entry.as_object_mut().unwrap().remove(field);
    }
    taken_as(&entry)
}

fn pod(entry: &Container) -> Pod {
    let secrets: Vec<LocalObjectReference> =
        entry.image_pull_secrets.iter().map(taken_as).collect();
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": entry.name},
        "spec": {"containers": [container(entry)], "imagePullSecrets": secrets},
    }))
    .unwrap()
}

fn peer(peer: &Peer) -> Value {
    let selector = |selector: &Option<_>| selector.as_ref().map(taken_as::<LabelSelector>);
    match &peer.cidr {
        Some(cidr) => json!({"ipBlock": {"cidr": cidr}}),
        None => json!({
            "namespaceSelector": selector(&peer.namespace_selector),
            "podSelector": selector(&peer.pod_selector),
        }),
    }
}

#[test]
fn a_container_is_one_of_kubernetes() {
    for entry in &workspace().spec.containers {
        assert_eq!(container(entry).name, entry.name);
    }
}

#[tokio::test]
async fn a_pod_of_any_container_meets_the_baseline() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("baseline").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(kubectl.cluster.admin());
    let enforce =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(&enforce)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(kubectl.cluster.admin(), &namespace);

    let entry =
        |field: &str| format!("/properties/spec/properties/containers/items/properties/{field}");
    let allowed = entry("securityContext/properties/capabilities/properties/add/items/enum");
    let mut with_all = workspace().spec.containers[0].clone();
    let capabilities = with_all.security_context.as_mut().unwrap().capabilities.as_mut().unwrap();
    capabilities.add =
        serde_json::from_value(schema("Workspace").pointer(&allowed).unwrap().clone()).unwrap();
    assert_eq!(capabilities.add.len(), 13);

    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for entry in workspace().spec.containers.iter().chain([&with_all]) {
        pods.create(&dry_run, &pod(entry)).await.unwrap();
    }
    let mut privileged = pod(&with_all);
    let mut add = privileged.spec.unwrap();
    let context = add.containers[0].security_context.as_mut().unwrap();
    context.capabilities.as_mut().unwrap().add = Some(vec!["SYS_ADMIN".to_owned()]);
    privileged.spec = Some(add);
    let refusal = pods.create(&dry_run, &privileged).await.unwrap_err().to_string();
    assert!(refusal.contains("violates PodSecurity"), "{refusal}");
}

#[tokio::test]
async fn doors_are_those_of_a_network_policy() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("doors").await.unwrap();
    let network = workspace().spec.network;
    let ports = |ports: &[_]| ports.iter().map(taken_as::<NetworkPolicyPort>).collect::<Vec<_>>();
    let ingress: Vec<_> = network
        .ingress
        .iter()
        .map(|door| json!({"from": [peer(&door.from)], "ports": ports(&door.ports)}))
        .collect();
    let egress: Vec<_> = network
        .egress
        .iter()
        .map(|door| json!({"to": [peer(&door.to)], "ports": ports(&door.ports)}))
        .collect();
    let policy: NetworkPolicy = serde_json::from_value(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "doors"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress},
    }))
    .unwrap();
    let policies: Api<NetworkPolicy> = Api::namespaced(kubectl.cluster.admin(), &namespace);
    let stored = policies.create(&PostParams::default(), &policy).await.unwrap();
    assert_eq!(stored.spec, policy.spec);
}
