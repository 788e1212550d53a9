mod disks;
mod jobs;

use otctl_kit::cluster::{Answer, ApiError, Request, Target};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Store;
use otctl_types::import::{ImportReason, ImportReport};
use otctl_types::names::ROLE_LABEL;
use serde_json::{Value, json};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::core::DynamicObject;
use otctl_types::VMDiskImage;

use super::{Act, World};
use crate::builders::{claim, image, job, key, snapshot, storage};
use crate::clock::VirtualClock;
use crate::json::{is_condition_true, uid};
use crate::script::{Ending, Role};
use crate::views::Feed;

fn world() -> World {
    World::new(&VirtualClock::default())
}

fn send(world: &World, request: Request) -> Result<Value, ApiError> {
    world.request("controller", request).map(|answer| match answer {
        Answer::Object(object) => serde_json::to_value(object).unwrap(),
        Answer::Objects(objects) => serde_json::to_value(objects).unwrap(),
        Answer::Absent | Answer::Done => Value::Null,
    })
}

fn dynamic(object: Value) -> Box<DynamicObject> {
    Box::new(serde_json::from_value(object).unwrap())
}

fn create(world: &World, object: Value) -> Result<Value, ApiError> {
    send(world, Request::Create(dynamic(object)))
}

fn patch_status(world: &World, name: &str, patch: Value) -> Result<Value, ApiError> {
    let key = key(name);
    let target = Target::new::<VMDiskImage>(key.scope(), &key.name);
    send(world, Request::PatchStatus { target, patch })
}

fn delete_job(
    world: &World,
    uid: &str,
    version: Option<&str>,
    propagation: Propagation,
) -> Result<Value, ApiError> {
    let target = Target::new::<Job>(Some("lab"), "j");
    let resource_version = version.map(str::to_owned);
    send(world, Request::Delete { target, uid: uid.to_owned(), resource_version, propagation })
}

/// Lets every component do what it can, one act at a time; the acts, as told.
fn run(world: &World) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(act) = world.acts().first() {
        told.push(world.perform(act));
        assert!(told.len() < 100, "{told:#?}");
    }
    told
}

fn is_conflict(outcome: &Result<Value, ApiError>) -> bool {
    matches!(outcome, Err(ApiError::Conflict { .. }))
}

#[test]
fn a_new_object_gets_what_the_server_sets_and_loses_its_status() {
    let world = world();
    let made =
        create(&world, job("lab/j").with(|job| job["status"] = json!({"active": 1})).build())
            .unwrap();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T12:00:00Z");
    assert_eq!(made["metadata"]["resourceVersion"], "1");
    assert_eq!(uid(&made).len(), 36);
    assert!(made["status"].is_null());
    let again = create(&world, job("lab/j").build());
    assert!(matches!(again, Err(ApiError::AlreadyExists)));
    let elsewhere = create(&world, job("other/j").build()).unwrap();
    assert_ne!(uid(&made), uid(&elsewhere));
    assert_eq!(elsewhere["metadata"]["resourceVersion"], "2", "one count for all");
}

#[test]
fn a_status_patch_touches_status_alone_and_only_at_the_version_it_names() {
    let world = world();
    image("lab/a").create(&world);
    let spec = world.get("VMDiskImage", &key("lab/a")).unwrap()["spec"].clone();
    let patch = json!({
        "metadata": {"resourceVersion": "1", "uid": "another", "labels": {"x": "y"}},
        "spec": {"url": "http://evil"}, "status": {"ticket": "1", "message": "x"},
    });
    let patched = patch_status(&world, "lab/a", patch.clone()).unwrap();
    assert_eq!(patched["spec"], spec);
    assert!(patched["metadata"]["labels"].is_null());
    assert_eq!(patched["metadata"]["generation"], 1);
    assert_eq!(patched["metadata"]["resourceVersion"], "2");
    assert!(is_conflict(&patch_status(&world, "lab/a", patch)), "the version has moved on");
    let cleared = json!({"metadata": {"resourceVersion": "2"}, "status": {"message": null}});
    assert_eq!(patch_status(&world, "lab/a", cleared).unwrap()["status"], json!({"ticket": "1"}));
    assert!(matches!(patch_status(&world, "lab/none", json!({})), Err(ApiError::NotFound { .. })));
}

