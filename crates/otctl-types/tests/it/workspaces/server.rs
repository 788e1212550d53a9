//! What only a real API server can tell of a Workspace.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use otctl_types::AdmissionQueue;
use serde_json::{Value, json};

use super::{NOWHERE, full, least, with};
use crate::support::{Kubectl, Said};

/// Sends a manifest as it is; a Workspace has no namespace.
#[track_caller]
fn apply(kubectl: &Kubectl, workspace: &Value) -> Said {
    kubectl.run(&["apply", "--validate=strict", "-f", "-"], &workspace.to_string())
}

/// Replaces the whole, as an edit in an editor does.
#[track_caller]
fn replace(kubectl: &Kubectl, workspace: &Value) -> Said {
    kubectl.run(&["replace", "--validate=strict", "-f", "-"], &workspace.to_string())
}

fn in_namespace(workspace: Value, namespace: &str) -> Value {
    with(workspace, "/namespace", json!(namespace))
}

#[tokio::test]
async fn the_namespace_stays_by_every_way() {
    let kubectl = Kubectl::shared().await;
    let (set, unset) = ("namespace-set", "namespace-unset");
    apply(kubectl, &in_namespace(least(set), "labs")).fine();
    apply(kubectl, &least(unset)).fine();
    let sentence =
        "namespace cannot change any more, nor be added or removed: create a new Workspace";
    for (what, edit) in [
        ("changed", in_namespace(least(set), "other")),
        ("removed", least(set)),
        ("added", in_namespace(least(unset), "labs")),
    ] {
        for refused in [apply(kubectl, &edit), replace(kubectl, &edit)] {
            let refusal = refused.refusal();
            assert!(refusal.contains(sentence), "{what}: {refusal}");
        }
    }
    for (name, value) in [(set, Value::Null), (set, json!("other")), (unset, json!("labs"))] {
        let patch = json!({"spec": {"namespace": value}}).to_string();
        let way = ["patch", "ws", name, "--type=merge", "--patch", &patch];
        let refusal = kubectl.run(&way, "").refusal();
        assert!(refusal.contains(sentence), "{patch}: {refusal}");
    }
    let edited = with(in_namespace(least(set), "labs"), "/suspended", json!(true));
    apply(kubectl, &edited).fine();
    apply(kubectl, &with(least(unset), "/imageRetention", json!("Delete"))).fine();
}

#[tokio::test]
async fn a_spec_may_be_edited_at_any_time() {
    let kubectl = Kubectl::shared().await;
    let mut workspace = full();
    workspace["metadata"]["name"] = json!("edited");
    apply(kubectl, &workspace).fine();
    kubectl.patch_status(NOWHERE, "ws/edited", &full_status()).fine();
    for (pointer, value) in [
        ("/virtualMachines/0/spec/image/url", json!("https://images.example.com/other.qcow2")),
        ("/virtualMachines/2", json!({"name": "third", "spec": {"VMDiskImageName": "third"}})),
        ("/virtualMachines", Value::Null),
        ("/containers", json!([{"name": "database", "image": "postgres:17"}])),
        ("/network/isolate", json!(false)),
        ("/network", Value::Null),
        ("/suspended", json!(true)),
    ] {
        workspace = with(workspace, pointer, value);
        replace(kubectl, &workspace).fine();
    }
    assert_eq!(kubectl.read(NOWHERE, "ws/edited")["metadata"]["generation"], 8);
}

#[tokio::test]
async fn a_network_that_nobody_wrote_is_isolated() {
    let kubectl = Kubectl::shared().await;
    let isolated = json!({"isolate": true, "dns": true});
    apply(kubectl, &least("unwritten")).fine();
    assert_eq!(kubectl.read(NOWHERE, "ws/unwritten")["spec"]["network"], isolated);

    let mut null = least("null");
    null["spec"]["network"] = Value::Null;
    apply(kubectl, &null).fine();
    assert_eq!(kubectl.read(NOWHERE, "ws/null")["spec"]["network"], isolated);
    apply(kubectl, &with(least("null"), "/network", json!({"isolate": false}))).fine();
    let opened = kubectl.read(NOWHERE, "ws/null");
    assert_eq!(opened["spec"]["network"], json!({"isolate": false, "dns": true}));
    apply(kubectl, &null).fine();
    assert_eq!(kubectl.read(NOWHERE, "ws/null")["spec"]["network"], isolated);
}

