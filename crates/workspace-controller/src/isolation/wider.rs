//! Whether a network policy lets through what another one does not. What cannot be compared counts as more.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::is_about;

/// Whether `other` lets anything through that `own` does not, in a direction that it is about. One that only shuts widens
/// nothing. Both are of one namespace, and `own` is about both directions.
pub(super) fn is_wider(other: &NetworkPolicySpec, own: &NetworkPolicySpec) -> bool {
    ["Ingress", "Egress"].into_iter().any(|direction| {
        let own = rules(own, direction);
        is_about(other, direction) && rules(other, direction).iter().any(|it| !it.is_within(&own))
    })
}

/// Whom and what a rule lets through; nobody named is everybody, and no port is every port.
struct Rule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

fn rules<'a>(spec: &'a NetworkPolicySpec, direction: &str) -> Vec<Rule<'a>> {
    let ingress = spec.ingress.iter().flatten().map(|rule| (&rule.from, &rule.ports));
    let egress = spec.egress.iter().flatten().map(|rule| (&rule.to, &rule.ports));
    let rules: Vec<_> = if direction == "Ingress" { ingress.collect() } else { egress.collect() };
    let rule = |(peers, ports): (&'a Option<Vec<_>>, &'a Option<Vec<_>>)| Rule {
        peers: peers.as_deref().unwrap_or_default(),
        ports: ports.as_deref().unwrap_or_default(),
    };
    rules.into_iter().map(rule).collect()
}

impl Rule<'_> {
    /// Each peer with each port counts for itself: another rule may let each of them through.
    fn is_within(&self, own: &[Rule<'_>]) -> bool {
        let mut pairs = each(self.peers)
            .into_iter()
            .flat_map(|peer| each(self.ports).into_iter().map(move |port| (peer, port)));
        pairs.all(|(peer, port)| own.iter().any(|rule| rule.takes(peer, port)))
    }

    fn takes(&self, peer: Option<&NetworkPolicyPeer>, port: Option<&NetworkPolicyPort>) -> bool {
        let takes_peer = |peer| self.peers.iter().any(|wide| is_peer_within(peer, wide));
        let takes_port = |port| self.ports.iter().any(|wide| is_port_within(port, wide));
        (self.peers.is_empty() || peer.is_some_and(takes_peer))
            && (self.ports.is_empty() || port.is_some_and(takes_port))
    }
}

/// One by one, or all at once where none is named.
fn each<T>(named: &[T]) -> Vec<Option<&T>> {
    if named.is_empty() { vec![None] } else { named.iter().map(Some).collect() }
}

fn is_peer_within(peer: &NetworkPolicyPeer, wide: &NetworkPolicyPeer) -> bool {
    match (&peer.ip_block, &wide.ip_block) {
        (Some(block), Some(wide)) => is_block_within(block, wide).unwrap_or(false),
        (None, None) => {
            is_namespace_within(peer.namespace_selector.as_ref(), wide.namespace_selector.as_ref())
                && wide
                    .pod_selector
                    .as_ref()
                    .is_none_or(|wide| selects_no_more(peer.pod_selector.as_ref(), wide))
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Without a selector it is the namespace of the policy, of which no label is known here.
fn is_namespace_within(selector: Option<&LabelSelector>, wide: Option<&LabelSelector>) -> bool {
    match (selector, wide) {
        (_, Some(wide)) => selects_no_more(selector, wide),
        (None, None) => true,
        (Some(_), None) => false,
    }
}

/// None when one of them is no block of addresses.
fn is_block_within(block: &IPBlock, wide: &IPBlock) -> Option<bool> {
    let (inner, outer): (IpNet, IpNet) = (block.cidr.parse().ok()?, wide.cidr.parse().ok()?);
    let read = |block: &IPBlock| -> Option<Vec<IpNet>> {
        block.except.iter().flatten().map(|it| it.parse().ok()).collect()
    };
    let (left_out, cut) = (read(block)?, read(wide)?);
    let is_kept = |cut: &IpNet| {
        let is_apart = !cut.contains(&inner) && !inner.contains(cut);
        is_apart || left_out.iter().any(|it| it.contains(cut))
    };
    Some(outer.contains(&inner) && cut.iter().all(is_kept))
}

fn is_port_within(port: &NetworkPolicyPort, wide: &NetworkPolicyPort) -> bool {
    let protocol =
        |port: &NetworkPolicyPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let is_number_within = match (&port.port, &wide.port) {
        (_, None) => true,
        (Some(IntOrString::Int(first)), Some(IntOrString::Int(least))) => {
            let last = port.end_port.unwrap_or(*first);
            least <= first && last <= wide.end_port.unwrap_or(*least)
        }
        (one, other) => one == other,
    };
    protocol(port) == protocol(wide) && is_number_within
}

/// Whether whatever `selector` selects, `wide` does as well: each requirement of that follows from one of this.
fn selects_no_more(selector: Option<&LabelSelector>, wide: &LabelSelector) -> bool {
    let known = selector.map(requirements).unwrap_or_default();
    requirements(wide).iter().all(|wanted| known.iter().any(|it| follows(wanted, it)))
}

/// A label is a requirement with one value.
fn requirements(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    });
    labels.chain(selector.match_expressions.iter().flatten().cloned()).collect()
}

fn follows(wanted: &LabelSelectorRequirement, known: &LabelSelectorRequirement) -> bool {
    let values = |it: &LabelSelectorRequirement| it.values.clone().unwrap_or_default();
    let (of_wanted, of_known) = (values(wanted), values(known));
    wanted.key == known.key
        && match (known.operator.as_str(), wanted.operator.as_str()) {
            ("In", "In") => of_known.iter().all(|it| of_wanted.contains(it)),
            ("In", "NotIn") => !of_known.iter().any(|it| of_wanted.contains(it)),
            ("NotIn", "NotIn") => of_wanted.iter().all(|it| of_known.contains(it)),
            ("In" | "Exists", "Exists") | ("DoesNotExist", "DoesNotExist" | "NotIn") => true,
            _ => false,
        }
}
