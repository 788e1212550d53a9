//! What no apply can repair. The API server would refuse it, and has to, so the child is made anew.

use kube::core::DynamicObject;
use serde_json::Value;

/// Where `observed` cannot be changed into `desired`: the path of the field. A Service with an address cannot become one
/// without, nor the other way round; and where somebody has moved one of our ports to another number, its name is taken
/// when ours is put back beside it.
pub fn stuck(desired: &DynamicObject, observed: &DynamicObject) -> Option<String> {
    let kind = desired.types.as_ref().map(|types| types.kind.as_str());
    let (desired, observed) = (&desired.data["spec"], &observed.data["spec"]);
    match kind {
        Some("Service") if is_headless(desired) != is_headless(observed) => {
            Some("spec.clusterIP".to_owned())
        }
        Some("Service") => {
            taken(&desired["ports"], &observed["ports"], "port").map(|name| path("spec", &name))
        }
        Some("Deployment") => containers(desired).iter().find_map(|container| {
            let same = containers(observed).iter().find(|it| it["name"] == container["name"])?;
            let name = taken(&container["ports"], &same["ports"], "containerPort")?;
            let container = container["name"].as_str().unwrap_or_default();
            Some(path(&format!("spec.template.spec.containers[{container}]"), &name))
        }),
        Some(_) | None => None,
    }
}

fn path(place: &str, name: &str) -> String {
    format!("{place}.ports[{name}]")
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

/// The name of one of `desired` that another port of `observed` has. One that is asked for by its number is put right.
fn taken(desired: &Value, observed: &Value, number: &str) -> Option<String> {
    let key = |port: &Value| (port[number].clone(), port["protocol"].clone());
    let is_asked_for = |port: &Value| items(desired).iter().any(|it| key(it) == key(port));
    let others = items(observed).iter().filter(|port| !is_asked_for(port));
    let mut names = others.filter_map(|port| port["name"].as_str());
    let name = names.find(|name| items(desired).iter().any(|it| it["name"] == **name))?;
    Some(name.to_owned())
}
