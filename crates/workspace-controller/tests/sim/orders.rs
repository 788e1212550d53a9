//! The same lives in orders drawn from seeds, down to single requests of interleaved passes, with two controllers at once,
//! with late views, and with deaths at any moment.

use testbed::effort::seeds;
use testbed::sim::Order;
use testbed::{Health, Sim, builders as bed};

use crate::builders::{container, image, sync, synced_image, workspace};
use crate::controller::{
    delete, edit, expect_sound, expect_sound_together, furnish, instance, is_ready, limit, names,
    slots, world_of,
};

/// Of both kinds.
pub(crate) fn orders() -> impl Iterator<Item = Order> {
    seeds(2).map(Order::Shuffled).chain(seeds(2).map(Order::Interleaved))
}

/// Five workspaces of every kind; what is not there yet comes later.
pub(crate) fn five(sim: &Sim) {
    synced_image(&sim.world, "debian");
    sim.world.fare("slow", Health::NeverReady);
    workspace("a").machine("db", "debian").container("api").create(&sim.world);
    workspace("b").made_image("data", "own").takes_images_along().create(&sim.world);
    workspace("c").container("slow").create(&sim.world);
    workspace("d").image("data", "late").container("api").create(&sim.world);
    workspace("e").made_image("data", "own").takes_images_along().create(&sim.world);
}

/// Meanwhile people edit, suspend and delete, and images come.
pub(crate) fn meanwhile(sim: &mut Sim) {
    steps(sim, 60);
    image(&sim.world, "late");
    edit(&sim.world, "a", |spec| spec.containers.push(container("web")));
    steps(sim, 40);
    if sim.world.get("VMDiskImage", &crate::controller::at("own")).is_some() {
        sync(&sim.world, "own", "r1");
    }
    edit(&sim.world, "c", |spec| spec.suspended = true);
    steps(sim, 40);
    sync(&sim.world, "late", "r1");
    sim.world.fare("slow", Health::Fine);
    edit(&sim.world, "c", |spec| spec.suspended = false);
    steps(sim, 40);
    delete(&sim.world, "e");
    sim.settle();
    sync(&sim.world, "own", "r1");
    sim.settle();
}

fn steps(sim: &mut Sim, count: usize) {
    (0..count).for_each(|_| {
        sim.step();
    });
}

fn expect_the_end(sim: &Sim) {
    expect_sound_together(sim);
    assert_eq!(names(&sim.world, "Workspace"), ["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
    }
    assert_eq!(slots(&sim.world), [""; 0], "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), ["a--api", "a--web", "c--slow", "d--api"]);
}

#[test]
fn one_controller_in_any_order() {
    for order in orders() {
        let mut sim = world_of(2, order);
        five(&sim);
        meanwhile(&mut sim);
        expect_the_end(&sim);
    }
}

/// One that has not seen that it ended a turn may make something of it once more; the driver waits for that.
#[test]
fn one_controller_that_sees_its_own_writes_makes_nothing_outside_of_a_turn() {
    for order in orders() {
        let mut sim = world_of(2, order).reading_own_writes();
        five(&sim);
        meanwhile(&mut sim);
        expect_the_end(&sim);
        expect_sound(&sim);
    }
}

#[test]
fn two_controllers_at_once_in_any_order() {
    for order in orders() {
        let mut sim = Sim::new(order).with_process("one", instance).with_process("two", instance);
        furnish(&sim.world);
        limit(&sim.world, "2");
        five(&sim);
        meanwhile(&mut sim);
        expect_the_end(&sim);
    }
}

#[test]
fn killed_at_any_moment_in_any_order() {
    for order in orders() {
        let mut sim = world_of(2, order);
        five(&sim);
        for kill in 0..12 {
            steps(&mut sim, 17 + kill);
            sim.kill("controller");
        }
        meanwhile(&mut sim);
        expect_the_end(&sim);
    }
}

#[test]
fn a_late_view_of_one_kind_does_no_harm() {
    for kind in [
        "AdmissionQueue",
        "Workspace",
        "VMDiskImage",
        "NetworkPolicy",
        "Service",
        "Deployment",
        "Pod",
    ] {
        for seed in seeds(1) {
            let mut sim = world_of(2, Order::Interleaved(seed));
            sim.run_until("the ledger is there", |world| {
                world.get("AdmissionQueue", &bed::key("workspaces")).is_some()
            });
            sim.hold(kind);
            five(&sim);
            steps(&mut sim, 150);
            sim.release(kind);
            meanwhile(&mut sim);
            expect_the_end(&sim);
        }
    }
}
