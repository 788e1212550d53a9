//! What others take away: children, data, status. Data is called ready only while it is there, is never written over,
//! and is fetched again only within the budget.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::import::ImportReason;
use serde_json::{Value, json};
use testbed::builders::{self, image, key, policy};
use testbed::check;
use testbed::effort::seeds;
use testbed::sim::Order;
use testbed::world::Version;
use testbed::{Sim, World};

use crate::controller::{
    imports, is_importing, let_imports_succeed, names, one_slot, reason, status, world,
};

/// The moment an image becomes Succeeded, what it names is there and complete.
fn unready_data(seen: &RefCell<BTreeMap<String, Phase>>, world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for object in world.list("VMDiskImage") {
        let image: VMDiskImage = serde_json::from_value(object).unwrap();
        let name = image.metadata.name.unwrap();
        let status = image.status.unwrap_or_default();
        let Some(phase) = status.phase else { continue };
        let before = seen.borrow_mut().insert(name.clone(), phase);
        let is_news = phase == Phase::Succeeded && before != Some(phase);
        if is_news && !is_complete(world, &status) {
            found.push(format!("{name} became Succeeded without data"));
        }
    }
    found
}

fn is_complete(world: &World, status: &VMDiskImageStatus) -> bool {
    let current = status.current.clone().unwrap_or_default();
    let has = |kind: &str, name: &Option<String>| {
        let name = name.as_ref()?;
        let object = world.get(kind, &key(&format!("lab/{name}")))?;
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        Some(world.has_complete_data(&uid))
    };
    has("VolumeSnapshot", &current.snapshot) == Some(true)
        || has("PersistentVolumeClaim", &current.volume) == Some(true)
}

fn watched(order: Order) -> Sim {
    let seen = Rc::default();
    world(order).always(move |world| unready_data(&seen, world))
}

/// A third party deletes every object of that kind, once, at every turn of a life; the image is ready in the end, at
/// the cost of at most the budget.
fn taken_away(kind: &str, class: Option<&str>) {
    for turns in 0.. {
        let mut sim = watched(Order::Fixed);
        policy().concurrency(1).set("retryBackoffDuration", "1m").apply(&sim.world);
        match class {
            Some(class) => image("lab/a").snapshot_class(class).create(&sim.world),
            None => image("lab/a").create(&sim.world),
        };
        (0..turns).for_each(|_| {
            sim.step();
        });
        let is_over = status(&sim.world, "lab/a").phase == Some(Phase::Succeeded);
        for name in names(&sim.world, kind) {
            if sim.world.get(kind, &key(&name)).is_some() {
                sim.world.delete(kind, &key(&name), Propagation::Background);
            }
        }
        sim.settle();
        assert_eq!(
            status(&sim.world, "lab/a").phase,
            Some(Phase::Succeeded),
            "{kind} after {turns} turns\n{}",
            sim.story
        );
        assert!(imports(&sim.world, "lab/a") <= 3, "{kind} after {turns} turns\n{}", sim.story);
        assert!(sim.world.cuts().iter().all(|cut| cut.complete), "\n{}", sim.story);
        check::expect_none(&check::whole_history(&sim.world));
        if is_over {
            assert!(turns >= 20, "{turns} turns");
            return;
        }
    }
}

#[test]
fn a_child_that_is_deleted_at_any_turn_is_a_failure_or_made_again_and_never_success() {
    for kind in ["Job", "Pod", "PersistentVolumeClaim"] {
        taken_away(kind, None);
        taken_away(kind, Some("snapshots"));
    }
    taken_away("VolumeSnapshot", Some("snapshots"));
}

