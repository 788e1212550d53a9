//! Who reaches whom under network policies, as Kubernetes defines it: a pod that no policy is about in a direction is open
//! in it; one that some are about is open to what any of them lets through. Both ends must agree.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Labels, is_about, matches, selects};

/// An end of a connection.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// Its namespace and labels; none of something outside of the cluster.
    pub(super) pod: Option<(&'static str, Labels)>,
    pub(super) address: IpAddr,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door {
    pub(super) protocol: &'static str,
    pub(super) port: i32,
}

/// A cluster: the labels of its namespaces, and its policies.
pub(super) struct Net {
    pub(super) namespaces: BTreeMap<&'static str, Labels>,
    pub(super) policies: Vec<NetworkPolicy>,
}

impl Net {
    pub(super) fn reaches(&self, from: &End, to: &End, door: Door) -> bool {
        self.lets(from, to, "Egress", door) && self.lets(to, from, "Ingress", door)
    }

    /// Whether the policies about `pod` let it talk with `other` in a direction.
    fn lets(&self, pod: &End, other: &End, direction: &str, door: Door) -> bool {
        let Some((namespace, labels)) = &pod.pod else { return true };
        let specs = self.policies.iter().filter_map(|policy| {
            let is_here = policy.metadata.namespace.as_deref() == Some(namespace);
            policy.spec.as_ref().filter(|spec| is_here && selects(spec, labels))
        });
        let about: Vec<_> = specs.filter(|spec| is_about(spec, direction)).collect();
        about.is_empty()
            || about.iter().any(|spec| self.rules_let(spec, namespace, other, direction, door))
    }

    fn rules_let(
        &self,
        spec: &NetworkPolicySpec,
        namespace: &str,
        other: &End,
        direction: &str,
        door: Door,
    ) -> bool {
        let ingress = spec.ingress.iter().flatten().map(|rule| (&rule.from, &rule.ports));
        let egress = spec.egress.iter().flatten().map(|rule| (&rule.to, &rule.ports));
        let mut rules: Vec<_> =
            if direction == "Ingress" { ingress.collect() } else { egress.collect() };
        rules.retain(|(_, ports)| {
            let named = ports.as_deref().unwrap_or_default();
            named.is_empty() || named.iter().any(|port| opens(port, door))
        });
        rules.iter().any(|(peers, _)| match peers {
            None => true,
            Some(peers) => {
                peers.is_empty() || peers.iter().any(|peer| self.is_peer(peer, namespace, other))
            }
        })
    }

    fn is_peer(&self, peer: &NetworkPolicyPeer, namespace: &str, other: &End) -> bool {
        if let Some(block) = &peer.ip_block {
            return is_in(block, other.address);
        }
        let Some((theirs, labels)) = &other.pod else { return false };
        let is_namespace = match &peer.namespace_selector {
            Some(selector) => matches(selector, &self.namespaces[theirs]),
            None => *theirs == namespace,
        };
        is_namespace && peer.pod_selector.as_ref().is_none_or(|selector| matches(selector, labels))
    }
}

fn opens(port: &NetworkPolicyPort, door: Door) -> bool {
    let is_protocol = port.protocol.as_deref().unwrap_or("TCP") == door.protocol;
    let first = match &port.port {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => panic!("no policy of ours names a port: {name}"),
        None => return is_protocol,
    };
    is_protocol && (first..=port.end_port.unwrap_or(first)).contains(&door.port)
}

fn is_in(block: &IPBlock, address: IpAddr) -> bool {
    let holds = |cidr: &String| cidr.parse::<IpNet>().unwrap().contains(&address);
    holds(&block.cidr) && !block.except.iter().flatten().any(holds)
}
