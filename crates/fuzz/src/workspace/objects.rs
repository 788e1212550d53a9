//! What is there when the controller starts: a policy, perhaps KubeVirt and the namespace, Workspaces, images, objects of
//! the names of children that strangers made, and statuses that may tell something else.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use otctl_kit::store::Key;
use otctl_types::condition::{CONTAINERS_READY, CREATING_WORKS, DELETING, READY, STALLED};
use otctl_types::names::{
    DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, ENTRY_LABEL, MADE_BY_ANNOTATION, MADE_BY_WORKSPACE,
    OWNER_LABEL, REVISION_ANNOTATION, WORKSPACE_FINALIZER, WORKSPACE_QUEUE,
};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};
use serde_json::{Value, json};
use testbed::{World, builders};
use workspace_controller::machines::VirtualMachine;

use crate::choices::Choices;
use crate::decide::objects::create;
use crate::schema;

/// The namespace that is served.
pub(super) const LABS: &str = "labs";
/// The definition of machines.
pub(super) const KUBEVIRT: &str = "virtualmachines.kubevirt.io";

const OURS: &str = "pelotech.ot/v1alpha1";
/// UID of a Workspace that is gone.
const DEAD: &str = "00000000-0000-4000-8000-0000000dead0";
const WORKSPACES: [&str; 3] = ["lab", "next", "lab--x"];
const MACHINES: [&str; 2] = ["db", "data"];
const CONTAINERS: [&str; 3] = ["api", "web", "x"];
const IMAGES: [&str; 2] = ["debian", "other"];

pub(super) fn populate(world: &World, choices: &mut Choices<'_>) {
    builders::storage(world);
    if !choices.one_in(8) {
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        world.create_value(
            json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": KUBEVIRT}}),
        );
    }
    if !choices.one_in(8) {
        world.create_value(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LABS}}),
        );
    }
    let metadata = json!({"namespace": DEFAULT_NAMESPACE, "name": DEFAULT_POLICY_NAME});
    let data = policy(choices);
    create::<ConfigMap>(
        world,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
    );
    let count = 1 + choices.below(WORKSPACES.len());
    let names = &WORKSPACES[..count];
    let mut uids: Vec<String> =
        names.iter().filter_map(|name| workspace(world, choices, name)).collect();
    uids.push(DEAD.to_owned());
    for name in &IMAGES[..choices.below(3)] {
        image(world, choices, name, &uids);
    }
    for _ in 0..choices.below(6) {
        stranger(world, choices, &uids);
    }
    for name in names {
        status(world, choices, name);
    }
    ledger(world, choices, &uids);
}

