//! From nothing to Ready, and back.

use testbed::sim::Order;

use crate::builders::{image, sync, synced_image, workspace};
use crate::controller::{delete, names, slots, status, told, world};

#[test]
fn a_workspace_waits_for_its_image_without_a_slot_and_goes_on_by_itself() {
    let mut sim = world(Order::Fixed);
    workspace("lab").machine("db", "debian").container("api").container("web").create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (ImageNotFound, 0/3): there is no VMDiskImage 'debian': create it, or say in `image` of entry 'db' how it is made"
    );
    assert_eq!(slots(&sim.world), [""; 0]);
    image(&sim.world, "debian");
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (AwaitingImages, 0/3): VMDiskImage 'debian' is waited for: Syncing: the data is being fetched"
    );
    assert_eq!(names(&sim.world, "Deployment"), [""; 0]);
    sync(&sim.world, "debian", "r1");
    sim.settle();
    println!("{}", sim.story);
    assert_eq!(told(&sim.world, "lab"), "Ready (AllReady, 3/3): every part is ready");
    assert_eq!(slots(&sim.world), [""; 0]);
    assert_eq!(names(&sim.world, "Deployment"), ["lab--api", "lab--web"]);
    assert_eq!(names(&sim.world, "Service"), ["lab--api", "lab--db", "lab--web"]);
    assert_eq!(names(&sim.world, "VirtualMachine"), ["lab--db"]);
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    let machine = &status(&sim.world, "lab").resource_status.unwrap().virtual_machines[0];
    assert_eq!(machine.revision.as_deref(), Some("r1"));
}

#[test]
fn three_containers() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").container("a").container("b").container("c").create(&sim.world);
    sim.settle();
    delete(&sim.world, "lab");
    sim.settle();
    println!("{}", sim.story);
}
