//! Ports and addresses of Services.

use k8s_openapi::api::core::v1::Service;
use otctl_types::workspace::{ContainerPort, Protocol};

use super::*;

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

fn asks_for(service: &Service) -> Option<String> {
    service.spec.as_ref()?.cluster_ip.clone()
}

#[test]
fn a_service_asks_for_its_old_address_only_while_it_has_ports() {
    let whole = full();
    let of = |name: &str| {
        let made = service::of_container(&whole.facts(), whole.container(name), Some("10.96.0.7"));
        (asks_for(&made), service::address(&made).map(str::to_owned))
    };
    let old = || Some("10.96.0.7".to_owned());
    assert_eq!(of("api-server"), (old(), old()));
    assert_eq!(of("worker"), (Some("None".to_owned()), None));
    let of_archive = service::of_machine(&whole.facts(), whole.machine("archive"), None);
    assert_eq!(asks_for(&of_archive).as_deref(), Some("None"));
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
