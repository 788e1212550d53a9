//! What is there when the controller starts: a policy, classes, images, children as the controller makes them and as
//! strangers do, and statuses that may tell something else.

mod memory;

use std::collections::BTreeMap;

use clap::Parser as _;
use diskimage_controller::Args;
use diskimage_controller::children::{self, Facts};
use diskimage_controller::names::{self, JobRole};
use diskimage_controller::snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use diskimage_controller::surroundings::Surroundings;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use otctl_kit::store::Key;
use otctl_types::import::ImportReason;
use otctl_types::names::{
    ATTEMPT_ANNOTATION, CHECKSUM_ANNOTATION, DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME,
    DISK_CHECKSUM_ANNOTATION, IMAGE_QUEUE, OWNER_LABEL, RETRY_ANNOTATION, ROLE_LABEL,
};
use otctl_types::{AdmissionQueue, VMDiskImage};
use policy::Policy;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{World, builders};

use self::memory::Memory;
use crate::choices::Choices;
use crate::schema;

const OURS: &str = "pelotech.ot/v1alpha1";
/// UID of an image that is gone.
const DEAD: &str = "00000000-0000-4000-8000-0000000dead0";
const IMAGES: [(&str, &str); 3] = [("lab", "a"), ("lab", "b.x"), ("prod", "a")];

/// An image that is there, and what its children are named after.
struct Owner {
    image: VMDiskImage,
    key: Key,
    uid: String,
    revision: String,
    budget: String,
    jobs: Vec<String>,
}

pub(super) fn populate(world: &World, choices: &mut Choices<'_>) {
    if !choices.one_in(8) {
        builders::storage(world);
    }
    if !choices.one_in(8) {
        let data = policy(choices);
        let metadata = json!({"namespace": DEFAULT_NAMESPACE, "name": DEFAULT_POLICY_NAME});
        let document =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        create::<ConfigMap>(world, document);
    }
    let count = 1 + choices.below(IMAGES.len());
    let mut owners: Vec<Owner> = IMAGES[..count]
        .iter()
        .filter_map(|(namespace, name)| image(world, choices, namespace, name))
        .collect();
    for owner in &mut owners {
        for _ in 0..choices.below(5) {
            child(world, choices, owner);
        }
        status(world, choices, owner);
    }
    ledger(world, choices, &owners);
}

/// Creates an object that the API server would take for one of this kind; others never come to a controller.
pub(crate) fn create<K: DeserializeOwned>(world: &World, object: Value) -> Option<Value> {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = Key::new(&text(&metadata["namespace"]), &text(&metadata["name"]));
    let is_new = !key.name.is_empty() && world.get(object["kind"].as_str()?, &key).is_none();
    let fits = serde_json::from_value::<K>(object.clone()).is_ok();
    (is_new && fits).then(|| world.create_value(object))
}

pub(super) fn policy(choices: &mut Choices<'_>) -> BTreeMap<String, Value> {
    let mut data: BTreeMap<String, Value> = BTreeMap::new();
    data.insert("concurrency".to_owned(), choices.text(&["1", "2", "0", "1", "3", "1000"]));
    let others: [(&str, &[&str]); 9] = [
        ("retryLimit", &["0", "2", "20"]),
        ("retryBackoffDuration", &["1s", "5m", "24h"]),
        ("concurrencyPerHost", &["1", "2"]),
        ("bandwidthLimit", &["64Ki", "8Mi", "9223372036854775807"]),
        ("attemptTimeout", &["1m", "7d"]),
        ("stallTimeout", &["10s", "24h"]),
        ("snapshotConcurrency", &["1", "10"]),
        ("snapshotTimeout", &["1m", "24h"]),
        ("defaultSnapshotClass", &["snapshots", "none"]),
    ];
    for (key, values) in others {
        if choices.one_in(4) {
            data.insert(key.to_owned(), choices.text(values));
        }
    }
    data
}