#[test]
fn a_write_that_changes_nothing_makes_no_version() {
    let world = world();
    image("lab/a").status(|status| status.ticket = Some("1".to_owned())).create(&world);
    let patch = json!({"metadata": {"resourceVersion": "1"}, "status": {"ticket": "1"}});
    assert_eq!(patch_status(&world, "lab/a", patch).unwrap()["metadata"]["resourceVersion"], "1");
    assert_eq!(world.history(<[super::Version]>::len), 1);
}

#[test]
fn a_put_needs_the_version_and_the_uid_it_was_read_with() {
    let world = world();
    let held = image("lab/a").status(|status| status.ticket = Some("1".to_owned())).create(&world);
    let read = world.get("VMDiskImage", &held).unwrap();
    let with = |change: fn(&mut Value)| {
        let mut object = read.clone();
        change(&mut object);
        dynamic(object)
    };
    let unguarded = with(|object| object["metadata"]["resourceVersion"] = Value::Null);
    assert!(matches!(send(&world, Request::Replace(unguarded)), Err(ApiError::Invalid { .. })));
    let strange = with(|object| object["metadata"]["uid"] = json!("another"));
    assert!(is_conflict(&send(&world, Request::ReplaceStatus(strange))));
    let changed = with(|object| {
        object["spec"]["suspend"] = json!(true);
        object["status"] = json!({});
    });
    let replaced = send(&world, Request::Replace(changed.clone())).unwrap();
    assert_eq!(replaced["metadata"]["generation"], 2, "a changed spec is a new generation");
    assert_eq!(replaced["status"], json!({"ticket": "1"}), "status has its own way in");
    assert!(is_conflict(&send(&world, Request::ReplaceStatus(changed))));
    let mut current = replaced;
    current["spec"] = json!({});
    current["status"] = json!({"ticket": "2"});
    let swapped = send(&world, Request::ReplaceStatus(dynamic(current))).unwrap();
    assert_eq!(swapped["status"], json!({"ticket": "2"}));
    assert_eq!(swapped["spec"]["suspend"], json!(true));
}

#[test]
fn a_patch_replaces_lists_is_guarded_and_leaves_the_status_alone() {
    let world = world();
    let held = image("lab/a").status(|status| status.ticket = Some("1".to_owned())).create(&world);
    let version = world.get("VMDiskImage", &held).unwrap()["metadata"]["resourceVersion"].clone();
    let target = Target::new::<VMDiskImage>(held.scope(), &held.name);
    let patch = |metadata: Value| {
        let patch = json!({"metadata": metadata, "status": {"ticket": "2"}});
        send(&world, Request::Patch { target: target.clone(), patch })
    };
    let patched = patch(json!({"resourceVersion": version, "finalizers": ["a", "b"]})).unwrap();
    assert_eq!(patched["metadata"]["finalizers"], json!(["a", "b"]));
    assert_eq!(patched["status"], json!({"ticket": "1"}));
    assert!(is_conflict(&patch(json!({"resourceVersion": version, "finalizers": []}))));
    assert!(is_conflict(&patch(json!({"uid": "another", "finalizers": []}))));
    let patched = patch(json!({"finalizers": ["b"]})).unwrap();
    assert_eq!(patched["metadata"]["finalizers"], json!(["b"]));
}

