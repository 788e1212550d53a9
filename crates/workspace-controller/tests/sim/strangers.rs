//! Objects that are not ours: of a child's name, and with our labels on them. They are never touched.

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use serde_json::{Value, json};
use testbed::sim::Order;
use testbed::{Health, Sim, check};

use crate::builders::{container, synced_image, workspace};
use crate::controller::{
    at, delete, edit, expect_sound, is_ready, names, reason, slots, status, told, world_of,
};

/// Somebody's object of that kind and name.
pub(crate) fn stranger(sim: &Sim, kind: &str, name: &str) -> Value {
    let version = match kind {
        "Deployment" => "apps/v1",
        "NetworkPolicy" => "networking.k8s.io/v1",
        "VirtualMachine" => "kubevirt.io/v1",
        _ => "v1",
    };
    sim.world.create_value(json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "labs", "labels": {"app": "theirs"}},
        "spec": {"clusterIP": "10.9.9.9", "replicas": 0, "runStrategy": "Halted", "selector": {}, "podSelector": {}},
    }))
}

const CHILDREN: [(&str, &str); 7] = [
    ("NetworkPolicy", "lab--network"),
    ("Service", "lab--api"),
    ("Service", "lab--db"),
    ("Deployment", "lab--api"),
    ("PersistentVolumeClaim", "lab--db-r1"),
    ("VirtualMachine", "lab--db"),
    ("Deployment", "lab--web"),
];

#[test]
fn a_strangers_object_of_a_childs_name_is_a_conflict_that_takes_no_slot_and_heals() {
    for (kind, name) in CHILDREN {
        let mut sim = world_of(1, Order::Fixed);
        synced_image(&sim.world, "debian");
        let theirs = stranger(&sim, kind, name);
        workspace("lab")
            .machine("db", "debian")
            .container("api")
            .container("web")
            .create(&sim.world);
        workspace("next").container("api").create(&sim.world);
        sim.settle();
        let message = told(&sim.world, "lab");
        let start = format!(
            "Failed (NameConflict, 0/3): {kind} labs/{name} exists and belongs to something else"
        );
        assert!(message.starts_with(&start), "{message}");
        assert_eq!(reason(&sim.world, "lab", condition::ACCEPTED), "NameConflict");
        assert_eq!(reason(&sim.world, "lab", condition::STALLED), "NameConflict");
        assert_eq!(status(&sim.world, "lab").last_turn, None, "it took no slot");
        assert!(is_ready(&sim.world, "next"), "{kind}\n{}", sim.story);
        edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 2);
        sim.settle();
        assert_eq!(without_status(&sim, kind, name), theirs, "{kind}");
        sim.world.delete(kind, &at(name), Propagation::Background);
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "{kind}\n{}", sim.story);
        expect_sound(&sim);
    }
}

/// As it is, but for what its own controller says of it.
fn without_status(sim: &Sim, kind: &str, name: &str) -> Value {
    let mut object = sim.world.get(kind, &at(name)).unwrap();
    let theirs = sim.world.history(|history| {
        let mine = history.iter().filter(|it| it.id.kind == kind && it.id.key.name == name);
        mine.map(|it| (it.by.clone(), it.object.clone())).collect::<Vec<_>>()
    });
    assert!(theirs.iter().all(|(by, _)| by != "controller"), "it was written to");
    if object.get("status").is_some() || object["metadata"]["finalizers"].is_array() {
        object = theirs[0].1.clone();
    }
    object
}

#[test]
fn a_strangers_object_outlives_the_workspace_it_was_in_the_way_of() {
    for (kind, name) in CHILDREN {
        let mut sim = world_of(1, Order::Fixed);
        synced_image(&sim.world, "debian");
        stranger(&sim, kind, name);
        workspace("lab")
            .machine("db", "debian")
            .container("api")
            .container("web")
            .create(&sim.world);
        sim.settle();
        delete(&sim.world, "lab");
        sim.settle();
        assert_eq!(names(&sim.world, "Workspace"), [""; 0], "{kind}\n{}", sim.story);
        assert!(sim.world.get(kind, &at(name)).is_some(), "{kind}");
        check::expect_none(&check::whole_history_of_workspaces(&sim.world));
    }
}

#[test]
fn a_conflict_of_an_added_entry_stops_nothing_that_runs_and_heals_its_neighbours() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    stranger(&sim, "Deployment", "lab--web");
    edit(&sim.world, "lab", |spec| spec.containers.push(container("web")));
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "NameConflict");
    for (kind, name) in
        [("NetworkPolicy", "lab--network"), ("Service", "lab--api"), ("Deployment", "lab--api")]
    {
        sim.world.delete(kind, &at(name), Propagation::Background);
        sim.settle();
        assert!(sim.world.get(kind, &at(name)).is_some(), "{kind}\n{}", sim.story);
    }
    sim.world.delete("Deployment", &at("lab--web"), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), [""; 0]);
}

