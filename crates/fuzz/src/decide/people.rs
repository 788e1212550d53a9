//! What people do to a cluster at any moment.

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use otctl_types::VMDiskImage;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use serde_json::{Value, json};
use testbed::World;

use super::choices::Choices;
use super::objects::{policy, spec};

const KINDS: [&str; 6] =
    ["VMDiskImage", "Job", "Pod", "PersistentVolumeClaim", "VolumeSnapshot", "AdmissionQueue"];

pub(super) fn act(world: &World, choices: &mut Choices<'_>) {
    match choices.below(4) {
        0 => edit(world, choices),
        1 => {
            let key = Key::new(DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME);
            let data = policy(choices);
            let is_text = data.values().all(Value::is_string);
            if world.get("ConfigMap", &key).is_some() && is_text {
                world.edit("ConfigMap", &key, |document| document["data"] = json!(data));
            }
        }
        _ => delete(world, choices),
    }
}

/// The spec of an image: suspended, resumed, or another one.
fn edit(world: &World, choices: &mut Choices<'_>) {
    let Some((key, image)) = any(world, "VMDiskImage", choices) else { return };
    let mut wanted = image.clone();
    match choices.below(3) {
        0 => wanted["spec"]["suspend"] = json!(true),
        1 => wanted["spec"]["suspend"] = json!(false),
        // With data the API server refuses another source.
        _ if image["status"]["current"].is_null() => wanted["spec"] = spec(choices),
        _ => return,
    }
    if serde_json::from_value::<VMDiskImage>(wanted.clone()).is_ok() {
        world.edit("VMDiskImage", &key, |image| image["spec"] = wanted["spec"].take());
    }
}

fn delete(world: &World, choices: &mut Choices<'_>) {
    let kind = choices.of(&KINDS);
    let how = if choices.one_in(2) { Propagation::Foreground } else { Propagation::Background };
    if let Some((key, _)) = any(world, kind, choices) {
        world.delete(kind, &key, how);
    }
}

fn any(world: &World, kind: &str, choices: &mut Choices<'_>) -> Option<(Key, Value)> {
    let all = world.list(kind);
    let object = all.get(choices.below(all.len().max(1)))?.clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    Some((Key::new(&text(&metadata["namespace"]), &text(&metadata["name"])), object))
}
