//! What is around an image and in the queue before it: classes, slots, time.

use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_types::condition::{self, ADMITTED};
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use serde_json::{Value, json};
use testbed::builders::{self, image, key, policy};
use testbed::sim::Order;
use testbed::{World, check};

use crate::controller::{
    imports, is_importing, let_imports_succeed, names, one_slot, reason, status, world,
};

/// A snapshot class of that driver, marked as the cluster's default.
fn default_snapshot_class(world: &World, name: &str, driver: &str) {
    world.create_value(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "driver": driver, "deletionPolicy": "Delete",
        "metadata": {
            "name": name,
            "annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"},
        },
    }));
}

#[test]
fn no_snapshot_is_taken_unasked_whatever_defaults_the_cluster_has() {
    for defaults in 0..3 {
        let mut sim = one_slot();
        (0..defaults).for_each(|n| {
            default_snapshot_class(&sim.world, &format!("default-{n}"), builders::DRIVER);
        });
        image("lab/a").create(&sim.world);
        sim.settle();
        let status = status(&sim.world, "lab/a");
        assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
        assert_eq!(status.current.unwrap().snapshot, None);
        let made = sim.world.history(|history| {
            history.iter().filter(|version| version.id.kind == "VolumeSnapshot").count()
        });
        assert_eq!(made, 0, "\n{}", sim.story);
    }
}

#[test]
fn a_snapshot_class_of_another_driver_is_refused_before_anything_is_fetched() {
    let mut sim = one_slot();
    default_snapshot_class(&sim.world, "foreign", "somebody.else");
    image("lab/a").snapshot_class("foreign").create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab/a"), "SnapshotClassMismatch");
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded));
    assert!(sim.world.runs().iter().all(|run| run.image == key("lab/b")), "\n{}", sim.story);
}

#[test]
fn a_class_that_goes_after_success_undoes_nothing() {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.settle();
    sim.world.delete("VolumeSnapshotClass", &key("snapshots"), Propagation::Background);
    for name in names(&sim.world, "VolumeSnapshot") {
        let unready = |snapshot: &mut Value| {
            snapshot["status"]["readyToUse"] = json!(false);
            snapshot["status"]["error"] = json!({"message": "no such VolumeSnapshotClass"});
        };
        sim.world.edit("VolumeSnapshot", &key(&name), unready);
        // The world would make it ready again; a driver without its class does not.
        sim.pause("controller");
        sim.resume("controller");
    }
    sim.kill("controller");
    sim.settle();
    let status = status(&sim.world, "lab/a");
    assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
}

#[test]
fn a_class_that_goes_while_it_is_queued_is_told_and_comes_back() {
    let mut sim = one_slot();
    image("lab/busy").imports_without_end().create(&sim.world);
    sim.run_until("the slot is taken", |world| is_importing(world, "lab/busy"));
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.quiesce();
    sim.world.delete("VolumeSnapshotClass", &key("snapshots"), Propagation::Background);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab/a"), "SnapshotClassNotFound", "\n{}", sim.story);
    builders::snapshot_class(&sim.world, "snapshots");
    let_imports_succeed(&sim.world, "lab/busy");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab/a").attempts.len(), 1, "no attempt was spent on it");
}

#[test]
fn nothing_that_runs_is_restarted_when_another_ends() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(2).apply(&sim.world);
    for n in 0..8 {
        image(&format!("lab/n{n}")).imports_without_end().create(&sim.world);
    }
    for n in 0..8 {
        let name = format!("lab/n{n}");
        sim.run_until("it runs", |world| is_importing(world, &name));
        let others = running(&sim.world, &name);
        let_imports_succeed(&sim.world, &name);
        sim.run_until("it is done", |world| status(world, &name).phase == Some(Phase::Succeeded));
        let still = running(&sim.world, &name);
        assert!(others.iter().all(|pod| still.contains(pod)), "\n{}", sim.story);
    }
    assert!((0..8).all(|n| imports(&sim.world, &format!("lab/n{n}")) == 1), "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

/// UIDs of import pods that run for others than that image.
fn running(world: &World, image: &str) -> Vec<String> {
    let prefix = format!("{}-", image.trim_start_matches("lab/"));
    let is_import = |pod: &Value| pod["metadata"]["labels"]["pelotech.ot/role"] == "import";
    let others = world.list("Pod").into_iter().filter(|pod| {
        is_import(pod)
            && pod["status"]["phase"] == "Running"
            && !pod["metadata"]["name"].as_str().unwrap().starts_with(&prefix)
    });
    others.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_timer_of_an_attempt_starts_when_its_job_does() {
    let mut sim = world(Order::Fixed);
    policy()
        .concurrency(1)
        .set("attemptTimeout", "2m")
        .set("retryBackoffDuration", "5m")
        .apply(&sim.world);
    image("lab/busy").imports_without_end().suspended().create(&sim.world);
    sim.quiesce();
    policy()
        .concurrency(0)
        .set("attemptTimeout", "2m")
        .set("retryBackoffDuration", "5m")
        .apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    sim.advance(Duration::from_secs(300));
    assert_eq!(reason(&sim.world, "lab/a"), "Paused");
    policy()
        .concurrency(1)
        .set("attemptTimeout", "2m")
        .set("retryBackoffDuration", "5m")
        .apply(&sim.world);
    sim.run_until("it runs", |world| is_importing(world, "lab/a"));
    // The first attempt takes a minute and fails; after five more of waiting the second takes a minute and succeeds.
    sim.advance(Duration::from_secs(60));
    let failed = testbed::Ending::failed(testbed::script::Role::Import, ImportReason::ServerError);
    sim.world.script(&key("lab/a"), testbed::script::Role::Import, failed);
    sim.run_until("it waits", |world| reason(world, "lab/a") == "Backoff");
    sim.run_until("it runs again", |world| is_importing(world, "lab/a"));
    sim.advance(Duration::from_secs(60));
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    let done = status(&sim.world, "lab/a");
    assert_eq!(done.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    let reasons: Vec<_> =
        done.attempts.iter().filter_map(|attempt| attempt.reason.as_deref()).collect();
    assert_eq!(reasons, ["ServerError", "Succeeded"], "\n{}", sim.story);
    let waited = done.attempts[1].started_at.clone().unwrap().0
        - done.attempts[0].ended_at.clone().unwrap().0;
    assert!(waited.get_seconds() >= 300, "{waited}");
}

#[test]
fn an_attempt_that_takes_too_long_ends_and_is_charged() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("attemptTimeout", "2m").set("retryLimit", "0").apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    sim.settle();
    let status = status(&sim.world, "lab/a");
    assert_eq!(reason(&sim.world, "lab/a"), "RetriesExhausted", "\n{}", sim.story);
    assert_eq!(status.attempts[0].reason.as_deref(), Some("AttemptTimeout"));
    let admitted = condition::find(&status.conditions, ADMITTED).unwrap();
    assert_eq!(admitted.status, "False");
}
