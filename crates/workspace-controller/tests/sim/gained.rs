//! Machines that entries gain which had their start without one, and entries that become the other kind.

use std::collections::BTreeSet;

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use serde_json::json;
use testbed::sim::Order;
use testbed::world::{Verb, Version};
use testbed::{Health, Sim};

use crate::builders::{container, instance, synced_image, workspace};
use crate::controller::{at, edit, expect_sound, is_ready, names, reason, status, world_of};
use crate::healing::{cluster_ip, hosts};
use crate::strangers::stranger;

/// What was started without a machine is started again with it, one after the other as the limit says; in no step of it is
/// anything broken.
#[test]
fn machines_that_started_entries_gain_take_their_turns() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    let all = ["a", "b", "c"];
    for name in all {
        workspace(name).image("db", "debian").container("api").create(&sim.world);
    }
    sim.settle();
    let from = sim.world.revision();
    for name in all {
        edit(&sim.world, name, |spec| spec.virtual_machines[0].spec.instance = Some(instance()));
    }
    sim.settle();
    for name in all {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
        assert_eq!(status(&sim.world, name).last_turn, Some(2), "{name}");
    }
    let steps =
        all.map(|name| [format!("{name}#2"), format!("{name}--db"), format!("{name}--db runs")]);
    let steps = steps.concat();
    assert_eq!(turns_and_machines(&sim, from), steps, "\n{}", sim.story);
    let events = sim.world.list("Event").into_iter();
    let warnings: Vec<_> = events.filter(|it| it["type"] == json!("Warning")).collect();
    assert_eq!(warnings, [json!(null); 0], "\n{}", sim.story);
    expect_sound(&sim);
}

/// Each turn, each Deployment, each machine, and when it ran, in the order in which they began.
fn turns_and_machines(sim: &Sim, from: u64) -> Vec<String> {
    let mut steps: Vec<String> = sim.world.history(|history| {
        let later = history.iter().filter(|version| version.revision > from);
        let step = |version: &Version| {
            let turn = version.object["status"]["openTurn"]["number"].as_i64();
            let name = &version.id.key.name;
            match version.id.kind.as_str() {
                "Workspace" => turn.map(|number| format!("{name}#{number}")),
                "VirtualMachine" if version.object["status"]["printableStatus"] == "Running" => {
                    Some(format!("{name} runs"))
                }
                "VirtualMachine" => Some(name.clone()),
                "Deployment" if version.verb == Verb::Created => Some(format!("{name} deployed")),
                _ => None,
            }
        };
        later.filter_map(step).collect()
    });
    let mut seen = BTreeSet::new();
    steps.retain(|step| seen.insert(step.clone()));
    steps
}

#[test]
fn a_machine_that_an_entry_gains_and_loses_in_line_costs_nothing() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").image("db", "debian").create(&sim.world);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    workspace("other").container("slow").create(&sim.world);
    sim.quiesce();
    let gain = |sim: &Sim, instance| {
        edit(&sim.world, "lab", |spec| spec.virtual_machines[0].spec.instance = instance);
    };
    gain(&sim, Some(instance()));
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "SlotsBusy", "\n{}", sim.story);
    assert_eq!(names(&sim.world, "VirtualMachine"), [""; 0]);
    gain(&sim, None);
    sim.quiesce();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1));
    assert_eq!(status(&sim.world, "lab").ticket, None, "nor does it keep its place");
    // One that was run, and is to run again, has no disk any more.
    sim.world.fare("slow", Health::Fine);
    for instance in [Some(instance()), None, Some(instance())] {
        gain(&sim, instance);
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    }
    assert_eq!(status(&sim.world, "lab").last_turn, Some(3));
    expect_sound(&sim);
}

/// Whoever waits for nothing has no place: what is added later comes behind those who wait by then.
#[test]
fn a_place_that_was_given_up_is_before_nobody() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    workspace("holder").container("slow").create(&sim.world);
    sim.quiesce();
    let add = |sim: &Sim| edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
    add(&sim);
    sim.quiesce();
    assert!(status(&sim.world, "lab").ticket.is_some(), "\n{}", sim.story);
    // Also under a conflict, where it wants nothing.
    sim.world.delete("Service", &at("lab--api"), Propagation::Background);
    stranger(&sim, "Service", "lab--api");
    edit(&sim.world, "lab", |spec| drop(spec.containers.pop()));
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "NameConflict", "\n{}", sim.story);
    sim.world.delete("Service", &at("lab--api"), Propagation::Background);
    workspace("next").container("web").create(&sim.world);
    sim.quiesce();
    let told = status(&sim.world, "next").message.unwrap();
    assert_eq!(told, "waits for a slot", "nobody is before it");
    add(&sim);
    sim.quiesce();
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    let order = opened(&sim);
    assert_eq!(order, ["lab#1", "holder#1", "next#1", "lab#2"], "\n{}", sim.story);
    expect_sound(&sim);
}

/// Every turn that was opened, in order.
fn opened(sim: &Sim) -> Vec<String> {
    let mut all: Vec<String> = sim.world.history(|history| {
        let of = |version: &Version| {
            let turn = version.object["status"]["openTurn"]["number"].as_i64()?;
            Some(format!("{}#{turn}", version.id.key.name))
        };
        history.iter().filter(|it| it.id.kind == "Workspace").filter_map(of).collect()
    });
    let mut seen = BTreeSet::new();
    all.retain(|turn| seen.insert(turn.clone()));
    all
}

/// A name tells nothing of what it was started as: what becomes another thing under it takes a slot, on both sides.
#[test]
fn entries_that_become_the_other_kind_take_their_turns() {
    let mut sim = world_of(1, Order::Fixed);
    synced_image(&sim.world, "debian");
    let all = ["a", "b"];
    for name in all {
        workspace(name).machine("x", "debian").container("y").create(&sim.world);
    }
    sim.settle();
    assert!(all.iter().all(|name| is_ready(&sim.world, name)), "\n{}", sim.story);
    let from = sim.world.revision();
    for name in all {
        edit(&sim.world, name, |spec| {
            spec.virtual_machines[0].name = "y".to_owned();
            spec.containers[0].name = "x".to_owned();
        });
    }
    sim.settle();
    for name in all {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
        assert_eq!(status(&sim.world, name).last_turn, Some(2), "{name}");
    }
    // What had its start goes at once; what takes its name waits for the slot.
    let begins = |of: &str| {
        let of = of.to_owned();
        move |step: &String| step.starts_with(&of) && !step.ends_with("runs")
    };
    let steps = turns_and_machines(&sim, from);
    for name in all {
        let turn = steps.iter().position(|step| *step == format!("{name}#2")).unwrap();
        let machine = steps.iter().position(begins(&format!("{name}--y"))).unwrap();
        let container = steps.iter().position(|it| *it == format!("{name}--x deployed")).unwrap();
        assert!(turn < machine && turn < container, "{steps:?}\n{}", sim.story);
    }
    // Their pods know each entry where it is now.
    for name in all {
        let lines = hosts(&sim, &format!("{name}--x"));
        let address = cluster_ip(&sim, &format!("{name}--x"));
        assert_eq!(lines, [("x".to_owned(), address)], "{name}\n{}", sim.story);
    }
    let (second, ready) = (steps.iter().position(|step| step == "b#2"), "a--y runs");
    assert!(steps.iter().position(|step| step == ready) < second, "{steps:?}\n{}", sim.story);
    expect_sound(&sim);
}
