//! Specs that change and images that go at every moment of a life: a grid over its turns.

use diskimage_controller::names;
use otctl_kit::plan::Propagation;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use serde_json::{Value, json};
use testbed::builders::{another_storage_class, image, key, policy, snapshot_class};
use testbed::check;
use testbed::sim::Order;
use testbed::{Sim, World};

use crate::controller::{
    imports, is_importing, let_imports_succeed, names as names_of, one_slot, reason, status, world,
};

/// More turns than a life has.
const MOST_TURNS: usize = 400;
/// The one order drawn from a seed, beside the fixed one; `orders.rs` has more of them.
const SEED: u64 = 1;

fn orders() -> impl Iterator<Item = Order> {
    [Order::Fixed, Order::Shuffled(SEED)].into_iter()
}

/// Runs `scenario` again and again, each time with `strike` one turn later in the life of lab/a, until it strikes after
/// `is_over`. How many times that was.
fn at_every_turn(
    order: Order,
    begin: impl Fn(&Sim),
    is_over: impl Fn(&World) -> bool,
    strike_and_judge: impl Fn(&mut Sim),
) -> usize {
    for turns in 0..MOST_TURNS {
        let mut sim = world(order);
        begin(&sim);
        let is_alive = (0..turns).all(|_| sim.step());
        if !is_alive || is_over(&sim.world) {
            return turns;
        }
        strike_and_judge(&mut sim);
        check::expect_none(&check::whole_history(&sim.world));
        assert!(sim.world.cuts().iter().all(|cut| cut.complete), "\n{}", sim.story);
    }
    panic!("the life never ended")
}

fn image_of(world: &World, name: &str) -> VMDiskImage {
    world.read(&key(name)).unwrap_or_else(|| panic!("{name} is gone"))
}

/// The image is Succeeded, and what it names is the data of the spec as it is now.
fn assert_data_is_of_the_spec(sim: &Sim, name: &str) {
    let image = image_of(&sim.world, name);
    let status = status(&sim.world, name);
    assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status.observed_generation, image.metadata.generation, "\n{}", sim.story);
    let (revision, current) = (names::revision(&image.spec), status.current.unwrap());
    assert_eq!(current.revision, revision);
    let data = names::data_name(name.rsplit_once('/').unwrap().1, &revision);
    assert_eq!(current.volume.clone().or(current.snapshot.clone()).unwrap(), data);
    if current.volume.is_some() {
        let claim = sim.world.get("PersistentVolumeClaim", &key(&format!("lab/{data}")));
        let uid = claim.map(|claim| claim["metadata"]["uid"].as_str().unwrap().to_owned());
        let is_complete = uid.is_some_and(|uid| sim.world.has_complete_data(&uid));
        assert!(is_complete, "the volume holds the disk\n{}", sim.story);
    }
    if current.snapshot.is_some() {
        assert_eq!(names_of(&sim.world, "VolumeSnapshot"), [format!("lab/{data}")]);
    }
    let claims = names_of(&sim.world, "PersistentVolumeClaim");
    let kept: Vec<String> = current.volume.map(|name| format!("lab/{name}")).into_iter().collect();
    assert_eq!(claims, kept, "nothing of another revision stays\n{}", sim.story);
}

fn has_data(world: &World) -> bool {
    status(world, "lab/a").current.is_some()
}

/// Each of the fields that make the data, changed at every turn until there is data.
fn edited(field: &str, value: &Value, snapshot: Option<&str>, retry_limit: &str) {
    for order in orders() {
        let begin = |sim: &Sim| {
            policy()
                .concurrency(1)
                .set("retryLimit", retry_limit)
                .set("retryBackoffDuration", "1m")
                .apply(&sim.world);
            another_storage_class(&sim.world, "fast");
            snapshot_class(&sim.world, "other-snapshots");
            let image = image("lab/a");
            match snapshot {
                Some(class) => image.snapshot_class(class).create(&sim.world),
                None => image.create(&sim.world),
            };
        };
        let tried = at_every_turn(order, begin, has_data, |sim| {
            sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
                image["spec"][field] = value.clone();
            });
            sim.settle();
            assert_data_is_of_the_spec(sim, "lab/a");
        });
        assert!(tried >= 20, "{tried} turns");
    }
}

#[test]
fn another_url_at_every_turn_is_what_is_fetched_and_has_a_budget_of_its_own() {
    let url = json!("http://images.example/new.qcow2");
    edited("url", &url, Some("snapshots"), "0");
    edited("url", &url, None, "0");
}

#[test]
fn another_size_or_class_at_every_turn_is_what_is_made() {
    edited("diskSize", &json!("2Gi"), Some("snapshots"), "2");
    edited("storageClass", &json!("fast"), None, "2");
    edited("snapshotClass", &json!("other-snapshots"), Some("snapshots"), "2");
}

