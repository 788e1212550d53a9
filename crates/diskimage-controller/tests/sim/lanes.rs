//! Lanes beside the slots: snapshots that are taken at once, and syncs from one host.

use diskimage_controller::snapshots::VolumeSnapshot;
use otctl_kit::plan::Propagation;
use otctl_types::VMDiskImage;
use otctl_types::condition::{self, ADMITTED, STALLED};
use otctl_types::diskimage::Phase;
use serde_json::{Value, json};
use testbed::builders::{self, image, key, policy, storage};
use testbed::check;
use testbed::effort::seeds;
use testbed::sim::Order;
use testbed::{Sim, World};

use crate::controller::{
    instance, is_importing, let_imports_succeed, names, one_slot, reason, status, world,
};

const LIMIT: usize = 2;

/// More snapshots that are being taken than may be.
fn too_many_snapshots(world: &World) -> Vec<String> {
    let unready = |snapshot: &&Value| {
        snapshot["status"]["readyToUse"] != json!(true)
            && snapshot["metadata"]["deletionTimestamp"].is_null()
    };
    let taken = world.list("VolumeSnapshot").iter().filter(unready).count();
    if taken > LIMIT { vec![format!("{taken} snapshots are being taken")] } else { Vec::new() }
}

fn six_with_snapshots(sim: &Sim) {
    let limit = LIMIT.to_string();
    policy().concurrency(6).set("snapshotConcurrency", &limit).apply(&sim.world);
    for name in ["a", "b", "c", "d", "e", "f"] {
        image(&format!("lab/{name}")).snapshot_class("snapshots").create(&sim.world);
    }
}

fn expect_all_done(sim: &Sim) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        let done = status(&sim.world, &format!("lab/{name}"));
        assert_eq!(done.phase, Some(Phase::Succeeded), "{name}\n{}", sim.story);
    }
    check::expect_none(&check::whole_history(&sim.world));
    assert!(sim.world.cuts().iter().all(|cut| cut.complete), "\n{}", sim.story);
    let queue: otctl_types::AdmissionQueue = sim.world.read(&key("vmdiskimages")).unwrap();
    assert_eq!(queue.status.unwrap().snapshots, [], "\n{}", sim.story);
}

fn orders() -> impl Iterator<Item = Order> {
    seeds(3).map(Order::Shuffled).chain(seeds(3).map(Order::Interleaved))
}

#[test]
fn never_more_snapshots_at_once_with_two_controllers_in_any_order() {
    for order in orders() {
        let mut sim = Sim::new(order)
            .with_process("one", instance)
            .with_process("two", instance)
            .always(too_many_snapshots);
        storage(&sim.world);
        six_with_snapshots(&sim);
        sim.settle();
        expect_all_done(&sim);
    }
}

#[test]
fn never_more_snapshots_at_once_over_crashes_in_any_order() {
    for order in orders() {
        let mut sim = world(order).always(too_many_snapshots);
        six_with_snapshots(&sim);
        for kill in 0..12 {
            (0..29 + kill).for_each(|_| {
                sim.step();
            });
            sim.kill("controller");
        }
        sim.settle();
        expect_all_done(&sim);
    }
}

#[test]
fn never_more_snapshots_at_once_when_the_ledger_is_lost() {
    for turns in (0..200).step_by(7) {
        let mut sim = world(Order::Fixed).always(too_many_snapshots);
        six_with_snapshots(&sim);
        (0..turns).for_each(|_| {
            sim.step();
        });
        if sim.world.get("AdmissionQueue", &key("vmdiskimages")).is_some() {
            sim.world.edit("AdmissionQueue", &key("vmdiskimages"), |it| it["status"] = json!({}));
        }
        sim.settle();
        for name in ["a", "b", "c", "d", "e", "f"] {
            let done = status(&sim.world, &format!("lab/{name}"));
            assert_eq!(done.phase, Some(Phase::Succeeded), "{turns}: {name}\n{}", sim.story);
        }
    }
}

#[test]
fn snapshots_are_taken_in_the_order_of_tickets_and_who_waits_says_so() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(6).set("snapshotConcurrency", "1").apply(&sim.world);
    let names = ["a", "b", "c", "d"];
    for name in names {
        let image = image(&format!("lab/{name}"));
        image.snapshot_class("snapshots").imports_without_end().create(&sim.world);
    }
    sim.quiesce();
    sim.pause("controller");
    names.iter().for_each(|name| let_imports_succeed(&sim.world, &format!("lab/{name}")));
    sim.quiesce();
    sim.resume("controller");
    sim.run_until("one waits", |world| reason(world, "lab/d") == "SnapshotThrottled");
    let waiting = status(&sim.world, "lab/d");
    assert_eq!(waiting.phase, Some(Phase::Snapshotting));
    assert!(condition::is_true(&waiting.conditions, ADMITTED), "it holds no slot");
    assert!(waiting.message.unwrap().contains("snapshotConcurrency"));
    sim.settle();
    let cut: Vec<String> =
        sim.world.cuts().into_iter().map(|cut| cut.snapshot.name[..1].to_owned()).collect();
    assert_eq!(cut, names, "\n{}", sim.story);
}

