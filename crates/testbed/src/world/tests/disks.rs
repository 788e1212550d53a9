//! Claims, snapshots, and what an import leaves on them.

use super::*;

fn importing(world: &World, ending: Ending) -> Value {
    storage(world);
    let image = image("lab/a").import(ending).create(world);
    let owner = world.get("VMDiskImage", &image).unwrap();
    claim("lab/disk").owned_by(&owner).create(world);
    claim("lab/disk-scratch").owned_by(&owner).create(world);
    let volumes = json!([
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "scratch", "persistentVolumeClaim": {"claimName": "disk-scratch"}},
    ]);
    let mounts = |job: &mut Value| {
        job["spec"]["template"]["metadata"]["labels"] = json!({ROLE_LABEL: "import"});
        job["spec"]["template"]["spec"]["volumes"] = volumes;
    };
    job("lab/j").owned_by(&owner).with(mounts).create(world);
    owner
}

#[test]
fn a_snapshot_remembers_whether_its_data_was_complete() {
    for (ending, complete) in [
        (Ending::complete(Role::Import), true),
        (Ending::failed(Role::Import, ImportReason::ServerError), false),
    ] {
        let world = world();
        importing(&world, ending);
        run(&world);
        snapshot("lab/s", "disk").create(&world);
        run(&world);
        assert_eq!(world.cuts()[0].complete, complete);
        let ready = world.get("VolumeSnapshot", &key("lab/s")).unwrap();
        assert_eq!(
            (&ready["status"]["readyToUse"], &ready["status"]["restoreSize"]),
            (&json!(true), &json!("1Gi"))
        );
        let content = world
            .get("VolumeSnapshotContent", &key(&format!("snapcontent-{}", uid(&ready))))
            .unwrap();
        assert_eq!(content["spec"]["volumeSnapshotRef"]["uid"], uid(&ready));
        let from = json!({"kind": "VolumeSnapshot", "name": "s"});
        let restored =
            claim("lab/restored").with(|claim| claim["spec"]["dataSource"] = from).create(&world);
        run(&world);
        assert_eq!(world.has_complete_data(uid(&restored)), complete);
    }
}

#[test]
fn a_snapshot_of_a_running_import_is_not_complete() {
    let world = world();
    importing(&world, Ending::Never);
    run(&world);
    snapshot("lab/s", "disk").create(&world);
    run(&world);
    assert!(!world.cuts()[0].complete);
}

#[test]
fn a_snapshot_whose_content_is_gone_never_becomes_ready() {
    let world = world();
    let bound = json!({"boundVolumeSnapshotContentName": "gone", "readyToUse": false});
    snapshot("lab/s", "disk").with(|snapshot| snapshot["status"] = bound).create(&world);
    run(&world);
    let snapshot = world.get("VolumeSnapshot", &key("lab/s")).unwrap();
    assert_eq!(snapshot["status"]["readyToUse"], json!(false));
}

#[test]
fn a_complete_download_is_found_again_without_a_request() {
    let world = world();
    let owner = importing(&world, Ending::complete(Role::Import));
    run(&world);
    let scratch =
        json!([{"name": "scratch", "persistentVolumeClaim": {"claimName": "disk-scratch"}}]);
    let mounts = |job: &mut Value| job["spec"]["template"]["spec"]["volumes"] = scratch;
    job("lab/again").owned_by(&owner).with(mounts).create(&world);
    run(&world);
    assert_eq!((world.runs().len(), world.downloads(&key("lab/a"))), (2, 1));
}

#[test]
fn a_claim_in_use_stays_until_its_pod_has_ended() {
    let world = world();
    importing(&world, Ending::Never);
    run(&world);
    world.delete("PersistentVolumeClaim", &key("lab/disk"), Propagation::Background);
    run(&world);
    let claim: PersistentVolumeClaim = world.read(&key("lab/disk")).unwrap();
    assert!(claim.metadata.deletion_timestamp.is_some());
    world.delete("Job", &key("lab/j"), Propagation::Background);
    run(&world);
    assert!(world.get("PersistentVolumeClaim", &key("lab/disk")).is_none());
}

#[test]
fn claims_and_snapshots_without_their_class_wait_or_are_refused() {
    let world = world();
    claim("lab/c").create(&world);
    snapshot("lab/s", "c").create(&world);
    run(&world);
    assert!(world.get("PersistentVolumeClaim", &key("lab/c")).unwrap()["status"].is_null());
    let refused = world.get("VolumeSnapshot", &key("lab/s")).unwrap();
    assert_eq!(refused["status"]["error"]["message"], "no such VolumeSnapshotClass");
    storage(&world);
    run(&world);
    assert_eq!(
        world.get("PersistentVolumeClaim", &key("lab/c")).unwrap()["status"]["phase"],
        "Bound"
    );
    assert_eq!(
        world.get("VolumeSnapshot", &key("lab/s")).unwrap()["status"]["readyToUse"],
        json!(true)
    );
}
