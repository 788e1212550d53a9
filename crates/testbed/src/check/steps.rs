//! In which order a workspace came to be, read from a history.

use otctl_types::names::MADE_BY_ANNOTATION;
use serde_json::Value;

use crate::json::{controller, is_condition_true, items, text, uid};
use crate::world::{Verb, Version};

/// What the workspace of that name went through, each with the revision at which it was so, in the order in which it must
/// be: admitted, its policy, the images that it made, the last of its images available, Services, workloads. What never was
/// is left out. An image that was available before the workspace was admitted counts from there on.
#[must_use]
pub fn of_workspace(history: &[Version], name: &str) -> Vec<(&'static str, u64)> {
    let is_it = |it: &&Version| it.id.kind == "Workspace" && it.id.key.name == name;
    let Some(workspace) = history.iter().rfind(is_it).map(|version| &version.object) else {
        return Vec::new();
    };
    let admitted = history.iter().find(|it| admits(it, uid(workspace))).map(|it| it.revision);
    let policy = made(history, workspace, &["NetworkPolicy"]);
    let services = made(history, workspace, &["Service"]);
    let workloads = made(history, workspace, &["Deployment", "VirtualMachine"]);
    let (own, available) = (own_images(history, workspace), available(history, workspace));
    let steps = [
        ("admitted", admitted),
        ("policy", policy.first().copied()),
        ("first image made", own.first().copied()),
        ("last image available", available.into_iter().chain(admitted).max()),
        ("first Service", services.first().copied()),
        ("last Service", services.last().copied()),
        ("first workload", workloads.first().copied()),
    ];
    steps.into_iter().filter_map(|(what, revision)| Some((what, revision?))).collect()
}

/// Whether a version of the ledger has an entry of that UID.
fn admits(version: &Version, workspace: &str) -> bool {
    let mut entries = items(&version.object["status"]["active"]).iter();
    version.id.kind == "AdmissionQueue" && entries.any(|entry| entry["uid"] == workspace)
}

/// When children of these kinds were made.
fn made(history: &[Version], workspace: &Value, kinds: &[&str]) -> Vec<u64> {
    let is_child = |it: &&Version| {
        it.verb == Verb::Created
            && kinds.contains(&it.id.kind.as_str())
            && controller(&it.object).is_some_and(|owner| owner["uid"] == uid(workspace))
    };
    history.iter().filter(is_child).map(|it| it.revision).collect()
}

/// When images of its machines were made that some workspace made.
fn own_images(history: &[Version], workspace: &Value) -> Vec<u64> {
    let is_own = |it: &&Version| {
        it.verb == Verb::Created
            && !it.object["metadata"]["annotations"][MADE_BY_ANNOTATION].is_null()
            && images_of(workspace).any(|name| is_image(it, name))
    };
    history.iter().filter(is_own).map(|it| it.revision).collect()
}

/// When each image of its machines was available for the first time.
fn available(history: &[Version], workspace: &Value) -> Vec<u64> {
    let first = |name: &str| {
        let is_so =
            |it: &&Version| is_image(it, name) && is_condition_true(&it.object, "Available");
        history.iter().find(is_so).map(|it| it.revision)
    };
    images_of(workspace).filter_map(first).collect()
}

fn images_of(workspace: &Value) -> impl Iterator<Item = &str> {
    let machines = items(&workspace["spec"]["virtualMachines"]).iter();
    machines.map(|machine| text(&machine["spec"]["VMDiskImageName"]))
}

fn is_image(version: &Version, name: &str) -> bool {
    version.id.kind == "VMDiskImage" && version.id.key.name == name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builders::key;
    use crate::clock::VirtualClock;
    use crate::world::World;

    fn world() -> World {
        let machine = json!({"name": "db", "spec": {"VMDiskImageName": "debian"}});
        let world = World::new(&VirtualClock::default());
        world.create_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
            "metadata": {"name": "lab"}, "spec": {"virtualMachines": [machine]},
        }));
        world
    }

    fn child(world: &World, kind: &str) {
        let uid = world.get("Workspace", &key("lab")).unwrap()["metadata"]["uid"].clone();
        let owner = json!({"kind": "Workspace", "name": "lab", "uid": uid, "controller": true});
        world.create_value(json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": "lab--db", "namespace": "labs", "ownerReferences": [owner]},
        }));
    }

    fn image(world: &World, available: &str) {
        world.create_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
            "metadata": {"name": "debian", "namespace": "labs", "annotations": {MADE_BY_ANNOTATION: "workspace"}},
            "status": {"conditions": [{"type": "Available", "status": available}]},
        }));
    }

    fn steps(world: &World) -> Vec<&'static str> {
        let mut steps = world.history(|history| of_workspace(history, "lab"));
        steps.sort_by_key(|(_, revision)| *revision);
        steps.into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn steps_are_told_in_the_order_in_which_they_were_taken() {
        let right = world();
        child(&right, "NetworkPolicy");
        image(&right, "True");
        child(&right, "Service");
        child(&right, "Deployment");
        let wanted = ["policy", "first image made", "last image available", "first Service"];
        assert_eq!(steps(&right)[..4], wanted);
        assert_eq!(steps(&right)[4..], ["last Service", "first workload"]);
        let wrong = world();
        child(&wrong, "Deployment");
        child(&wrong, "NetworkPolicy");
        assert_eq!(steps(&wrong), ["first workload", "policy"]);
    }

    #[test]
    fn nothing_is_told_of_what_never_was() {
        assert_eq!(world().history(|history| of_workspace(history, "other")), []);
        let waiting = world();
        image(&waiting, "False");
        assert_eq!(steps(&waiting), ["first image made"]);
    }
}
