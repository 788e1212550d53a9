//! What workspaces make, on every version of a history: nothing runs before its policy and without its label, nothing is
//! made before its disks are there, no policy goes before its pods.

use std::collections::BTreeSet;

use otctl_types::names::{ENTRY_LABEL, WORKSPACE_LABEL};
use serde_json::{Value, json};

use super::replay::Replay;
use crate::json::{controller, is_condition_true, items, text, uid};
use crate::world::{Actor, Verb, Version};

/// All of it.
#[must_use]
pub fn intact(history: &[Version]) -> Vec<String> {
    let mut found = policies_come_first(history);
    found.extend(policies_outlive_pods(history));
    found.extend(labels_from_birth(history));
    found.extend(images_come_first(history));
    found
}

/// No workload of an isolated workspace is made before its policy is there.
#[must_use]
pub fn policies_come_first(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, _| {
        let Some(workspace) = workload_of(world, version) else { return };
        let is_its = |policy: &Value| {
            controller(policy).is_some_and(|owner| owner["uid"] == workspace["metadata"]["uid"])
        };
        if is_isolated(workspace) && !world.of_kind("NetworkPolicy").any(is_its) {
            found.push(format!("at {}: {} before its policy", version.revision, version.id));
        }
    });
    found
}

/// The policy of an isolated workspace is gone only after its pods, unless a user or the end of its namespace took it.
#[must_use]
pub fn policies_outlive_pods(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, _| {
        let by_others = version.by == "user" || version.by == Actor::Namespaces.to_string();
        if version.id.kind != "NetworkPolicy" || !version.is_removal() || by_others {
            return;
        }
        let Some(workspace) = owner(world, &version.object) else { return };
        let lives = |pod: &&Value| pod["metadata"]["labels"][WORKSPACE_LABEL] == uid(workspace);
        if let Some(pod) = world.of_kind("Pod").find(lives).filter(|_| is_isolated(workspace)) {
            let name = text(&pod["metadata"]["name"]);
            found.push(format!("at {}: {} went before {name}", version.revision, version.id));
        }
    });
    found
}

/// Every pod of a workspace has its label in its first version.
#[must_use]
pub fn labels_from_birth(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, _| {
        if version.id.kind != "Pod" || version.verb != Verb::Created {
            return;
        }
        let Some(workspace) = origin(world, &version.object) else { return };
        let label = text(&version.object["metadata"]["labels"][WORKSPACE_LABEL]);
        if label != uid(workspace) {
            found.push(format!(
                "at {}: {} was made with label \"{label}\"",
                version.revision, version.id
            ));
        }
    });
    found
}

/// When the first object of an entry is made, the image of every virtual machine of which nothing was made yet is
/// available.
#[must_use]
pub fn images_come_first(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut made: BTreeSet<(&str, &str)> = BTreeSet::new();
    Replay::walk(history, |world, version, _| {
        let object = &version.object;
        let is_child = matches!(&*version.id.kind, "Service" | "Deployment" | "VirtualMachine");
        if version.verb != Verb::Created || !is_child {
            return;
        }
        let Some(workspace) = owner(world, object) else { return };
        if !made.insert((uid(workspace), text(&object["metadata"]["labels"][ENTRY_LABEL]))) {
            return;
        }
        for machine in items(&workspace["spec"]["virtualMachines"]) {
            let is_made = made.contains(&(uid(workspace), text(&machine["name"])))
                && object["metadata"]["labels"][ENTRY_LABEL] != machine["name"];
            let name = &machine["spec"]["VMDiskImageName"];
            let mut images = world.of_kind("VMDiskImage");
            let image = images.find(|image| {
                image["metadata"]["name"] == *name
                    && text(&image["metadata"]["namespace"]) == version.id.key.namespace
            });
            if !is_made && !image.is_some_and(|image| is_condition_true(image, "Available")) {
                found.push(format!("at {}: {} before image {name}", version.revision, version.id));
            }
        }
    });
    found
}

