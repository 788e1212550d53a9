//! Whole lives of images, as stories that a person can read, and what users do to them on the way.

use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use serde_json::json;
use testbed::builders::{image, key, policy};
use testbed::golden::compare;
use testbed::script::Role;
use testbed::sim::Order;
use testbed::{Ending, World, golden};

use crate::controller::{is_importing, let_imports_succeed, one_slot, reason, status, world};

fn data_name(world: &World, name: &str) -> String {
    let current = status(world, name).current.expect("it has data");
    current.volume.or(current.snapshot).expect("a copy is named")
}

#[test]
fn two_images_share_one_slot() {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.settle();
    compare(golden!("two_images_share_one_slot"), &sim.story.to_string());
}

#[test]
fn a_failure_in_passing_waits_and_goes_on() {
    let mut sim = one_slot();
    image("lab/a").import_fails(ImportReason::ConnectionLost).create(&sim.world);
    sim.settle();
    compare(golden!("a_failure_in_passing_waits_and_goes_on"), &sim.story.to_string());
}

#[test]
fn a_missing_source_is_a_matter_of_one_probe() {
    let mut sim = one_slot();
    image("lab/a").probe_fails(ImportReason::SourceNotFound).create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.settle();
    compare(golden!("a_missing_source_is_a_matter_of_one_probe"), &sim.story.to_string());
}

#[test]
fn finished_images_at_rest_cause_no_write() {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    image("lab/b").probe_fails(ImportReason::Forbidden).create(&sim.world);
    sim.settle();
    // Ended probes go by their time to live.
    sim.advance(Duration::from_secs(600));
    let before = sim.world.revision();
    sim.kill("controller");
    sim.advance(Duration::from_secs(3000));
    assert_eq!(sim.world.revision(), before, "\n{}", sim.story);
}

#[test]
fn an_ineligible_head_holds_nobody_up() {
    let mut sim = one_slot();
    image("lab/head").storage_class("gone").create(&sim.world);
    image("lab/backoff").import_fails(ImportReason::ServerError).create(&sim.world);
    image("lab/c").create(&sim.world);
    sim.run_until("c is done", |world| status(world, "lab/c").phase == Some(Phase::Succeeded));
    assert_eq!(reason(&sim.world, "lab/head"), "StorageClassNotFound");
    assert_eq!(reason(&sim.world, "lab/backoff"), "Backoff");
    testbed::builders::another_storage_class(&sim.world, "gone");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/head").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab/backoff").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

#[test]
fn a_missing_secret_holds_no_slot_and_heals() {
    let mut sim = one_slot();
    let missing = || Ending::failed(Role::Probe, ImportReason::SecretNotFound);
    image("lab/a").probe(missing()).probe(missing()).create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("b is done", |world| status(world, "lab/b").phase == Some(Phase::Succeeded));
    assert_eq!(reason(&sim.world, "lab/a"), "SecretNotFound");
    sim.settle();
    let status = status(&sim.world, "lab/a");
    assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status.budget.map(|budget| budget.charged), Some(1), "only the download is charged");
}

#[test]
fn a_retry_annotation_gives_a_new_budget_and_nothing_else_does() {
    let mut sim = one_slot();
    image("lab/a").every_import_fails(ImportReason::ServerError).create(&sim.world);
    sim.settle();
    assert_eq!(sim.world.downloads(&key("lab/a")), 3);
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["metadata"]["labels"] = json!({"touched": "yes"})
    });
    policy().concurrency(2).apply(&sim.world);
    sim.kill("controller");
    sim.settle();
    assert_eq!(
        sim.world.downloads(&key("lab/a")),
        3,
        "a label, the policy and a restart give none"
    );
    assert_eq!(reason(&sim.world, "lab/a"), "RetriesExhausted");
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["metadata"]["annotations"] = json!({"pelotech.ot/retry": "1"});
    });
    sim.settle();
    assert_eq!(sim.world.downloads(&key("lab/a")), 6);
    assert_eq!(status(&sim.world, "lab/a").last_attempt, Some(6), "numbers only grow");
}

#[test]
fn a_wrong_checksum_is_one_download() {
    let mut sim = one_slot();
    image("lab/a").every_import_fails(ImportReason::ChecksumMismatch).create(&sim.world);
    sim.settle();
    policy().concurrency(3).apply(&sim.world);
    sim.kill("controller");
    sim.settle();
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
    assert_eq!(reason(&sim.world, "lab/a"), "ChecksumMismatch");
}