pub(super) fn spec(choices: &mut Choices<'_>) -> Value {
    let mut spec = choices.some(&[
        ("diskSize", &|choices| choices.text(&["1Gi", "24Gi", "1", "64Ti", "0.5Gi"])),
        ("snapshotClass", &|choices| choices.text(&["snapshots", "snapshots", "none"])),
        ("storageClass", &|choices| choices.text(&["standard", "none"])),
        ("keepVolume", &Choices::truth),
        ("volumeMode", &|choices| json!(choices.of(&["Filesystem", "Block"]))),
        ("refresh", &|choices| choices.text(&["1", "2"])),
        ("checksum", &|choices| choices.text(&["sha256:00"])),
        ("secretRef", &|choices| choices.text(&["keys"])),
    ]);
    spec["url"] = choices.text(&[
        "http://images.example/a.qcow2",
        "https://h:8443/b?x=1",
        "http://[::1]/c",
        "https://u@h/d",
    ]);
    spec["sourceType"] = json!(choices.of(&["http", "s3"]));
    spec["suspend"] = json!(choices.one_in(8));
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    spec
}

fn image(world: &World, choices: &mut Choices<'_>, namespace: &str, name: &str) -> Option<Owner> {
    let mut metadata = json!({"namespace": namespace, "name": name});
    if choices.one_in(4) {
        metadata["annotations"] = json!({RETRY_ANNOTATION: choices.text(&["1", "2"])});
    }
    let image = json!({"apiVersion": OURS, "kind": "VMDiskImage", "metadata": metadata, "spec": spec(choices)});
    let image: VMDiskImage = serde_json::from_value(create::<VMDiskImage>(world, image)?).ok()?;
    Some(Owner {
        key: Key::new(namespace, name),
        uid: image.metadata.uid.clone()?,
        revision: names::revision(&image.spec),
        budget: names::budget_key(&image),
        jobs: Vec::new(),
        image,
    })
}

fn child(world: &World, choices: &mut Choices<'_>, owner: &mut Owner) {
    match choices.below(4) {
        0 | 1 => job(world, choices, owner),
        2 => claim(world, choices, owner),
        _ => snapshot(world, choices, owner),
    }
}

/// Metadata of a child of that name: mostly as the controller makes it.
fn metadata(choices: &mut Choices<'_>, owner: &Owner, name: &Value) -> Value {
    let ours = json!({"apiVersion": OURS, "kind": "VMDiskImage", "name": owner.key.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true});
    let with = |field: &str, value: Value| {
        let mut reference = ours.clone();
        reference[field] = value;
        json!([reference])
    };
    let owners = match choices.below(12) {
        0 => json!([]),
        1 => with("controller", json!(false)),
        2 => with("uid", json!(DEAD)),
        3 => with("apiVersion", json!("example.com/v1")),
        4 => with("kind", json!("Deployment")),
        _ => json!([ours]),
    };
    let mut metadata = json!({
        "namespace": owner.key.namespace, "name": name, "ownerReferences": owners,
        "labels": {OWNER_LABEL: owner.uid, "app.kubernetes.io/managed-by": "otctl"},
    });
    if choices.one_in(12) {
        metadata["deletionTimestamp"] = choices.time();
        metadata["finalizers"] = json!(["example.com/stays"]);
    }
    metadata
}

fn job(world: &World, choices: &mut Choices<'_>, owner: &mut Owner) {
    let role = if choices.one_in(4) { JobRole::Probe } else { JobRole::Import };
    let number = [1, 2, 3, 10, 999_999_999][choices.below(5)];
    let name = names::job_name(&owner.key.name, &owner.uid, &owner.revision, role, number);
    let name = choices.text(&[&name]);
    let mut metadata = metadata(choices, owner, &name);
    metadata["labels"][ROLE_LABEL] = json!(role.as_str());
    metadata["annotations"] = json!({ATTEMPT_ANNOTATION: number.to_string()});
    let conditions = |choices: &mut Choices<'_>| {
        choices.list(2, |choices| {
            json!({"type": choices.of(&["Complete", "Failed", "FailureTarget"]), "status": choices.of(&["True", "False"]),
                "reason": choices.text(&["DeadlineExceeded", "BackoffLimitExceeded"])})
        })
    };
    let status = choices.some(&[("startTime", &Choices::time), ("conditions", &conditions)]);
    let how = choices.below(16);
    let mut spec = if how < 14 {
        errand(owner, role, number)
    } else {
        let somebody = json!({"spec": {"containers": [{"name": "importer"}]}});
        json!({"backoffLimit": 0, "template": somebody})
    };
    spec["suspend"] = json!(how % 2 == 1);
    spec["template"]["metadata"] = json!({"labels": metadata["labels"]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status});
    let Some(job) = create::<Job>(world, job) else { return };
    owner.jobs.extend(job["metadata"]["uid"].as_str().map(str::to_owned));
    for at in 0..choices.below(3) {
        pod(world, choices, owner, (&job, at));
    }
}

