//! Each child as a whole, and what must hold of it whatever the spec says.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container as PodContainer, PodSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use otctl_kit::cluster::erase;
use otctl_types::diskimage::{AccessMode, VolumeMode};
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::workspace::network::{Egress, Peer, Selector};
use otctl_types::workspace::security::Capability;
use otctl_types::workspace::{Container, ContainerPort, ImageRetention, Protocol, RunStrategy};

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
    let owner = image::owner_reference(&whole.workspace).unwrap();
    assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
    let kept = whole.with(|it| it.workspace.spec.image_retention = ImageRetention::Retain);
    assert_eq!(image::owner_reference(&kept.workspace), None);
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
        let network = spec.network.as_mut().unwrap();
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
fn a_workspace_without_a_network_is_isolated_and_may_look_names_up() {
    let closed = full().with(|it| it.workspace.spec.network = None);
    let spec = network_policy(&closed.facts()).spec.unwrap();
    assert_eq!(spec.policy_types.unwrap(), ["Ingress", "Egress"]);
    let (ingress, egress) = (spec.ingress.unwrap(), spec.egress.unwrap());
    assert_eq!((ingress.len(), egress.len()), (1, 2), "its own pods; those and DNS");
}

#[test]
fn without_lookups_a_workspace_reaches_its_own_pods_alone() {
    let quiet = full().with(|it| {
        let network = it.workspace.spec.network.as_mut().unwrap();
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
        it.workspace.spec.network.as_mut().unwrap().egress = doors.into();
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
        it.workspace.spec.network.as_mut().unwrap().egress = vec![Egress { to, ports: Vec::new() }];
    });
    let egress = network_policy(&open.facts()).spec.unwrap().egress.unwrap();
    let door = &egress.last().unwrap().to.as_ref().unwrap()[0];
    assert_eq!(door.namespace_selector, Some(LabelSelector::default()));
    assert_eq!(door.pod_selector, None);
}

fn port(number: i32, protocol: Protocol, name: Option<&str>) -> ContainerPort {
    ContainerPort { container_port: number, protocol, name: name.map(str::to_owned) }
}

#[test]
fn every_port_of_a_service_has_a_name_of_its_own() {
    let ports = vec![
        port(80, Protocol::Tcp, Some("udp-53")),
        port(81, Protocol::Tcp, Some("udp-53-2")),
        port(53, Protocol::Udp, None),
        port(53, Protocol::Tcp, None),
    ];
    let entry = Container { name: "dns".to_owned(), ports, ..Container::default() };
    let made = service::of_container(&full().facts(), &entry, None);
    let ports = made.spec.unwrap().ports.unwrap();
    let names: Vec<_> = ports.iter().map(|port| port.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["tcp-53", "udp-53-3", "udp-53", "udp-53-2"]);
}

#[test]
fn a_service_asks_for_its_old_address_only_while_it_has_ports() {
    let whole = full();
    let of = |name: &str| {
        let made = service::of_container(&whole.facts(), whole.container(name), Some("10.96.0.7"));
        (service::is_headless(&made), service::address(&made).map(str::to_owned))
    };
    assert_eq!(of("api-server"), (false, Some("10.96.0.7".to_owned())));
    assert_eq!(of("worker"), (true, None));
    let of_archive = service::of_machine(&whole.facts(), whole.machine("archive"), None);
    assert!(service::is_headless(&of_archive));
    assert_eq!(service::address(&Service::default()), None);
}

#[test]
fn an_address_makes_no_other_service() {
    let whole = full();
    let noted = |address| {
        let made = service::of_container(&whole.facts(), whole.container("api-server"), address);
        made.metadata.annotations.unwrap()
    };
    assert_eq!(noted(None), noted(Some("10.96.0.7")));
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
    assert_eq!(running.metadata, stopped.metadata);
    assert_ne!(running.metadata.annotations, made(&whole, "api-server").metadata.annotations);
}

fn claimed(change: impl FnOnce(&mut otctl_types::VMDiskImage)) -> serde_json::Value {
    let whole = full().with(|it| it.policy.default_storage_class = Some("slow".to_owned()));
    let mut image = whole.image("attacker", current());
    change(&mut image);
    let made = claim(&whole.facts(), whole.machine("attacker"), &image);
    made.map_or(serde_json::Value::Null, |made| serde_json::to_value(made.spec).unwrap())
}

#[test]
fn a_claim_is_a_copy_of_what_the_image_has() {
    let of_volume = claimed(|image| {
        let current = image.status.as_mut().unwrap().current.as_mut().unwrap();
        (current.snapshot, current.volume) = (None, Some("attacker-1".to_owned()));
        image.spec.storage_class = None;
        image.spec.volume_mode = VolumeMode::Block;
        image.spec.access_modes = vec![AccessMode::ReadWriteMany];
    });
    let expected = serde_json::json!({
        "accessModes": ["ReadWriteMany"],
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "attacker-1"},
        "resources": {"requests": {"storage": "24Gi"}},
        "storageClassName": "slow",
        "volumeMode": "Block",
    });
    assert_eq!(of_volume, expected);
}

#[test]
fn nothing_is_claimed_of_an_image_that_has_nothing() {
    let empty = claimed(|image| image.status.as_mut().unwrap().current = None);
    assert!(empty.is_null());
    let vanished = claimed(|image| {
        image.status.as_mut().unwrap().current.as_mut().unwrap().snapshot = None;
    });
    assert!(vanished.is_null());
    assert!(claimed(|image| image.status = None).is_null());
}

#[test]
fn a_claim_has_the_room_that_its_image_says_and_that_its_disk_needs() {
    let size = |minimum: Option<i64>, disk: Option<&str>, mode| {
        let claim = claimed(|image| {
            let status = image.status.as_mut().unwrap();
            status.current.as_mut().unwrap().minimum_size = minimum;
            status.disk_size = disk.map(str::to_owned);
            (image.spec.volume_mode, image.spec.disk_size) = (mode, None);
        });
        claim["resources"]["requests"]["storage"].as_str().unwrap().to_owned()
    };
    let gib = 1 << 30;
    assert_eq!(size(Some(3 * gib), Some("2Gi"), VolumeMode::Block), "3Gi");
    assert_eq!(size(Some(gib), Some("2Gi"), VolumeMode::Block), "2Gi");
    assert_eq!(size(Some(2 * gib), Some("2Gi"), VolumeMode::Filesystem), "2179Mi");
    assert_eq!(size(Some(2 * gib), None, VolumeMode::Block), "2Gi");
}

#[test]
fn a_claim_that_is_there_is_held_to_its_metadata() {
    let whole = full();
    let entry = whole.machine("attacker");
    let made = claim(&whole.facts(), entry, &whole.image("attacker", current())).unwrap();
    let kept = claim::kept(&whole.facts(), entry, &current().revision);
    assert_eq!((kept.metadata, kept.spec), (made.metadata.clone(), None));
    assert_eq!(claim::revision(&made), Some("0123456789abcdef"));
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
