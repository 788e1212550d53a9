//! What must hold of every write of a controller, whatever was there before it.

use std::collections::BTreeMap;

use serde_json::Value;
use testbed::World;
use testbed::world::{Id, Version};

use crate::cluster::CONTROLLER;

/// The cluster as it was at the last look.
#[derive(Default)]
pub(crate) struct Seen {
    versions: usize,
    /// Everything that was there.
    pub(crate) live: BTreeMap<Id, Value>,
}

impl Seen {
    fn news(&mut self, world: &World) -> Vec<Version> {
        let news = world.history(|history| history[self.versions..].to_vec());
        self.versions += news.len();
        news
    }

    fn learn(&mut self, version: Version) {
        if version.is_removal() {
            self.live.remove(&version.id);
        } else {
            self.live.insert(version.id, version.object);
        }
    }
}

/// What a controller promises of its writes.
pub(crate) trait Promises: Default {
    fn seen(&mut self) -> &mut Seen;

    /// What it wrote, before anything is learned from that.
    ///
    /// # Panics
    /// When a promise is broken.
    fn check_write(&mut self, version: &Version);

    /// What is to be remembered of something that anybody wrote, after it is gone.
    fn learn(&mut self, _version: &Version) {}

    /// Looks at everything that was written since the last look.
    fn check(&mut self, world: &World) {
        for version in self.seen().news(world) {
            if version.by == CONTROLLER {
                self.check_write(&version);
            }
            self.learn(&version);
            self.seen().learn(version);
        }
    }
}

/// The last things that the controller wrote.
pub(crate) fn last_writes(world: &World) -> String {
    let line = |version: &Version| {
        format!("{:?} {} {}", version.verb, version.id, version.object["status"])
    };
    world.history(|history| {
        let ours = history.iter().rev().filter(|version| version.by == CONTROLLER);
        ours.take(4).map(line).collect::<Vec<_>>().join("; ")
    })
}

/// The owner that controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = items(&object["metadata"]["ownerReferences"]).iter();
    owners.into_iter().find(|owner| owner["controller"] == true)
}

pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
