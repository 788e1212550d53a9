//! Golden trees.

use k8s_openapi::api::core::v1::Pod;
use otctl_types::{AdmissionQueueStatus, Workspace};
use serde_json::{Value, json};

use super::*;
use crate::cli::Goal;
use crate::kind::KINDS;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn facts(status: Value) -> Facts {
    let mut object = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
        "metadata": {"name": "lab", "uid": "u", "generation": 1},
        "spec": {
            "virtualMachines": [{"name": "db", "spec": {"VMDiskImageName": "debian"}}],
            "containers": [{"name": "api", "image": "registry/api:1", "ports": [{"containerPort": 80}]}],
            "network": {"isolate": true, "dns": true},
        },
    });
    object["status"] = status;
    let dynamic = serde_json::from_value(object.clone()).unwrap();
    let kind = KINDS.into_iter().find(|kind| kind.names().contains(&"ws")).unwrap();
    let workspace: Workspace = serde_json::from_value(object).unwrap();
    Facts {
        standing: kind.judge(&dynamic, Goal::Ready),
        workspace,
        ledger: None,
        pods: Vec::new(),
        events: Vec::new(),
        unread: Vec::new(),
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
           "lastTransitionTime": "2026-05-01T11:00:00Z"})
}

#[test]
fn one_that_waits_for_an_image_says_for_what_and_what_comes_next() {
    let words = "VMDiskImage 'debian' is waited for: Syncing: 42 of 100 MiB";
    let mut waiting = facts(json!({
        "observedGeneration": 1, "phase": "Provisioning", "namespace": "labs", "message": words, "readyParts": "0/2",
        "queuedAt": "2026-05-01T11:58:00Z",
        "conditions": [
            condition("Accepted", "True", "Accepted", ""),
            condition("Admitted", "False", "AwaitingImages", words),
            condition("CreatingWorks", "False", "AwaitingImages", words),
            condition("ImagesReady", "False", "AwaitingImages", words),
            condition("Ready", "False", "AwaitingImages", words),
            condition("Reconciling", "True", "AwaitingImages", words),
        ],
        "resourceStatus": {
            "virtualMachines": [{"name": "db", "image": "debian", "phase": "Syncing", "message": words}],
            "containers": [{"name": "api", "status": "Pending", "message": "it has not been made yet"}],
            "network": {},
        },
    }));
    waiting.ledger =
        Some(AdmissionQueueStatus { limit: Some(4), ..AdmissionQueueStatus::default() });
    let expected = "\
Workspace lab: Provisioning (AwaitingImages), 0 of 2 parts
│  VMDiskImage 'debian' is waited for: Syncing: 42 of 100 MiB
│  made in namespace labs
│  next: it starts by itself when what it waits for is there
├─ Queue: waits since 2026-05-01T11:58:00Z (2m ago)
│     0 of 4 slots are taken
├─ Network: to be isolated
├─ Virtual machine db: image 'debian' Syncing
├─ Container api: Pending
│     it has not been made yet
└─ Conditions
   └─ Admitted, CreatingWorks, ImagesReady, Ready: False (AwaitingImages)
";
    assert_eq!(tree(&waiting, now()).text(), expected);
}

/// The image that a person reads of, and may ask for again, is the one that is named.
#[test]
fn a_disk_that_was_made_from_another_image_says_from_which() {
    let of = |copied: bool| {
        let told = facts(json!({
            "disks": [{"entry": "db", "image": "debian", "revision": "r1", "copied": copied}],
            "resourceStatus": {"virtualMachines": [{"name": "db", "image": "fedora", "phase": "Failed"}]},
        }));
        tree(&told, now()).text()
    };
    let title = "Virtual machine db: image 'fedora' Failed";
    let origin = "its disk was made from image 'debian', revision r1";
    assert!(of(true).contains(title) && of(true).contains(origin), "{}", of(true));
    assert!(of(false).contains(title) && !of(false).contains("debian"), "{}", of(false));
}

#[test]
fn a_part_that_is_broken_says_why_in_the_words_of_its_pod() {
    let words = "container 'api': exit code 3: no configuration";
    let mut broken = facts(json!({
        "observedGeneration": 1, "phase": "Provisioning", "namespace": "labs", "message": words, "readyParts": "1/2",
        "startedParts": ["db", "api"],
        "conditions": [
            condition("ContainersReady", "False", "CrashLoopBackOff", words),
            condition("Ready", "False", "Degraded", words),
        ],
        "resourceStatus": {
            "virtualMachines": [{"name": "db", "image": "debian", "phase": "Succeeded", "revision": "r1", "service": "lab--db"}],
            "containers": [{"name": "api", "status": "Degraded", "message": words, "service": "lab--api"}],
            "network": {"policy": "lab--network"},
        },
    }));
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "lab--api-1", "labels": {"pelotech.ot/entry": "api"}},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "api", "image": "", "imageID": "", "ready": false, "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        }]},
    }))
    .unwrap();
    broken.pods.push(pod);
    let expected = "\
Workspace lab: Provisioning (Degraded), 1 of 2 parts
│  container 'api': exit code 3: no configuration
│  made in namespace labs
│  next: it heals by itself when the cause goes
├─ Network: isolated by NetworkPolicy 'lab--network'
├─ Virtual machine db: image 'debian' Succeeded
│     revision r1
│     reached as Service lab--db
├─ Container api: Degraded
│  │  reached as api (Service lab--api)
│  └─ pod lab--api-1: Running, 0/1 ready, 4 restarts
│        CrashLoopBackOff back-off 40s
└─ Conditions
   ├─ ContainersReady: False (CrashLoopBackOff)
   └─ Ready: False (Degraded)
";
    assert_eq!(tree(&broken, now()).text(), expected);
}