/// The workspace whose Deployment or machine was made just now.
fn workload_of<'a>(world: &Replay<'a>, version: &'a Version) -> Option<&'a Value> {
    let is_workload = matches!(&*version.id.kind, "Deployment" | "VirtualMachine");
    let is_new = is_workload && version.verb == Verb::Created;
    owner(world, &version.object).filter(|_| is_new)
}

/// The workspace from which an object comes, through whatever makes the one from the other.
fn origin<'a>(world: &Replay<'a>, object: &Value) -> Option<&'a Value> {
    let mut owner = world.last_of(text(&controller(object)?["uid"]))?;
    while owner["kind"] != "Workspace" {
        owner = world.last_of(text(&controller(owner)?["uid"]))?;
    }
    Some(owner)
}

/// The workspace that controls an object, as it was last seen.
fn owner<'a>(world: &Replay<'a>, object: &Value) -> Option<&'a Value> {
    let owner = controller(object).filter(|owner| owner["kind"] == "Workspace")?;
    world.last_of(text(&owner["uid"]))
}

fn is_isolated(workspace: &Value) -> bool {
    workspace["spec"]["network"]["isolate"] != json!(false)
}

#[cfg(test)]
mod tests {
    use otctl_kit::plan::Propagation;

    use super::*;
    use crate::builders::key;
    use crate::clock::VirtualClock;
    use crate::world::World;

    fn world(spec: &Value) -> World {
        let world = World::new(&VirtualClock::default());
        world.create_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": {"name": "lab"}, "spec": spec,
        }));
        world
    }

    /// A child of `lab`, for entry `a`.
    fn child(world: &World, kind: &str, name: &str) {
        let uid = world.get("Workspace", &key("lab")).unwrap()["metadata"]["uid"].clone();
        let owner = json!({"kind": "Workspace", "name": "lab", "uid": uid, "controller": true});
        world.create_value(json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": name, "namespace": "labs", "ownerReferences": [owner], "labels": {ENTRY_LABEL: "a"},
            },
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}},
        }));
    }

    fn found(world: &World, find: fn(&[Version]) -> Vec<String>, wanted: &str) {
        let found = world.history(find).join("\n");
        let is_as_wanted =
            if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) };
        assert!(is_as_wanted, "\"{wanted}\" in: {found}");
    }

    #[test]
    fn a_workload_before_its_policy_is_found() {
        let bare = world(&json!({}));
        child(&bare, "Deployment", "lab--a");
        found(&bare, policies_come_first, "Deployment labs/lab--a before its policy");
        let open = world(&json!({"network": {"isolate": false}}));
        child(&open, "Deployment", "lab--a");
        found(&open, policies_come_first, "");
        let isolated = world(&json!({}));
        child(&isolated, "NetworkPolicy", "lab--network");
        child(&isolated, "Deployment", "lab--a");
        found(&isolated, intact, "");
    }

    #[test]
    fn a_pod_without_its_label_is_found() {
        let world = world(&json!({}));
        child(&world, "NetworkPolicy", "lab--network");
        child(&world, "Deployment", "lab--a");
        let act = world.acts().into_iter().find(|act| act.actor == Actor::Workloads).unwrap();
        world.perform(&act);
        found(&world, labels_from_birth, "was made with label \"\"");
    }

    #[test]
    fn a_policy_that_goes_before_a_pod_is_found() {
        let world = world(&json!({}));
        child(&world, "NetworkPolicy", "lab--network");
        let uid = world.get("Workspace", &key("lab")).unwrap()["metadata"]["uid"].clone();
        world.create_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "labs", "labels": {WORKSPACE_LABEL: uid}},
        }));
        world.delete("Workspace", &key("lab"), Propagation::Background);
        let is_policy = |act: &crate::world::Act| act.id.kind == "NetworkPolicy";
        world.perform(&world.acts().into_iter().find(is_policy).unwrap());
        found(&world, policies_outlive_pods, "went before p");
    }

    #[test]
    fn a_child_before_its_image_is_found() {
        let machine = json!({"name": "a", "spec": {"VMDiskImageName": "debian"}});
        let world = world(&json!({"virtualMachines": [machine]}));
        child(&world, "Service", "lab--a");
        found(&world, images_come_first, "Service labs/lab--a before image \"debian\"");
    }
}
