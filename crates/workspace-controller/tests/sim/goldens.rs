//! Stories that a person can read: `UPDATE_GOLDEN=1` rewrites them; read the difference like code.

use std::time::Duration;

use testbed::golden::compare;
use testbed::sim::Order;
use testbed::{Health, golden};

use crate::builders::{sync, synced_image, workspace};
use crate::controller::{delete, edit, world_of};

#[test]
fn a_workspace_brings_its_image_runs_and_goes() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").made_image("data", "debian").container("api").create(&sim.world);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    delete(&sim.world, "lab");
    sim.settle();
    compare(golden!("a_workspace_brings_its_image_runs_and_goes"), &sim.story.to_string());
}

#[test]
fn one_that_does_not_start_gives_its_slot_to_the_next() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("bad", Health::NoImage("no such image".to_owned()));
    workspace("first").container("bad").create(&sim.world);
    workspace("next").container("api").create(&sim.world);
    sim.quiesce();
    sim.advance(Duration::from_secs(15 * 60));
    sim.world.fare("bad", Health::Fine);
    sim.settle();
    compare(golden!("one_that_does_not_start_gives_its_slot_to_the_next"), &sim.story.to_string());
}

#[test]
fn one_is_suspended_and_resumed_behind_another() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").create(&sim.world);
    sim.settle();
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    workspace("other").container("slow").create(&sim.world);
    sim.quiesce();
    edit(&sim.world, "lab", |spec| spec.suspended = false);
    sim.quiesce();
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    compare(golden!("one_is_suspended_and_resumed_behind_another"), &sim.story.to_string());
}
