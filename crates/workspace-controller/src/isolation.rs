//! Whether a workspace is as isolated as its network policy says. Policies add up: each that selects a pod can only let
//! more through to it, and so undo what another shuts.

mod wider;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;

use self::wider::is_wider;
use crate::machines::VirtualMachine;

/// The annotation by which Multus is asked for secondary networks.
const MULTUS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";

type Labels = BTreeMap<String, String>;

/// Names of the policies that let through to pods of a workspace what `own`, its own policy, does not. `policies` are all
/// of its namespace, `pods` the labels of its pods; before there are any, the labels count that all of them will have.
pub fn weakened_by(
    policies: &[Arc<NetworkPolicy>],
    own: &NetworkPolicy,
    pods: &[Labels],
) -> Vec<String> {
    let Some(ours) = &own.spec else { return Vec::new() };
    let common = ours.pod_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    let common = common.filter(|_| pods.is_empty());
    let concerns = |policy: &&Arc<NetworkPolicy>| {
        let is_other =
            policy.metadata.uid != own.metadata.uid || policy.name_any() != own.name_any();
        let spec = policy.spec.as_ref().filter(|spec| is_other && is_wider(spec, ours));
        spec.is_some_and(|spec| common.into_iter().chain(pods).any(|pod| selects(spec, pod)))
    };
    let mut names: Vec<_> =
        policies.iter().filter(concerns).map(|policy| policy.name_any()).collect();
    names.sort();
    names.dedup();
    names
}

/// A policy that names no direction is about what comes in, and about what goes out where it has rules for that.
pub(crate) fn is_about(spec: &NetworkPolicySpec, direction: &str) -> bool {
    match spec.policy_types.as_deref() {
        Some([]) | None => {
            direction == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty())
        }
        Some(types) => types.iter().any(|it| it == direction),
    }
}

pub(crate) fn selects(spec: &NetworkPolicySpec, pod: &Labels) -> bool {
    spec.pod_selector.as_ref().is_none_or(|selector| matches(selector, pod))
}

/// Whether an object with these labels is selected. A requirement that Kubernetes does not know selects nothing.
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut pairs = selector.match_labels.iter().flatten();
    let mut requirements = selector.match_expressions.iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && requirements.all(|requirement| is_met(requirement, labels))
}

fn is_met(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let is_listed =
        || value.is_some_and(|it| requirement.values.iter().flatten().any(|other| other == it));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// Whether a machine is connected to a network besides that of the pods, to which no network policy applies.
pub fn has_secondary_network(machine: &VirtualMachine) -> bool {
    let template = &machine.spec.template;
    let mut networks = template.spec.networks.iter().flatten();
    let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    networks.any(|network| network.pod.is_none())
        || annotations.is_some_and(|all| all.contains_key(MULTUS_ANNOTATION))
}

#[cfg(test)]
mod reach;
#[cfg(test)]
mod tests;
