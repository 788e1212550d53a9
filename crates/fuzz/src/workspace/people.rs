//! What people do to a cluster at any moment.

use otctl_types::{VMDiskImage, Workspace};
use serde_json::{Value, json};
use testbed::{Health, World};

use super::objects::{policy, spec, state_of_image};
use crate::choices::Choices;
use crate::people::{any, delete, set_policy};

const CHILDREN: [&str; 5] =
    ["Service", "Deployment", "NetworkPolicy", "VirtualMachine", "PersistentVolumeClaim"];
const KINDS: [&str; 8] = [
    "Workspace",
    "Service",
    "Deployment",
    "NetworkPolicy",
    "VirtualMachine",
    "PersistentVolumeClaim",
    "Pod",
    "VMDiskImage",
];

pub(super) fn act(world: &World, choices: &mut Choices<'_>) {
    match choices.below(7) {
        0 | 1 => edit(world, choices),
        2 => set_policy(world, &policy(choices)),
        3 => fare(world, choices),
        4 => sync(world, choices),
        5 => tamper(world, choices),
        _ => delete(world, &KINDS, choices),
    }
}

/// Another spec, suspended, or resumed. Where it was accepted its namespace stays.
fn edit(world: &World, choices: &mut Choices<'_>) {
    let Some((key, mut wanted)) = any(world, "Workspace", choices) else { return };
    let namespace = wanted["spec"]["namespace"].clone();
    match choices.below(4) {
        0 => wanted["spec"]["suspended"] = json!(true),
        1 => wanted["spec"]["suspended"] = json!(false),
        _ => wanted["spec"] = spec(choices),
    }
    wanted["spec"]["namespace"] = namespace;
    if serde_json::from_value::<Workspace>(wanted.clone()).is_ok() {
        world.edit("Workspace", &key, |workspace| workspace["spec"] = wanted["spec"].take());
    }
}

fn fare(world: &World, choices: &mut Choices<'_>) {
    let words = "what the cluster says".to_owned();
    let health = match choices.below(6) {
        0 => Health::NeverReady,
        1 => Health::NoImage(words),
        2 => Health::Crashing(137),
        3 => Health::Unschedulable(words),
        4 => Health::Refused(words),
        _ => Health::Fine,
    };
    world.fare(choices.of(&["api", "web", "db"]), health);
}

fn sync(world: &World, choices: &mut Choices<'_>) {
    let Some((key, mut image)) = any(world, "VMDiskImage", choices) else { return };
    image["status"] = state_of_image(choices);
    if serde_json::from_value::<VMDiskImage>(image.clone()).is_ok() {
        world.edit("VMDiskImage", &key, |it| it["status"] = image["status"].take());
    }
}

/// A child by hand: its marks, its ports, its pods.
fn tamper(world: &World, choices: &mut Choices<'_>) {
    let kind = choices.of(&CHILDREN);
    let Some((key, _)) = any(world, kind, choices) else { return };
    let what = choices.below(7);
    world.edit(kind, &key, |it| match what {
        0 => it["metadata"]["labels"] = Value::Null,
        1 => it["metadata"]["ownerReferences"] = json!([]),
        2 => it["metadata"]["annotations"] = Value::Null,
        3 => set(it, "/spec/ports/0/port", json!(99)),
        4 => set(it, "/spec/template/spec/containers/0/ports/0/containerPort", json!(99)),
        5 => set(it, "/spec/template/spec/containers/0/image", json!("evil")),
        _ => set(it, "/spec/replicas", json!(2)),
    });
}

fn set(object: &mut Value, place: &str, value: Value) {
    if let Some(found) = object.pointer_mut(place) {
        *found = value;
    }
}
