//! What no apply can repair, since the API server would refuse it, and what helps.

use kube::core::DynamicObject;
use serde_json::Value;

/// What keeps an apply from making of an object what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// These ports have names that others of ours are to have: JSON pointers, the last one first. Without them an apply
    /// goes through, and what runs goes on: pods that are rolled stay until new ones are ready, and a Service keeps its
    /// address.
    Ports(Vec<String>),
    /// Each of its ports has a name that another of ours is to have, and it must keep one. It is made anew.
    Whole,
    /// It has an address and is to have none, or the other way round, which no apply changes. It is made anew.
    Address,
}

/// Why `observed` cannot be changed into `desired` by an apply; none when it can. A Service with an address cannot become
/// one without, nor the other way round. Where somebody has moved one of our ports to another number, its name is taken when
/// ours is put back beside it: what somebody else has set no apply takes away. Which port is ours of an earlier spec, and
/// goes in the same apply, cannot be told from one that was moved: of what was edited, the apply is tried first.
pub fn stuck(desired: &DynamicObject, observed: &DynamicObject) -> Option<Stuck> {
    let kind = desired.types.as_ref().map(|types| types.kind.as_str());
    let (desired, observed) = (&desired.data["spec"], &observed.data["spec"]);
    match kind {
        Some("Service") if is_headless(desired) != is_headless(observed) => Some(Stuck::Address),
        Some("Service") => of_service(&desired["ports"], &observed["ports"]),
        Some("Deployment") => of_deployment(containers(desired), containers(observed)),
        Some(_) | None => None,
    }
}

/// A Service must keep one port.
fn of_service(desired: &Value, observed: &Value) -> Option<Stuck> {
    let moved = moved(desired, observed, "port");
    let leaves_some = moved.len() < items(observed).len();
    let places = moved.iter().map(|at| format!("/spec/ports/{at}")).collect();
    match moved.is_empty() {
        true => None,
        false if leaves_some => Some(Stuck::Ports(places)),
        false => Some(Stuck::Whole),
    }
}

fn of_deployment(desired: &[Value], observed: &[Value]) -> Option<Stuck> {
    let places = observed.iter().enumerate().flat_map(|(number, container)| {
        let wanted = desired.iter().find(|it| it["name"] == container["name"]);
        let wanted = wanted.map(|it| moved(&it["ports"], &container["ports"], "containerPort"));
        let path = move |at| format!("/spec/template/spec/containers/{number}/ports/{at}");
        wanted.unwrap_or_default().into_iter().map(path)
    });
    let places: Vec<_> = places.collect();
    (!places.is_empty()).then_some(Stuck::Ports(places))
}

fn is_headless(service: &Value) -> bool {
    service["clusterIP"] == "None"
}

fn containers(deployment: &Value) -> &[Value] {
    items(&deployment["template"]["spec"]["containers"])
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Where in `observed` ports are that have a name of one of `desired`, the last one first. One that is asked for by its
/// number is put right.
fn moved(desired: &Value, observed: &Value, number: &str) -> Vec<usize> {
    let key = |port: &Value| (port[number].clone(), port["protocol"].clone());
    let is_asked_for = |port: &Value| items(desired).iter().any(|it| key(it) == key(port));
    let is_named = |port: &Value| {
        port["name"].is_string() && items(desired).iter().any(|it| it["name"] == port["name"])
    };
    let ports = items(observed).iter().enumerate().rev();
    ports.filter(|(_, port)| !is_asked_for(port) && is_named(port)).map(|(at, _)| at).collect()
}
