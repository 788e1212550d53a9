//! Each child as a whole, and what must hold of it whatever the spec says.

mod claims;
mod network;
mod services;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container as PodContainer, PodSpec};
use otctl_kit::cluster::erase;
use otctl_types::names::REVISION_ANNOTATION;
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::workspace::security::Capability;
use otctl_types::workspace::{Container, ImageRetention, RunStrategy};

use super::claim::claim;
use super::deployment::deployment;
use super::fixture::{Fixture, current, full};
use super::host_aliases::host_aliases;
use super::image::image;
use super::machine::{Power, machine};
use super::network_policy::network_policy;
use super::*;

fn addresses() -> BTreeMap<String, String> {
    let pair = |(entry, address): (&str, &str)| (entry.to_owned(), address.to_owned());
    [("api-server", "10.96.0.7"), ("attacker", "10.96.0.8")].map(pair).into()
}

fn made(fixture: &Fixture, name: &str) -> Deployment {
    let entry = fixture.container(name);
    deployment(&fixture.facts(), entry, entry.replicas, host_aliases(&addresses()))
}

fn pods(deployment: &Deployment) -> &PodSpec {
    deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn container(deployment: &Deployment) -> &PodContainer {
    &pods(deployment).containers[0]
}

#[test]
fn the_network_policy() {
    let whole = full().with(|it| {
        it.settings.dns_cidrs = vec!["169.254.20.10/32".parse().unwrap()];
        it.settings.ingress_selector =
            Some("kubernetes.io/metadata.name=ingress/app=nginx".parse().unwrap());
    });
    insta::assert_yaml_snapshot!(network_policy(&whole.facts()));
}

#[test]
fn the_service_of_a_container() {
    let whole = full();
    let made = service::of_container(&whole.facts(), whole.container("api-server"), None);
    insta::assert_yaml_snapshot!(made);
}

#[test]
fn the_service_of_a_machine() {
    let whole = full();
    let made = service::of_machine(&whole.facts(), whole.machine("attacker"), Some("10.96.0.8"));
    insta::assert_yaml_snapshot!(made);
}

#[test]
fn the_service_of_an_entry_without_ports() {
    let whole = full();
    let made = service::of_container(&whole.facts(), whole.container("worker"), Some("10.96.0.9"));
    insta::assert_yaml_snapshot!(made);
}

#[test]
fn the_deployment_of_a_container() {
    insta::assert_yaml_snapshot!(made(&full(), "api-server"));
}

#[test]
fn the_deployment_of_a_container_of_which_nothing_is_said() {
    insta::assert_yaml_snapshot!(made(&full(), "worker"));
}

#[test]
fn the_claim_of_a_machine() {
    let whole = full();
    let image = whole.image("attacker", current());
    let made = claim(&whole.facts(), whole.machine("attacker"), &image);
    insta::assert_yaml_snapshot!(made);
}

#[test]
fn the_machine() {
    let whole = full();
    let made = machine(&whole.facts(), whole.instance("attacker"), "disk-1", Power::AsAsked);
    insta::assert_yaml_snapshot!(erase(&made));
}

#[test]
fn the_machine_of_an_instance_type_and_a_preference() {
    let whole = full();
    let made = machine(&whole.facts(), whole.instance("victim"), "disk-2", Power::AsAsked);
    insta::assert_yaml_snapshot!(erase(&made));
}

#[test]
fn the_image() {
    let whole = full();
    insta::assert_yaml_snapshot!(image(&whole.facts(), whole.machine("attacker")));
}

#[test]
fn an_entry_that_brings_no_image_makes_none() {
    let whole = full();
    assert!(image(&whole.facts(), whole.machine("victim")).is_none());
}

#[test]
fn images_are_owned_only_where_they_are_to_go_with_their_workspaces() {
    let whole = full();
    let owner = image::owner_reference(&whole.workspace);
    assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
    let kept = whole.with(|it| it.workspace.spec.image_retention = ImageRetention::Retain);
    let made = image(&kept.facts(), kept.machine("attacker")).unwrap();
    assert!(made.metadata.owner_references.is_none() && image::is_made_by_workspace(&made));
}

#[test]
fn every_child_but_an_image_is_the_workspaces_own_and_none_carries_the_guarded_label() {
    let whole = full();
    let facts = whole.facts();
    let (attacker, worker) = (whole.machine("attacker"), whole.container("worker"));
    let claim = claim(&facts, attacker, &whole.image("attacker", current())).unwrap();
    let machine = machine(&facts, whole.instance("attacker"), "disk", Power::AsAsked);
    for child in [
        erase(&network_policy(&facts)),
        erase(&service::of_container(&facts, worker, None)),
        erase(&service::of_machine(&facts, attacker, None)),
        erase(&made(&whole, "worker")),
        erase(&claim),
        erase(&machine),
    ] {
        let owner = &child.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), &owner.uid), ("Workspace", &whole.facts().uid()));
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        assert!(!child.metadata.labels.as_ref().unwrap().contains_key(WORKSPACE_LABEL));
        assert_eq!(child.metadata.namespace.as_deref(), Some("labs"));
    }
}

