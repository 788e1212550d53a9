//! Trees as people see them, at each stage of an image's life.

use serde_json::{Value, json};
use testbed::golden;

use k8s_openapi::api::core::v1::Event;

use super::*;
use crate::cli::Goal;
use crate::kind;

const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";
const JOB: &str = "0b1d2c3e-0000-4000-8000-000000000002";
const NOW: &str = "2026-05-01T12:10:00Z";

/// An image whose status says this beside what every status says.
fn image(spec: &Value, status: &Value) -> kube::api::DynamicObject {
    let mut object = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
        "metadata": {"name": "web", "namespace": "lab", "uid": UID, "generation": 1},
        "spec": {"url": "https://images/web.qcow2", "sourceType": "http", "snapshotClass": "fast"},
        "status": {"observedGeneration": 1},
    });
    merge(&mut object["spec"], spec);
    merge(&mut object["status"], status);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    let fields = from.as_object().unwrap().clone();
    into.as_object_mut().unwrap().extend(fields);
}

fn facts(object: &kube::api::DynamicObject) -> Facts {
    Facts {
        image: object.clone().try_parse().unwrap(),
        standing: kind::named("vmdi").unwrap().judge(object, Goal::Ready),
        ledger: Some(read(json!({"limit": 2}))),
        place: None,
        jobs: Vec::new(),
        pods: Vec::new(),
        claims: Vec::new(),
        snapshots: Vec::new(),
        events: [].into(),
        unread: Vec::new(),
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn told(phase: &str, reason: &str, message: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-05-01T12:00:00Z",
        })
    };
    let mut conditions = vec![
        condition("Accepted", "True"),
        condition("Admitted", "False"),
        condition("Synced", "False"),
        condition("Ready", "False"),
    ];
    match phase {
        "Failed" => conditions.push(condition("Stalled", "True")),
        _ => conditions.push(condition("Reconciling", "True")),
    }
    json!({"phase": phase, "message": message, "conditions": conditions})
}

fn with(mut status: Value, more: &Value) -> Value {
    merge(&mut status, more);
    status
}

fn text(facts: &Facts) -> String {
    tree(facts, NOW.parse().unwrap()).text()
}

fn event(kind: &str, reason: &str, message: &str, at: &str) -> Event {
    read(json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "type": kind, "reason": reason, "message": message,
        "eventTime": at,
    }))
}

#[test]
fn one_that_nobody_has_looked_at() {
    let mut object = image(&json!({}), &json!({}));
    object.data["status"] = json!({});
    testbed::golden::compare(golden!("describe_unseen"), &text(&facts(&object)));
}

#[test]
fn one_that_waits_for_a_slot() {
    let status = told("Queued", "SlotsBusy", "waits for a slot");
    let object = image(
        &json!({"secretRef": "keys"}),
        &with(status, &json!({"queuedAt": "2026-05-01T12:00:00Z"})),
    );
    let place = Some(Place { position: Some(3), waiting: 5 });
    let entry = json!({
        "namespace": "lab", "name": "a", "uid": "a", "attempt": 1, "ticket": "1", "since": "2026-05-01T12:00:00Z",
    });
    let ledger = Some(read(json!({"limit": 1, "active": [entry]})));
    let queued = event("Normal", "Queued", "waits for a slot", "2026-05-01T12:00:00Z");
    let events = [(UID.to_owned(), vec![queued])].into();
    let facts = Facts { place, ledger, events, ..facts(&object) };
    testbed::golden::compare(golden!("describe_queued"), &text(&facts));
}

#[test]
fn one_that_waits_for_its_next_attempt() {
    let message = "attempt 1 failed with ServerError: the source answered 503; the next starts at 2026-05-01T12:14:00Z or later";
    let attempt = json!({
        "number": 1, "charged": true, "reason": "ServerError", "message": "the source answered 503",
        "bytes": 1_048_576, "endedAt": "2026-05-01T12:09:00Z",
    });
    let more = json!({
        "nextRetryAt": "2026-05-01T12:14:00Z", "attempts": [attempt], "lastAttempt": 1,
        "budget": {"for": "key", "charged": 1},
        "source": {"size": 25_165_824, "acceptsRanges": true, "format": "qcow2", "virtualSize": 1_073_741_824},
    });
    let object = image(&json!({}), &with(told("Queued", "Backoff", message), &more));
    let place = Some(Place { position: None, waiting: 1 });
    testbed::golden::compare(
        golden!("describe_backoff"),
        &text(&Facts { place, ..facts(&object) }),
    );
}

