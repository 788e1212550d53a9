//! What people do to a cluster at any moment, whichever controller is at work.

use std::collections::BTreeMap;
use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use serde_json::{Value, json};
use testbed::World;

use crate::choices::Choices;
use crate::controller::key;

/// Another policy, where there is one.
pub(crate) fn set_policy(world: &World, data: &BTreeMap<String, Value>) {
    let key = Key::new(DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME);
    if world.get("ConfigMap", &key).is_some() && data.values().all(Value::is_string) {
        world.edit("ConfigMap", &key, |document| document["data"] = json!(data));
    }
}

pub(crate) fn delete(world: &World, kinds: &[&str], choices: &mut Choices<'_>) {
    let kind = choices.of(kinds);
    let how = if choices.one_in(2) { Propagation::Foreground } else { Propagation::Background };
    if let Some((key, _)) = any(world, kind, choices) {
        world.delete(kind, &key, how);
    }
}

/// Any object of a kind, if there is one.
pub(crate) fn any(world: &World, kind: &str, choices: &mut Choices<'_>) -> Option<(Key, Value)> {
    let all = world.list(kind);
    let object = all.get(choices.below(all.len().max(1)))?.clone();
    Some((key(&object), object))
}

/// Another component does what it has to.
pub(crate) fn let_act(world: &World, choices: &mut Choices<'_>) {
    let acts = world.acts();
    if let Some(act) = acts.get(choices.below(acts.len().max(1))) {
        world.perform(act);
    }
}

/// From a second to a day.
pub(crate) fn let_time_pass(world: &World, choices: &mut Choices<'_>) {
    let seconds = [1, 40, 700, 4000, 90_000][choices.below(5)];
    world.clock().advance(Duration::from_secs(seconds));
}
