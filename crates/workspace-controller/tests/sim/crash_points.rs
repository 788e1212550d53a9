//! The controller dies at every write: before it, after it, while it is under way, or only the answer is lost. The end is
//! the same, and nothing in the history is against the rules.
//!
//! A creation and a deletion are tried in all of these ways each time; what is longer in one way a write, and in all with
//! `OTCTL_CRASH_POINTS=all`.

use testbed::sim::{CrashPoints, Order, Ways, crash_points};
use testbed::{Sim, World, setting};

use crate::builders::{container, sync, synced_image, workspace};
use crate::controller::{delete, edit, expect_sound, is_ready, names, slots, told, world_of};

/// Of what is long.
fn ways() -> Ways {
    match setting("OTCTL_CRASH_POINTS", String::new()).as_str() {
        "" => Ways::InTurns,
        "all" => Ways::All,
        other => panic!("OTCTL_CRASH_POINTS={other}"),
    }
}

/// Runs `scenario` with every crash; each run must end like the clean one.
fn survive(
    ways: Ways,
    scenario: impl Fn(&mut Sim),
    is_well: impl Fn(&World) -> bool,
) -> CrashPoints {
    let judge = |sim: &Sim| {
        expect_sound(sim);
        assert!(is_well(&sim.world), "{}\n{}", told(&sim.world, "lab"), sim.story);
        assert_eq!(slots(&sim.world), [""; 0], "\n{}", sim.story);
    };
    crash_points(ways, || world_of(1, Order::Fixed), scenario, judge)
}

fn create(sim: &mut Sim) {
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
}

#[test]
fn a_creation_survives_every_crash() {
    let tried = survive(Ways::All, create, |world| is_ready(world, "lab"));
    assert!(tried.writes >= 14, "{tried:?}");
}

#[test]
fn a_creation_that_makes_its_image_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        workspace("lab").made_image("db", "debian").takes_images_along().create(&sim.world);
        sim.settle();
        sync(&sim.world, "debian", "r1");
        sim.settle();
    };
    survive(ways(), scenario, |world| is_ready(world, "lab"));
}

#[test]
fn two_lives_on_one_slot_survive_every_crash() {
    let scenario = |sim: &mut Sim| {
        for name in ["lab", "next"] {
            workspace(name).container("api").create(&sim.world);
        }
        sim.settle();
    };
    survive(ways(), scenario, |world| is_ready(world, "lab") && is_ready(world, "next"));
}

#[test]
fn a_deletion_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        create(sim);
        delete(&sim.world, "lab");
        sim.settle();
    };
    survive(Ways::All, scenario, |world| {
        ["Workspace", "Service", "Deployment", "NetworkPolicy", "PersistentVolumeClaim"]
            .iter()
            .all(|kind| names(world, kind).is_empty())
    });
}

#[test]
fn the_last_share_in_an_image_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        for name in ["lab", "next"] {
            workspace(name).made_image("db", "debian").takes_images_along().create(&sim.world);
        }
        sim.settle();
        sync(&sim.world, "debian", "r1");
        sim.settle();
        delete(&sim.world, "lab");
        edit(&sim.world, "next", |spec| {
            spec.virtual_machines.clear();
            spec.containers.push(container("api"));
        });
        sim.settle();
    };
    survive(ways(), scenario, |world| {
        names(world, "VMDiskImage").is_empty() && is_ready(world, "next")
    });
}

#[test]
fn an_edit_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        create(sim);
        edit(&sim.world, "lab", |spec| {
            spec.virtual_machines.clear();
            spec.containers[0].image = "registry.example/api:2".to_owned();
            spec.containers.push(container("web"));
        });
        sim.settle();
    };
    survive(ways(), scenario, |world| {
        is_ready(world, "lab") && names(world, "Deployment") == ["lab--api", "lab--web"]
    });
}

#[test]
fn a_suspension_and_a_resume_survive_every_crash() {
    let scenario = |sim: &mut Sim| {
        create(sim);
        edit(&sim.world, "lab", |spec| spec.suspended = true);
        sim.settle();
        assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
        edit(&sim.world, "lab", |spec| spec.suspended = false);
        sim.settle();
    };
    survive(ways(), scenario, |world| is_ready(world, "lab"));
}
