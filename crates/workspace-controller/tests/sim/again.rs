//! Entries that are removed and added again, and disks and ports that become others under their names.

use std::collections::BTreeSet;

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use otctl_types::workspace::ContainerPort;
use serde_json::{Value, json};
use testbed::Sim;
use testbed::fault::at as call;
use testbed::sim::Order;

use crate::builders::{container, instance, machine, synced_image, workspace};
use crate::controller::{
    at, edit, expect_sound, is_ready, names, reason, slots, status, told, versions, world,
};
use crate::deletion::expect_never_failed;
use crate::edits::{all_but, ready, untouched};
use crate::faults::refusal;

/// What people are advised to do for another disk. The one that goes is nobody's: it is waited for without a slot, nothing
/// has failed, and no machine is made on it.
#[test]
fn a_machine_that_is_removed_and_added_again_waits_for_its_disk_to_go() {
    let mut sim = ready();
    synced_image(&sim.world, "fedora");
    let (claim, from) = (at("lab--db-r1"), sim.world.revision());
    let uid = sim.world.get("PersistentVolumeClaim", &claim).unwrap()["metadata"]["uid"].clone();
    sim.world.edit("PersistentVolumeClaim", &claim, |it| {
        it["metadata"]["finalizers"] = json!(["somebody/else"]);
    });
    edit(&sim.world, "lab", |spec| spec.virtual_machines.clear());
    sim.settle();
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines.push(machine("db", "fedora", Some(instance())));
    });
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::IMAGES_READY), "OldChildTerminating");
    let words = "PersistentVolumeClaim 'lab--db-r1', the disk of entry 'db', is being deleted: a new one is made when it is gone";
    assert!(told(&sim.world, "lab").contains(words), "{}", told(&sim.world, "lab"));
    assert_eq!(slots(&sim.world), [""; 0], "\n{}", sim.story);
    assert_eq!(names(&sim.world, "VirtualMachine"), [""; 0], "\n{}", sim.story);
    sim.world.edit("PersistentVolumeClaim", &claim, |it| it["metadata"]["finalizers"] = json!([]));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let made = sim.world.get("PersistentVolumeClaim", &claim).unwrap();
    assert_ne!(made["metadata"]["uid"], uid);
    assert_eq!(status(&sim.world, "lab").disks[0].image, "fedora");
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2));
    expect_never_failed(&sim, from);
    expect_sound(&sim);
}

/// It holds its machine's data until that stops; then both are made anew.
#[test]
fn a_disk_that_is_deleted_under_its_machine_is_told() {
    let mut sim = ready();
    sim.world.delete("PersistentVolumeClaim", &at("lab--db-r1"), Propagation::Background);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::IMAGES_READY), "OldChildTerminating");
    assert_eq!(names(&sim.world, "VirtualMachine"), ["lab--db"], "it runs on\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod").len(), 3, "\n{}", sim.story);
    sim.world.delete("VirtualMachine", &at("lab--db"), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "it is healed without a slot");
    expect_sound(&sim);
}

/// What ran an entry before is not taken for what runs it now.
#[test]
fn a_container_that_is_removed_and_added_again_is_ready_with_its_new_pods_alone() {
    let mut sim = ready();
    keep(&sim, "Deployment", "lab--api", &["somebody/else"]);
    let entry = container("api");
    edit(&sim.world, "lab", |spec| spec.containers.retain(|it| it.name != "api"));
    sim.settle();
    edit(&sim.world, "lab", |spec| spec.containers.push(entry));
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::CONTAINERS_READY), "OldChildTerminating");
    assert_eq!(status(&sim.world, "lab").ready_parts.as_deref(), Some("2/3"), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), [""; 0], "a slot pays for no waiting\n{}", sim.story);
    keep(&sim, "Deployment", "lab--api", &[]);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

/// What is not asked for any more goes in the same apply: the Service keeps its address, and pods are rolled once.
#[test]
fn a_named_port_that_gets_another_number_changes_its_service_and_rolls_once() {
    let mut sim = world(Order::Fixed);
    workspace("lab")
        .container("api")
        .with(|spec| spec.containers[0].ports = vec![port(8080)])
        .container("web")
        .create(&sim.world);
    sim.settle();
    let (before, service) = (versions(&sim.world), sim.world.get("Service", &at("lab--api")));
    let from = sim.world.revision();
    edit(&sim.world, "lab", |spec| spec.containers[0].ports = vec![port(9090)]);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let now = sim.world.get("Service", &at("lab--api"));
    let (before_uid, now) = (service.unwrap()["metadata"]["uid"].clone(), now.unwrap());
    assert_eq!(now["metadata"]["uid"], before_uid, "\n{}", sim.story);
    assert_eq!(now["spec"]["ports"].as_array().unwrap().len(), 1);
    assert_eq!(now["spec"]["ports"][0]["port"], 9090);
    let templates: BTreeSet<String> = sim.world.history(|history| {
        let later = history.iter().filter(|it| it.revision >= from && it.id.kind == "Deployment");
        let of_api = later.filter(|it| it.id.key.name == "lab--api");
        of_api.map(|it| it.object["spec"]["template"].to_string()).collect()
    });
    assert_eq!(templates.len(), 1, "{templates:#?}");
    assert_eq!(untouched(&sim, &before), all_but(&before, &["lab--api"]));
    expect_sound(&sim);
}

