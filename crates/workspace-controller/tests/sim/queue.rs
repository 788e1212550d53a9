//! Slots: never more than the policy says, in the order of creation, and none lost.

use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use serde_json::json;
use testbed::effort::seeds;
use testbed::sim::Order;
use testbed::world::Verb;
use testbed::{Health, Sim, builders as bed, check};

use crate::builders::workspace;
use crate::controller::{
    delete, edit, expect_sound, is_ready, limit, names, reason, slots, status, told, world_of,
};

const TEN: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Ten workspaces with a container each.
fn ten(sim: &Sim) {
    for name in TEN {
        workspace(name).container("api").create(&sim.world);
    }
}

/// Names in the order in which they were admitted for the first time.
fn admitted(sim: &Sim) -> Vec<String> {
    let mut seen = Vec::new();
    sim.world.history(|history| {
        for version in history.iter().filter(|it| it.id.kind == "AdmissionQueue") {
            let active = version.object["status"]["active"].as_array();
            for entry in active.into_iter().flatten() {
                let name = entry["name"].as_str().unwrap().to_owned();
                if !seen.contains(&name) {
                    seen.push(name);
                }
            }
        }
    });
    seen
}

#[test]
fn ten_workspaces_share_two_slots_in_the_order_of_creation() {
    let mut sim = world_of(2, Order::Fixed);
    ten(&sim);
    sim.settle();
    assert_eq!(admitted(&sim), TEN);
    assert!(TEN.iter().all(|name| is_ready(&sim.world, name)), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), [""; 0]);
    expect_sound(&sim);
}

#[test]
fn who_waits_is_told_how_many_were_there_before() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    for name in ["a", "b", "c"] {
        workspace(name).container("api").create(&sim.world);
    }
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["a#1"]);
    assert_eq!(reason(&sim.world, "b", condition::ADMITTED), "SlotsBusy");
    let message = |sim: &Sim, name: &str| status(&sim.world, name).message.unwrap();
    assert_eq!(message(&sim, "b"), "waits for a slot");
    assert_eq!(message(&sim, "c"), "waits for a slot, 1 workspace was there before it");
    // Whoever something else holds back is before nobody.
    workspace("d").machine("db", "none").create(&sim.world);
    sim.quiesce();
    workspace("e").container("api").create(&sim.world);
    sim.quiesce();
    assert_eq!(message(&sim, "e"), "waits for a slot, 2 workspaces were there before it");
}

/// The API server would refuse the ledger as a whole, and with it everybody's turn.
#[test]
fn one_that_has_no_number_left_keeps_nobody_from_a_turn() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("a").container("api").create(&sim.world);
    sim.world.edit("Workspace", &testbed::builders::key("a"), |it| {
        it["status"] = json!({"lastTurn": otctl_types::names::LAST_ATTEMPT});
    });
    workspace("b").container("api").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "b"), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "a", condition::ADMITTED), "Rejected");
    assert!(told(&sim.world, "a").contains("create the workspace again"), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), [""; 0]);
}

#[test]
fn the_limit_is_live_and_garbage_keeps_the_last_good_one() {
    let mut sim = world_of(2, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    ten(&sim);
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["a#1", "b#1"]);
    limit(&sim.world, "5");
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["a#1", "b#1", "c#1", "d#1", "e#1"]);
    limit(&sim.world, "1");
    sim.quiesce();
    assert_eq!(slots(&sim.world).len(), 5, "what has begun goes on");
    // Those five become ready, and one at a time follows.
    sim.world.fare("api", Health::Fine);
    sim.run_until("another is admitted", |world| slots(world) == ["f#1"]);
    limit(&sim.world, "0");
    sim.settle();
    assert_eq!(reason(&sim.world, "g", condition::ADMITTED), "Paused");
    assert_eq!(slots(&sim.world), [""; 0]);
    limit(&sim.world, "many");
    sim.settle();
    assert_eq!(slots(&sim.world), [""; 0], "the last good one is 0");
    let queue = sim.world.get("AdmissionQueue", &bed::key("workspaces")).unwrap();
    let valid = &queue["status"]["conditions"][0];
    assert_eq!((&valid["type"], &valid["status"]), (&json!("PolicyValid"), &json!("False")));
    let policy = bed::key("sync-operator/sync-operator-policy");
    sim.world.edit("ConfigMap", &policy, |it| it["data"] = json!({}));
    sim.settle();
    assert!(TEN.iter().all(|name| is_ready(&sim.world, name)), "\n{}", sim.story);
    sim.world.delete("ConfigMap", &policy, Propagation::Background);
    workspace("k").container("api").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "k"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn deleting_the_running_the_head_and_one_in_the_middle_loses_no_slot() {
    let mut sim = world_of(2, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    ten(&sim);
    sim.quiesce();
    // a runs, c is the head of the line, e waits in the middle.
    ["a", "c", "e"].iter().for_each(|name| delete(&sim.world, name));
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["b#1", "d#1"], "\n{}", sim.story);
    sim.world.fare("api", Health::Fine);
    sim.settle();
    let left = ["b", "d", "f", "g", "h", "i", "j"];
    assert_eq!(names(&sim.world, "Workspace"), left);
    assert!(left.iter().all(|name| is_ready(&sim.world, name)), "\n{}", sim.story);
    assert_eq!(admitted(&sim), ["a", "b", "d", "f", "g", "h", "i", "j"]);
    expect_sound(&sim);
}