pub(super) fn policy(choices: &mut Choices<'_>) -> BTreeMap<String, Value> {
    let slots = choices.text(&["1", "2", "0", "1", "100"]);
    let patience = choices.text(&["1m", "20m", "24h"]);
    [("workspaceConcurrency", slots), ("provisioningTimeout", patience)]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

/// The UID of the one that is made.
fn workspace(world: &World, choices: &mut Choices<'_>, name: &str) -> Option<String> {
    let mut metadata = json!({"name": name});
    if choices.one_in(4) {
        metadata["finalizers"] = json!([choices.of(&[WORKSPACE_FINALIZER, "example.com/theirs"])]);
    }
    let spec = spec(choices);
    let object =
        json!({"apiVersion": OURS, "kind": "Workspace", "metadata": metadata, "spec": spec});
    let made = create::<Workspace>(world, object)?;
    made["metadata"]["uid"].as_str().map(str::to_owned)
}

/// As the API server takes it: at least one entry, names of their own.
pub(super) fn spec(choices: &mut Choices<'_>) -> Value {
    let mut machines: Vec<Value> = Vec::new();
    for name in &MACHINES[..choices.below(3)] {
        machines.push(json!({"name": name, "spec": machine(choices)}));
    }
    let least = usize::from(machines.is_empty());
    let count = least + choices.below(CONTAINERS.len() + 1 - least);
    let containers: Vec<Value> =
        CONTAINERS[..count].iter().map(|name| container(choices, name)).collect();
    let mut spec = json!({
        "suspended": choices.one_in(8),
        "imageRetention": choices.of(&["Retain", "Delete"]),
        "network": {"isolate": !choices.one_in(4)},
        "virtualMachines": machines, "containers": containers,
    });
    if choices.one_in(8) {
        spec["namespace"] = json!(choices.of(&[LABS, "elsewhere", DEFAULT_NAMESPACE]));
    }
    spec
}

fn machine(choices: &mut Choices<'_>) -> Value {
    let mut machine = json!({"VMDiskImageName": choices.of(&IMAGES)});
    if choices.one_in(2) {
        machine["image"] = json!({
            "url": choices.of(&["http://images.example/a.qcow2", "http://images.example/b.qcow2"]),
            "sourceType": "http",
        });
    }
    if choices.one_in(4) {
        machine["revision"] = json!(choices.of(&["r1", "r2"]));
    }
    if !choices.one_in(3) {
        let strategy = choices.of(&["Always", "Halted", "Manual", "RerunOnFailure", "Once"]);
        machine["instance"] = json!({"runStrategy": strategy, "memory": "1Gi"});
    }
    machine
}

fn container(choices: &mut Choices<'_>, name: &str) -> Value {
    let port = |choices: &mut Choices<'_>| json!({"containerPort": 80 + choices.below(3), "protocol": choices.of(&["TCP", "UDP"])});
    let mut ports = choices.list(2, port);
    if let Some(first) = ports.get_mut(0).filter(|_| choices.one_in(2)) {
        first["name"] = json!(choices.of(&["http", "tcp-80"]));
    }
    json!({
        "name": name, "image": choices.of(&["registry.example/a:1", "registry.example/a:2"]),
        "replicas": choices.below(3), "ports": ports,
    })
}

/// One that somebody made by hand, or a Workspace did.
fn image(world: &World, choices: &mut Choices<'_>, name: &str, uids: &[String]) {
    let mut metadata = json!({"namespace": LABS, "name": name});
    if choices.one_in(2) {
        metadata["annotations"] = json!({MADE_BY_ANNOTATION: MADE_BY_WORKSPACE});
        let owner = |choices: &mut Choices<'_>| owner(choices, uids, false);
        metadata["ownerReferences"] = choices.list(2, owner);
    }
    let spec = json!({
        "url": choices.of(&["http://images.example/a.qcow2", "http://images.example/b.qcow2"]),
        "sourceType": "http",
    });
    let status = state_of_image(choices);
    let object = json!({"apiVersion": OURS, "kind": "VMDiskImage", "metadata": metadata, "spec": spec, "status": status});
    create::<VMDiskImage>(world, object);
}

/// As far as the API server takes it.
pub(super) fn state_of_image(choices: &mut Choices<'_>) -> Value {
    let status = any_state_of_image(choices);
    let fits = schema::problems("VMDiskImage", &status).is_empty();
    if fits { status } else { json!({}) }
}

fn any_state_of_image(choices: &mut Choices<'_>) -> Value {
    match choices.below(4) {
        0 => json!({"phase": "Syncing", "message": choices.text(&["on its way"])}),
        1 => json!({"phase": "Failed", "message": choices.text(&["no"])}),
        _ => json!({
            "phase": "Succeeded",
            "current": {"revision": choices.of(&["r1", "r2"]), "volume": "v", "minimumSize": choices.bytes()},
            "conditions": [{
                "type": "Available", "status": choices.of(&["True", "True", "False"]), "reason": "Succeeded",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }),
    }
}

fn owner(choices: &mut Choices<'_>, uids: &[String], controls: bool) -> Value {
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    json!({
        "apiVersion": OURS, "kind": "Workspace", "name": choices.of(&WORKSPACES),
        "uid": choices.of(&uids), "controller": controls, "blockOwnerDeletion": false,
    })
}

/// Something of the name of a child, in every relation to a Workspace.
fn stranger(world: &World, choices: &mut Choices<'_>, uids: &[String]) {
    let workspace = choices.of(&WORKSPACES);
    let entry = choices.of(&["api", "web", "db", "network", "gone"]);
    let mut metadata = json!({"namespace": LABS, "name": format!("{workspace}--{entry}")});
    let texts: Vec<&str> = uids.iter().map(String::as_str).collect();
    if choices.one_in(2) {
        metadata["labels"] = json!({OWNER_LABEL: choices.of(&texts), ENTRY_LABEL: entry});
    }
    if choices.one_in(4) {
        metadata["annotations"] = json!({REVISION_ANNOTATION: choices.text(&["0123456789abcdef"])});
    }
    if choices.one_in(2) {
        let controls = choices.one_in(2);
        metadata["ownerReferences"] = json!([owner(choices, uids, controls)]);
    }
    let object = |api: &str, kind: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
    let selector = json!({"matchLabels": {"app": "theirs"}});
    match choices.below(5) {
        0 => {
            let address = choices.of(&["None", "10.96.9.9"]);
            create::<Service>(world, object("v1", "Service", json!({"clusterIP": address})))
        }
        1 => {
            let container = json!({"name": entry, "image": "theirs", "ports": [{"name": "http", "containerPort": 81}]});
            let template = json!({"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [container]}});
            let spec = json!({"replicas": 0, "selector": selector, "template": template});
            create::<Deployment>(world, object("apps/v1", "Deployment", spec))
        }
        2 => {
            let selects_all = choices.one_in(2);
            let selector = if selects_all { json!({}) } else { selector };
            let spec = json!({"podSelector": selector, "ingress": [{}]});
            create::<NetworkPolicy>(world, object("networking.k8s.io/v1", "NetworkPolicy", spec))
        }
        3 => {
            let mut claim = object(
                "v1",
                "PersistentVolumeClaim",
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            );
            claim["metadata"]["name"] = json!(format!("{workspace}--{entry}-r1"));
            create::<PersistentVolumeClaim>(world, claim)
        }
        _ => {
            let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {}}}});
            create::<VirtualMachine>(world, object("kubevirt.io/v1", "VirtualMachine", spec))
        }
    };
}

/// What a Workspace remembers: nothing, or something in the bounds of its schema.
fn status(world: &World, choices: &mut Choices<'_>, name: &str) {
    if choices.one_in(2) {
        return;
    }
    let entry =
        |choices: &mut Choices<'_>| json!(choices.of(&["api", "web", "db", "data", "gone"]));
    let turn =
        |choices: &mut Choices<'_>| json!({"number": choices.attempt(), "since": choices.time()});
    let disk = |choices: &mut Choices<'_>| {
        json!({
            "entry": entry(choices), "image": choices.text(&IMAGES), "revision": choices.text(&["r1", "r2"]),
            "copied": choices.one_in(2),
        })
    };
    let status = choices.some(&[
        ("phase", &|choices| json!(choices.of(&["Provisioning", "Ready", "Suspended", "Failed"]))),
        ("namespace", &|choices| json!(choices.of(&[LABS, LABS, LABS, "elsewhere"]))),
        ("ticket", &|choices| {
            choices.text(&["1", "2", "7+2026-01-01T11:00:00Z", "18446744073709551615"])
        }),
        ("queuedAt", &Choices::time),
        ("lastTurn", &Choices::attempt),
        ("openTurn", &turn),
        ("startedParts", &|choices| choices.list(3, entry)),
        ("message", &|choices| choices.text(&["what was said"])),
        ("readyParts", &|choices| choices.text(&["1/2"])),
        ("observedGeneration", &Choices::number),
        ("conditions", &conditions),
        ("resourceStatus", &resources),
        ("disks", &|choices| choices.list(3, disk)),
        ("startedMachines", &|choices| choices.list(2, entry)),
        ("unreachableParts", &|choices| choices.list(2, entry)),
    ]);
    let key = Key::new("", name);
    let fits = schema::problems("Workspace", &status).is_empty();
    let Some(mut workspace) = world.get("Workspace", &key).filter(|_| fits) else { return };
    workspace["status"] = status.clone();
    if serde_json::from_value::<Workspace>(workspace).is_ok() {
        world.edit("Workspace", &key, |workspace| workspace["status"] = status);
    }
}