#[test]
fn an_apply_merges_what_it_is_given_and_refuses_another_uid() {
    let world = world();
    let made =
        create(&world, job("lab/j").with(|job| job["spec"]["suspend"] = json!(true)).build())
            .unwrap();
    let apply = |uid: Option<&str>| {
        let metadata = json!({"name": "j", "namespace": "lab", "uid": uid, "labels": {"x": "y"}});
        let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": false}});
        send(&world, Request::Apply(dynamic(object)))
    };
    assert!(is_conflict(&apply(Some("another"))));
    let applied = apply(Some(uid(&made))).unwrap();
    assert_eq!(
        (&applied["spec"]["suspend"], &applied["spec"]["backoffLimit"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(applied["metadata"]["labels"], json!({"x": "y"}));
    world.delete("Job", &key("lab/j"), Propagation::Background);
    assert!(is_conflict(&apply(Some(uid(&made)))), "what is gone is not made again by its UID");
    assert!(world.get("Job", &key("lab/j")).is_none());
    assert_ne!(uid(&apply(None).unwrap()), uid(&made), "without one it is created");
}

#[test]
fn an_apply_by_name_merges_our_owner_into_a_strangers_object() {
    let world = world();
    image("lab/a").create(&world);
    let ours = world.get("VMDiskImage", &key("lab/a")).unwrap();
    let theirs = create(&world, job("lab/j").build()).unwrap();
    let applied =
        send(&world, Request::Apply(dynamic(job("lab/j").owned_by(&ours).build()))).unwrap();
    assert_eq!(uid(&applied), uid(&theirs));
    assert_eq!(applied["metadata"]["ownerReferences"][0]["uid"], uid(&ours));
}

#[test]
fn a_delete_holds_to_its_preconditions() {
    let world = world();
    let made = create(&world, job("lab/j").build()).unwrap();
    assert!(is_conflict(&delete_job(&world, "another", None, Propagation::Background)));
    assert!(is_conflict(&delete_job(&world, uid(&made), Some("0"), Propagation::Background)));
    delete_job(&world, uid(&made), Some("1"), Propagation::Background).unwrap();
    let gone = delete_job(&world, uid(&made), None, Propagation::Background);
    assert!(matches!(gone, Err(ApiError::NotFound { .. })));
    let last = world.history(|history| history.last().unwrap().clone());
    assert!(last.is_removal() && last.object["metadata"]["resourceVersion"] == "2");
}

#[test]
fn a_finalizer_keeps_an_object_until_it_is_taken_off() {
    let world = world();
    image("lab/a").create(&world);
    world.edit("VMDiskImage", &key("lab/a"), |image| {
        image["metadata"]["finalizers"] = json!(["x/y"])
    });
    world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    let held = world.get("VMDiskImage", &key("lab/a")).unwrap();
    assert_eq!(held["metadata"]["deletionTimestamp"], "2026-01-01T12:00:00Z");
    world.edit("VMDiskImage", &key("lab/a"), |image| image["metadata"]["finalizers"] = json!([]));
    assert!(world.get("VMDiskImage", &key("lab/a")).is_none());
}

#[test]
fn what_is_owned_goes_with_its_owner_and_not_with_its_namesake() {
    let world = world();
    storage(&world);
    let name = image("lab/a").create(&world);
    let owner = world.get("VMDiskImage", &name).unwrap();
    claim("lab/c").owned_by(&owner).create(&world);
    snapshot("lab/s", "c").owned_by(&owner).create(&world);
    claim("lab/theirs").create(&world);
    run(&world);
    world.delete("VMDiskImage", &name, Propagation::Background);
    image("lab/a").create(&world);
    run(&world);
    assert!(
        world.list("VolumeSnapshot").is_empty() && world.list("VolumeSnapshotContent").is_empty()
    );
    let left: Vec<Value> = world
        .list("PersistentVolumeClaim")
        .iter()
        .map(|claim| claim["metadata"]["name"].clone())
        .collect();
    assert_eq!(left, [json!("theirs")]);
}

#[test]
fn lists_select_by_namespace_and_label() {
    let world = world();
    job("lab/a").with(|job| job["metadata"]["labels"] = json!({"x": "1"})).create(&world);
    job("lab/b").create(&world);
    job("other/c").with(|job| job["metadata"]["labels"] = json!({"x": "1"})).create(&world);
    let names = |namespace: Option<&str>, selector: &str| {
        let resource = Target::new::<Job>(None, "").resource;
        let request = Request::List {
            resource,
            namespace: namespace.map(str::to_owned),
            selector: selector.to_owned(),
        };
        let found = send(&world, request).unwrap();
        let names = found
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(None, ""), "a b c");
    assert_eq!(names(Some("lab"), ""), "a b");
    assert_eq!(names(None, "x=1"), "a c");
    assert_eq!(names(Some("lab"), "x"), "a");
    assert_eq!(names(None, "x=2"), "");
}

#[test]
fn a_store_knows_only_what_was_delivered() {
    let world = world();
    let store: Store<Job> = Store::default();
    let mut feed = Feed::new(&store);
    job("lab/a").create(&world);
    feed.relist(&world);
    job("lab/b").create(&world);
    world.edit("Job", &key("lab/b"), |job| job["spec"]["suspend"] = json!(true));
    world.delete("Job", &key("lab/a"), Propagation::Background);
    claim("lab/c").create(&world);
    assert_eq!((store.all().len(), feed.pending(&world)), (1, 3));
    feed.deliver(&world);
    let suspend = |name: &str| store.get(&key(name)).map(|job| job.spec.as_ref().unwrap().suspend);
    assert_eq!(
        (suspend("lab/a"), suspend("lab/b")),
        (Some(None), Some(None)),
        "as it was, not as it is"
    );
    feed.deliver_all(&world);
    assert_eq!((suspend("lab/a"), suspend("lab/b")), (None, Some(Some(true))));
    assert_eq!(feed.deliver(&world), None);
}

#[test]
fn a_watch_that_fell_behind_sees_only_the_last_of_each() {
    let world = world();
    let store: Store<Job> = Store::default();
    let mut feed = Feed::new(&store).only(|job| job["metadata"]["name"] != "hidden");
    feed.relist(&world);
    job("lab/a").create(&world);
    job("lab/hidden").create(&world);
    world.edit("Job", &key("lab/a"), |job| job["spec"]["suspend"] = json!(true));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(0));
    let count = seen.clone();
    store.subscribe(move |_| *count.lock().unwrap() += 1);
    feed.skip_to_last(&world);
    assert_eq!((*seen.lock().unwrap(), feed.pending(&world), store.all().len()), (1, 0, 1));
}

#[test]
#[should_panic(expected = "has nothing to do with Job lab/none")]
fn an_act_that_is_not_due_is_a_mistake_of_the_test() {
    world()
        .perform(&Act { actor: super::Actor::Jobs, id: super::Id::new("Job", &key("lab/none")) });
}

#[test]
fn an_object_of_two_owners_loses_the_one_that_is_gone_and_goes_with_the_other() {
    let world = world();
    for name in ["a", "b"] {
        image(&format!("lab/{name}")).create(&world);
    }
    let owner = |name: &str| {
        let uid =
            world.get("VMDiskImage", &key(&format!("lab/{name}"))).unwrap()["metadata"]["uid"]
                .clone();
        json!({"apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "name": name, "uid": uid})
    };
    let owners = json!([owner("a"), owner("b")]);
    claim("lab/shared")
        .with(|it| it["metadata"]["ownerReferences"] = owners.clone())
        .create(&world);
    world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    run(&world);
    let shared = world.get("PersistentVolumeClaim", &key("lab/shared")).unwrap();
    assert_eq!(shared["metadata"]["ownerReferences"], json!([owner("b")]));
    world.delete("VMDiskImage", &key("lab/b"), Propagation::Background);
    run(&world);
    assert!(world.get("PersistentVolumeClaim", &key("lab/shared")).is_none());
}

#[test]
fn a_feed_of_a_kind_that_is_not_installed_sees_nothing_until_it_is() {
    let world = world();
    let store: Store<PersistentVolumeClaim> = Store::default();
    let definition = super::Id::new("CustomResourceDefinition", &key("claims"));
    let mut feed = Feed::new(&store).once_there(definition);
    feed.relist(&world);
    claim("lab/a").create(&world);
    assert!(!store.is_synced() && !feed.has_news(&world));
    world.create_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "claims"},
    }));
    assert!(feed.has_news(&world));
    feed.deliver(&world);
    assert!(store.is_synced() && store.get(&key("lab/a")).is_some());
    world.delete("CustomResourceDefinition", &key("claims"), Propagation::Background);
    assert!(feed.has_news(&world));
    feed.deliver(&world);
    assert!(!store.is_synced() && store.all().is_empty() && !feed.has_news(&world));
}