#[test]
fn a_restart_after_every_few_turns_loses_no_slot_and_no_place() {
    for every in [3, 7, 11, 23] {
        let mut sim = world_of(2, Order::Fixed);
        ten(&sim);
        for _ in 0..40 {
            (0..every).for_each(|_| {
                sim.step();
            });
            sim.kill("controller");
        }
        sim.settle();
        assert!(TEN.iter().all(|name| is_ready(&sim.world, name)), "{every}\n{}", sim.story);
        assert_eq!(admitted(&sim), TEN);
        assert_eq!(slots(&sim.world), [""; 0]);
        expect_sound(&sim);
    }
}

#[test]
fn four_at_the_head_that_never_get_ready_hold_nobody_up_beyond_their_time() {
    let mut sim = world_of(4, Order::Fixed);
    sim.world.fare("noimage", Health::NoImage("example.invalid/none:0: not found".to_owned()));
    sim.world.fare("crashing", Health::Crashing(3));
    sim.world.fare("stuck", Health::Unschedulable("0/3 nodes are available: cpu".to_owned()));
    sim.world.fare("unready", Health::NeverReady);
    sim.world.fare(
        "refused",
        Health::Refused("pods \"x\" is forbidden: exceeded quota: pods".to_owned()),
    );
    workspace("missing").machine("db", "nowhere").create(&sim.world);
    let heads = ["noimage", "crashing", "stuck", "refused"];
    for name in heads.iter().chain(&["unready"]) {
        workspace(name).container(name).create(&sim.world);
    }
    workspace("last").container("api").create(&sim.world);
    sim.quiesce();
    assert_eq!(slots(&sim.world).len(), 4, "the one without an image takes none");
    assert_eq!(names(&sim.world, "Pod").len(), 3);
    let ready = |sim: &Sim, name: &str| reason(&sim.world, name, condition::READY);
    let parts = |sim: &Sim, name: &str| reason(&sim.world, name, condition::CONTAINERS_READY);
    for (name, why) in [
        ("noimage", "ImagePullBackOff"),
        ("crashing", "CrashLoopBackOff"),
        ("stuck", "Unschedulable"),
        ("refused", "QuotaExceeded"),
    ] {
        assert_eq!((&*ready(&sim, name), &*parts(&sim, name)), ("Degraded", why), "{name}");
    }
    assert!(!is_ready(&sim.world, "last"));
    sim.advance(Duration::from_secs(15 * 60 + 1));
    assert!(is_ready(&sim.world, "last"), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), ["unready#1"]);
    assert_eq!(
        told(&sim.world, "stuck"),
        "Provisioning (Degraded, 0/1): container 'stuck': 0/3 nodes are available: cpu"
    );
    let late = |version: &&testbed::world::Version| {
        version.id.kind == "Event" && version.object["reason"] == json!("ProvisioningTimedOut")
    };
    assert_eq!(sim.world.history(|history| history.iter().filter(late).count()), 4);
    // What was wrong is put right, and they become ready without a slot.
    heads.iter().for_each(|name| sim.world.fare(name, Health::Fine));
    sim.settle();
    for name in heads {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
        assert_eq!(status(&sim.world, name).last_turn, Some(1), "{name}");
    }
    expect_sound(&sim);
}

#[test]
fn a_ready_one_that_breaks_takes_no_slot() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("a").container("old").create(&sim.world);
    sim.settle();
    sim.world.fare("old", Health::Crashing(1));
    sim.world.fare("new", Health::NeverReady);
    workspace("b").container("new").create(&sim.world);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "a", condition::READY), "Degraded");
    assert_eq!(slots(&sim.world), ["b#1"]);
    sim.world.fare("old", Health::Fine);
    sim.quiesce();
    assert!(is_ready(&sim.world, "a"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "a").last_turn, Some(1));
}

/// The ledger is changed by hand while two turns are open and eight wait.
fn after(change: impl FnOnce(&Sim)) -> Sim {
    let mut sim = world_of(2, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    ten(&sim);
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["a#1", "b#1"]);
    change(&sim);
    sim.quiesce();
    sim
}