/// The spec of a Job as the controller makes it.
fn errand(owner: &Owner, role: JobRole, number: i64) -> Value {
    let settings = Args::parse_from(["diskimage-controller"]).settings;
    let (policy, around) = (Policy::default(), Surroundings::default());
    let facts = Facts {
        image: &owner.image,
        revision: &owner.revision,
        settings: &settings,
        policy: &policy,
        around: &around,
        source: None,
        number,
        progress_key: "key",
        checksum: None,
        disk_checksum: None,
        snapshot_class: None,
        restore_size: None,
        claim: None,
    };
    let job = match role {
        JobRole::Probe => children::probe::job(&facts),
        JobRole::Import => children::import::job(&facts),
    };
    json!(job.spec)
}

fn pod(world: &World, choices: &mut Choices<'_>, owner: &Owner, (job, at): (&Value, usize)) {
    let name = format!("{}-{at}", job["metadata"]["name"].as_str().unwrap_or_default());
    let reference = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"], "controller": true});
    let owners = if choices.one_in(8) { json!([]) } else { json!([reference]) };
    let labels = json!({OWNER_LABEL: owner.uid, ROLE_LABEL: job["metadata"]["labels"][ROLE_LABEL],
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"]});
    let metadata = json!({"namespace": owner.key.namespace, "name": name, "ownerReferences": owners, "labels": labels});
    let state = |choices: &mut Choices<'_>| match choices.below(3) {
        0 => {
            json!({"waiting": {"reason": choices.text(&["ImagePullBackOff"]), "message": choices.text(&["no"])}})
        }
        1 => json!({"running": {}}),
        _ => json!({"terminated": {"exitCode": choices.below(256), "message": report(choices)}}),
    };
    let container = |choices: &mut Choices<'_>| {
        choices.list(1, |choices| {
            json!({"name": "importer", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": state(choices)})
        })
    };
    let scheduled = |choices: &mut Choices<'_>| {
        json!([{"type": "PodScheduled", "status": choices.of(&["True", "False"]), "message": choices.text(&["full"]),
            "lastTransitionTime": choices.time()}])
    };
    let mut status = choices.some(&[
        ("containerStatuses", &container),
        ("conditions", &scheduled),
        ("reason", &|choices| choices.text(&["Evicted", "NodeLost"])),
        ("podIP", &|choices| choices.text(&["10.0.0.1"])),
    ]);
    status["phase"] = json!(choices.of(&["Running", "Failed", "Succeeded", "Pending", "Unknown"]));
    let spec = json!({"containers": [{"name": "importer"}]});
    create::<Pod>(
        world,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}),
    );
}

/// A termination message: a report, more or less.
fn report(choices: &mut Choices<'_>) -> Value {
    if choices.one_in(6) {
        return choices.text(&["", "{", "Killed"]);
    }
    let facts = |choices: &mut Choices<'_>| source(choices);
    let mut report = choices.some(&[
        ("reason", &|choices| json!(ImportReason::ALL[choices.below(ImportReason::ALL.len())])),
        ("message", &|choices| choices.text(&["what happened"])),
        ("downloadStarted", &Choices::truth),
        ("bytes", &Choices::bytes),
        ("source", &facts),
        ("checksum", &|choices| choices.text(&["sha256:c"])),
        ("diskChecksum", &|choices| choices.text(&["sha256:d"])),
        ("retryAfterSeconds", &Choices::bytes),
    ]);
    report["outcome"] = json!(choices.of(&["Complete", "Failed"]));
    json!(report.to_string())
}

fn source(choices: &mut Choices<'_>) -> Value {
    let mut facts = choices.some(&[
        ("size", &Choices::bytes),
        ("etag", &|choices| choices.text(&["\"v1\""])),
        ("acceptsRanges", &Choices::truth),
        ("virtualSize", &Choices::bytes),
        ("compression", &|choices| json!(choices.of(&["gzip", "xz", "zstd"]))),
    ]);
    facts["format"] = json!(choices.of(&["raw", "qcow2"]));
    facts
}

