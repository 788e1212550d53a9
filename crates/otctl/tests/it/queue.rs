//! The queue of a real API server, as programs and people read it. No controller runs, so what is read stays as it is.

use std::path::Path;
use std::process::Stdio;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use local_cluster::{LocalCluster, Options};
use otctl_types::diskimage::AccessMode;
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage, VMDiskImageSpec};
use policy::Policy;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::stage::PATIENCE;
use crate::{otctl, stdout};

/// A cluster with the kinds, the ledger and a few images.
struct Lab {
    cluster: LocalCluster,
    client: Client,
}

impl Lab {
    async fn start() -> Self {
        let options = Options { nodes: 0, storage: false, ..Options::default() };
        let cluster = LocalCluster::start(options).await.unwrap();
        let client = cluster.admin();
        Self { cluster, client }
    }

    fn run(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.cluster.kubeconfig_path();
        stdout(
            &otctl()
                .args(arguments)
                .arg("--kubeconfig")
                .arg::<&Path>(&kubeconfig)
                .output()
                .unwrap(),
        )
    }

    async fn image(&self, name: &str, status: Value) -> VMDiskImage {
        let images: Api<VMDiskImage> = Api::namespaced(self.client.clone(), "default");
        let (url, access_modes) =
            (format!("http://images/{name}"), vec![AccessMode::ReadWriteOnce]);
        let spec = VMDiskImageSpec { url, access_modes, ..VMDiskImageSpec::default() };
        let image =
            images.create(&PostParams::default(), &VMDiskImage::new(name, spec)).await.unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        images.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        image
    }

    async fn ledger(&self, holder: &VMDiskImage) {
        let queues: Api<AdmissionQueue> = Api::all(self.client.clone());
        let queue = AdmissionQueue::new("vmdiskimages", AdmissionQueueSpec::default());
        queues.create(&PostParams::default(), &queue).await.unwrap();
        let policy = Policy { concurrency: 1, ..Policy::default() };
        let entry = json!({
            "namespace": "default", "name": holder.name_any(), "uid": holder.uid(), "attempt": 1, "ticket": "1",
            "since": "2026-05-01T12:00:00Z",
        });
        let status = json!({"limit": 1, "active": [entry], "policy": policy.to_entries()});
        let patch = Patch::Merge(json!({"status": status}));
        queues.patch_status("vmdiskimages", &PatchParams::default(), &patch).await.unwrap();
    }
}

#[test]
fn without_a_cluster_the_way_out_is_named_and_the_cause_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |kubeconfig: &str| {
        let mut command = otctl();
        command.args(["queue", "--once"]).env("KUBECONFIG", directory.path().join(kubeconfig));
        let output = command.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let absent = refused("absent");
    assert!(absent.contains("--kubeconfig or the variable KUBECONFIG"), "{absent}");
    assert_eq!(absent.matches("No such file").count(), 1, "{absent}");

    // Bound and never accepted from: whoever asks there is refused once it is closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let away = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(directory.path().join("away"), away).unwrap();
    let away = refused("away");
    assert!(away.contains(&format!("http://{address}")) && away.contains("refused"), "{away}");
}