#[test]
fn a_snapshot_that_is_deleted_and_not_heard_of_takes_no_volume_with_it() {
    let is_ready = |world: &World| {
        world.list("VolumeSnapshot").iter().any(|it| it["status"]["readyToUse"] == json!(true))
    };
    for seed in seeds(8) {
        let mut sim = world(Order::Shuffled(seed));
        policy().concurrency(1).apply(&sim.world);
        create(&sim.world, Some("snapshots"));
        sim.run_until("the snapshot is ready", is_ready);
        for name in names(&sim.world, "VolumeSnapshot") {
            sim.world.delete("VolumeSnapshot", &key(&name), Propagation::Background);
        }
        sim.settle();
        let after = status(&sim.world, "lab/a").phase;
        assert_eq!(after, Some(Phase::Succeeded), "seed {seed}\n{}", sim.story);
        assert_eq!(sim.world.downloads(&key("lab/a")), 1, "seed {seed}\n{}", sim.story);
    }
}

#[test]
fn a_claim_whose_volume_is_gone_is_fetched_again() {
    let mut sim = watched(Order::Fixed);
    policy().concurrency(1).set("retryBackoffDuration", "1m").apply(&sim.world);
    create(&sim.world, None);
    sim.settle();
    let name = status(&sim.world, "lab/a").current.unwrap().volume.unwrap();
    let claim = key(&format!("lab/{name}"));
    let before = sim.world.get("PersistentVolumeClaim", &claim).unwrap();
    sim.world.edit("PersistentVolumeClaim", &claim, |it| it["status"]["phase"] = json!("Lost"));
    sim.settle();
    let after = sim.world.get("PersistentVolumeClaim", &claim).unwrap();
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 2, "\n{}", sim.story);
}

#[test]
fn a_snapshot_that_goes_before_its_volume_is_restored_is_fetched_again() {
    let mut sim = watched(Order::Fixed);
    policy().concurrency(1).set("retryBackoffDuration", "1m").apply(&sim.world);
    image("lab/a")
        .snapshot_class("snapshots")
        .with(|spec| spec.keep_volume = Some(true))
        .create(&sim.world);
    sim.settle();
    let name =
        key(&format!("lab/{}", status(&sim.world, "lab/a").current.unwrap().volume.unwrap()));
    sim.world.delete("PersistentVolumeClaim", &name, Propagation::Background);
    let is_restoring = |world: &World| {
        let claim = world.get("PersistentVolumeClaim", &name);
        claim.is_some_and(|it| !it["spec"]["dataSource"].is_null() && it["status"].is_null())
    };
    sim.run_until("the volume is asked for", is_restoring);
    sim.world.delete("VolumeSnapshot", &name, Propagation::Background);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 2, "\n{}", sim.story);
}

#[test]
fn the_volume_that_goes_with_its_unfinished_snapshot_is_fetched_again_and_not_cut_half_full() {
    let mut sim = watched(Order::Fixed);
    policy().concurrency(1).apply(&sim.world);
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.run_until("the snapshot is asked for", |world| !world.list("VolumeSnapshot").is_empty());
    sim.pause("controller");
    sim.world.delete("VolumeSnapshotClass", &key("snapshots"), Propagation::Background);
    sim.quiesce();
    for name in names(&sim.world, "PersistentVolumeClaim") {
        sim.world.delete("PersistentVolumeClaim", &key(&name), Propagation::Background);
    }
    sim.quiesce();
    builders::snapshot_class(&sim.world, "snapshots");
    sim.resume("controller");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert!(sim.world.cuts().iter().all(|cut| cut.complete), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 2, "\n{}", sim.story);
}

/// Every status that lab/a ever had in a clean life.
fn statuses(class: Option<&str>) -> Vec<Value> {
    let mut sim = one_slot();
    create(&sim.world, class);
    sim.settle();
    let of_image = |version: &&Version| version.id.kind == "VMDiskImage";
    let mut statuses = sim.world.history(|history| {
        let versions = history.iter().filter(of_image);
        versions.map(|version| version.object["status"].clone()).collect::<Vec<_>>()
    });
    statuses.iter_mut().filter(|status| status.is_null()).for_each(|status| *status = json!({}));
    statuses.dedup();
    statuses
}

