//! Shares in the images that workspaces made: the last one takes an image with it.

use std::collections::BTreeSet;

use otctl_types::condition;
use otctl_types::workspace::ImageRetention;
use serde_json::json;
use testbed::Sim;
use testbed::sim::Order;

use crate::builders::{sync, workspace};
use crate::controller::{
    at, delete, edit, expect_sound, is_ready, names, reason, slots, status, world,
};

/// Workspaces that all bring `debian` and take it along, Ready.
fn sharing(sim: &mut Sim, names: &[&str]) {
    for name in names {
        workspace(name).made_image("data", "debian").takes_images_along().create(&sim.world);
    }
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    for name in names {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
    }
}

/// How often an image of that name was made and removed.
fn lives(sim: &Sim) -> (usize, usize) {
    sim.world.history(|history| {
        let mine = history.iter().filter(|it| it.id.kind == "VMDiskImage");
        let made = mine.clone().filter(|it| it.verb == testbed::world::Verb::Created).count();
        (made, mine.filter(|it| it.is_removal()).count())
    })
}

#[test]
fn a_shared_image_goes_with_the_last_workspace_that_uses_it() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a", "b", "c"]);
    let owners = |sim: &Sim| {
        let image = sim.world.get("VMDiskImage", &at("debian"));
        image.map(|it| it["metadata"]["ownerReferences"].as_array().unwrap().len())
    };
    assert_eq!(owners(&sim), Some(3));
    delete(&sim.world, "a");
    sim.settle();
    assert!(sim.world.get("VMDiskImage", &at("debian")).is_some(), "two use it");
    // The last two in the same moment.
    delete(&sim.world, "b");
    delete(&sim.world, "c");
    sim.settle();
    assert_eq!(lives(&sim), (1, 1), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn the_last_two_users_may_go_while_the_controller_is_dead() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a", "b"]);
    sim.pause("controller");
    delete(&sim.world, "a");
    delete(&sim.world, "b");
    sim.quiesce();
    sim.kill("controller");
    sim.resume("controller");
    sim.settle();
    assert_eq!(lives(&sim), (1, 1), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Workspace"), [""; 0]);
    expect_sound(&sim);
}

#[test]
fn who_waits_for_an_image_keeps_it_alive() {
    let mut sim = world(Order::Fixed);
    for name in ["a", "b"] {
        workspace(name).made_image("data", "debian").takes_images_along().create(&sim.world);
    }
    sim.settle();
    delete(&sim.world, "a");
    sim.settle();
    assert_eq!(lives(&sim), (1, 0), "\n{}", sim.story);
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "b"), "\n{}", sim.story);
}

#[test]
fn a_workspace_that_comes_while_the_image_goes_waits_and_makes_it_anew() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a"]);
    sim.world.edit("VMDiskImage", &at("debian"), |it| {
        it["metadata"]["finalizers"] = json!(["storage/protection"]);
    });
    delete(&sim.world, "a");
    sim.settle();
    workspace("b").made_image("data", "debian").takes_images_along().create(&sim.world);
    sim.settle();
    assert_eq!(reason(&sim.world, "b", condition::IMAGES_READY), "ImageTerminating");
    assert_eq!(slots(&sim.world), [""; 0]);
    sim.world.edit("VMDiskImage", &at("debian"), |it| it["metadata"]["finalizers"] = json!([]));
    sim.settle();
    assert_eq!(lives(&sim), (2, 1), "\n{}", sim.story);
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "b"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn an_edit_that_removes_the_entry_gives_the_share_up() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a", "b"]);
    let remove = |spec: &mut otctl_types::WorkspaceSpec| {
        spec.virtual_machines.clear();
        spec.containers.push(crate::builders::container("api"));
    };
    edit(&sim.world, "a", remove);
    sim.settle();
    assert_eq!(lives(&sim), (1, 0), "\n{}", sim.story);
    edit(&sim.world, "b", remove);
    sim.settle();
    assert_eq!(lives(&sim), (1, 1), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "a") && is_ready(&sim.world, "b"));
    expect_sound(&sim);
}

#[test]
fn what_is_to_be_retained_after_all_stays() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a"]);
    edit(&sim.world, "a", |spec| spec.image_retention = ImageRetention::Retain);
    sim.settle();
    delete(&sim.world, "a");
    sim.settle();
    assert_eq!(lives(&sim), (1, 0), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Workspace"), [""; 0]);
}

#[test]
fn a_share_takes_nothing_of_the_image_back() {
    let mut sim = world(Order::Fixed);
    workspace("a").made_image("data", "debian").create(&sim.world);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    let before = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    workspace("b").made_image("data", "debian").takes_images_along().create(&sim.world);
    sim.settle();
    let after = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    for field in ["spec", "status"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    for field in ["labels", "annotations"] {
        assert_eq!(before["metadata"][field], after["metadata"][field], "{field}");
    }
    assert_eq!(after["metadata"]["ownerReferences"][0]["name"], json!("b"));
    delete(&sim.world, "b");
    sim.settle();
    assert_eq!(lives(&sim), (1, 0), "a uses it, and retains it");
    let left = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    assert_eq!(left["metadata"]["ownerReferences"], json!(null), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "a"));
}

/// The newcomer would take along what others retain and use: whoever dies when, they have their shares with it.
#[test]
fn a_newcomer_that_takes_images_along_never_is_the_only_owner() {
    let mut sim = world(Order::Fixed);
    for name in ["a", "b"] {
        workspace(name).made_image("data", "debian").create(&sim.world);
    }
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    workspace("new").made_image("data", "debian").takes_images_along().create(&sim.world);
    sim.settle();
    let counts = sim.world.history(|history| {
        let images = history.iter().filter(|version| version.id.kind == "VMDiskImage");
        let owners = images.map(|it| it.object["metadata"]["ownerReferences"].as_array());
        owners.map(|owners| owners.map_or(0, Vec::len)).collect::<BTreeSet<_>>()
    });
    assert_eq!(counts, [0, 3].into(), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn an_image_that_is_gone_is_made_anew_without_a_slot() {
    let mut sim = world(Order::Fixed);
    sharing(&mut sim, &["a"]);
    sim.world.delete("VMDiskImage", &at("debian"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert_eq!(lives(&sim), (2, 1), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "a", condition::READY), "AwaitingImages");
    assert_eq!(status(&sim.world, "a").last_turn, Some(2));
    sync(&sim.world, "debian", "r2");
    sim.settle();
    assert!(is_ready(&sim.world, "a"), "\n{}", sim.story);
}
