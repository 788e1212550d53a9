//! Ownership: whatever a controller makes has a controller owner that lives, in the same namespace; nothing of the dead
//! stays; what is not ours is never written to.

use otctl_types::names::MADE_BY_ANNOTATION;

use super::replay::Replay;
use crate::json::{controller, is_deleting, items, text, uid};
use crate::world::{Actor, Verb, Version};

/// Kinds that a controller makes without an owner: they are ours by name, or told and forgotten.
const UNOWNED: [&str; 3] = ["AdmissionQueue", "Event", "Lease"];

/// What controllers made without a controller owner, or with one that was not there, or wrote to although it was made by
/// a user.
#[must_use]
pub fn adopted(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut strangers: Vec<&str> = Vec::new();
    Replay::walk(history, |world, version, before| {
        let (object, id) = (&version.object, &version.id);
        if version.verb == Verb::Created && version.by == "user" && controller(object).is_none() {
            strangers.push(uid(object));
        }
        if !is_controller(&version.by) || UNOWNED.contains(&id.kind.as_str()) {
            return;
        }
        let changes_itself =
            matches!(version.verb, Verb::Update | Verb::Applied | Verb::Deleting | Verb::Removed);
        // A finalizer is taken off by whoever put it on, and with the last one an object goes.
        let is_own =
            id.kind == "Workspace" && before.is_some_and(|it| it["spec"] == object["spec"]);
        if changes_itself && !is_own && strangers.contains(&uid(object)) {
            found.push(format!(
                "at {}: {} wrote to {id}, which a user made",
                version.revision, version.by
            ));
        }
        let is_shared = !object["metadata"]["annotations"][MADE_BY_ANNOTATION].is_null();
        if version.verb != Verb::Created || is_shared {
            return;
        }
        let owner = controller(object).and_then(|owner| world.last_of(text(&owner["uid"])));
        let lives_with = owner.is_some_and(|owner| {
            let namespace = text(&owner["metadata"]["namespace"]);
            namespace.is_empty() || namespace == id.key.namespace
        });
        if !lives_with {
            found.push(format!(
                "at {}: {} made {id} without a controller owner",
                version.revision, version.by
            ));
        }
    });
    found
}

/// What is left of the dead at the end of a history: objects whose owners are all gone, and that are not going.
#[must_use]
pub fn orphans(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let last = history.last().map_or(0, |version| version.revision);
    Replay::walk(history, |world, version, _| {
        if version.revision != last {
            return;
        }
        for object in world.everything() {
            let owners = items(&object["metadata"]["ownerReferences"]);
            let lives = owners.iter().any(|owner| world.is_alive(text(&owner["uid"])));
            if !owners.is_empty() && !lives && !is_deleting(object) {
                let metadata = &object["metadata"];
                let (kind, namespace, name) =
                    (&object["kind"], &metadata["namespace"], &metadata["name"]);
                found.push(format!(
                    "{} {}/{} is an orphan",
                    text(kind),
                    text(namespace),
                    text(name)
                ));
            }
        }
    });
    found
}

/// Whether a write was a controller's: not a user's, nor that of a component of the cluster.
fn is_controller(by: &str) -> bool {
    let component = |actor: Actor| actor.to_string() == by;
    by != "user" && !by.is_empty() && !Actor::ALL.into_iter().any(component)
}
