//! What only a real API server can tell.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use otctl_types::AdmissionQueue;
use serde_json::{Value, json};

use crate::support::Kubectl;

fn image(name: &str) -> Value {
    json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "metadata": {"name": name},
        "spec": {"url": "https://images.example.com/debian.qcow2", "sourceType": "http", "diskSize": "24Gi"},
    })
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object["spec"][field] = value;
    object
}

#[tokio::test]
async fn a_typo_is_refused_by_name() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("typo").await.unwrap();
    let refusal =
        kubectl.apply(&namespace, &with(image("typo"), "diskSzie", json!("24Gi"))).refusal();
    assert!(refusal.contains(r#"unknown field "spec.diskSzie""#), "{refusal}");
}

#[tokio::test]
async fn what_makes_the_data_is_frozen_once_there_is_data() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("frozen").await.unwrap();
    kubectl.apply(&namespace, &image("debian")).fine();
    let other = with(image("debian"), "url", json!("https://images.example.com/other.qcow2"));
    kubectl.apply(&namespace, &other).fine();
    kubectl.patch_status(&namespace, "vmdi/debian", &json!({"current": {"revision": "r1"}})).fine();

    for (field, value) in [
        ("url", json!("https://images.example.com/third.qcow2")),
        ("sourceType", json!("s3")),
        ("checksum", json!(format!("sha256:{}", "0".repeat(64)))),
        ("diskSize", json!("25Gi")),
        ("storageClass", json!("slow")),
        ("snapshotClass", json!("slow")),
        ("volumeMode", json!("Block")),
        ("accessModes", json!(["ReadWriteMany"])),
        ("refresh", json!("again")),
    ] {
        let refusal = kubectl.apply(&namespace, &with(other.clone(), field, value)).refusal();
        assert!(refusal.contains("this image has data: url, sourceType"), "{field}: {refusal}");
        assert!(refusal.contains("create a new VMDiskImage"), "{field}: {refusal}");
    }
    for (field, value) in [
        ("suspend", json!(true)),
        ("keepVolume", json!(true)),
        ("name", json!("other")),
        ("secretRef", json!("keys")),
    ] {
        kubectl.apply(&namespace, &with(other.clone(), field, value)).fine();
    }
    kubectl
        .patch_status(&namespace, "vmdi/debian", &json!({"current": null, "phase": "Queued"}))
        .fine();
    kubectl.apply(&namespace, &with(other, "refresh", json!("again"))).fine();
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_with_its_field() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("bounds").await.unwrap();
    let long = "a".repeat(254);
    let cases = [
        ("url", json!("ftp://images.example.com/debian.qcow2")),
        ("url", json!("https://user:password@images.example.com/debian.qcow2")),
        ("url", json!("https://images.example.com/de bian.qcow2")),
        ("url", json!(format!("https://images.example.com/{}", "a".repeat(2048)))),
        ("sourceType", json!("ftp")),
        ("secretRef", json!("Keys")),
        ("secretRef", json!("../keys")),
        ("checksum", json!("md5:00")),
        ("checksum", json!(format!("sha256:{}", "A".repeat(64)))),
        ("diskSize", json!("0")),
        ("diskSize", json!("-1Gi")),
        ("diskSize", json!("24GB")),
        ("diskSize", json!("65Ti")),
        ("diskSize", json!(24)),
        ("storageClass", json!("")),
        ("snapshotClass", json!(long)),
        ("volumeMode", json!("File")),
        ("accessModes", json!([])),
        ("accessModes", json!(["ReadWriteAlways"])),
        ("refresh", json!(long)),
        ("suspend", json!("yes")),
    ];
    for (field, value) in cases {
        let refusal =
            kubectl.apply(&namespace, &with(image("bounds"), field, value.clone())).refusal();
        assert!(refusal.contains(&format!("spec.{field}")), "{field} = {value}: {refusal}");
    }
    for size in ["1", "1.5Gi", "64Ti", "0.5Ki"] {
        kubectl.apply(&namespace, &with(image("sizes"), "diskSize", json!(size))).fine();
    }
}

