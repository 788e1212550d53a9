//! Disk images: waited for, made, and lost.

use otctl_types::condition;
use serde_json::json;
use testbed::sim::Order;
use testbed::{Sim, builders as bed};

use crate::builders::{
    fail, image, instance, machine, set_image, spec_of_image, sync, synced_image, workspace,
};
use crate::controller::{
    at, delete, edit, expect_sound, is_ready, names, reason, slots, status, told, world,
};

/// A workspace whose image is so: what is told.
fn waiting_for(sim: &mut Sim, name: &str) -> (String, String) {
    workspace(name).machine("db", name).create(&sim.world);
    sim.settle();
    let status = status(&sim.world, name);
    (reason(&sim.world, name, condition::IMAGES_READY), status.message.unwrap())
}

#[test]
fn waiting_is_never_silent() {
    let mut sim = world(Order::Fixed);
    for name in ["queued", "retrying", "failed", "unseen", "going"] {
        image(&sim.world, name);
    }
    set_image(&sim.world, "queued", |status| {
        *status = json!({"phase": "Queued", "message": "waits for a slot, 2 are before it"});
    });
    set_image(&sim.world, "retrying", |status| {
        *status = json!({"phase": "Queued", "message": "retry at 12:05: the server said 503"});
    });
    fail(&sim.world, "failed");
    set_image(&sim.world, "unseen", |status| *status = json!(null));
    sim.world.edit("VMDiskImage", &at("going"), |it| {
        it["metadata"]["finalizers"] = json!(["somebody/else"]);
    });
    sim.world.delete("VMDiskImage", &at("going"), otctl_kit::plan::Propagation::Background);
    let told = |sim: &mut Sim, name: &str, reason: &str, words: &str| {
        let (found, message) = waiting_for(sim, name);
        assert_eq!(found, reason, "{name}");
        assert!(message.contains(&format!("'{name}'")) && message.contains(words), "{message}");
    };
    told(
        &mut sim,
        "missing",
        "ImageNotFound",
        "in namespace labs: create it there, or say in `image`",
    );
    told(&mut sim, "queued", "AwaitingImages", "Queued: waits for a slot, 2 are before it");
    told(&mut sim, "retrying", "AwaitingImages", "retry at 12:05: the server said 503");
    told(&mut sim, "failed", "ImageFailed", "the checksum is another");
    told(&mut sim, "unseen", "AwaitingImages", "has not looked at it yet");
    told(&mut sim, "going", "ImageTerminating", "until it is gone");
    assert_eq!(slots(&sim.world), [""; 0]);
    expect_sound(&sim);
}

#[test]
fn a_failed_image_fails_the_workspace_which_recovers_with_it() {
    let mut sim = world(Order::Fixed);
    image(&sim.world, "debian");
    fail(&sim.world, "debian");
    workspace("lab").machine("db", "debian").create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Failed (ImageFailed, 0/1): VMDiskImage 'debian' has failed: the checksum is another"
    );
    assert_eq!(reason(&sim.world, "lab", condition::STALLED), "ImageFailed");
    assert_eq!(reason(&sim.world, "lab", condition::RECONCILING), "");
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab", condition::STALLED), "");
    expect_sound(&sim);
}

/// An image may say more than a workspace may.
#[test]
fn what_an_image_says_at_length_is_cut_to_what_fits() {
    let mut sim = world(Order::Fixed);
    image(&sim.world, "debian");
    set_image(&sim.world, "debian", |status| {
        status["phase"] = json!("Failed");
        status["message"] = json!("é".repeat(4096));
    });
    workspace("lab").machine("db", "debian").create(&sim.world);
    sim.settle();
    let status = status(&sim.world, "lab");
    let report = status.resource_status.unwrap().virtual_machines.remove(0);
    let of_conditions = status.conditions.into_iter().map(|it| it.message);
    let mut lengths = of_conditions.chain(report.message).map(|text| text.chars().count());
    assert_eq!(lengths.clone().max(), Some(condition::MESSAGE_LIMIT));
    assert!(lengths.all(|length| length <= condition::MESSAGE_LIMIT));
}

#[test]
fn an_image_that_a_workspace_brings_is_made_in_one_turn_and_used_in_another() {
    let mut sim = world(Order::Fixed);
    workspace("lab").made_image("data", "debian").container("api").create(&sim.world);
    sim.settle();
    let made = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    assert_eq!(made["metadata"]["annotations"]["pelotech.ot/made-by"], json!("workspace"));
    assert_eq!(made["metadata"]["ownerReferences"], json!(null), "it is retained");
    let waiting = status(&sim.world, "lab");
    assert_eq!(reason(&sim.world, "lab", condition::ADMITTED), "AwaitingImages");
    assert_eq!((waiting.last_turn, waiting.open_turn), (Some(1), None), "its slot is given back");
    assert_eq!(waiting.ticket.as_deref(), Some("1"), "its place is not");
    assert_eq!(slots(&sim.world), [""; 0]);
    assert_eq!(names(&sim.world, "Deployment"), [""; 0]);
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2));
    expect_sound(&sim);
}