fn finish(mut sim: Sim) {
    sim.world.fare("api", Health::Fine);
    sim.settle();
    assert!(TEN.iter().all(|name| is_ready(&sim.world, name)), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), [""; 0]);
    let found = sim.world.history(|history| {
        let mut found = check::turns::always(history);
        found.extend(check::turns::opened_once(history));
        found.extend(check::parts::intact(history));
        found
    });
    check::expect_none(&found);
}

#[test]
fn a_ledger_that_is_lost_is_made_whole_from_open_turns() {
    let sim = after(|sim| {
        sim.world.delete("AdmissionQueue", &bed::key("workspaces"), Propagation::Background);
    });
    let mut held = slots(&sim.world);
    held.sort();
    assert_eq!(held, ["a#1", "b#1"], "\n{}", sim.story);
    finish(sim);
}

#[test]
fn a_ledger_that_is_emptied_is_made_whole_from_open_turns() {
    let sim = after(|sim| {
        let key = bed::key("workspaces");
        sim.world.edit("AdmissionQueue", &key, |it| it["status"]["active"] = json!([]));
    });
    let mut held = slots(&sim.world);
    held.sort();
    assert_eq!(held, ["a#1", "b#1"], "\n{}", sim.story);
    finish(sim);
}

#[test]
fn entries_of_a_restored_ledger_are_dropped_when_they_are_of_the_dead_or_used_up() {
    let sim = after(|sim| {
        let key = bed::key("workspaces");
        sim.world.edit("AdmissionQueue", &key, |it| {
            let dead = json!({"namespace": "", "name": "x", "uid": "dead", "attempt": 1, "ticket": "1", "since": "2026-01-01T00:00:00Z"});
            it["status"]["active"].as_array_mut().unwrap().push(dead);
        });
    });
    assert_eq!(slots(&sim.world), ["a#1", "b#1"], "\n{}", sim.story);
    finish(sim);
}

#[test]
fn a_status_that_is_lost_costs_a_turn_and_stops_nothing() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("a").container("api").create(&sim.world);
    sim.settle();
    let pods = names(&sim.world, "Pod");
    let children = crate::controller::versions(&sim.world);
    sim.world.fare("new", Health::NeverReady);
    workspace("b").container("new").create(&sim.world);
    sim.quiesce();
    sim.world
        .edit("Workspace", &bed::key("a"), |it| drop(it.as_object_mut().unwrap().remove("status")));
    sim.quiesce();
    assert_eq!(reason(&sim.world, "a", condition::ADMITTED), "SlotsBusy");
    let mut left = names(&sim.world, "Pod");
    left.retain(|name| name.starts_with("a-"));
    assert_eq!(left, pods, "what runs goes on running");
    sim.world.fare("new", Health::Fine);
    sim.settle();
    assert!(is_ready(&sim.world, "a"), "\n{}", sim.story);
    let mut after = crate::controller::versions(&sim.world);
    after.retain(|version| children.contains(version));
    assert_eq!(after, children, "\n{}", sim.story);
}

#[test]
fn a_namespace_that_is_not_there_takes_no_slot() {
    let mut sim =
        testbed::Sim::new(Order::Fixed).with_process("controller", crate::controller::instance);
    limit(&sim.world, "1");
    workspace("a").container("api").create(&sim.world);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "a", condition::READY), "NamespaceNotFound");
    assert_eq!(slots(&sim.world), [""; 0]);
    assert_eq!(status(&sim.world, "a").last_turn, None);
    crate::controller::make_namespace(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "a"), "\n{}", sim.story);
}

#[test]
fn the_first_one_created_is_the_first_one_admitted_whoever_is_seen_first() {
    for seed in seeds(5) {
        let mut sim = world_of(1, Order::Shuffled(seed));
        ten(&sim);
        sim.settle();
        assert_eq!(admitted(&sim), TEN, "{seed}");
        expect_sound(&sim);
    }
}

#[test]
fn an_edit_behind_the_line_overtakes_nobody() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("a").container("api").create(&sim.world);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    for name in ["b", "c"] {
        workspace(name).container("slow").create(&sim.world);
    }
    sim.quiesce();
    edit(&sim.world, "a", |spec| spec.containers.push(crate::builders::container("web")));
    sim.quiesce();
    assert_eq!(slots(&sim.world), ["b#1"]);
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    let opened: Vec<String> = sim.world.history(|history| {
        let opens = history.iter().filter(|it| it.id.kind == "Workspace");
        let opens = opens.filter(|it| it.verb == Verb::Status);
        let turn = |it: &testbed::world::Version| {
            let number = it.object["status"]["openTurn"]["number"].as_i64()?;
            Some(format!("{}#{number}", it.id.key))
        };
        let mut turns: Vec<String> = opens.filter_map(turn).collect();
        turns.dedup();
        turns
    });
    assert_eq!(opened, ["a#1", "b#1", "c#1", "a#2"], "\n{}", sim.story);
    expect_sound(&sim);
}
