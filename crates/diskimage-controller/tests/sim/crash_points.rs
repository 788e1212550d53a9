//! The controller dies at every write of an image's whole life: before it, after it, while it is under way, or only the
//! answer is lost. The end is the same, with one import per attempt and nothing orphaned.

use otctl_kit::plan::Propagation;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use serde_json::json;
use testbed::builders::{image, key, policy};
use testbed::check;
use testbed::sim::{CrashPoints, Order, every_crash_point};
use testbed::{Sim, World};

use crate::controller::{is_importing, let_imports_succeed, world};

fn phase(world: &World, name: &str) -> Option<Phase> {
    world.read::<VMDiskImage>(&key(name))?.status?.phase
}

/// Runs `scenario` with every crash; each run must end like the clean one, with `imports` runs of lab/a's importer.
fn survive(scenario: impl Fn(&mut Sim), end: Option<Phase>, imports: usize) -> CrashPoints {
    let judge = |sim: &Sim| {
        check::expect_none(&check::whole_history(&sim.world));
        assert_eq!(phase(&sim.world, "lab/a"), end, "\n{}", sim.story);
        assert_eq!(sim.world.downloads(&key("lab/a")), imports, "imports of lab/a\n{}", sim.story);
    };
    let make = || {
        let sim = world(Order::Fixed);
        policy().concurrency(1).set("retryBackoffDuration", "5m").apply(&sim.world);
        sim
    };
    every_crash_point(make, scenario, judge)
}

#[test]
fn a_life_with_a_snapshot_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").snapshot_class("snapshots").create(&sim.world);
        sim.settle();
    };
    let tried = survive(scenario, Some(Phase::Succeeded), 1);
    assert!(tried.writes >= 12, "{tried:?}");
}

#[test]
fn a_life_without_a_snapshot_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").create(&sim.world);
        sim.settle();
    };
    survive(scenario, Some(Phase::Succeeded), 1);
}

#[test]
fn two_lives_on_one_slot_survive_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").snapshot_class("snapshots").create(&sim.world);
        image("lab/b").create(&sim.world);
        sim.settle();
    };
    survive(scenario, Some(Phase::Succeeded), 1);
}

#[test]
fn a_retry_survives_every_crash_and_is_charged_once() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").import_fails(ImportReason::ServerError).create(&sim.world);
        sim.settle();
    };
    survive(scenario, Some(Phase::Succeeded), 2);
}

#[test]
fn a_spent_budget_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").every_import_fails(ImportReason::ServerError).create(&sim.world);
        sim.settle();
    };
    survive(scenario, Some(Phase::Failed), 3);
}

#[test]
fn a_terminal_probe_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").probe_fails(ImportReason::SourceNotFound).create(&sim.world);
        sim.settle();
    };
    survive(scenario, Some(Phase::Failed), 0);
}

#[test]
fn a_deletion_while_the_import_runs_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").imports_without_end().create(&sim.world);
        image("lab/b").create(&sim.world);
        sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
        sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
        sim.settle();
        assert_eq!(
            phase(&sim.world, "lab/b"),
            Some(Phase::Succeeded),
            "the slot is free\n{}",
            sim.story
        );
    };
    survive(scenario, None, 1);
}

#[test]
fn suspending_and_resuming_survives_every_crash() {
    let scenario = |sim: &mut Sim| {
        image("lab/a").imports_without_end().create(&sim.world);
        sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
        sim.world
            .edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["suspend"] = json!(true));
        sim.settle();
        assert_eq!(phase(&sim.world, "lab/a"), Some(Phase::Queued), "\n{}", sim.story);
        let_imports_succeed(&sim.world, "lab/a");
        sim.world
            .edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["suspend"] = json!(false));
        sim.settle();
    };
    survive(scenario, Some(Phase::Succeeded), 2);
}
