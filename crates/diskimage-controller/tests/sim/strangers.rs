//! Objects that are not ours: of a child's name, with our labels, of an image of the same name elsewhere, and of an
//! earlier image of this name. Whatever a controller writes to that is not its own is found by `check::owners`.

use diskimage_controller::names::{self as product, JobRole};
use otctl_kit::plan::Propagation;
use otctl_types::VMDiskImage;
use otctl_types::condition::{self, ACCEPTED, RECONCILING};
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;
use serde_json::{Value, json};
use testbed::builders::{self, ChildBuilder, image, key};
use testbed::{Sim, World, check};

use crate::controller::{
    imports, is_importing, let_imports_succeed, names, one_slot, reason, status,
};

/// Names that the children of lab/a will have.
struct Names {
    data: String,
    scratch: String,
    probe: String,
    import: String,
}

fn names_of(world: &World) -> Names {
    let image: VMDiskImage = world.read(&key("lab/a")).unwrap();
    let (revision, uid) = (product::revision(&image.spec), image.metadata.uid.unwrap());
    let job = |role| format!("lab/{}", product::job_name("a", &uid, &revision, role, 1));
    Names {
        data: format!("lab/{}", product::data_name("a", &revision)),
        scratch: format!("lab/{}", product::scratch_name("a", &revision)),
        probe: job(JobRole::Probe),
        import: job(JobRole::Import),
    }
}