#[tokio::test]
async fn a_name_of_41_characters_is_refused() {
    let kubectl = Kubectl::shared().await;
    let longest = "a".repeat(40);
    let named = |name: &str| with(full(), "/containers/0/name", json!(name));
    let machine = |name: &str| with(full(), "/virtualMachines/0/name", json!(name));
    let dry_run = |workspace: &Value| {
        let way = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        kubectl.run(&way, &workspace.to_string())
    };
    for workspace in [named(&longest), machine(&longest)] {
        dry_run(&workspace).fine();
    }
    let too_long = format!("{longest}a");
    for (workspace, path) in [
        (named(&too_long), "spec.containers[0].name"),
        (machine(&too_long), "spec.virtualMachines[0].name"),
    ] {
        let refusal = dry_run(&workspace).refusal();
        assert!(refusal.contains(path) && refusal.contains("40"), "{refusal}");
    }
}

#[tokio::test]
async fn what_is_there_twice_is_refused() {
    let kubectl = Kubectl::shared().await;
    let full = full();
    for list in [
        "/virtualMachines",
        "/containers",
        "/virtualMachines/0/spec/instance/ports",
        "/containers/0/ports",
        "/containers/0/env",
        "/containers/0/imagePullSecrets",
        "/network/ingress/0/ports",
        "/network/egress/0/ports",
    ] {
        let items = full["spec"].pointer(list).unwrap().as_array().unwrap();
        let twice = with(full.clone(), &format!("{list}/{}", items.len()), items[0].clone());
        let way = ["create", "--dry-run=server", "-f", "-"];
        let refusal = kubectl.run(&way, &twice.to_string()).refusal();
        assert!(refusal.contains("Duplicate value"), "{list}: {refusal}");
    }
    let both = json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]);
    let workspace = with(least("both-protocols"), "/containers/0/ports", both);
    apply(kubectl, &workspace).fine();
    let way = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    kubectl.run(&way, &workspace.to_string()).fine();
}

#[tokio::test]
async fn what_reaches_beyond_the_workspace_cannot_be_written() {
    let kubectl = Kubectl::shared().await;
    let volumes = json!([{"name": "a", "hostPath": {"path": "/"}}]);
    for (pointer, value) in [
        ("/containers/0/volumeMounts", json!([])),
        ("/containers/0/volumes", volumes.clone()),
        ("/containers/0/hostNetwork", json!(true)),
        ("/containers/0/serviceAccountName", json!("default")),
        ("/containers/0/lifecycle", json!({})),
        ("/containers/0/ports/0/hostPort", json!(80)),
        ("/containers/0/ports/0/hostIP", json!("0.0.0.0")),
        ("/containers/0/securityContext/privileged", json!(true)),
        ("/containers/0/securityContext/procMount", json!("Unmasked")),
        ("/containers/0/livenessProbe/httpGet/host", json!("169.254.169.254")),
        ("/containers/0/readinessProbe/tcpSocket/host", json!("169.254.169.254")),
        ("/containers/0/env/2/valueFrom/secretKeyRef/namespace", json!("other")),
        ("/virtualMachines/0/spec/instance/volumes", volumes),
        ("/volumes", json!([])),
    ] {
        let refusal = apply(kubectl, &with(full(), pointer, value)).refusal();
        let (_, field) = pointer.rsplit_once('/').unwrap();
        assert!(
            refusal.contains("unknown field") && refusal.contains(&format!("{field}\"")),
            "{pointer}: {refusal}"
        );
    }
    for capability in ["SYS_ADMIN", "NET_ADMIN", "NET_RAW", "ALL"] {
        let pointer = "/containers/0/securityContext/capabilities/add/0";
        let workspace = with(full(), pointer, json!(capability));
        let refusal = apply(kubectl, &workspace).refusal();
        assert!(refusal.contains("capabilities.add[0]: Unsupported value"), "{refusal}");
    }
}

