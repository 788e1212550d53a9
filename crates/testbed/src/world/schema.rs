//! What the API server refuses of an object by itself, as far as a controller can run into it: a name that two ports have,
//! an address that changes, and one that is taken.

use otctl_kit::cluster::ApiError;
use serde_json::Value;

use super::Id;
use super::objects::State;
use crate::json::{items, text};

/// Whether the API server takes `object` in place of `held`; what people do by hand is taken to be valid.
pub(super) fn check(
    state: &State,
    id: &Id,
    held: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    let problem = match id.kind.as_str() {
        "Service" if held.is_none() && is_taken(state, object) => Some(
            "spec.clusterIPs: Invalid value: failed to allocate IP: provided IP is already allocated"
                .to_owned(),
        ),
        "Service" => of_service(held, object),
        "Deployment" => of_deployment(object),
        _ => None,
    };
    let refused = |problem| ApiError::Invalid { detail: format!("{id} is invalid: {problem}") };
    problem.map_or(Ok(()), |problem| Err(refused(problem)))
}

fn is_taken(state: &State, service: &Value) -> bool {
    let asked = text(&service["spec"]["clusterIP"]);
    let mut others = state.of_kind("Service").map(|(_, other)| text(&other["spec"]["clusterIP"]));
    !matches!(asked, "" | "None") && others.any(|other| other == asked)
}

fn of_service(held: Option<&Value>, object: &Value) -> Option<String> {
    let address = |service: &Value| text(&service["spec"]["clusterIP"]).to_owned();
    let had = held.map(address).filter(|address| !address.is_empty());
    if had.is_some_and(|had| had != address(object)) {
        return Some("spec.clusterIPs[0]: may not change once set".to_owned());
    }
    let ports = &object["spec"]["ports"];
    let needs_some = !matches!(text(&object["spec"]["clusterIP"]), "None");
    if needs_some && items(ports).is_empty() {
        return Some("spec.ports: Required value".to_owned());
    }
    doubled("spec", ports)
}

fn of_deployment(object: &Value) -> Option<String> {
    let containers = items(&object["spec"]["template"]["spec"]["containers"]);
    let mut problems = containers.iter().enumerate().map(|(at, container)| {
        doubled(&format!("spec.template.spec.containers[{at}]"), &container["ports"])
    });
    problems.find_map(|problem| problem)
}

/// The first port whose name one before it has.
fn doubled(place: &str, ports: &Value) -> Option<String> {
    let ports = items(ports);
    let mut names = ports.iter().map(|port| text(&port["name"])).enumerate();
    let is_taken = |at: usize, name: &str| ports[..at].iter().any(|other| other["name"] == name);
    let (at, name) = names.find(|(at, name)| !name.is_empty() && is_taken(*at, name))?;
    Some(format!("{place}.ports[{at}].name: Duplicate value: {name:?}"))
}
