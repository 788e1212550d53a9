//! The policy that cuts the pods of a workspace off from everything but each other, lookups of names, and its doors.
//!
//! All of it is said in every field, and in an order that does not depend on the spec's: it is compared as a whole.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use otctl_types::workspace::Network;
use serde::Serialize;

use super::{Facts, door};
use crate::config::Settings;
use crate::names::{self, Component};

/// The label that Kubernetes itself puts on every namespace: its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The network policy of an isolated workspace.
pub fn network_policy(facts: &Facts<'_>) -> NetworkPolicy {
    let name = names::policy_name(&facts.name(), &facts.uid());
    let network = &facts.workspace.spec.network;
    NetworkPolicy {
        metadata: facts.meta(name, Component::Network, None),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(own_pods(facts)),
            // Both, always: a policy that does not name a direction leaves it open.
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(ingress(facts, network)),
            egress: Some(egress(facts, network)),
        }),
    }
}

fn own_pods(facts: &Facts<'_>) -> LabelSelector {
    selecting(names::workspace_selector(&facts.uid()))
}

fn selecting(labels: std::collections::BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

fn pods(selector: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selector), ..NetworkPolicyPeer::default() }
}

fn ingress(facts: &Facts<'_>, network: &Network) -> Vec<NetworkPolicyIngressRule> {
    let rule = |from, ports| NetworkPolicyIngressRule { from: Some(vec![from]), ports };
    let own = rule(pods(own_pods(facts)), None);
    let from_outside = from_outside(facts.settings).map(|peer| rule(peer, None));
    let doors = network.ingress.iter();
    let doors = doors.filter_map(|it| Some(rule(door::peer(&it.from)?, door::ports(&it.ports))));
    [own].into_iter().chain(from_outside).chain(in_order(doors)).collect()
}

/// The pods that may reach every workspace: those of an ingress controller.
fn from_outside(settings: &Settings) -> Option<NetworkPolicyPeer> {
    let selection = settings.ingress_selector.as_ref()?;
    Some(NetworkPolicyPeer {
        namespace_selector: Some(selecting(selection.namespaces.0.clone())),
        pod_selector: selection.pods.as_ref().map(|labels| selecting(labels.0.clone())),
        ip_block: None,
    })
}

fn egress(facts: &Facts<'_>, network: &Network) -> Vec<NetworkPolicyEgressRule> {
    let own = NetworkPolicyEgressRule { to: Some(vec![pods(own_pods(facts))]), ports: None };
    let dns = network.dns.then(|| dns(facts.settings));
    let doors = network.egress.iter().filter_map(|it| {
        let to = Some(vec![door::peer(&it.to)?]);
        Some(NetworkPolicyEgressRule { to, ports: door::ports(&it.ports) })
    });
    [own].into_iter().chain(dns).chain(in_order(doors)).collect()
}

/// Lookups of names: at the cluster's DNS and at the caches before it.
fn dns(settings: &Settings) -> NetworkPolicyEgressRule {
    let namespace = (NAMESPACE_NAME_LABEL.to_owned(), settings.dns_namespace.clone());
    let cluster = NetworkPolicyPeer {
        namespace_selector: Some(selecting([namespace].into())),
        pod_selector: Some(selecting(settings.dns_pod_labels.0.clone())),
        ip_block: None,
    };
    let mut caches = settings.dns_cidrs.clone();
    caches.sort();
    caches.dedup();
    let caches = caches.into_iter().map(|cidr| door::block(cidr, None));
    let port = |protocol: &str| NetworkPolicyPort {
        port: Some(IntOrString::Int(settings.dns_port.into())),
        end_port: None,
        protocol: Some(protocol.to_owned()),
    };
    NetworkPolicyEgressRule {
        to: Some([cluster].into_iter().chain(caches).collect()),
        ports: Some(vec![port("TCP"), port("UDP")]),
    }
}

/// Each once, by what they say.
fn in_order<R: Serialize>(rules: impl Iterator<Item = R>) -> impl Iterator<Item = R> {
    let text = |rule: &R| serde_json::to_string(rule).expect("a Kubernetes object serialises");
    let mut rules: Vec<_> = rules.map(|rule| (text(&rule), rule)).collect();
    rules.sort_by(|(one, _), (other, _)| one.cmp(other));
    rules.dedup_by(|(one, _), (other, _)| one == other);
    rules.into_iter().map(|(_, rule)| rule)
}