#[test]
fn a_policy_of_zero_pauses_and_kills_nothing() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    policy().concurrency(0).apply(&sim.world);
    sim.quiesce();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Syncing), "what runs goes on");
    assert_eq!(reason(&sim.world, "lab/b"), "Paused");
    policy().concurrency(2).apply(&sim.world);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

#[test]
fn garbage_in_the_policy_keeps_the_last_good_value_also_after_a_restart() {
    let mut sim = one_slot();
    policy().set("concurrency", "3").apply(&sim.world);
    sim.settle();
    for garbage in ["abc", "-1", "4.5", "", "1000000000"] {
        policy().set("concurrency", garbage).set("retryBackoffDuration", "-5m").apply(&sim.world);
        sim.kill("controller");
        sim.settle();
        let queue = sim
            .world
            .read::<otctl_types::AdmissionQueue>(&key("vmdiskimages"))
            .and_then(|queue| queue.status)
            .unwrap();
        let valid = condition::find(&queue.conditions, condition::POLICY_VALID).unwrap();
        assert_eq!((queue.limit, valid.status.as_str()), (Some(3), "False"), "{garbage:?}");
        assert!(
            valid.message.contains("concurrency") && valid.message.contains("retryBackoffDuration"),
            "{}",
            valid.message
        );
    }
    policy().concurrency(5).apply(&sim.world);
    sim.settle();
    let queue = sim
        .world
        .read::<otctl_types::AdmissionQueue>(&key("vmdiskimages"))
        .and_then(|queue| queue.status)
        .unwrap();
    assert!(condition::is_true(&queue.conditions, condition::POLICY_VALID));
    assert_eq!(queue.limit, Some(5));
}

#[test]
fn two_hundred_times_created_and_deleted_leaves_every_slot_free() {
    let mut sim = world(Order::Shuffled(7));
    policy().concurrency(2).apply(&sim.world);
    for n in 0..200 {
        let name = format!("lab/n{n}");
        image(&name).imports_without_end().create(&sim.world);
        (0..n % 40).for_each(|_| {
            sim.step();
        });
        sim.world.delete("VMDiskImage", &key(&name), Propagation::Background);
    }
    sim.settle();
    image("lab/fresh").create(&sim.world);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/fresh").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

#[test]
fn a_status_that_was_wiped_does_not_touch_good_data() {
    for class in ["snapshots", ""] {
        let mut sim = one_slot();
        let image = image("lab/a");
        let image = if class.is_empty() { image } else { image.snapshot_class(class) };
        image.create(&sim.world);
        sim.settle();
        let before = status(&sim.world, "lab/a");
        sim.world.edit("VMDiskImage", &key("lab/a"), |image| image["status"] = json!({}));
        sim.settle();
        let after = status(&sim.world, "lab/a");
        assert_eq!(after.phase, Some(Phase::Succeeded), "{class:?}\n{}", sim.story);
        assert_eq!(after.current.unwrap().disk_checksum, before.current.unwrap().disk_checksum);
        assert_eq!(sim.world.downloads(&key("lab/a")), 1, "no second download");
    }
}

#[test]
fn a_lost_snapshot_is_taken_again_and_a_lost_volume_restored() {
    let mut sim = one_slot();
    image("lab/a")
        .snapshot_class("snapshots")
        .with(|spec| spec.keep_volume = Some(true))
        .create(&sim.world);
    sim.settle();
    let name = format!("lab/{}", data_name(&sim.world, "lab/a"));
    sim.world.delete("VolumeSnapshot", &key(&name), Propagation::Background);
    sim.settle();
    assert!(sim.world.get("VolumeSnapshot", &key(&name)).is_some(), "\n{}", sim.story);
    sim.world.delete("PersistentVolumeClaim", &key(&name), Propagation::Background);
    sim.settle();
    assert!(sim.world.get("PersistentVolumeClaim", &key(&name)).is_some(), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded));
    assert_eq!(sim.world.downloads(&key("lab/a")), 1, "no download for either");
}

#[test]
fn data_lost_every_minute_for_an_hour_costs_two_downloads() {
    let mut sim = one_slot();
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.settle();
    for _ in 0..60 {
        for kind in ["VolumeSnapshot", "PersistentVolumeClaim"] {
            for object in sim.world.list(kind) {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                sim.world.delete(kind, &key(&format!("lab/{name}")), Propagation::Background);
            }
        }
        sim.kill("controller");
        sim.advance(Duration::from_secs(60));
    }
    assert_eq!(sim.world.downloads(&key("lab/a")), 2, "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab/a"), "LostRepeatedly");
    assert_eq!(status(&sim.world, "lab/a").current, None);
}

