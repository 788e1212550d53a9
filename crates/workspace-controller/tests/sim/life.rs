//! From nothing to Ready, and back.

use otctl_kit::plan::Propagation;
use testbed::sim::Order;
use testbed::{Health, builders};

use crate::controller::{Entry, LABS, edit, image, names, slots, status, sync, told, workspace, world};

const LAB: [Entry; 3] =
    [Entry::Machine("db", "debian"), Entry::Container("api"), Entry::Container("web")];

#[test]
fn a_workspace_waits_for_its_image_without_a_slot_and_goes_on_by_itself() {
    let mut sim = world(Order::Fixed);
    sim.world.create(&workspace("lab", &LAB));
    sim.settle();
    println!("{}", sim.story);
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (ImageNotFound, 0/3): there is no VMDiskImage 'debian': create it, or say in `image` of entry 'db' how it is made"
    );
    assert_eq!(slots(&sim.world), [""; 0]);
    image(&sim.world, "debian");
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (AwaitingImages, 0/3): VMDiskImage 'debian' is waited for: Syncing: 42 of 100 MiB"
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
