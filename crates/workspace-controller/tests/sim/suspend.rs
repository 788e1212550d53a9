//! Suspension: pods and machines stop; disks, claims, Services and addresses stay.

use otctl_types::condition;
use serde_json::{Value, json};
use testbed::sim::Order;
use testbed::{Health, Sim, builders as bed};

use crate::builders::{container, image, synced_image, workspace};
use crate::controller::{
    at, edit, expect_sound, is_ready, names, reason, slots, status, told, world_of,
};

fn suspend(sim: &Sim, name: &str, is_suspended: bool) {
    edit(&sim.world, name, |spec| spec.suspended = is_suspended);
}

fn addresses(sim: &Sim) -> Vec<Value> {
    sim.world.list("Service").iter().map(|it| it["spec"]["clusterIP"].clone()).collect()
}

#[test]
fn what_is_suspended_stops_and_keeps_its_disks_and_addresses() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    let (claims, ips) = (names(&sim.world, "PersistentVolumeClaim"), addresses(&sim));
    suspend(&sim, "lab", true);
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0]);
    assert_eq!(
        told(&sim.world, "lab"),
        "Suspended (Suspended, 0/2): suspended; set suspended to false to start it again"
    );
    assert_eq!(reason(&sim.world, "lab", condition::RECONCILING), "", "it is at rest");
    let machine = sim.world.get("VirtualMachine", &at("lab--db")).unwrap();
    assert_eq!(machine["spec"]["runStrategy"], json!("Halted"));
    assert_eq!(
        (names(&sim.world, "PersistentVolumeClaim"), addresses(&sim)),
        (claims.clone(), ips.clone())
    );
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    suspend(&sim, "lab", false);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2), "a resume takes a slot");
    assert_eq!((names(&sim.world, "PersistentVolumeClaim"), addresses(&sim)), (claims, ips));
    assert_eq!(slots(&sim.world), [""; 0]);
    expect_sound(&sim);
}

#[test]
fn a_resume_stands_in_line_and_nothing_runs_before_its_turn() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    suspend(&sim, "lab", true);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    workspace("other").container("slow").create(&sim.world);
    sim.quiesce();
    suspend(&sim, "lab", false);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::ADMITTED), "SlotsBusy");
    let pods = names(&sim.world, "Pod");
    assert!(pods.iter().all(|name| name.starts_with("other")), "{pods:?}");
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn one_that_is_suspended_in_its_turn_gives_its_slot_back() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    workspace("lab").container("api").create(&sim.world);
    workspace("other").container("web").create(&sim.world);
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["lab#1"]);
    suspend(&sim, "lab", true);
    sim.settle();
    assert!(is_ready(&sim.world, "other"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod").len(), 1);
    sim.world.fare("api", Health::Fine);
    suspend(&sim, "lab", false);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn one_that_is_suspended_from_birth_makes_nothing_and_has_no_place() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab")
        .made_image("data", "debian")
        .container("api")
        .with(|spec| spec.suspended = true)
        .create(&sim.world);
    sim.settle();
    for kind in ["VMDiskImage", "NetworkPolicy", "Service", "Deployment"] {
        assert_eq!(names(&sim.world, kind), [""; 0], "{kind}");
    }
    let status = status(&sim.world, "lab");
    assert_eq!((status.ticket, status.last_turn), (None, None));
    suspend(&sim, "lab", false);
    sim.settle();
    assert_eq!(names(&sim.world, "VMDiskImage"), ["debian"]);
    expect_sound(&sim);
}

#[test]
fn one_that_waits_gives_its_place_up_when_it_is_suspended() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("slow", Health::NeverReady);
    workspace("first").container("slow").create(&sim.world);
    for name in ["second", "third"] {
        workspace(name).container("api").create(&sim.world);
    }
    sim.quiesce();
    suspend(&sim, "second", true);
    sim.quiesce();
    assert_eq!(status(&sim.world, "second").ticket, None, "\n{}", sim.story);
    suspend(&sim, "second", false);
    sim.quiesce();
    let ticket = |name: &str| status(&sim.world, name).ticket.unwrap();
    assert!(ticket("second") > ticket("third"), "{} {}", ticket("second"), ticket("third"));
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    for name in ["first", "second", "third"] {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
    }
    expect_sound(&sim);
}

#[test]
fn an_image_that_waits_is_no_stall_of_what_is_suspended() {
    let mut sim = world_of(1, Order::Fixed);
    image(&sim.world, "debian");
    crate::builders::fail(&sim.world, "debian");
    workspace("lab").machine("db", "debian").with(|spec| spec.suspended = true).create(&sim.world);
    sim.settle();
    assert!(told(&sim.world, "lab").starts_with("Suspended (Suspended, 0/1)"));
    assert_eq!(reason(&sim.world, "lab", condition::STALLED), "");
    assert_eq!(reason(&sim.world, "lab", condition::IMAGES_READY), "ImageFailed");
}

#[test]
fn edits_while_suspended_count_when_it_is_resumed() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").container("web").create(&sim.world);
    sim.settle();
    suspend(&sim, "lab", true);
    sim.settle();
    edit(&sim.world, "lab", |spec| {
        spec.containers.remove(0);
        spec.containers[0].image = "registry.example/web:2".to_owned();
        spec.containers.push(container("new"));
    });
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), ["lab--web"]);
    suspend(&sim, "lab", false);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), ["lab--new", "lab--web"]);
    let web = sim.world.get("Deployment", &at("lab--web")).unwrap();
    let containers = &web["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], json!("registry.example/web:2"));
    expect_sound(&sim);
}

#[test]
fn a_service_that_is_lost_while_suspended_comes_back_with_its_address() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").container("web").create(&sim.world);
    sim.settle();
    suspend(&sim, "lab", true);
    sim.settle();
    let ips = addresses(&sim);
    sim.world.delete("Service", &at("lab--api"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert_eq!(addresses(&sim), ips, "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod"), [""; 0]);
}

#[test]
fn a_status_that_is_lost_while_suspended_starts_nothing() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    suspend(&sim, "lab", true);
    sim.settle();
    sim.world.edit("Workspace", &bed::key("lab"), |it| {
        drop(it.as_object_mut().unwrap().remove("status"))
    });
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0]);
    assert!(told(&sim.world, "lab").starts_with("Suspended"), "{}", told(&sim.world, "lab"));
    suspend(&sim, "lab", false);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}