/// A download that runs in one pod, and one whose pod cannot start.
#[test]
fn one_that_is_downloaded() {
    let facts = importing(
        &json!({
            "phase": "Running",
            "containerStatuses": [{"name": "importer", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-05-01T12:05:00Z"}}}],
        }),
        "Bound",
    );
    testbed::golden::compare(golden!("describe_importing"), &text(&facts));
}

#[test]
fn one_whose_pod_cannot_be_placed_and_whose_claim_does_not_bind() {
    let mut facts = importing(
        &json!({
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
        }),
        "Pending",
    );
    let trouble =
        event("Warning", "ProvisioningFailed", "no room in pool 'a'", "2026-05-01T12:06:00Z");
    facts.events.insert("claim".to_owned(), vec![trouble]);
    testbed::golden::compare(golden!("describe_unplaced"), &text(&facts));
}

fn importing(pod_status: &Value, claim_phase: &str) -> Facts {
    let more = json!({
        "lastAttempt": 2, "openAttempt": {"number": 2, "jobUID": JOB, "startedAt": "2026-05-01T12:04:00Z"},
        "progress": {"bytes": 8_388_608, "totalBytes": 25_165_824}, "budget": {"for": "key", "charged": 1},
    });
    let status = with(told("Syncing", "Importing", "8.0 MiB of 24.0 MiB are there"), &more);
    let name = "web-0123abcd-a2";
    let owner = |kind: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "any", "uid": uid, "controller": true}]);
    let job = json!({
        "metadata": {"name": name, "uid": JOB, "ownerReferences": owner("VMDiskImage", UID)},
        "spec": {"template": {}}, "status": {"startTime": "2026-05-01T12:04:30Z"},
    });
    let pod = json!({
        "metadata": {"name": "web-0123abcd-a2-x", "uid": "pod", "ownerReferences": owner("Job", JOB)},
        "spec": {"containers": [], "nodeName": "node-1", "activeDeadlineSeconds": 3600}, "status": pod_status,
    });
    let claim = |name: &str, phase: &str, uid: &str| {
        json!({
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2026-05-01T12:04:00Z"},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": phase},
        })
    };
    let entry = json!({
        "namespace": "lab", "name": "web", "uid": UID, "attempt": 2, "ticket": "1", "since": "2026-05-01T12:04:00Z",
    });
    Facts {
        ledger: Some(read(json!({"limit": 2, "active": [entry]}))),
        jobs: vec![read(job)],
        pods: vec![read(pod)],
        claims: vec![
            read(claim("web-012345", claim_phase, "claim")),
            read(claim("web-012345-scratch", "Bound", "scratch")),
        ],
        ..facts(&image(&json!({}), &status))
    }
}

#[test]
fn one_whose_snapshot_is_not_ready() {
    let snapshot = json!({
        "metadata": {"name": "web-012345", "uid": "snapshot", "creationTimestamp": "2026-05-01T12:09:00Z"},
        "spec": {"volumeSnapshotClassName": "fast"}, "status": {"error": {"message": "the pool is full"}},
    });
    let message = "the snapshot is not ready yet; its driver says: the pool is full";
    let object = image(&json!({}), &told("Snapshotting", "SnapshotFailed", message));
    let facts = Facts { snapshots: vec![read(snapshot)], ..facts(&object) };
    testbed::golden::compare(golden!("describe_snapshotting"), &text(&facts));
}

#[test]
fn one_that_is_usable() {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-05-01T12:00:00Z",
        })
    };
    let current = json!({
        "revision": "r", "snapshot": "web-012345", "minimumSize": 1_073_741_824, "syncedAt": "2026-05-01T12:00:00Z",
    });
    let status = json!({
        "phase": "Succeeded", "message": "the disk is ready to use", "current": current,
        "conditions": [condition("Available"), condition("Ready")], "lastAttempt": 1,
        "attempts": [{"number": 1, "charged": true, "reason": "Succeeded", "bytes": 25_165_824,
            "endedAt": "2026-05-01T11:59:00Z"}],
        "source": {"size": 25_165_824, "acceptsRanges": false, "format": "raw", "compression": "xz"},
        "budget": {"for": "key", "charged": 1},
    });
    testbed::golden::compare(golden!("describe_ready"), &text(&facts(&image(&json!({}), &status))));
}

#[test]
fn one_that_has_failed() {
    let attempt = json!({
        "number": 1, "charged": false, "reason": "SourceNotFound", "message": "the source answered 404", "final": true,
        "endedAt": "2026-05-01T12:09:00Z",
    });
    let status = told("Failed", "SourceNotFound", "the source answered 404");
    let status = with(status, &json!({"attempts": [attempt], "lastAttempt": 1}));
    testbed::golden::compare(
        golden!("describe_failed"),
        &text(&facts(&image(&json!({}), &status))),
    );
}

/// Without the right to read more than the image there is a tree all the same.
#[test]
fn one_of_which_little_may_be_read() {
    let status = told("Queued", "Suspended", "suspended; set suspend to false to go on");
    let object = image(&json!({"suspend": true}), &status);
    let unread = vec!["pods cannot be read: pods is forbidden".to_owned()];
    let facts = Facts { ledger: None, unread, ..facts(&object) };
    testbed::golden::compare(golden!("describe_suspended"), &text(&facts));
}