/// Somebody's object has the name of a child of lab/a: lab/a says so and holds no slot, the object is not touched, and
/// lab/a goes on when it is gone.
fn conflict(make: impl Fn(&Names) -> ChildBuilder, downloads: usize) {
    let mut sim = one_slot();
    sim.pause("controller");
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    image("lab/b").create(&sim.world);
    let stranger = make(&names_of(&sim.world)).create(&sim.world);
    sim.resume("controller");
    sim.run_until("a conflict is told", |world| reason(world, "lab/a") == "NameConflict");
    let conditions = status(&sim.world, "lab/a").conditions;
    let accepted = condition::find(&conditions, ACCEPTED).unwrap();
    assert_eq!(
        (&*accepted.status, &*accepted.reason),
        ("False", "NameConflict"),
        "\n{}",
        sim.story
    );
    sim.run_until("b has its slot", |world| status(world, "lab/b").phase == Some(Phase::Succeeded));
    let (kind, metadata) = (stranger["kind"].as_str().unwrap(), &stranger["metadata"]);
    let name = key(&format!("lab/{}", metadata["name"].as_str().unwrap()));
    let kept = sim.world.get(kind, &name).unwrap();
    for field in ["uid", "labels", "annotations", "ownerReferences", "finalizers"] {
        assert_eq!(kept["metadata"][field], metadata[field], "{field}");
    }
    sim.world.delete(kind, &name, Propagation::Background);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert!(status(&sim.world, "lab/a").current.unwrap().disk_checksum.is_some());
    assert_eq!(sim.world.downloads(&key("lab/a")), downloads, "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

fn suspended_job(name: &str) -> ChildBuilder {
    builders::job(name).with(|job| job["spec"]["suspend"] = json!(true))
}

#[test]
fn a_strangers_object_of_a_childs_name_is_a_conflict_that_heals_and_is_never_touched() {
    conflict(|names| builders::claim(&names.data), 1);
    conflict(|names| builders::claim(&names.scratch), 1);
    conflict(|names| suspended_job(&names.probe), 1);
    conflict(|names| suspended_job(&names.import), 1);
}

#[test]
fn a_strangers_snapshot_of_the_name_costs_no_slot_and_no_second_download() {
    conflict(|names| builders::snapshot(&names.data, "somebody-elses").with(unfinished), 1);
}

/// The world takes no snapshot of a claim that is not there.
fn unfinished(snapshot: &mut Value) {
    snapshot["metadata"]["labels"] = json!({"somebody": "else"});
}

#[test]
fn our_labels_on_a_strangers_claim_make_it_no_child() {
    let mut sim = one_slot();
    sim.pause("controller");
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    let uid = sim.world.get("VMDiskImage", &key("lab/a")).unwrap()["metadata"]["uid"].clone();
    let stranger = builders::claim("lab/a-mine").with(|claim| {
        claim["metadata"]["labels"] = json!({
            "pelotech.ot/owner-uid": uid, "app.kubernetes.io/managed-by": "otctl",
            "app.kubernetes.io/component": "disk", "owner": "a",
        });
    });
    let stranger = stranger.create(&sim.world);
    sim.resume("controller");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Foreground);
    sim.settle();
    let kept = sim.world.get("PersistentVolumeClaim", &key("lab/a-mine")).unwrap();
    assert_eq!(kept["metadata"]["uid"], stranger["metadata"]["uid"]);
    check::expect_none(&check::whole_history(&sim.world));
}

#[test]
fn images_of_one_name_in_two_namespaces_know_nothing_of_each_other() {
    let mut sim = one_slot();
    image("lab/a").every_import_fails(ImportReason::ChecksumMismatch).create(&sim.world);
    image("other/a").create(&sim.world);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab/a"), "ChecksumMismatch");
    assert_eq!(status(&sim.world, "other/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    sim.settle();
    let volume = status(&sim.world, "other/a").current.unwrap().volume.unwrap();
    assert!(sim.world.get("PersistentVolumeClaim", &key(&format!("other/{volume}"))).is_some());
    check::expect_none(&check::whole_history(&sim.world));
}

/// Somebody's finalizer on every object of that kind.
fn hold_all(sim: &Sim, kind: &str) {
    each(sim, kind, |object| {
        let finalizers = &mut object["metadata"]["finalizers"];
        if finalizers.is_null() {
            *finalizers = json!([]);
        }
        finalizers.as_array_mut().unwrap().push(json!("somebody/else"));
    });
}

fn let_all_go(sim: &Sim, kind: &str) {
    each(sim, kind, |object| {
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != "somebody/else");
        }
    });
}

fn each(sim: &Sim, kind: &str, change: impl Fn(&mut Value)) {
    for object in sim.world.list(kind) {
        let metadata = &object["metadata"];
        let name = format!(
            "{}/{}",
            metadata["namespace"].as_str().unwrap(),
            metadata["name"].as_str().unwrap()
        );
        sim.world.edit(kind, &key(&name), &change);
    }
}

/// A child of an earlier try cannot go: the image waits without a slot, says so, and goes on when it can.
#[test]
fn a_claim_that_will_not_go_holds_no_slot_and_is_named() {
    let mut sim = one_slot();
    image("lab/a").import_fails(ImportReason::ChecksumMismatch).create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    hold_all(&sim, "PersistentVolumeClaim");
    sim.settle();
    assert_eq!(reason(&sim.world, "lab/a"), "ChecksumMismatch");
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["metadata"]["annotations"] = json!({"pelotech.ot/retry": "1"});
    });
    sim.run_until("it is told", |world| reason(world, "lab/a") == "OldChildTerminating");
    let status_now = status(&sim.world, "lab/a");
    let reconciling = condition::find(&status_now.conditions, RECONCILING).unwrap();
    assert_eq!(reconciling.reason, "OldChildTerminating");
    let message = status_now.message.unwrap();
    assert!(message.contains(&names_of(&sim.world).data), "{message}");
    image("lab/b").create(&sim.world);
    sim.run_until("b has its slot", |world| status(world, "lab/b").phase == Some(Phase::Succeeded));
    assert_eq!(imports(&sim.world, "lab/a"), 1, "\n{}", sim.story);
    let_all_go(&sim, "PersistentVolumeClaim");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
}

/// What is left of an earlier image of this name is waited for, and it is no conflict.
#[test]
fn what_an_earlier_image_of_this_name_left_is_waited_for() {
    let mut sim = one_slot();
    image("lab/a").create(&sim.world);
    sim.settle();
    hold_all(&sim, "PersistentVolumeClaim");
    sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    image("lab/a").create(&sim.world);
    sim.run_until("it is told", |world| reason(world, "lab/a") == "OldChildTerminating");
    let accepted = status(&sim.world, "lab/a").conditions;
    assert!(condition::is_true(&accepted, ACCEPTED), "it is no conflict");
    let_all_go(&sim, "PersistentVolumeClaim");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

/// A Job that cannot go may have a pod: its slot is kept, and a person is told what holds it.
#[test]
fn a_job_that_will_not_go_keeps_its_slot_and_is_named() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    hold_all(&sim, "Job");
    sim.world.edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["suspend"] = json!(true));
    sim.run_until("it is told", |world| reason(world, "lab/a") == "Stopping");
    let told = status(&sim.world, "lab/a");
    let message = told.message.unwrap();
    assert!(message.contains("somebody/else"), "{message}");
    assert_eq!(told.phase, Some(Phase::Syncing), "it is in the ledger");
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Queued), "\n{}", sim.story);
    let_imports_succeed(&sim.world, "lab/a");
    let_all_go(&sim, "Job");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab/a"), "Suspended");
}

