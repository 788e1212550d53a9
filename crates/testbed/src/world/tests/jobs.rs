//! Jobs and their pods: how they begin, end, and go.

use super::*;

#[test]
fn a_job_gets_its_pod_which_runs_and_ends() {
    let world = world();
    image("lab/a").create(&world);
    let owner = world.get("VMDiskImage", &key("lab/a")).unwrap();
    job("lab/j").owned_by(&owner).create(&world);
    let told = run(&world);
    assert_eq!(told.len(), 4, "{told:#?}");
    let pod = &world.list("Pod")[0];
    assert_eq!(pod["status"]["phase"], "Succeeded");
    let message = &pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
    assert!(
        ImportReport::from_termination_message(message.as_str().unwrap()).unwrap().download_started
    );
    assert!(is_condition_true(&world.get("Job", &key("lab/j")).unwrap(), "Complete"));
    let _typed: (Job, Pod) =
        (world.read(&key("lab/j")).unwrap(), serde_json::from_value(pod.clone()).unwrap());
}

#[test]
fn pods_end_as_scripted() {
    let endings = [
        (Ending::failed(Role::Import, ImportReason::ServerError), "1", true),
        (Ending::Killed, "137", false),
        (Ending::Evicted, "137", false),
    ];
    for (ending, code, has_report) in endings {
        let world = world();
        let image = image("lab/a").import(ending.clone()).create(&world);
        let owner = world.get("VMDiskImage", &image).unwrap();
        job("lab/j").owned_by(&owner).create(&world);
        run(&world);
        let status = &world.list("Pod")[0]["status"];
        let terminated = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(
            (terminated["exitCode"].to_string().as_str(), terminated["message"].is_string()),
            (code, has_report)
        );
        assert_eq!(status["reason"] == "Evicted", ending == Ending::Evicted);
        assert!(is_condition_true(&world.get("Job", &key("lab/j")).unwrap(), "Failed"));
        assert_eq!(world.downloads(&image), 1);
    }
}

#[test]
fn a_suspended_job_has_no_pod_and_a_resumed_one_has() {
    let world = world();
    job("lab/j").with(|job| job["spec"]["suspend"] = json!(true)).create(&world);
    assert_eq!(run(&world), ["Job lab/j is suspended"]);
    world.edit("Job", &key("lab/j"), |job| job["spec"]["suspend"] = json!(false));
    let start = |world: &World| [world.acts()[0].clone()].map(|act| world.perform(&act));
    start(&world);
    start(&world);
    world.edit("Job", &key("lab/j"), |job| job["spec"]["suspend"] = json!(true));
    let told = run(&world);
    assert!(
        told[0].contains("stops its pod") && told.contains(&"Job lab/j is suspended".to_owned()),
        "{told:#?}"
    );
    assert!(world.list("Pod").is_empty());
    assert!(
        !is_condition_true(&world.get("Job", &key("lab/j")).unwrap(), "Failed"),
        "a suspension is no failure"
    );
}

#[test]
fn a_job_ends_at_its_deadline_and_goes_after_its_time() {
    let world = world();
    let image = image("lab/a").imports_without_end().create(&world);
    let owner = world.get("VMDiskImage", &image).unwrap();
    let limits = |job: &mut Value| {
        job["spec"]["activeDeadlineSeconds"] = json!(60);
        job["spec"]["ttlSecondsAfterFinished"] = json!(3600);
    };
    job("lab/j").owned_by(&owner).with(limits).create(&world);
    run(&world);
    assert_eq!(world.list("Pod")[0]["status"]["phase"], "Running");
    world.clock().set(world.next_deadline().unwrap());
    run(&world);
    let failed = world.get("Job", &key("lab/j")).unwrap();
    assert!(
        is_condition_true(&failed, "Failed")
            && failed["status"]["conditions"][0]["reason"] == "DeadlineExceeded"
    );
    world.clock().set(world.next_deadline().unwrap());
    run(&world);
    assert!(world.get("Job", &key("lab/j")).is_none());
    assert_eq!(world.clock().now().to_string(), "2026-01-01T13:01:00Z");
}

#[test]
fn a_deleted_pod_lives_until_its_node_has_stopped_it_and_fails_its_job() {
    let world = world();
    let image = image("lab/a").imports_without_end().create(&world);
    let owner = world.get("VMDiskImage", &image).unwrap();
    job("lab/j").owned_by(&owner).create(&world);
    run(&world);
    let pod = crate::world::objects::id_of(&world.list("Pod")[0]).key;
    world.delete("Pod", &pod, Propagation::Background);
    let dying = world.get("Pod", &pod).unwrap();
    assert_eq!(
        (&dying["status"]["phase"], dying["metadata"]["deletionTimestamp"].is_null()),
        (&json!("Running"), false)
    );
    run(&world);
    assert!(world.get("Pod", &pod).is_none());
    assert!(is_condition_true(&world.get("Job", &key("lab/j")).unwrap(), "Failed"));
    let phases: Vec<String> = world.history(|history| {
        let pods = history.iter().filter(|version| version.id.kind == "Pod");
        pods.map(|version| version.object["status"]["phase"].as_str().unwrap().to_owned()).collect()
    });
    assert_eq!(phases, ["Pending", "Running", "Running", "Failed", "Failed"]);
}

#[test]
fn background_deletion_frees_the_name_while_the_pod_still_runs() {
    let world = world();
    let image = image("lab/a").imports_without_end().create(&world);
    let owner = world.get("VMDiskImage", &image).unwrap();
    let made = job("lab/j").owned_by(&owner).create(&world);
    run(&world);
    delete_job(&world, uid(&made), None, Propagation::Background).unwrap();
    assert!(world.get("Job", &key("lab/j")).is_none());
    assert_eq!(world.list("Pod")[0]["status"]["phase"], "Running");
    run(&world);
    assert!(world.list("Pod").is_empty());
}

#[test]
fn foreground_deletion_keeps_the_job_until_its_pod_is_gone() {
    let world = world();
    let image = image("lab/a").imports_without_end().create(&world);
    let owner = world.get("VMDiskImage", &image).unwrap();
    let made = job("lab/j").owned_by(&owner).create(&world);
    run(&world);
    delete_job(&world, uid(&made), None, Propagation::Foreground).unwrap();
    while let Some(act) = world.acts().first().cloned() {
        assert!(world.list("Pod").is_empty() || world.get("Job", &key("lab/j")).is_some());
        world.perform(&act);
    }
    assert!(world.get("Job", &key("lab/j")).is_none() && world.list("Pod").is_empty());
}
