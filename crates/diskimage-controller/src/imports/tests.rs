//! Imports as the ledger, the images, Jobs and pods show them together.

use k8s_openapi::api::batch::v1::Job;
use otctl_kit::store::Change;
use otctl_types::diskimage::OpenAttempt;
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage};
use serde_json::json;

use super::*;

fn read<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// An image `a` with a slot, whose attempt runs as Job `job`.
fn views() -> Views {
    let views = Views::default();
    let mut queue = AdmissionQueue::new("vmdiskimages", AdmissionQueueSpec::default());
    queue.metadata.resource_version = Some("1".to_owned());
    queue.status = Some(read(json!({"active": [{
        "namespace": "lab", "name": "a", "uid": "a", "attempt": 1, "ticket": "1",
        "since": "2026-05-01T12:00:00Z",
    }]})));
    views.queues.apply(Change::Present(queue));
    let mut image = VMDiskImage::new("a", Default::default());
    image.metadata.namespace = Some("lab".to_owned());
    image.metadata.uid = Some("a".to_owned());
    image.metadata.resource_version = Some("1".to_owned());
    let open: OpenAttempt = read(json!({"number": 1, "jobUID": "job"}));
    image.status.get_or_insert_default().open_attempt = Some(open);
    views.images.apply(Change::Present(image));
    views
}

fn owner(kind: &str, uid: &str) -> serde_json::Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": true}])
}

fn job(version: &str, suspend: bool, ended: bool) -> Job {
    let conditions = json!([{"type": "Complete", "status": if ended { "True" } else { "False" }}]);
    read(json!({
        "metadata": {"namespace": "lab", "name": "a-1-a1", "uid": "job", "resourceVersion": version,
            "ownerReferences": owner("VMDiskImage", "a")},
        "spec": {"suspend": suspend, "template": {"spec": {"containers": [{
            "name": "importer", "args": ["import", "--bandwidth-share=300"],
            "env": [{"name": PROGRESS_KEY_VARIABLE, "value": "key"}],
        }]}}},
        "status": {"conditions": conditions},
    }))
}

fn pod(version: &str, phase: &str) -> Pod {
    read(json!({
        "metadata": {"namespace": "lab", "name": "a-1-a1-x", "uid": "pod", "resourceVersion": version,
            "ownerReferences": owner("Job", "job")},
        "spec": {"containers": [{"name": "importer", "ports": [{"containerPort": 8080}]}]},
        "status": {"phase": phase, "podIP": "10.0.0.7"},
    }))
}

#[test]
fn an_import_on_record_is_known_before_it_runs_and_reached_while_it_does() {
    let views = views();
    views.jobs.apply(Change::Present(job("1", true, false)));
    let waiting = &on_record(&views)[0];
    assert_eq!((waiting.is_started, waiting.fallback, waiting.address), (false, Some(300), None));
    views.jobs.apply(Change::Present(job("2", false, false)));
    views.pods.apply(Change::Present(pod("1", "Running")));
    let running = &on_record(&views)[0];
    assert!(running.is_started);
    assert_eq!(running.address, Some("10.0.0.7:8080".parse().unwrap()));
    assert_eq!(running.key, "key");
}

#[test]
fn it_counts_until_its_last_pod_has_ended_whatever_becomes_of_the_job() {
    let views = views();
    assert!(on_record(&views)[0].is_started, "a Job that is not seen may run");
    views.jobs.apply(Change::Present(job("2", false, true)));
    views.pods.apply(Change::Present(pod("1", "Running")));
    assert_eq!(on_record(&views).len(), 1, "its pod runs");
    views.pods.apply(Change::Present(pod("2", "Succeeded")));
    assert_eq!(on_record(&views), []);
}