#[test]
fn an_edit_while_it_is_queued_or_failed_is_told_and_acted_on() {
    let mut sim = one_slot();
    image("lab/busy").imports_without_end().create(&sim.world);
    sim.run_until("the slot is taken", |world| is_importing(world, "lab/busy"));
    image("lab/a").probe_fails(ImportReason::TooSmall).disk_size("1Mi").create(&sim.world);
    sim.quiesce();
    let edit = |sim: &mut Sim, size: &str| {
        sim.world
            .edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["diskSize"] = json!(size));
        sim.quiesce();
        let (image, status) = (image_of(&sim.world, "lab/a"), status(&sim.world, "lab/a"));
        assert_eq!(status.observed_generation, image.metadata.generation, "\n{}", sim.story);
    };
    edit(&mut sim, "2Mi");
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Queued));
    let_imports_succeed(&sim.world, "lab/busy");
    sim.settle();
    assert_eq!(reason(&sim.world, "lab/a"), "TooSmall");
    edit(&mut sim, "1Gi");
    sim.settle();
    assert_data_is_of_the_spec_beside(&sim);
}

fn assert_data_is_of_the_spec_beside(sim: &Sim) {
    let image = image_of(&sim.world, "lab/a");
    let status = status(&sim.world, "lab/a");
    assert_eq!(status.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(status.current.unwrap().revision, names::revision(&image.spec));
    assert_eq!(status.observed_generation, image.metadata.generation);
}

#[test]
fn a_retry_that_is_asked_for_at_any_turn_of_a_failing_attempt_is_given() {
    let begin = |sim: &Sim| {
        policy().concurrency(1).set("retryLimit", "0").apply(&sim.world);
        image("lab/a").import_fails(ImportReason::ChecksumMismatch).create(&sim.world);
    };
    let has_failed = |world: &World| status(world, "lab/a").phase == Some(Phase::Failed);
    let is_recorded = |world: &World| status(world, "lab/a").open_attempt.is_some();
    let tried = at_every_turn(Order::Fixed, begin, has_failed, |sim| {
        if !is_recorded(&sim.world) {
            return;
        }
        sim.pause("controller");
        sim.quiesce();
        sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
            image["metadata"]["annotations"] = json!({"pelotech.ot/retry": "1"});
        });
        sim.resume("controller");
        sim.settle();
        assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    });
    assert!(tried > 0);
}

/// Deletes lab/a at every turn of its life; lab/b gets the slot, and nothing of lab/a is left.
fn deleted(order: Order, propagation: Propagation) {
    let begin = |sim: &Sim| {
        policy().concurrency(1).apply(&sim.world);
        image("lab/a").snapshot_class("snapshots").create(&sim.world);
        image("lab/b").create(&sim.world);
    };
    let is_done = |world: &World| status(world, "lab/a").phase == Some(Phase::Succeeded);
    let tried = at_every_turn(order, begin, is_done, |sim| {
        sim.world.delete("VMDiskImage", &key("lab/a"), propagation);
        sim.settle();
        assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
        let left: Vec<String> = ["Job", "Pod", "PersistentVolumeClaim", "VolumeSnapshot"]
            .iter()
            .flat_map(|kind| names_of(&sim.world, kind))
            .filter(|name| name.starts_with("lab/a-"))
            .collect();
        assert!(left.is_empty(), "{left:?}\n{}", sim.story);
        assert!(imports(&sim.world, "lab/a") <= 1, "\n{}", sim.story);
    });
    assert!(tried >= 20, "{tried} turns");
}

#[test]
fn an_image_that_is_deleted_at_any_turn_leaves_nothing_and_frees_its_slot() {
    orders().for_each(|order| deleted(order, Propagation::Background));
    deleted(Order::Fixed, Propagation::Foreground);
}

/// Deletes lab/a and creates it again while the controller does not run, and lets `asleep` turns of the rest pass.
fn replaced(order: Order, class: Option<&str>, asleep: usize) {
    let create = |world: &World| match class {
        Some(class) => image("lab/a").snapshot_class(class).create(world),
        None => image("lab/a").create(world),
    };
    let begin = |sim: &Sim| {
        policy().concurrency(1).apply(&sim.world);
        create(&sim.world);
    };
    let tried = at_every_turn(order, begin, has_data, |sim| {
        sim.pause("controller");
        sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
        create(&sim.world);
        (0..asleep).for_each(|_| {
            sim.step();
        });
        sim.kill("controller");
        sim.resume("controller");
        sim.settle();
        assert_data_is_of_the_spec(sim, "lab/a");
        let charged = status(&sim.world, "lab/a").attempts;
        assert_eq!(charged.iter().filter(|attempt| attempt.charged).count(), 1, "\n{}", sim.story);
        let uid = image_of(&sim.world, "lab/a").metadata.uid;
        for kind in ["PersistentVolumeClaim", "VolumeSnapshot"] {
            for child in sim.world.list(kind) {
                let owner = &child["metadata"]["ownerReferences"][0]["uid"];
                assert_eq!(owner.as_str(), uid.as_deref(), "\n{}", sim.story);
            }
        }
    });
    assert!(tried >= 20, "{tried} turns");
}

#[test]
fn an_image_that_is_replaced_while_nobody_looks_gets_nothing_of_the_dead() {
    for order in orders() {
        replaced(order, None, 0);
        replaced(order, None, 40);
        replaced(order, Some("snapshots"), 7);
    }
}
