//! The same lives in orders drawn from seeds, down to single requests of interleaved passes, with two controllers at
//! once and with late views.

use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use testbed::Sim;
use testbed::builders::{image, policy, storage};
use testbed::check;
use testbed::effort::seeds;
use testbed::sim::Order;

use crate::controller::{instance, world};

pub(crate) fn orders() -> impl Iterator<Item = Order> {
    seeds(6).map(Order::Shuffled).chain(seeds(6).map(Order::Interleaved))
}

pub(crate) fn six_images(sim: &Sim) {
    policy().concurrency(2).set("retryBackoffDuration", "1m").apply(&sim.world);
    for name in ["lab/a", "lab/b", "other/c"] {
        image(name).snapshot_class("snapshots").create(&sim.world);
    }
    image("lab/d").import_fails(ImportReason::ConnectionLost).create(&sim.world);
    image("lab/e").probe_fails(ImportReason::SourceNotFound).create(&sim.world);
    image("lab/f").every_import_fails(ImportReason::ServerError).create(&sim.world);
}

fn expect_the_end(sim: &Sim) {
    check::expect_none(&check::whole_history(&sim.world));
    for object in sim.world.list("VMDiskImage") {
        let image: VMDiskImage = serde_json::from_value(object).unwrap();
        let name = image.metadata.name.clone().unwrap();
        let wanted =
            if matches!(name.as_str(), "e" | "f") { Phase::Failed } else { Phase::Succeeded };
        assert_eq!(
            image.status.and_then(|status| status.phase),
            Some(wanted),
            "{name}\n{}",
            sim.story
        );
    }
}

#[test]
fn one_controller_in_any_order() {
    for order in orders() {
        let mut sim = world(order);
        six_images(&sim);
        sim.settle();
        expect_the_end(&sim);
    }
}

#[test]
fn two_controllers_at_once_in_any_order() {
    for order in orders() {
        let mut sim = Sim::new(order).with_process("one", instance).with_process("two", instance);
        storage(&sim.world);
        six_images(&sim);
        sim.settle();
        expect_the_end(&sim);
    }
}

#[test]
fn killed_at_any_moment_in_any_order() {
    for order in orders() {
        let mut sim = world(order);
        six_images(&sim);
        for kill in 0..12 {
            (0..17 + kill).for_each(|_| {
                sim.step();
            });
            sim.kill("controller");
        }
        sim.settle();
        expect_the_end(&sim);
    }
}

#[test]
fn a_late_ledger_admits_nobody_twice() {
    for order in orders() {
        let mut sim = world(order);
        sim.run_until("the ledger is there", |world| !world.list("AdmissionQueue").is_empty());
        sim.hold("AdmissionQueue");
        six_images(&sim);
        sim.quiesce();
        sim.release("AdmissionQueue");
        sim.settle();
        expect_the_end(&sim);
    }
}