#[test]
fn an_image_of_the_name_with_another_source_is_not_used_and_the_field_is_named() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab")
        .made_image("data", "debian")
        .with(|spec| {
            let image = spec.virtual_machines[0].spec.image.as_mut().unwrap();
            image.disk_size = Some("2Gi".to_owned());
        })
        .create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Failed (ImageDiffers, 0/1): VMDiskImage 'debian' is there with another `diskSize` than `image` of entry 'data': use another name, or remove `image` to use it as it is"
    );
    assert_eq!(slots(&sim.world), [""; 0]);
    edit(&sim.world, "lab", |spec| spec.virtual_machines[0].spec.image = None);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn two_entries_that_make_one_image_otherwise_are_told_before_anything_is_downloaded() {
    let mut sim = world(Order::Fixed);
    workspace("lab")
        .made_image("data", "debian")
        .made_image("more", "debian")
        .with(|spec| {
            let image = spec.virtual_machines[1].spec.image.as_mut().unwrap();
            image.url = "https://images.example/other.qcow2".to_owned();
        })
        .create(&sim.world);
    sim.settle();
    let words = "entries 'data' and 'more' make VMDiskImage 'debian' with another `url` each: give one of them another `VMDiskImageName`, or remove `image` of one";
    assert_eq!(told(&sim.world, "lab"), format!("Failed (ImageDiffers, 0/2): {words}"));
    assert_eq!((slots(&sim.world), names(&sim.world, "VMDiskImage")), (vec![], vec![]));
    edit(&sim.world, "lab", |spec| spec.virtual_machines[1].spec.image = None);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    // Once it is there, it is the object that the entry is compared with.
    edit(&sim.world, "lab", |spec| {
        let mut other = spec.virtual_machines[0].spec.image.clone().unwrap();
        other.url = "https://images.example/other.qcow2".to_owned();
        spec.virtual_machines[1].spec.image = Some(other);
    });
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Failed (ImageDiffers, 1/2): VMDiskImage 'debian' is there with another `url` than `image` of entry 'more': use another name, or remove `image` to use it as it is"
    );
    expect_sound(&sim);
}

#[test]
fn an_image_of_the_same_source_is_used_whoever_made_it() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    let before = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    workspace("lab").made_image("data", "debian").takes_images_along().create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    delete(&sim.world, "lab");
    sim.settle();
    let after = sim.world.get("VMDiskImage", &at("debian")).unwrap();
    assert_eq!(before, after, "an image of somebody else is never owned");
    expect_sound(&sim);
}

#[test]
fn a_revision_is_recorded_and_later_ones_touch_nothing() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").image("data", "debian").create(&sim.world);
    sim.settle();
    let children = crate::controller::versions(&sim.world);
    sync(&sim.world, "debian", "r2");
    sim.settle();
    let of = |kind: &str| {
        let mut versions = crate::controller::versions(&sim.world);
        versions.retain(|(name, _)| name.starts_with(kind));
        versions
    };
    for kind in ["VirtualMachine", "PersistentVolumeClaim", "Service"] {
        let mut before = children.clone();
        before.retain(|(name, _)| name.starts_with(kind));
        assert_eq!(of(kind), before, "{kind}");
    }
    let machines = status(&sim.world, "lab").resource_status.unwrap().virtual_machines;
    let revisions: Vec<_> = machines.iter().map(|it| it.revision.clone().unwrap()).collect();
    assert_eq!(revisions, ["r1", "r1"]);
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

#[test]
fn a_pinned_revision_is_waited_for_and_kept() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    let pin = |revision: &str| {
        let revision = revision.to_owned();
        move |spec: &mut otctl_types::WorkspaceSpec| {
            spec.virtual_machines[0].spec.revision = Some(revision);
        }
    };
    workspace("lab").machine("db", "debian").with(pin("r2")).create(&sim.world);
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Provisioning (RevisionNotFound, 0/1): VMDiskImage 'debian' is at revision r1, and entry 'db' pins r2: remove `revision`, or name that one"
    );
    sync(&sim.world, "debian", "r2");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sync(&sim.world, "debian", "r3");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    edit(&sim.world, "lab", pin("r3"));
    sim.settle();
    assert_eq!(
        told(&sim.world, "lab"),
        "Failed (RevisionNotFound, 0/1): the disk of entry 'db' was made from revision r2 of VMDiskImage 'debian', and holds what its guest wrote: it is not replaced. Pin that revision, or remove the entry and add it again"
    );
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), ["lab--db-r2"]);
    expect_sound(&sim);
}