#[test]
fn what_a_spec_says_in_another_order_is_the_same() {
    let other = full().with(|it| {
        let spec = &mut it.workspace.spec;
        spec.containers.reverse();
        spec.virtual_machines.reverse();
        for entry in &mut spec.containers {
            entry.ports.reverse();
            entry.image_pull_secrets.reverse();
            let context = entry.security_context.as_mut();
            if let Some(capabilities) = context.and_then(|it| it.capabilities.as_mut()) {
                capabilities.add.reverse();
            }
        }
        for entry in &mut spec.virtual_machines {
            entry.spec.instance.iter_mut().for_each(|instance| instance.ports.reverse());
        }
        let network = &mut spec.network;
        network.ingress.reverse();
        network.egress.reverse();
        let selectors = network.ingress.iter_mut().filter_map(|it| it.from.pod_selector.as_mut());
        selectors.flat_map(|it| &mut it.match_expressions).for_each(|it| it.values.reverse());
        network.ingress.iter_mut().for_each(|door| door.ports.reverse());
    });
    let whole = full();
    assert_eq!(network_policy(&whole.facts()), network_policy(&other.facts()));
    assert_eq!(made(&whole, "api-server"), made(&other, "api-server"));
    let of_container =
        |it: &Fixture| service::of_container(&it.facts(), it.container("api-server"), None);
    assert_eq!(of_container(&whole), of_container(&other));
    let of_machine = |it: &Fixture| service::of_machine(&it.facts(), it.machine("attacker"), None);
    assert_eq!(of_machine(&whole), of_machine(&other));
}

#[test]
fn variables_stay_in_the_order_in_which_they_refer_to_each_other() {
    let names = |fixture: &Fixture| -> Vec<_> {
        let made = made(fixture, "api-server");
        let variables = container(&made).env.clone().unwrap();
        variables.into_iter().map(|it| it.name).take(3).collect()
    };
    assert_eq!(names(&full()), ["EMPTY", "HOST", "ADDRESS"]);
    let moved = full().with(|it| it.workspace.spec.containers[0].env.swap(0, 2));
    assert_eq!(names(&moved), ["ADDRESS", "HOST", "EMPTY"]);
}

#[test]
fn pods_hold_no_credentials_and_stay_within_baseline() {
    let whole = full();
    for name in ["api-server", "worker"] {
        let made = made(&whole, name);
        let pods = pods(&made);
        assert_eq!(pods.automount_service_account_token, Some(false));
        let host = [pods.host_network, pods.host_pid, pods.host_ipc];
        assert_eq!(host, [Some(false); 3]);
        let context = container(&made).security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
        assert_eq!((context.privileged, pods.volumes.as_ref()), (None, None));
    }
    let context = container(&made(&whole, "worker")).security_context.clone().unwrap();
    assert_eq!((context.run_as_non_root, context.capabilities), (None, None), "it may be root");
}

#[test]
fn what_an_entry_says_of_its_rights_stands() {
    let whole = full().with(|it| {
        let context = it.workspace.spec.containers[0].security_context.as_mut().unwrap();
        context.allow_privilege_escalation = Some(true);
        context.capabilities.as_mut().unwrap().add = vec![Capability::SysChroot, Capability::Chown];
    });
    let made = made(&whole, "api-server");
    let context = container(&made).security_context.as_ref().unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(true));
    let added = context.capabilities.as_ref().unwrap().add.clone().unwrap();
    assert_eq!(added, ["CHOWN", "SYS_CHROOT"]);
}

#[test]
fn nothing_that_an_entry_says_of_its_container_is_lost() {
    let whole = full();
    let entry = serde_json::to_value(whole.container("api-server")).unwrap();
    let made = serde_json::to_value(container(&made(&whole, "api-server"))).unwrap();
    let elsewhere = ["replicas", "imagePullSecrets", "ports", "securityContext"];
    for (field, value) in entry.as_object().unwrap() {
        if !elsewhere.contains(&field.as_str()) {
            assert_eq!(&made[field], value, "{field}");
        }
    }
}

#[test]
fn the_number_of_pods_makes_no_other_template() {
    let whole = full();
    let entry = whole.container("worker");
    let of = |replicas, aliases| deployment(&whole.facts(), entry, replicas, aliases);
    let (running, stopped) = (of(1, host_aliases(&addresses())), of(0, Vec::new()));
    let revision =
        |it: &Deployment| it.metadata.annotations.clone().unwrap().remove(REVISION_ANNOTATION);
    assert_eq!(revision(&running), revision(&stopped));
    assert_ne!(revision(&running), revision(&made(&whole, "api-server")));
}

#[test]
fn a_suspended_machine_is_halted_and_otherwise_the_same() {
    let whole = full();
    let of = |power| machine(&whole.facts(), whole.instance("victim"), "disk", power);
    let (on, off) = (of(Power::AsAsked), of(Power::Off));
    assert_eq!(on.spec.run_strategy.as_deref(), Some(RunStrategy::RerunOnFailure.as_str()));
    assert_eq!(off.spec.run_strategy.as_deref(), Some("Halted"));
    assert_eq!((on.metadata, on.spec.template), (off.metadata, off.spec.template));
}

#[test]
fn a_machine_has_one_core_unless_something_says_otherwise() {
    let whole = full().with(|it| {
        let instances = it.workspace.spec.virtual_machines.iter_mut();
        instances.filter_map(|it| it.spec.instance.as_mut()).for_each(|it| it.cores = None);
    });
    let cores = |name: &str| {
        let made = machine(&whole.facts(), whole.instance(name), "disk", Power::AsAsked);
        made.spec.template.spec.domain.cpu.map(|cpu| cpu.cores)
    };
    assert_eq!((cores("attacker"), cores("victim")), (Some(Some(1)), None));
}