#[test]
fn an_edit_before_there_is_data_replaces_the_attempt() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    let_imports_succeed(&sim.world, "lab/a");
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["spec"]["url"] = json!("http://images.example/new.qcow2")
    });
    sim.settle();
    let status = status(&sim.world, "lab/a");
    assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status.attempts[0].reason.as_deref(), Some("Superseded"));
    assert_eq!(
        sim.world.list("PersistentVolumeClaim").len(),
        1,
        "claims of the old revision are gone\n{}",
        sim.story
    );
}

#[test]
fn an_invalid_spec_is_told_and_heals() {
    let mut sim = one_slot();
    image("lab/a").with(|spec| spec.disk_size = Some("many".to_owned())).create(&sim.world);
    sim.settle();
    let before = status(&sim.world, "lab/a");
    let accepted = condition::find(&before.conditions, condition::ACCEPTED).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "InvalidSpec"));
    assert_eq!(before.phase, Some(Phase::Failed));
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["diskSize"] = json!("1Gi"));
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

#[test]
fn a_disk_whose_size_nothing_tells_is_asked_for_in_the_spec() {
    let mut sim = one_slot();
    image("lab/a").probe_fails(ImportReason::SizeUnknown).create(&sim.world);
    sim.settle();
    let before = status(&sim.world, "lab/a");
    let accepted = condition::find(&before.conditions, condition::ACCEPTED).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "SizeUnknown"));
    assert_eq!(before.phase, Some(Phase::Failed));
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["diskSize"] = json!("1Gi"));
    sim.settle();
    let after = status(&sim.world, "lab/a");
    assert_eq!(after.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    let accepted = condition::find(&after.conditions, condition::ACCEPTED).unwrap();
    assert_eq!(accepted.status, "True");
}

#[test]
fn an_object_in_s3_is_fetched_by_pods_in_the_images_namespace_with_its_secret() {
    let mut sim = one_slot();
    let with_secret = |spec: &mut otctl_types::VMDiskImageSpec| {
        spec.source_type = otctl_types::diskimage::SourceType::S3;
        spec.secret_ref = Some("store".to_owned());
    };
    image("lab/a").with(with_secret).create(&sim.world);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    let jobs: Vec<serde_json::Value> = sim.world.history(|versions| {
        let objects = versions.iter().map(|version| version.object.clone());
        objects.filter(|object| object["kind"] == "Job").collect()
    });
    assert!(jobs.len() >= 2, "a probe and an import");
    for job in jobs {
        assert_eq!(job["metadata"]["namespace"], "lab");
        let pod = &job["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        assert!(arguments.contains(&json!("--source-type=s3")), "{arguments:?}");
        let secret = json!("store");
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == secret));
        assert_eq!(pod["automountServiceAccountToken"], false);
    }
}

#[test]
fn a_foreign_claim_of_the_name_is_never_touched_and_the_image_heals() {
    let mut sim = one_slot();
    let built = image("lab/a").build();
    let name = diskimage_controller::names::data_name(
        "a",
        &diskimage_controller::names::revision(&built.spec),
    );
    testbed::builders::claim(&format!("lab/{name}")).create(&sim.world);
    let foreign = sim.world.get("PersistentVolumeClaim", &key(&format!("lab/{name}"))).unwrap();
    image("lab/a").create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("b is done", |world| status(world, "lab/b").phase == Some(Phase::Succeeded));
    sim.run_until("a conflict is told", |world| reason(world, "lab/a") == "NameConflict");
    let kept = sim.world.get("PersistentVolumeClaim", &key(&format!("lab/{name}"))).unwrap();
    assert_eq!(kept["metadata"]["ownerReferences"], foreign["metadata"]["ownerReferences"]);
    sim.world.delete(
        "PersistentVolumeClaim",
        &key(&format!("lab/{name}")),
        Propagation::Background,
    );
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

#[test]
fn a_deleted_job_is_a_failed_attempt_and_never_success() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    let_imports_succeed(&sim.world, "lab/a");
    let jobs = sim.world.list("Job");
    let import =
        jobs.iter().find(|job| job["metadata"]["labels"]["pelotech.ot/role"] == "import").unwrap();
    let name = import["metadata"]["name"].as_str().unwrap();
    sim.world.delete("Job", &key(&format!("lab/{name}")), Propagation::Background);
    sim.settle();
    let status = status(&sim.world, "lab/a");
    assert_eq!(status.attempts[0].reason.as_deref(), Some("Interrupted"), "\n{}", sim.story);
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!(sim.world.downloads(&key("lab/a")), 2);
}