/// What a status may say that was kept before the spec was what it is now.
fn of_an_earlier_spec(status: &Value) -> Value {
    let mut status = status.clone();
    status["current"]["revision"] = json!("0123456789abcdef");
    status["attempts"] = json!([]);
    status
}

fn create(world: &World, class: Option<&str>) {
    match class {
        Some(class) => image("lab/a").snapshot_class(class).create(world),
        None => image("lab/a").create(world),
    };
}

fn restore(sim: &Sim, status: &Value) {
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| image["status"] = status.clone());
}

#[test]
fn a_status_of_any_earlier_moment_does_not_touch_good_data() {
    for class in [None, Some("snapshots")] {
        let statuses = statuses(class);
        assert!(statuses.len() >= 4, "{}", statuses.len());
        for old in &statuses {
            let mut sim = one_slot();
            create(&sim.world, class);
            sim.settle();
            let before = status(&sim.world, "lab/a").current.unwrap();
            restore(&sim, old);
            sim.kill("controller");
            sim.settle();
            let after = status(&sim.world, "lab/a");
            assert_eq!(after.phase, Some(Phase::Succeeded), "{old}\n{}", sim.story);
            let after = after.current.unwrap();
            assert_eq!(
                (after.volume, after.snapshot, after.disk_checksum),
                (before.volume, before.snapshot, before.disk_checksum),
                "{old}\n{}",
                sim.story
            );
            assert_eq!(sim.world.downloads(&key("lab/a")), 1, "{old}\n{}", sim.story);
        }
    }
}

#[test]
fn a_status_of_an_earlier_spec_is_not_admitted_beside_the_data_of_this_one() {
    for seed in seeds(4) {
        let mut sim = world(Order::Shuffled(seed));
        builders::policy().concurrency(1).apply(&sim.world);
        create(&sim.world, Some("snapshots"));
        sim.settle();
        let last = serde_json::to_value(status(&sim.world, "lab/a")).unwrap();
        restore(&sim, &of_an_earlier_spec(&last));
        sim.settle();
        let after = status(&sim.world, "lab/a");
        assert_eq!(after.phase, Some(Phase::Succeeded), "seed {seed}\n{}", sim.story);
        assert_eq!(after.last_attempt, Some(1), "seed {seed}\n{}", sim.story);
    }
}

#[test]
fn a_status_of_any_earlier_moment_does_not_start_a_second_import_beside_the_first() {
    for old in statuses(None).iter().take_while(|status| status["openAttempt"].is_null()) {
        let mut sim = one_slot();
        image("lab/a").imports_without_end().create(&sim.world);
        sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
        restore(&sim, old);
        sim.quiesce();
        assert!(is_importing(&sim.world, "lab/a"), "{old}\n{}", sim.story);
        let_imports_succeed(&sim.world, "lab/a");
        sim.settle();
        assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
        assert_eq!(sim.world.downloads(&key("lab/a")), 1, "{old}\n{}", sim.story);
    }
}

/// The name of the import Job of lab/a.
fn import_job(world: &World) -> Option<String> {
    let jobs = world.list("Job").into_iter();
    let mut imports = jobs.filter(|job| job["metadata"]["labels"]["pelotech.ot/role"] == "import");
    Some(format!("lab/{}", imports.next()?["metadata"]["name"].as_str()?))
}

#[test]
fn a_job_that_somebody_suspends_again_and_again_is_not_fought_over() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("retryBackoffDuration", "1m").apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    for _ in 0..600 {
        sim.advance(Duration::from_secs(1));
        if let Some(name) = import_job(&sim.world) {
            sim.world.edit("Job", &key(&name), |job| job["spec"]["suspend"] = json!(true));
        }
    }
    assert!(imports(&sim.world, "lab/a") <= 3, "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab/a"), "RetriesExhausted", "\n{}", sim.story);
}

