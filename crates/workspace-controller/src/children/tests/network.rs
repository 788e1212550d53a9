//! What a network policy lets through.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use otctl_types::workspace::Network;
use otctl_types::workspace::network::{Egress, Peer, Selector};

use super::*;

#[test]
fn a_workspace_without_a_network_is_isolated_and_may_look_names_up() {
    let closed = full().with(|it| it.workspace.spec.network = Network::default());
    let spec = network_policy(&closed.facts()).spec.unwrap();
    assert_eq!(spec.policy_types.unwrap(), ["Ingress", "Egress"]);
    let (ingress, egress) = (spec.ingress.unwrap(), spec.egress.unwrap());
    assert_eq!((ingress.len(), egress.len()), (1, 2), "its own pods; those and DNS");
}

#[test]
fn without_lookups_a_workspace_reaches_its_own_pods_alone() {
    let quiet = full().with(|it| {
        let network = &mut it.workspace.spec.network;
        network.dns = false;
        network.egress.clear();
    });
    let egress = network_policy(&quiet.facts()).spec.unwrap().egress.unwrap();
    let own = names::workspace_selector(&quiet.facts().uid());
    let [rule] = egress.as_slice() else { panic!("{egress:?}") };
    let to = rule.to.as_ref().unwrap();
    assert_eq!(to.len(), 1);
    assert_eq!(to[0].pod_selector.as_ref().unwrap().match_labels, Some(own));
}

#[test]
fn a_door_that_leads_nowhere_is_left_out_and_opens_nothing() {
    let metadata = Peer { cidr: Some("169.254.169.254/32".to_owned()), ..Peer::default() };
    let closed = full().with(|it| {
        let doors = [metadata, Peer::default()].map(|to| Egress { to, ports: Vec::new() });
        it.workspace.spec.network.egress = doors.into();
    });
    let egress = network_policy(&closed.facts()).spec.unwrap().egress.unwrap();
    assert_eq!(egress.len(), 2);
    assert!(egress.iter().all(|rule| rule.to.as_ref().is_some_and(|to| !to.is_empty())));
}

#[test]
fn doors_to_all_pods_say_so() {
    let open = full().with(|it| {
        let selector = Some(Selector::default());
        let to = Peer { namespace_selector: selector, ..Peer::default() };
        it.workspace.spec.network.egress = vec![Egress { to, ports: Vec::new() }];
    });
    let egress = network_policy(&open.facts()).spec.unwrap().egress.unwrap();
    let door = &egress.last().unwrap().to.as_ref().unwrap()[0];
    assert_eq!(door.namespace_selector, Some(LabelSelector::default()));
    assert_eq!(door.pod_selector, None);
}
