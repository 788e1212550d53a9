//! From nothing to Ready, with what may be missing on the way.

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use testbed::check;
use testbed::sim::Order;

use crate::builders::{image, sync, synced_image, workspace};
use crate::controller::{
    at, delete, expect_sound, install_kubevirt, instance, is_ready, make_namespace, names, reason,
    slots, status, told, world,
};

#[test]
fn a_workspace_that_is_created_before_its_image_waits_without_a_slot_and_goes_on_by_itself() {
    let mut sim = world(Order::Fixed);
    workspace("lab").machine("db", "debian").container("api").container("web").create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (ImageNotFound, 0/3): there is no VMDiskImage 'debian' in namespace labs: create it there, or say in `image` of entry 'db' how it is made"
    );
    assert_eq!(slots(&sim.world), [""; 0]);
    image(&sim.world, "debian");
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (AwaitingImages, 0/3): VMDiskImage 'debian' is waited for: Syncing: the data is being fetched"
    );
    for kind in ["Service", "Deployment", "VirtualMachine", "Pod"] {
        assert_eq!(names(&sim.world, kind), [""; 0], "{kind}");
    }
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), "Ready (AllReady, 3/3): every part is ready");
    assert_eq!(slots(&sim.world), [""; 0]);
    assert_eq!(names(&sim.world, "Deployment"), ["lab--api", "lab--web"]);
    assert_eq!(names(&sim.world, "Service"), ["lab--api", "lab--db", "lab--web"]);
    assert_eq!(names(&sim.world, "VirtualMachine"), ["lab--db"]);
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    let machine = &status(&sim.world, "lab").resource_status.unwrap().virtual_machines[0];
    assert_eq!(machine.revision.as_deref(), Some("r1"));
    expect_sound(&sim);
}

#[test]
fn everything_is_ready_already_when_the_controller_looks_for_the_first_time() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"));
    // A second controller begins where the first one was at its first turn: with all children there.
    sim.world.edit("Workspace", &testbed::builders::key("lab"), |it| {
        it.as_object_mut().unwrap().remove("status");
    });
    sim.kill("controller");
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), "Ready (AllReady, 2/2): every part is ready");
}

#[test]
fn kubevirt_may_be_installed_while_a_workspace_waits() {
    let mut sim = testbed::Sim::new(Order::Fixed).with_process("controller", instance);
    testbed::builders::storage(&sim.world);
    make_namespace(&sim.world);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    workspace("other").container("api").create(&sim.world);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "KubeVirtNotInstalled");
    assert_eq!(
        reason(&sim.world, "lab", condition::VIRTUAL_MACHINES_READY),
        "KubeVirtNotInstalled"
    );
    assert!(is_ready(&sim.world, "other"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), ["other--api"]);
    install_kubevirt(&sim.world);
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), "Ready (AllReady, 2/2): every part is ready");
    expect_sound(&sim);
}

#[test]
fn kubevirt_that_is_taken_away_is_told_and_comes_back() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    let definition = testbed::builders::key("virtualmachines.kubevirt.io");
    for (kind, key) in [("VirtualMachine", at("lab--db")), ("CustomResourceDefinition", definition)]
    {
        sim.world.delete(kind, &key, Propagation::Background);
    }
    sim.settle();
    for kind in [condition::VIRTUAL_MACHINES_READY, condition::READY] {
        assert!(!is_ready(&sim.world, "lab"));
        assert_ne!(reason(&sim.world, "lab", kind), "AllReady", "{kind}\n{}", sim.story);
    }
    assert!(told(&sim.world, "lab").contains("KubeVirt is not installed"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "VirtualMachine"), [""; 0]);
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), ["lab--db-r1"], "the disk stays");
    install_kubevirt(&sim.world);
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), "Ready (AllReady, 2/2): every part is ready");
    expect_sound(&sim);
}

#[test]
fn an_image_alone_runs_nothing_and_is_ready_with_its_image() {
    let mut sim = world(Order::Fixed);
    image(&sim.world, "debian");
    workspace("lab").image("data", "debian").create(&sim.world);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod"), [""; 0]);
    // Nothing of it has pods, so nothing has to outlive them.
    let lab = sim.world.get("Workspace", &testbed::builders::key("lab")).unwrap();
    assert!(lab["metadata"]["finalizers"].is_null());
    delete(&sim.world, "lab");
    sim.settle();
    assert_eq!(names(&sim.world, "Service"), [""; 0]);
    expect_sound(&sim);
}

#[test]
fn an_open_workspace_has_no_policy_and_says_so() {
    let mut sim = world(Order::Fixed);
    workspace("lab").container("api").with(|spec| spec.network.isolate = false).create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab", condition::NETWORK_READY), "NotIsolated");
    assert_eq!(names(&sim.world, "NetworkPolicy"), [""; 0]);
    check::expect_none(&check::whole_history_of_workspaces(&sim.world));
}

#[test]
fn a_namespace_that_the_chart_does_not_list_is_refused_without_a_ticket() {
    let mut sim = world(Order::Fixed);
    workspace("lab")
        .container("api")
        .with(|spec| spec.namespace = Some("other".to_owned()))
        .create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Failed (NamespaceNotAllowed, 0/1): namespace other is not one that the controller's chart lists; create the Workspace anew in one of: labs"
    );
    let status = status(&sim.world, "lab");
    assert_eq!((status.ticket, status.namespace), (None, None));
    assert!(condition::is_true(&status.conditions, condition::STALLED));
}

#[test]
fn long_names_and_names_with_dots_are_made_as_well() {
    for length in [1, 50, 52, 57, 63, 253] {
        let mut sim = world(Order::Fixed);
        let name = ["a", &"b".repeat(length - 1)].concat();
        let dotted = format!("{}.c", &name[..length.min(251)]);
        workspace(&name).container(&"x".repeat(40)).create(&sim.world);
        workspace(&dotted).container(&"x".repeat(40)).create(&sim.world);
        sim.settle();
        assert!(is_ready(&sim.world, &name) && is_ready(&sim.world, &dotted), "{length}");
        let services = names(&sim.world, "Service");
        assert_eq!(services.len(), 2, "{services:?}");
        assert!(services.iter().all(|name| name.len() <= 63), "{services:?}");
        expect_sound(&sim);
    }
}