/// A running Job of the name that the next attempt of lab/a will have, in its name and with its owner reference.
fn forge_an_import(sim: &Sim) -> String {
    let name = names_of(&sim.world).import;
    let image = sim.world.get("VMDiskImage", &key("lab/a")).unwrap();
    let labels = json!({
        "pelotech.ot/owner-uid": image["metadata"]["uid"], "pelotech.ot/role": "import",
        "app.kubernetes.io/managed-by": "otctl",
    });
    let forged = builders::job(&name).owned_by(&image).with(|job| {
        job["metadata"]["labels"] = labels.clone();
        job["spec"]["template"]["metadata"]["labels"] = labels;
        job["spec"]["suspend"] = json!(false);
    });
    forged.create(&sim.world);
    name
}

#[test]
fn a_job_in_our_name_that_we_did_not_make_is_no_attempt_and_brings_no_data() {
    for is_over in [false, true] {
        let mut sim = one_slot();
        sim.pause("controller");
        image("lab/a").create(&sim.world);
        let name = forge_an_import(&sim);
        if is_over {
            sim.quiesce();
        }
        sim.resume("controller");
        sim.run_until("it is told", |world| reason(world, "lab/a") == "NameConflict");
        let told = status(&sim.world, "lab/a");
        let message = told.message.unwrap();
        assert!(message.contains(&name), "{message}");
        assert_eq!(told.budget.map(|budget| budget.charged), Some(0));
        sim.settle();
        let done = status(&sim.world, "lab/a");
        assert_eq!(done.phase, Some(Phase::Succeeded), "\n{}", sim.story);
        let reasons: Vec<_> =
            done.attempts.iter().filter_map(|attempt| attempt.reason.as_deref()).collect();
        assert_eq!(reasons.last(), Some(&"Succeeded"), "\n{}", sim.story);
        assert!(reasons.contains(&"NameConflict"), "{reasons:?}\n{}", sim.story);
        let volume = format!("lab/{}", done.current.unwrap().volume.unwrap());
        let claim = sim.world.get("PersistentVolumeClaim", &key(&volume)).unwrap();
        assert!(sim.world.has_complete_data(claim["metadata"]["uid"].as_str().unwrap()));
        assert!(sim.world.get("Job", &key(&name)).is_none(), "it bore our UID\n{}", sim.story);
    }
}

/// The Job of the running import is deleted with `--cascade=orphan`.
fn orphan(sim: &Sim) {
    each(sim, "Pod", |pod| pod["metadata"]["ownerReferences"] = json!([]));
    for name in names(&sim.world, "Job") {
        sim.world.delete("Job", &key(&name), Propagation::Background);
    }
}

#[test]
fn an_orphaned_pod_that_has_ended_keeps_nothing_of_a_deleted_image() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    sim.pause("controller");
    orphan(&sim);
    sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    sim.quiesce();
    sim.resume("controller");
    image("lab/b").create(&sim.world);
    sim.settle();
    assert_eq!(status(&sim.world, "lab/b").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    for kind in ["PersistentVolumeClaim", "Pod", "Job"] {
        let mut left = names(&sim.world, kind);
        left.retain(|name| name.starts_with("lab/a-"));
        assert!(left.is_empty(), "{left:?}\n{}", sim.story);
    }
}

#[test]
fn an_orphaned_pod_that_has_ended_keeps_nothing_of_a_living_image() {
    let mut sim = one_slot();
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    orphan(&sim);
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    let claims = names(&sim.world, "PersistentVolumeClaim");
    assert_eq!(claims.len(), 1, "{claims:?}\n{}", sim.story);
    let owned = |pod: &Value| !pod["metadata"]["ownerReferences"].as_array().unwrap().is_empty();
    assert!(sim.world.list("Pod").iter().all(owned), "\n{}", sim.story);
}