/// As before, and somebody has moved the port meanwhile: the API server refuses the apply, so what is in its way goes first.
#[test]
fn a_named_port_that_is_moved_by_hand_and_edited_at_once_is_what_its_entry_says() {
    for (kind, place) in [
        ("Service", "/spec/ports/0/port"),
        ("Deployment", "/spec/template/spec/containers/0/ports/0/containerPort"),
    ] {
        let mut sim = world(Order::Fixed);
        workspace("lab")
            .container("api")
            .with(|spec| spec.containers[0].ports = vec![port(8080)])
            .create(&sim.world);
        sim.settle();
        sim.pause("controller");
        sim.world.edit(kind, &at("lab--api"), |it| *it.pointer_mut(place).unwrap() = json!(99));
        edit(&sim.world, "lab", |spec| spec.containers[0].ports = vec![port(9090)]);
        sim.resume("controller");
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "{kind}\n{}", sim.story);
        let object = sim.world.get(kind, &at("lab--api")).unwrap();
        assert_eq!(object.pointer(place), Some(&json!(9090)), "{kind}\n{}", sim.story);
        expect_sound(&sim);
    }
}

/// A policy of the cluster calls invalid what it likes: what runs stays as it is.
#[test]
fn a_named_port_whose_other_number_is_refused_costs_nothing_that_runs() {
    let mut sim = world(Order::Fixed);
    workspace("lab")
        .container("api")
        .with(|spec| spec.containers[0].ports = vec![port(8080)])
        .create(&sim.world);
    sim.settle();
    let children = [("Service", at("lab--api")), ("Deployment", at("lab--api"))];
    let seen = |sim: &Sim| -> Vec<Value> {
        let each = |(kind, key): &(&str, _)| {
            let object = sim.world.get(kind, key);
            object.map_or(Value::Null, |it| json!([it["metadata"]["uid"], it["spec"]]))
        };
        children.iter().map(each).collect()
    };
    let before = seen(&sim);
    for (kind, key) in &children {
        let refused = call(&format!("write {kind} {key}")).always();
        sim.faults().add(refused.then(refusal(422, "Invalid", "no")));
    }
    edit(&sim.world, "lab", |spec| spec.containers[0].ports = vec![port(90)]);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "Rejected", "\n{}", sim.story);
    assert_eq!(seen(&sim), before, "\n{}", sim.story);
    sim.faults().clear();
    edit(&sim.world, "lab", |spec| spec.containers[0].ports = vec![port(8080)]);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(seen(&sim), before, "\n{}", sim.story);
    expect_sound(&sim);
}

/// Somebody deletes a child and somebody's finalizer keeps it: the others are healed and changed.
#[test]
fn a_service_that_was_deleted_and_stays_holds_up_no_other() {
    let mut sim = ready();
    keep(&sim, "Service", "lab--db", &["somebody/else"]);
    sim.world.delete("Service", &at("lab--db"), Propagation::Background);
    edit(&sim.world, "lab", |spec| spec.containers[0].image = "api:2".to_owned());
    sim.world.delete("Deployment", &at("lab--web"), Propagation::Background);
    sim.quiesce();
    let api = sim.world.get("Deployment", &at("lab--api")).unwrap();
    assert_eq!(api["spec"]["template"]["spec"]["containers"][0]["image"], "api:2");
    assert_eq!(names(&sim.world, "Deployment"), ["lab--api", "lab--web"], "\n{}", sim.story);
    let words =
        "virtual machine 'db': Service lab--db is being deleted, and made anew when it is gone";
    assert!(told(&sim.world, "lab").contains(words), "{}", told(&sim.world, "lab"));
    let before = versions(&sim.world);
    keep(&sim, "Service", "lab--db", &[]);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(untouched(&sim, &before), all_but(&before, &["Service \"lab--db\""]));
    expect_sound(&sim);
}

/// It isolates until it is gone, so it is to be what it should be; and nobody is told that all is well.
#[test]
fn a_policy_that_was_deleted_and_stays_is_told_and_follows_its_workspace() {
    let mut sim = ready();
    keep(&sim, "NetworkPolicy", "lab--network", &["somebody/else"]);
    sim.world.delete("NetworkPolicy", &at("lab--network"), Propagation::Background);
    sim.world.edit("NetworkPolicy", &at("lab--network"), |it| it["spec"]["egress"] = json!([{}]));
    sim.quiesce();
    let policy = sim.world.get("NetworkPolicy", &at("lab--network")).unwrap();
    assert_ne!(policy["spec"]["egress"], json!([{}]), "\n{}", sim.story);
    let network = reason(&sim.world, "lab", condition::NETWORK_READY);
    assert_eq!(network, "OldChildTerminating", "\n{}", sim.story);
    keep(&sim, "NetworkPolicy", "lab--network", &[]);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

/// Who makes pods leaves alone what is being deleted: nothing stops them, and somebody is to know.
#[test]
fn what_was_deleted_and_runs_on_under_a_suspension_is_told() {
    let mut sim = ready();
    keep(&sim, "Deployment", "lab--web", &["somebody/else"]);
    sim.world.delete("Deployment", &at("lab--web"), Propagation::Background);
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.quiesce();
    let words = "Deployment lab--web (finalizers: somebody/else) is being deleted, and its pods run on until it is gone";
    let message = status(&sim.world, "lab").message;
    assert_eq!(message.as_deref(), Some(words), "\n{}", sim.story);
    keep(&sim, "Deployment", "lab--web", &[]);
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab", condition::READY), "Suspended");
}

fn keep(sim: &Sim, kind: &str, name: &str, finalizers: &[&str]) {
    sim.world.edit(kind, &at(name), |it| it["metadata"]["finalizers"] = json!(finalizers));
}

fn port(number: i32) -> ContainerPort {
    ContainerPort {
        name: Some("http".to_owned()),
        container_port: number,
        ..ContainerPort::default()
    }
}