fn queued(ticket: &str) -> Value {
    json!({"phase": "Queued", "ticket": ticket})
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_computed_from_the_objects() {
    let lab = Lab::start().await;
    expect_refused_without_kinds(&lab);
    let applied = lab.run(&["crds", "--apply"]);
    assert!(applied.contains("vmdiskimages.pelotech.ot applied"), "{applied}");
    populate(&lab).await;
    expect_rows(&lab);
    expect_lines(&lab);
    expect_to_be_told_when_it_is_followed_into_the_end_of(lab).await;
}

fn expect_refused_without_kinds(lab: &Lab) {
    let mut command = otctl();
    command.args(["queue", "--once", "--kubeconfig"]).arg(lab.cluster.kubeconfig_path());
    let refused = command.output().unwrap();
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("VMDiskImages cannot be listed"), "no kinds are installed: {told}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.yaml");
    let image = "{apiVersion: pelotech.ot/v1alpha1, kind: VMDiskImage, metadata: {name: a}}";
    std::fs::write(&file, image).unwrap();
    let apply = ["apply", "-f", file.to_str().unwrap()];
    for arguments in [&["get"][..], &["get", "vmdi"], &["describe", "vmdi/a"], &apply] {
        let mut command = otctl();
        command.args(arguments).arg("--kubeconfig").arg(lab.cluster.kubeconfig_path());
        let refused = command.output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        let is_told = refused.status.code() == Some(1) && told.contains("otctl crds --apply");
        assert!(is_told, "{arguments:?}: {told}");
    }
}

/// One that holds the slot, two that wait for it, and one before them that waits for something else.
async fn populate(lab: &Lab) {
    let (status, reason) = ("False", "StorageClassNotFound");
    let at = "2026-05-01T12:00:00Z";
    let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
    let blocked = json!({"phase": "Queued", "ticket": "0", "conditions": [ready]});
    lab.image("blocked", blocked).await;
    lab.image("third", queued("3")).await;
    lab.image("second", queued("2")).await;
    let progress = json!({"bytes": 1024, "totalBytes": 4096});
    let open = json!({"number": 1, "jobUID": "job"});
    let active =
        json!({"phase": "Syncing", "ticket": "1", "openAttempt": open, "progress": progress});
    let holder = lab.image("first", active).await;
    lab.ledger(&holder).await;
}

fn expect_rows(lab: &Lab) {
    let queue: Value = serde_json::from_str(&lab.run(&["queue", "-o", "json"])).unwrap();
    assert_eq!(
        (&queue["limit"], &queue["active"], &queue["waiting"]),
        (&json!(1), &json!(1), &json!(3))
    );
    let rows = queue["images"].as_array().unwrap();
    let places: Vec<_> = rows.iter().map(|row| (&row["name"], &row["position"])).collect();
    let expected = json!([["first", null], ["second", 1], ["third", 2], ["blocked", null]]);
    assert_eq!(json!(places), expected);
    assert_eq!((&rows[0]["bytes"], &rows[0]["attempt"]), (&json!(1024), &json!(1)));
    assert_eq!(rows[1]["reason"], "SlotsBusy");
    assert_eq!(rows[3]["reason"], "StorageClassNotFound");
}

fn expect_lines(lab: &Lab) {
    let text = lab.run(&["queue", "--once", "-n", "default"]);
    assert!(text.starts_with("1 of 1 active, 3 waiting"), "{text}");
    assert!(text.lines().any(|line| line.contains("first") && line.contains("25%")), "{text}");
    // A cluster that knows no snapshots has none to tell of.
    let tree = lab.run(&["describe", "vmdi/second"]);
    let is_told = tree.contains("Queue: position 1 of 3 that wait\n");
    assert!(is_told && !tree.contains("Not shown"), "{tree}");
    let elsewhere = lab.run(&["queue", "--once", "-n", "other"]);
    assert!(elsewhere.contains("3 waiting") && !elsewhere.contains("second"), "{elsewhere}");
}

/// What stands there stays there, and is not taken for what is the case now.
async fn expect_to_be_told_when_it_is_followed_into_the_end_of(lab: Lab) {
    let mut command = Command::from(otctl());
    command.args(["queue", "--kubeconfig"]).arg(lab.cluster.kubeconfig_path());
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = async |part: &str| {
        let told = timeout(PATIENCE, async {
            while !lines.next_line().await.unwrap().unwrap().contains(part) {}
        });
        told.await.unwrap_or_else(|_| panic!("it never said '{part}'"));
    };
    until("default/first").await;
    lab.cluster.shutdown().await;
    until("the API server cannot be asked").await;
    child.kill().await.unwrap();
}