#[tokio::test]
async fn a_refusal_has_a_sentence_that_says_what_to_write() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("sentences").await.unwrap();
    for (field, value, sentence) in [
        ("url", "s3://bucket/key", "for S3 write https://BUCKET.s3.REGION.amazonaws.com/KEY"),
        ("url", "ftp://x/y", "url is an http or https address"),
        ("checksum", "md5:00", "checksum is sha256: and 64 hexadecimal digits"),
        ("secretRef", "other/keys", "secretRef is the name of a Secret in the namespace"),
    ] {
        let wrong = with(image("sentences"), field, json!(value));
        let refusal = kubectl.apply(&namespace, &wrong).refusal();
        assert!(refusal.contains(sentence), "{field} = {value}: {refusal}");
        assert!(!refusal.contains("chars long"), "{field} = {value}: {refusal}");
    }
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("null").await.unwrap();
    let manifest =
        with(with(image("null"), "checksum", Value::Null), "volumeMode", Value::Null).to_string();
    kubectl.run_in(&namespace, &["create", "-f", "-"], &manifest).fine();
    let spec = kubectl.read(&namespace, "vmdi/null")["spec"].clone();
    assert!(spec.get("checksum").is_none(), "{spec}");
    assert_eq!(spec["volumeMode"], "Filesystem");
}

#[tokio::test]
async fn status_is_apart_from_spec() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("status").await.unwrap();
    let mut manifest = image("apart");
    manifest["status"] = json!({"phase": "Succeeded", "current": {"revision": "forged"}});
    kubectl.apply(&namespace, &manifest).fine();
    assert!(kubectl.read(&namespace, "vmdi/apart").get("status").is_none());
    kubectl.patch_status(&namespace, "vmdi/apart", &json!({"phase": "Queued"})).fine();
    assert_eq!(kubectl.read(&namespace, "vmdi/apart")["metadata"]["generation"], 1);
}

/// A status with everything that a column shows, and more.
fn full_status() -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "False", "reason": reason, "message": "It goes on.", "observedGeneration": 1,
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "observedGeneration": 1, "phase": "Syncing", "message": "It goes on.", "ticket": "0000000001",
        "queuedAt": "2026-01-01T00:00:00Z", "lastAttempt": 2, "revision": "r1", "diskSize": "24Gi",
        "conditions": [condition("Admitted", "Admitted"), condition("Ready", "Importing")],
        "attempts": [{"number": 1, "charged": true, "reason": "ConnectionLost"}, {"number": 2}],
        "progress": {"bytes": 42, "totalBytes": 100, "percent": "42%"},
        "source": {"size": 100, "acceptsRanges": true, "format": "qcow2", "virtualSize": 25_769_803_776_u64},
        "current": {"revision": "r1", "snapshot": "debian-r1"},
    })
}

#[tokio::test]
async fn columns_show_what_matters() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("columns").await.unwrap();
    kubectl.apply(&namespace, &image("debian")).fine();
    kubectl.patch_status(&namespace, "vmdi/debian", &full_status()).fine();
    let table = kubectl.run_in(&namespace, &["get", "vmdi"], "").fine();
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        ["NAME", "PHASE", "REASON", "PROGRESS", "SIZE", "ATTEMPT", "AGE"],
        "{table}"
    );
    assert_eq!(rows[1][..6], ["debian", "Syncing", "Importing", "42%", "24Gi", "2"], "{table}");
    let wide = kubectl.run_in(&namespace, &["get", "vmdi", "--output=wide"], "").fine();
    let heading: Vec<_> = wide.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading[7..], ["MESSAGE", "QUEUED", "SNAPSHOT"], "{wide}");
    assert!(wide.contains("It goes on.") && wide.contains("debian-r1"), "{wide}");
    let all = kubectl.run(&["get", "otctl", "--all-namespaces"], "").fine();
    assert!(all.contains("vmdiskimage.pelotech.ot/debian"), "{all}");
}

#[tokio::test]
async fn a_condition_is_there_once() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("once").await.unwrap();
    kubectl.apply(&namespace, &image("twice")).fine();
    let mut status = full_status();
    let first = status["conditions"][0].clone();
    status["conditions"].as_array_mut().unwrap().push(first);
    let refusal = kubectl.patch_status(&namespace, "vmdi/twice", &status).refusal();
    assert!(refusal.contains("Duplicate value"), "{refusal}");
}

