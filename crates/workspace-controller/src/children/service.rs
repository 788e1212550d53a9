//! The Service by which an entry is reached. It selects by identity, so no pod can join it that is not of the entry.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use otctl_types::workspace::{Container, Protocol, VirtualMachine};

use super::{Facts, note_revision};
use crate::names::{self, Component};

/// What `clusterIP` says of a Service that has no address of its own, since the API takes one without ports only so.
const HEADLESS: &str = "None";

/// A port that an entry serves.
struct Port<'a> {
    number: i32,
    protocol: Protocol,
    name: Option<&'a str>,
}

/// The Service of a container. `address` is the one that an earlier Service of the entry had: pods know it.
pub fn of_container(facts: &Facts<'_>, entry: &Container, address: Option<&str>) -> Service {
    let ports = entry.ports.iter().map(|port| Port {
        number: port.container_port,
        protocol: port.protocol,
        name: port.name.as_deref(),
    });
    service(facts, (Component::Container, &entry.name), ports.collect(), address)
}

/// The Service of a virtual machine. `address` is the one that an earlier Service of the entry had: pods know it.
pub fn of_machine(facts: &Facts<'_>, entry: &VirtualMachine, address: Option<&str>) -> Service {
    let ports = entry.spec.instance.iter().flat_map(|instance| &instance.ports);
    let ports = ports.map(|port| Port { number: port.port, protocol: port.protocol, name: None });
    service(facts, (Component::Machine, &entry.name), ports.collect(), address)
}

/// The address at which the pods of the workspace reach the entry of a Service.
pub fn address(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    Some(address).filter(|address| !address.is_empty() && *address != HEADLESS)
}

fn service(
    facts: &Facts<'_>,
    (component, entry): (Component, &str),
    mut ports: Vec<Port<'_>>,
    address: Option<&str>,
) -> Service {
    ports.sort_by_key(|port| (port.number, port.protocol));
    ports.dedup_by_key(|port| (port.number, port.protocol));
    let cluster_ip = if ports.is_empty() { Some(HEADLESS) } else { address };
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        cluster_ip: None,
        selector: Some(names::entry_selector(&facts.uid(), entry)),
        ports: Some(service_ports(&ports)).filter(|ports| !ports.is_empty()),
        ..ServiceSpec::default()
    };
    let mut metadata = facts.meta(facts.child_name(entry), component, Some(entry));
    note_revision(&mut metadata, &spec);
    let spec = ServiceSpec { cluster_ip: cluster_ip.map(str::to_owned), ..spec };
    Service { metadata, spec: Some(spec), status: None }
}

/// Names are said for all: a Service with two ports must name both.
fn service_ports(ports: &[Port<'_>]) -> Vec<ServicePort> {
    let mut taken: BTreeSet<String> =
        ports.iter().filter_map(|port| port.name.map(str::to_owned)).collect();
    ports
        .iter()
        .map(|port| ServicePort {
            name: Some(port.name.map_or_else(|| derived_name(port, &mut taken), str::to_owned)),
            port: port.number,
            protocol: Some(port.protocol.as_str().to_owned()),
            target_port: Some(IntOrString::Int(port.number)),
            ..ServicePort::default()
        })
        .collect()
}

/// `tcp-8080`; with a number behind it where a port was given that name.
fn derived_name(port: &Port<'_>, taken: &mut BTreeSet<String>) -> String {
    let plain = format!("{}-{}", port.protocol.as_str().to_lowercase(), port.number);
    let numbered = (2..).map(|number| format!("{plain}-{number}"));
    let mut names = [plain.clone()].into_iter().chain(numbered);
    let name = names.find(|name| !taken.contains(name)).expect("there is no end of numbers");
    taken.insert(name.clone());
    name
}