fn claim(world: &World, choices: &mut Choices<'_>, owner: &Owner) {
    let data = names::data_name(&owner.key.name, &owner.revision);
    let scratch = names::scratch_name(&owner.key.name, &owner.revision);
    let name = choices.text(&[&data, &data, &scratch, "old-012345"]);
    let mut metadata = metadata(choices, owner, &name);
    let text = |choices: &mut Choices<'_>| choices.text(&["sha256:d"]);
    metadata["annotations"] =
        choices.some(&[(DISK_CHECKSUM_ANNOTATION, &text), (CHECKSUM_ANNOTATION, &text)]);
    let size = choices.text(&["1Gi", "2Gi"]);
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": choices.of(&["standard", "none"]),
        "resources": {"requests": {"storage": size}}});
    let status =
        choices.some(&[("phase", &|choices| json!(choices.of(&["Bound", "Pending", "Lost"])))]);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status});
    create::<PersistentVolumeClaim>(world, claim);
}

fn snapshot(world: &World, choices: &mut Choices<'_>, owner: &Owner) {
    let data = names::data_name(&owner.key.name, &owner.revision);
    let name = choices.text(&[&data, &data, "old-012345"]);
    let metadata = metadata(choices, owner, &name);
    let content = format!("content-{}", owner.uid);
    let status = choices.some(&[
        ("readyToUse", &Choices::truth),
        ("boundVolumeSnapshotContentName", &|choices| choices.text(&[&content])),
        ("restoreSize", &|choices| choices.text(&["1Gi", "7Ei", "0"])),
        ("error", &|choices| json!({"message": choices.text(&["no", "code = ResourceExhausted"])})),
    ]);
    let spec = json!({"volumeSnapshotClassName": choices.of(&["snapshots", "none"]), "source": {"persistentVolumeClaimName": data}});
    let kind = ("snapshot.storage.k8s.io/v1", "VolumeSnapshot");
    let object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec, "status": status});
    let Some(object) = create::<VolumeSnapshot>(world, object) else { return };
    let uid = choices.text(&[object["metadata"]["uid"].as_str().unwrap_or_default()]);
    let spec = json!({"volumeSnapshotRef": {"uid": uid}, "deletionPolicy": choices.of(&["Delete", "Retain"])});
    let object = json!({"apiVersion": kind.0, "kind": "VolumeSnapshotContent", "metadata": {"name": content}, "spec": spec});
    create::<VolumeSnapshotContent>(world, object);
}

/// What the image remembers: nothing, the truth, or something else in the bounds of its schema.
fn status(world: &World, choices: &mut Choices<'_>, owner: &Owner) {
    if choices.one_in(4) {
        return;
    }
    let status = Memory(owner).all(choices);
    let fits = schema::problems("VMDiskImage", &status).is_empty();
    let Some(mut image) = world.get("VMDiskImage", &owner.key).filter(|_| fits) else { return };
    image["status"] = status.clone();
    if serde_json::from_value::<VMDiskImage>(image).is_ok() {
        world.edit("VMDiskImage", &owner.key, |image| image["status"] = status);
    }
}

fn ledger(world: &World, choices: &mut Choices<'_>, owners: &[Owner]) {
    if choices.one_in(4) {
        return;
    }
    let uids: Vec<&str> = owners.iter().map(|owner| owner.uid.as_str()).chain([DEAD]).collect();
    let holder = |choices: &mut Choices<'_>| json!({"namespace": choices.of(&["lab", "prod"]), "name": choices.of(&["a", "b.x"]), "uid": choices.of(&uids), "since": choices.time()});
    let slot = |choices: &mut Choices<'_>| {
        let mut slot = holder(choices);
        slot["attempt"] = choices.attempt();
        slot["ticket"] = choices.text(&["1", "2", "0"]);
        slot
    };
    let listed = |choices: &mut Choices<'_>| {
        let mut listed = holder(choices);
        listed["version"] = choices.text(&["1", "99999"]);
        listed
    };
    let status = choices.some(&[
        ("limit", &Choices::number),
        ("active", &|choices| choices.list(3, slot)),
        ("snapshots", &|choices| choices.list(2, listed)),
        ("policy", &|choices| json!(policy(choices))),
        ("oldestWaitingTicket", &|choices| choices.text(&["1"])),
    ]);
    let fits = schema::problems("AdmissionQueue", &status).is_empty();
    let status = if fits { status } else { json!({}) };
    let queue = json!({"apiVersion": OURS, "kind": "AdmissionQueue", "metadata": {"name": IMAGE_QUEUE}, "spec": {}, "status": status});
    create::<AdmissionQueue>(world, queue);
}
