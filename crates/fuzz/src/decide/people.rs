//! What people do to a cluster at any moment.

use otctl_types::VMDiskImage;
use serde_json::json;
use testbed::World;

use super::objects::{policy, spec};
use crate::choices::Choices;
use crate::people::{any, delete, set_policy};

const KINDS: [&str; 6] =
    ["VMDiskImage", "Job", "Pod", "PersistentVolumeClaim", "VolumeSnapshot", "AdmissionQueue"];

pub(super) fn act(world: &World, choices: &mut Choices<'_>) {
    match choices.below(4) {
        0 => edit(world, choices),
        1 => set_policy(world, &policy(choices)),
        _ => delete(world, &KINDS, choices),
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
