//! The queue of a real API server, as programs and people read it. No controller runs, so what is read stays as it is.

use std::path::Path;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use local_cluster::{LocalCluster, Options};
use otctl_types::diskimage::AccessMode;
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage, VMDiskImageSpec};
use policy::Policy;
use serde_json::{Value, json};

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

fn queued(ticket: &str) -> Value {
    json!({"phase": "Queued", "ticket": ticket})
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_computed_from_the_objects() {
    let lab = Lab::start().await;
    let refused = otctl()
        .args(["queue", "--once", "--kubeconfig"])
        .arg(lab.cluster.kubeconfig_path())
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("VMDiskImages cannot be listed"),
        "no kinds are installed"
    );
    let applied = lab.run(&["crds", "--apply"]);
    assert!(applied.contains("vmdiskimages.pelotech.ot applied"), "{applied}");

    lab.image("third", queued("3")).await;
    lab.image("second", queued("2")).await;
    let progress = json!({"bytes": 1024, "totalBytes": 4096});
    let open = json!({"number": 1, "jobUID": "job"});
    let active =
        json!({"phase": "Syncing", "ticket": "1", "openAttempt": open, "progress": progress});
    let holder = lab.image("first", active).await;
    lab.ledger(&holder).await;

    let queue: Value = serde_json::from_str(&lab.run(&["queue", "-o", "json"])).unwrap();
    assert_eq!(
        (&queue["limit"], &queue["active"], &queue["waiting"]),
        (&json!(1), &json!(1), &json!(2))
    );
    let rows: Vec<_> = queue["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["name"], &row["position"]))
        .collect();
    let expected = [("first", Value::Null), ("second", json!(1)), ("third", json!(2))];
    assert!(
        rows.iter().zip(&expected).all(|((a, b), (x, y))| *a == x && *b == y) && rows.len() == 3,
        "{rows:?}"
    );
    assert_eq!(
        (&queue["images"][0]["bytes"], &queue["images"][0]["attempt"]),
        (&json!(1024), &json!(1))
    );
    assert_eq!(queue["images"][1]["reason"], "SlotsBusy");

    let text = lab.run(&["queue", "--once", "-n", "default"]);
    assert!(text.starts_with("1 of 1 active, 2 waiting"), "{text}");
    assert!(text.lines().any(|line| line.contains("first") && line.contains("25%")), "{text}");
    let elsewhere = lab.run(&["queue", "--once", "-n", "other"]);
    assert!(elsewhere.contains("2 waiting") && !elsewhere.contains("second"), "{elsewhere}");
    lab.cluster.shutdown().await;
}