/// What was said of some of what is told, one condition each.
fn conditions(choices: &mut Choices<'_>) -> Value {
    let condition = |choices: &mut Choices<'_>, kind: &str| {
        json!({
            "type": kind, "status": choices.of(&["True", "False"]), "lastTransitionTime": choices.time(),
            "reason": choices.of(&["AllReady", "Degraded", "NotReady", "Queued", "NameConflict"]),
            "message": choices.text(&["what was said"]),
        })
    };
    choices.some_of(&[READY, STALLED, CREATING_WORKS, CONTAINERS_READY, DELETING], condition)
}

/// What was known of the parts: what the disks were made from is gone by later.
fn resources(choices: &mut Choices<'_>) -> Value {
    let machine = |choices: &mut Choices<'_>, name: &str| {
        let mut machine = choices.some(&[
            ("phase", &|choices| choices.text(&["Succeeded", "NotFound"])),
            ("image", &|choices| choices.text(&IMAGES)),
            ("revision", &|choices| choices.text(&["r1", "r2", "0123456789abcdef"])),
            ("machine", &|choices| choices.text(&["Running"])),
            ("service", &|choices| choices.text(&["lab--db"])),
            ("message", &|choices| choices.text(&["what was said"])),
        ]);
        machine["name"] = json!(name);
        machine
    };
    let container = |choices: &mut Choices<'_>, name: &str| {
        let status = choices.of(&["Pending", "Progressing", "Running", "Degraded", "Failed"]);
        json!({"name": name, "status": status, "message": choices.text(&["what was said"])})
    };
    let machines = choices.some_of(&["db", "data", "gone"], machine);
    let containers = choices.some_of(&CONTAINERS, container);
    let network = json!({"policy": choices.text(&["lab--network"])});
    json!({"virtualMachines": machines, "containers": containers, "network": network})
}

fn ledger(world: &World, choices: &mut Choices<'_>, uids: &[String]) {
    if choices.one_in(2) {
        return;
    }
    let texts: Vec<&str> = uids.iter().map(String::as_str).collect();
    let slot = |choices: &mut Choices<'_>| {
        json!({
            "namespace": "", "name": choices.of(&WORKSPACES), "uid": choices.of(&texts),
            "attempt": choices.attempt(), "ticket": choices.text(&["1", "2", "0"]), "since": choices.time(),
        })
    };
    let status = choices.some(&[
        ("limit", &Choices::number),
        ("active", &|choices| choices.list(3, slot)),
        ("policy", &|choices| json!(policy(choices))),
        ("oldestWaitingTicket", &|choices| choices.text(&["1"])),
    ]);
    let fits = schema::problems("AdmissionQueue", &status).is_empty();
    let status = if fits { status } else { json!({}) };
    let queue = json!({"apiVersion": OURS, "kind": "AdmissionQueue", "metadata": {"name": WORKSPACE_QUEUE}, "spec": {}, "status": status});
    create::<AdmissionQueue>(world, queue);
}