/// A person's nightly job and a secret store that re-creates everything, an hour long.
#[test]
fn what_is_lost_every_minute_for_an_hour_costs_two_downloads_whatever_else_comes_and_goes() {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.settle();
    for minute in 0..60 {
        for kind in ["VolumeSnapshot", "PersistentVolumeClaim"] {
            for name in names(&sim.world, kind) {
                sim.world.delete(kind, &key(&name), Propagation::Background);
            }
        }
        for kind in ["VolumeSnapshotClass", "StorageClass"] {
            for name in names(&sim.world, kind) {
                sim.world.delete(kind, &key(name.trim_start_matches('/')), Propagation::Background);
            }
        }
        policy().concurrency(1 + minute % 2).apply(&sim.world);
        sim.kill("controller");
        sim.advance(Duration::from_secs(30));
        builders::storage(&sim.world);
        sim.advance(Duration::from_secs(30));
    }
    assert_eq!(sim.world.downloads(&key("lab/a")), 2, "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab/a"), "LostRepeatedly");
    let status = status(&sim.world, "lab/a");
    assert_eq!((status.phase, status.current), (Some(Phase::Failed), None));
}

#[test]
fn a_wrong_checksum_is_one_download_whatever_is_touched() {
    let mut sim = one_slot();
    image("lab/a").every_import_fails(ImportReason::ChecksumMismatch).create(&sim.world);
    sim.settle();
    for hour in 0..24 {
        sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
            image["metadata"]["labels"] = json!({"touched": hour.to_string()});
        });
        policy().concurrency(1 + hour).set("retryLimit", "9").apply(&sim.world);
        sim.kill("controller");
        sim.advance(Duration::from_secs(3600));
    }
    assert_eq!(sim.world.downloads(&key("lab/a")), 1, "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab/a"), "ChecksumMismatch");
}

/// Nobody reads for two days, and the one download of the budget was made: its result waits.
#[test]
fn a_result_that_nobody_reads_for_days_is_not_lost() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("retryLimit", "0").apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    sim.pause("controller");
    let_imports_succeed(&sim.world, "lab/a");
    sim.advance(Duration::from_secs(48 * 3600));
    sim.resume("controller");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
    assert_eq!(names(&sim.world, "Job"), Vec::<String>::new(), "and nothing is left of it");
}

/// The node goes with the ended pod on it before anybody read what it said.
#[test]
fn a_result_whose_pod_is_gone_is_found_where_the_download_is_kept() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("retryLimit", "0").apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    sim.pause("controller");
    let_imports_succeed(&sim.world, "lab/a");
    sim.quiesce();
    for name in names(&sim.world, "Pod") {
        sim.world.delete("Pod", &key(&name), Propagation::Background);
    }
    sim.quiesce();
    sim.resume("controller");
    sim.settle();
    let done = status(&sim.world, "lab/a");
    assert_eq!(done.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    let reasons: Vec<_> = done.attempts.iter().filter_map(|it| it.reason.as_deref()).collect();
    assert_eq!(reasons, ["ResultLost", "Succeeded"]);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1, "\n{}", sim.story);
}

/// Whoever may write a status may take away what was charged: it is how a backup without statuses comes back, too.
#[test]
fn a_status_that_is_wiped_after_it_gave_up_is_one_new_budget_and_no_more() {
    let mut sim = one_slot();
    image("lab/a").every_import_fails(ImportReason::ServerError).create(&sim.world);
    sim.settle();
    assert_eq!(sim.world.downloads(&key("lab/a")), 3);
    restore(&sim, &json!({}));
    sim.kill("controller");
    sim.settle();
    assert_eq!(reason(&sim.world, "lab/a"), "RetriesExhausted", "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 6, "\n{}", sim.story);
    sim.kill("controller");
    sim.advance(Duration::from_secs(24 * 3600));
    assert_eq!(sim.world.downloads(&key("lab/a")), 6, "a restart is none");
}