#[tokio::test]
async fn an_image_is_waited_for_by_its_condition() {
    let kubectl = Kubectl::shared().await;
    let namespace = kubectl.cluster.namespace("wait").await.unwrap();
    kubectl.apply(&namespace, &image("debian")).fine();
    let mut status = full_status();
    status["conditions"][1]["status"] = json!("True");
    kubectl.patch_status(&namespace, "vmdi/debian", &status).fine();
    kubectl
        .run_in(&namespace, &["wait", "--for=condition=Ready", "--timeout=60s", "vmdi/debian"], "")
        .fine();
}

#[tokio::test]
async fn a_queue_is_made_by_its_name_alone() {
    let kubectl = Kubectl::shared().await;
    let queues: Api<AdmissionQueue> = Api::all(kubectl.cluster.admin());
    let metadata = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": "alone"},
    });
    let apply = PatchParams::apply("controller");
    let made = queues.patch("alone", &apply, &Patch::Apply(&metadata)).await.unwrap();
    assert_eq!(made.status, None);
    // The second one records that nobody owns the defaulted spec; from then on nothing changes.
    let second = queues.patch("alone", &apply, &Patch::Apply(&metadata)).await.unwrap();
    let third = queues.patch("alone", &apply, &Patch::Apply(&metadata)).await.unwrap();
    assert_eq!(second.metadata.uid, made.metadata.uid);
    assert_eq!(third.metadata.resource_version, second.metadata.resource_version);
}

#[tokio::test]
async fn a_ledger_with_a_thousand_slots_is_stored() {
    let kubectl = Kubectl::shared().await;
    let entry = |n: usize| {
        json!({"namespace": "labs", "name": format!("image-{n}"), "uid": format!("{n:036}"), "attempt": 1,
               "ticket": format!("{n:020}"), "host": "images.example.com", "since": "2026-01-01T00:00:00Z"})
    };
    let active: Vec<_> = (0..1000).map(entry).collect();
    let queue = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": "long"},
    });
    let queues: Api<AdmissionQueue> = Api::all(kubectl.cluster.admin());
    queues.patch("long", &PatchParams::apply("test"), &Patch::Apply(&queue)).await.unwrap();
    let status = json!({"status": {
        "limit": 1000, "activeCount": 1000, "waitingCount": 3, "active": active,
        "policy": {"concurrency": "1000", "retryBackoffDuration": "5m"},
        "conditions": [{"type": "PolicyValid", "status": "True", "reason": "Valid", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    let stored =
        queues.patch_status("long", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(stored.status.unwrap().active.len(), 1000);
    let table = kubectl.run(&["get", "aq", "long"], "").fine();
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "ACTIVE", "LIMIT", "WAITING", "POLICY", "AGE"], "{table}");
    assert_eq!(rows[1][..5], ["long", "1000", "1000", "3", "Valid"], "{table}");
}

#[tokio::test]
async fn explain_has_a_sentence_for_every_field() {
    let kubectl = Kubectl::shared().await;
    let raw = kubectl.run(&["get", "--raw", "/openapi/v3/apis/pelotech.ot/v1alpha1"], "").fine();
    let document: Value = serde_json::from_str(&raw).unwrap();
    for kind in ["VMDiskImage", "AdmissionQueue", "Workspace"] {
        let schema = &document["components"]["schemas"][format!("ot.pelotech.v1alpha1.{kind}")];
        assert!(
            schema["description"].as_str().is_some_and(|text| text.len() > 40),
            "{kind}: {schema}"
        );
        for part in ["spec", "status"] {
            assert_described(&format!("{kind}.{part}"), &schema["properties"][part]);
        }
    }
    let explained = kubectl.run(&["explain", "vmdiskimage.spec.diskSize"], "").fine();
    assert!(explained.contains("Size of the disk that the VM sees"), "{explained}");
}

fn assert_described(path: &str, schema: &Value) {
    assert!(
        schema["description"].as_str().is_some_and(|text| !text.is_empty()),
        "{path} is not described"
    );
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        assert_described(&format!("{path}.{name}"), field);
    }
    for (name, field) in schema["items"]["properties"].as_object().into_iter().flatten() {
        assert_described(&format!("{path}.{name}"), field);
    }
}