#[test]
fn a_disk_is_not_replaced_when_its_entry_names_another_image() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    image(&sim.world, "fedora");
    sync(&sim.world, "fedora", "r7");
    workspace("lab").machine("db", "debian").create(&sim.world);
    sim.settle();
    let before = crate::controller::versions(&sim.world);
    let name = |name: &'static str| {
        move |spec: &mut otctl_types::WorkspaceSpec| {
            spec.virtual_machines[0].spec.vm_disk_image_name = name.to_owned();
        }
    };
    edit(&sim.world, "lab", name("fedora"));
    sim.settle();
    let expected = "Failed (ImageDiffers, 0/1): the disk of entry 'db' was made from VMDiskImage 'debian', and holds what its guest wrote: it is not replaced. Name that image, or remove the entry and add it again";
    assert_eq!(told(&sim.world, "lab"), expected);
    let status = status(&sim.world, "lab");
    let report = &status.resource_status.unwrap().virtual_machines[0];
    assert_eq!((report.image.as_deref(), report.revision.as_deref()), (Some("fedora"), None));
    assert_eq!((&*status.disks[0].image, &*status.disks[0].revision), ("debian", "r1"));
    sim.world.edit("Workspace", &bed::key("lab"), |it| it["status"] = json!({}));
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), expected, "what is noted on the claim is not lost");
    let claim = at("lab--db-r1");
    sim.world.edit("PersistentVolumeClaim", &claim, |it| {
        it["metadata"]["annotations"]["pelotech.ot/image"] = json!("fedora");
    });
    sim.settle();
    assert_eq!(told(&sim.world, "lab"), expected, "and is put right");
    edit(&sim.world, "lab", name("debian"));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let others = |versions: Vec<(String, String)>| {
        let is_claim = |name: &str| name.starts_with("PersistentVolumeClaim");
        versions.into_iter().filter(|(name, _)| !is_claim(name)).collect::<Vec<_>>()
    };
    assert_eq!(others(crate::controller::versions(&sim.world)), others(before));
}

#[test]
fn an_entry_without_a_machine_uses_whichever_image_it_names() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    image(&sim.world, "fedora");
    sync(&sim.world, "fedora", "r7");
    workspace("lab").image("data", "debian").create(&sim.world);
    sim.settle();
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines[0].spec.vm_disk_image_name = "fedora".to_owned();
    });
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let report = &status(&sim.world, "lab").resource_status.unwrap().virtual_machines[0];
    let told = (report.image.as_deref(), report.revision.as_deref());
    assert_eq!(told, (Some("fedora"), Some("r7")));
}

#[test]
fn a_running_machine_does_not_care_what_becomes_of_its_image() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").create(&sim.world);
    sim.settle();
    set_image(&sim.world, "debian", |status| {
        *status = json!({"phase": "Failed", "message": "lost twice"});
    });
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sim.world.delete("VMDiskImage", &at("debian"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let machines = status(&sim.world, "lab").resource_status.unwrap().virtual_machines;
    assert_eq!(machines[0].phase.as_deref(), Some("NotFound"));
}

#[test]
fn two_entries_may_run_from_one_image() {
    let mut sim = world(Order::Fixed);
    let mut one = machine("one", "debian", Some(instance()));
    one.spec.image = Some(spec_of_image("debian"));
    let two = machine("two", "debian", Some(instance()));
    workspace("lab")
        .with(|spec| spec.virtual_machines = vec![one, two])
        .takes_images_along()
        .create(&sim.world);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), ["lab--one-r1", "lab--two-r1"]);
    bed::claim("labs/unrelated").create(&sim.world);
    delete(&sim.world, "lab");
    sim.settle();
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), ["unrelated"]);
    expect_sound(&sim);
}

#[test]
fn an_image_that_is_gone_is_made_for_an_added_entry_though_the_first_has_its_disk() {
    let mut sim = world(Order::Fixed);
    let mut one = machine("one", "debian", Some(instance()));
    one.spec.image = Some(spec_of_image("debian"));
    workspace("lab").with(|spec| spec.virtual_machines = vec![one]).create(&sim.world);
    sim.settle();
    sync(&sim.world, "debian", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sim.world.delete("VMDiskImage", &at("debian"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "its machine has a disk of its own\n{}", sim.story);
    edit(&sim.world, "lab", |spec| {
        let mut two = spec.virtual_machines[0].clone();
        two.name = "two".to_owned();
        spec.virtual_machines.push(two);
    });
    sim.settle();
    sync(&sim.world, "debian", "r2");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), ["lab--one-r1", "lab--two-r2"]);
    expect_sound(&sim);
}