/// Its pods would be open to everybody.
#[test]
fn nothing_that_runs_pods_is_made_while_the_name_of_the_policy_is_somebody_elses() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    sim.world.delete("NetworkPolicy", &at("lab--network"), Propagation::Background);
    stranger(&sim, "NetworkPolicy", "lab--network");
    sim.world.delete("Deployment", &at("lab--api"), Propagation::Background);
    edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 2);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "NameConflict", "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), [""; 0], "\n{}", sim.story);
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "what runs is stopped all the same");
    edit(&sim.world, "lab", |spec| spec.suspended = false);
    sim.world.delete("NetworkPolicy", &at("lab--network"), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod").len(), 3, "\n{}", sim.story);
}

/// Suspended while a name is taken, it has stopped as well: what is resumed takes a slot.
#[test]
fn one_that_is_suspended_under_a_conflict_is_resumed_in_a_turn() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").container("web").create(&sim.world);
    sim.settle();
    sim.world.delete("Service", &at("lab--web"), Propagation::Background);
    stranger(&sim, "Service", "lab--web");
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "NameConflict", "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
    sim.world.fare("slow", Health::NeverReady);
    workspace("holder").container("slow").create(&sim.world);
    sim.quiesce();
    sim.world.delete("Service", &at("lab--web"), Propagation::Background);
    edit(&sim.world, "lab", |spec| spec.suspended = false);
    sim.quiesce();
    assert_eq!(names(&sim.world, "Pod").len(), 1, "the holder's alone\n{}", sim.story);
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2));
    expect_sound(&sim);
}

#[test]
fn an_object_that_comes_to_a_name_between_two_looks_is_not_taken_over() {
    for (kind, name) in CHILDREN {
        let mut sim = world_of(1, Order::Fixed);
        synced_image(&sim.world, "debian");
        sim.hold(kind);
        workspace("lab")
            .machine("db", "debian")
            .container("api")
            .container("web")
            .create(&sim.world);
        sim.step();
        stranger(&sim, kind, name);
        sim.quiesce();
        assert_eq!(
            reason(&sim.world, "lab", condition::READY),
            "NameConflict",
            "{kind} {name}\n{}",
            sim.story
        );
        sim.release(kind);
        sim.world.delete(kind, &at(name), Propagation::Background);
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "{kind} {name}\n{}", sim.story);
        expect_sound(&sim);
    }
}

#[test]
fn a_name_that_is_a_hash_is_a_conflict_that_heals_as_well() {
    let mut sim = world_of(1, Order::Fixed);
    let long = "b".repeat(63);
    workspace(&long).container("api").create(&sim.world);
    sim.settle();
    let service = names(&sim.world, "Service").remove(0);
    assert!(service.starts_with("w-"), "{service}");
    edit(&sim.world, &long, |spec| spec.containers.push(container("web")));
    sim.settle();
    let mut services = names(&sim.world, "Service");
    services.retain(|name| *name != service);
    edit(&sim.world, &long, |spec| drop(spec.containers.remove(1)));
    sim.settle();
    stranger(&sim, "Service", &services[0]);
    edit(&sim.world, &long, |spec| spec.containers.push(container("web")));
    sim.settle();
    assert_eq!(reason(&sim.world, &long, condition::READY), "NameConflict");
    sim.world.delete("Service", &at(&services[0]), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, &long), "\n{}", sim.story);
}

#[test]
fn our_labels_on_a_strangers_object_make_it_no_child() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    let ours = sim.world.get("Deployment", &at("lab--api")).unwrap();
    let mut theirs = ours.clone();
    theirs["metadata"] =
        json!({"name": "theirs", "namespace": "labs", "labels": ours["metadata"]["labels"]});
    theirs["spec"]["replicas"] = json!(0);
    let theirs = sim.world.create_value(theirs);
    sim.settle();
    edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 2);
    sim.settle();
    delete(&sim.world, "lab");
    sim.settle();
    let left = sim.world.get("Deployment", &at("theirs")).unwrap();
    assert_eq!(left["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert_eq!(left["metadata"]["ownerReferences"], json!(null));
}

#[test]
fn a_pod_that_lost_its_deployment_holds_the_policy_until_it_ends() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    let pod = names(&sim.world, "Pod")[0].clone();
    sim.world.edit("Pod", &at(&pod), |it| it["metadata"]["ownerReferences"] = json!([]));
    delete(&sim.world, "lab");
    sim.settle();
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"], "\n{}", sim.story);
    sim.world.edit("Pod", &at(&pod), |it| it["spec"]["nodeName"] = json!(null));
    sim.world.delete("Pod", &at(&pod), Propagation::Background);
    sim.settle();
    assert_eq!(names(&sim.world, "Workspace"), [""; 0], "\n{}", sim.story);
}