#[tokio::test]
async fn a_refusal_has_a_sentence_that_says_what_to_write() {
    let kubectl = Kubectl::shared().await;
    for (pointer, value, path, sentence) in [
        ("/containers/0/name", json!("a--b"), "spec.containers[0].name", "such as api-server"),
        (
            "/network/egress/0/to/cidr",
            json!("10.1.2.3/16"),
            "spec.network.egress[0].to.cidr",
            "write 10.1.0.0/16 for the network",
        ),
        (
            "/network/egress/0/to/cidr",
            json!("010.0.0.0/8"),
            "spec.network.egress[0].to.cidr",
            "cidr is an address and the length of its network",
        ),
        (
            "/network/egress/0/to/cidr",
            json!("fd00:ec2:0::254/128"),
            "spec.network.egress[0].to.cidr",
            "give the workload a Secret of its own",
        ),
        (
            "/virtualMachines/0/spec/image/url",
            json!("s3://bucket/key"),
            "spec.virtualMachines[0].spec.image.url",
            "for S3 write https://BUCKET.s3.REGION.amazonaws.com/KEY",
        ),
        (
            "/containers/0/resources/requests/cpu",
            json!("4"),
            "spec.containers[0].resources",
            "lower the request or raise the limit",
        ),
        (
            "/containers/0/env/3/valueFrom/fieldRef/fieldPath",
            json!("spec.nodeName"),
            "spec.containers[0].env[3].valueFrom.fieldRef.fieldPath",
            "metadata.labels['KEY']",
        ),
        ("/containers/0/name", json!("database"), "spec", "give each entry a name of its own"),
    ] {
        let refusal = apply(kubectl, &with(full(), pointer, value.clone())).refusal();
        assert!(
            refusal.contains(path) && refusal.contains(sentence),
            "{pointer} = {value}: {refusal}"
        );
    }
}

#[tokio::test]
async fn two_managers_share_a_workspace_by_its_entries() {
    let kubectl = Kubectl::shared().await;
    let entry = |name: &str| {
        let containers = json!([{"name": name, "image": "registry.example.com/a:1"}]);
        with(least("shared"), "/containers", containers).to_string()
    };
    for name in ["one", "two"] {
        let manager = format!("--field-manager={name}");
        kubectl.run(&["apply", "--server-side", &manager, "-f", "-"], &entry(name)).fine();
    }
    let stored = kubectl.read(NOWHERE, "ws/shared");
    let names: Vec<_> =
        stored["spec"]["containers"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["one", "two"]);
}

/// A status with everything in it.
fn full_status() -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "False", "reason": reason, "message": "It goes on.", "observedGeneration": 1,
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "observedGeneration": 1, "phase": "Provisioning", "namespace": "labs", "message": "It goes on.",
        "readyParts": "3/5", "ticket": "0000000001", "queuedAt": "2026-01-01T00:00:00Z", "lastTurn": 2,
        "openTurn": {"number": 2, "since": "2026-01-01T00:00:00Z"}, "startedParts": ["database", "worker"],
        "startedMachines": ["database"], "unreachableParts": ["worker"],
        "disks": [{"entry": "database", "image": "database-1.4.0", "revision": "r1", "copied": true}],
        "conditions": [
            condition("Accepted", "Accepted"), condition("Admitted", "Admitted"), condition("CreatingWorks", "Creating"),
            condition("NetworkReady", "Isolated"), condition("ImagesReady", "AwaitingImages"),
            condition("VirtualMachinesReady", "Progressing"), condition("ContainersReady", "ImagePullBackOff"),
            condition("Ready", "AwaitingImages"), condition("Reconciling", "AwaitingImages"),
            condition("Stalled", "ImageFailed"), condition("Deleting", "Deleting"),
        ],
        "resourceStatus": {
            "virtualMachines": [
                {"name": "database", "phase": "Syncing", "message": "42%", "image": "database-1.4.0", "revision": "r1",
                 "machine": "Provisioning", "service": "lab-151--database"},
                {"name": "analytics", "phase": "NotFound", "message": "There is none.", "image": "analytics-2.0.0"},
            ],
            "containers": [
                {"name": "api-server", "status": "Degraded", "message": "Not found.", "service": "lab-151--api-server"},
                {"name": "worker", "status": "Pending"},
            ],
            "network": {"policy": "lab-151", "message": "Isolated."},
        },
    })
}