/// The snapshot class goes when the data is complete: the driver refuses every snapshot.
fn refused_by_its_driver() -> Sim {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.run_until("the data is complete", |world| {
        status(world, "lab/a").phase == Some(Phase::Snapshotting)
    });
    sim.world.delete("VolumeSnapshotClass", &key("snapshots"), Propagation::Background);
    sim
}

#[test]
fn a_snapshot_that_is_never_ready_is_replaced_and_then_told_without_another_download() {
    let mut sim = refused_by_its_driver();
    sim.run_until("the driver refuses", |world| reason(world, "lab/a") == "SnapshotFailed");
    assert_eq!(
        status(&sim.world, "lab/a").phase,
        Some(Phase::Snapshotting),
        "it is no failed sync"
    );
    image("lab/b").create(&sim.world);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "it holds no slot");
    let given_up = status(&sim.world, "lab/a");
    let stalled = condition::find(&given_up.conditions, STALLED).unwrap();
    assert_eq!((given_up.phase, &*stalled.reason), (Some(Phase::Failed), "SnapshotFailed"));
    assert!(stalled.message.contains("no such VolumeSnapshotClass"), "{}", stalled.message);
    assert_eq!(given_up.late_snapshots.unwrap().count, 2, "\n{}", sim.story);
    let made = sim.world.history(|history| {
        let snapshots = history.iter().filter(|version| version.id.kind == "VolumeSnapshot");
        let uids = snapshots.map(|version| version.object["metadata"]["uid"].to_string());
        uids.collect::<std::collections::BTreeSet<_>>().len()
    });
    assert_eq!(made, 3, "the first and two more\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
    assert!(sim.now() >= "2026-01-01T13:30:00Z".parse().unwrap(), "three times half an hour");

    builders::snapshot_class(&sim.world, "snapshots");
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["metadata"]["annotations"] = json!({"pelotech.ot/retry": "1"});
    });
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1, "the data was kept");
    check::expect_none(&check::whole_history(&sim.world));
}

#[test]
fn a_late_snapshot_is_counted_once_however_often_the_controller_dies() {
    let mut sim = refused_by_its_driver();
    for _ in 0..200 {
        sim.kill("controller");
        sim.advance(std::time::Duration::from_secs(60));
    }
    let given_up = status(&sim.world, "lab/a");
    assert_eq!(given_up.phase, Some(Phase::Failed), "\n{}", sim.story);
    assert_eq!(given_up.late_snapshots.unwrap().count, 2, "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
}

#[test]
fn a_snapshot_that_becomes_ready_late_is_taken_as_it_is() {
    let mut sim = refused_by_its_driver();
    sim.run_until("the driver refuses", |world| reason(world, "lab/a") == "SnapshotFailed");
    builders::snapshot_class(&sim.world, "snapshots");
    sim.settle();
    let done = status(&sim.world, "lab/a");
    assert_eq!(
        (done.phase, done.late_snapshots),
        (Some(Phase::Succeeded), None),
        "\n{}",
        sim.story
    );
    let snapshot: VolumeSnapshot =
        sim.world.read(&key(&names(&sim.world, "VolumeSnapshot")[0])).unwrap();
    assert!(snapshot.metadata.annotations.unwrap().contains_key("pelotech.ot/disk-checksum"));
}

#[test]
fn a_busy_host_holds_up_nobody_else_and_is_told() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(2).set("concurrencyPerHost", "1").apply(&sim.world);
    let from = |name: &str, url: &str| {
        let url = url.to_owned();
        image(name).with(|spec| spec.url = url).imports_without_end().create(&sim.world);
    };
    from("lab/a", "http://Images.Example/a.qcow2");
    from("lab/b", "http://images.example:80/b.qcow2");
    sim.run_until("a runs", |world| is_importing(world, "lab/a"));
    sim.run_until("b says why", |world| reason(world, "lab/b") == "HostBusy");
    let waiting: VMDiskImage = sim.world.read(&key("lab/b")).unwrap();
    let conditions = waiting.status.unwrap().conditions;
    assert_eq!(condition::find(&conditions, ADMITTED).unwrap().reason, "HostBusy");
    image("lab/c").with(|spec| spec.url = "http://other.example/c".to_owned()).create(&sim.world);
    sim.run_until("c is done", |world| status(world, "lab/c").phase == Some(Phase::Succeeded));
    assert!(!is_importing(&sim.world, "lab/b"), "\n{}", sim.story);
    let_imports_succeed(&sim.world, "lab/a");
    let_imports_succeed(&sim.world, "lab/b");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

#[test]
fn waiting_for_a_host_is_told_when_slots_become_free_beside_it() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(2).set("concurrencyPerHost", "1").apply(&sim.world);
    let other = |spec: &mut otctl_types::VMDiskImageSpec| {
        spec.url = "http://other.example/c".to_owned();
    };
    image("lab/a").imports_without_end().create(&sim.world);
    image("lab/c").with(other).imports_without_end().create(&sim.world);
    sim.quiesce();
    image("lab/b").create(&sim.world);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab/b"), "SlotsBusy", "every slot is taken");
    let_imports_succeed(&sim.world, "lab/c");
    sim.run_until("b says why", |world| reason(world, "lab/b") == "HostBusy");
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}