#[tokio::test]
async fn a_full_status_is_stored_and_read_by_its_type() {
    let kubectl = Kubectl::shared().await;
    apply(kubectl, &least("full-status")).fine();
    kubectl.patch_status(NOWHERE, "ws/full-status", &full_status()).fine();
    let stored = kubectl.read(NOWHERE, "ws/full-status");
    assert_eq!(stored["status"], full_status());
    assert_eq!(stored["metadata"]["generation"], 1);
    let read: otctl_types::WorkspaceStatus =
        serde_json::from_value(stored["status"].clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), full_status());

    let mut twice = full_status();
    let first = twice["conditions"][0].clone();
    twice["conditions"].as_array_mut().unwrap().push(first);
    let refusal = kubectl.patch_status(NOWHERE, "ws/full-status", &twice).refusal();
    assert!(refusal.contains("Duplicate value"), "{refusal}");
}

#[tokio::test]
async fn status_is_apart_from_spec() {
    let kubectl = Kubectl::shared().await;
    let mut workspace = least("apart");
    workspace["status"] = json!({"phase": "Ready", "namespace": "kube-system"});
    apply(kubectl, &workspace).fine();
    assert!(kubectl.read(NOWHERE, "ws/apart").get("status").is_none());
}

#[tokio::test]
async fn columns_show_what_matters() {
    let kubectl = Kubectl::shared().await;
    apply(kubectl, &least("columns")).fine();
    kubectl.patch_status(NOWHERE, "ws/columns", &full_status()).fine();
    let table = kubectl.run(&["get", "ws", "columns"], "").fine();
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "PHASE", "READY", "NAMESPACE", "MESSAGE", "AGE"], "{table}");
    assert_eq!(rows[1][..4], ["columns", "Provisioning", "3/5", "labs"], "{table}");
    assert!(table.contains("It goes on."), "{table}");
    let all = kubectl.run(&["get", "otctl"], "").fine();
    assert!(all.contains("workspace.pelotech.ot/columns"), "{all}");
}

#[tokio::test]
async fn explain_tells_what_may_be_written() {
    let kubectl = Kubectl::shared().await;
    for (field, sentence) in [
        ("workspace", "cut off from everything else"),
        ("workspace.spec.network.isolate", "lookups of names and the doors"),
        ("workspace.spec.virtualMachines.spec.VMDiskImageName", "The VMDiskImage in the"),
        ("workspace.spec.virtualMachines.spec.image.diskSize", "Size of the disk that the VM sees"),
        ("workspace.spec.containers.livenessProbe.httpGet.port", "by its number or by its name"),
    ] {
        let told = kubectl.run(&["explain", field], "").fine();
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(sentence), "{field}: {told}");
    }
}

#[tokio::test]
async fn a_workspace_holds_a_slot_without_a_namespace() {
    let kubectl = Kubectl::shared().await;
    let queues: Api<AdmissionQueue> = Api::all(kubectl.cluster.admin());
    let queue = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": "cluster-scoped"},
    });
    queues
        .patch("cluster-scoped", &PatchParams::apply("test"), &Patch::Apply(&queue))
        .await
        .unwrap();
    let status = json!({"status": {"active": [{
        "namespace": "", "name": "lab-151", "uid": "1", "attempt": 3, "ticket": "1", "since": "2026-01-01T00:00:00Z",
    }]}});
    let stored = queues
        .patch_status("cluster-scoped", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let active = stored.status.unwrap().active;
    assert_eq!((active[0].namespace.as_str(), active[0].attempt), ("", 3));
}
