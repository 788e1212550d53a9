//! The queue of a real API server, as programs and people read it. No controller runs, so what is read stays as it is.

use std::path::Path;
use std::process::Stdio;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use local_cluster::{LocalCluster, Options};
use otctl_types::diskimage::AccessMode;
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage, VMDiskImageSpec, Workspace};
use policy::Policy;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::stage::{PATIENCE, until};
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

    async fn workspace(&self, name: &str, status: Value) -> Workspace {
        let workspaces: Api<Workspace> = Api::all(self.client.clone());
        let workspace = serde_json::from_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
            "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
        }));
        let workspace =
            workspaces.create(&PostParams::default(), &workspace.unwrap()).await.unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        workspaces.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        workspace
    }

    /// A ledger with one slot, and who holds it.
    async fn ledger(&self, name: &str, holder: &impl ResourceExt) {
        let queues: Api<AdmissionQueue> = Api::all(self.client.clone());
        let queue = AdmissionQueue::new(name, AdmissionQueueSpec::default());
        queues.create(&PostParams::default(), &queue).await.unwrap();
        let policy = Policy { concurrency: 1, workspace_concurrency: 1, ..Policy::default() };
        let entry = json!({
            "namespace": holder.namespace().unwrap_or_default(), "name": holder.name_any(),
            "uid": holder.uid(), "attempt": 1, "ticket": "1", "since": "2026-05-01T12:00:00Z",
        });
        let status = json!({"limit": 1, "active": [entry], "policy": policy.to_entries()});
        let patch = Patch::Merge(json!({"status": status}));
        queues.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
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
    expect_both_queues(&lab).await;
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
    lab.ledger("vmdiskimages", &holder).await;
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

/// One workspace that starts, one that waits for its turn, and one that waits for an image.
async fn expect_both_queues(lab: &Lab) {
    let of_images = lab.run(&["queue", "--once"]);
    let alone = lab.run(&["queue", "workspaces", "--once"]);
    assert!(alone.starts_with("0 of ? active, 0 waiting\n"), "{alone}");
    let waits = |ticket: &str, reason: &str, message: &str| {
        let condition = |kind: &str| {
            json!({"type": kind, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-05-01T12:00:00Z"})
        };
        json!({"phase": "Provisioning", "namespace": "labs", "ticket": ticket, "message": message,
            "conditions": [condition("Admitted"), condition("Ready")], "readyParts": "0/1"})
    };
    lab.workspace("held", waits("0", "AwaitingImages", "an image is waited for")).await;
    lab.workspace("next", waits("2", "SlotsBusy", "waits for a slot")).await;
    let open = json!({"phase": "Provisioning", "ticket": "1", "readyParts": "0/1",
        "openTurn": {"number": 1, "since": "2026-05-01T12:00:00Z"}});
    let holder = lab.workspace("starts", open).await;
    lab.ledger("workspaces", &holder).await;

    let text = lab.run(&["queue", "--once"]);
    let (images, workspaces) = text.split_once("\n\n").unwrap();
    assert_eq!(images, format!("vmdiskimages: {}", of_images.trim_end()));
    assert!(workspaces.starts_with("workspaces: 1 of 1 active, 2 waiting\n"), "{text}");
    assert!(workspaces.contains("waits for a slot"), "{text}");
    assert_eq!(lab.run(&["queue", "images", "--once", "-A"]), of_images);
    expect_rows_of_workspaces(lab);
    expect_what_may_be_seen(lab).await;
}

fn expect_rows_of_workspaces(lab: &Lab) {
    let all: Value = serde_json::from_str(&lab.run(&["queue", "-o", "json"])).unwrap();
    assert_eq!((&all["active"], &all["workspaces"]["active"]), (&json!(1), &json!(1)));
    let one: Value = serde_json::from_str(&lab.run(&["queue", "ws", "-o", "json"])).unwrap();
    assert_eq!(one, json!({"workspaces": all["workspaces"]}));
    let rows = one["workspaces"]["workspaces"].as_array().unwrap();
    let places: Vec<_> =
        rows.iter().map(|row| json!([row["name"], row["position"], row["reason"]])).collect();
    let expected = json!([
        ["starts", null, "Admitted"],
        ["next", 1, "SlotsBusy"],
        ["held", null, "AwaitingImages"],
    ]);
    assert_eq!(json!(places), expected);
    assert_eq!(rows[0]["activeSince"], "2026-05-01T12:00:00Z");
}

/// Whoever may see one of the queues sees that one, and is told what is missing.
async fn expect_what_may_be_seen(lab: &Lab) {
    let (name, client) = ("looker", &lab.client);
    let parts = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": ["pelotech.ot"], "resources": ["workspaces", "admissionqueues"],
                "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]}),
    ];
    apply(client, &parts).await;
    let access = lab.cluster.service_account_kubeconfig("default", name).await.unwrap();
    let ran = |arguments: &[&str]| {
        otctl().args(arguments).arg("--kubeconfig").arg::<&Path>(&access).output().unwrap()
    };
    let output = until("the rights are there", async || {
        Some(ran(&["queue", "--once"])).filter(|output| output.status.success())
    })
    .await;
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(out.starts_with("1 of 1 active, 2 waiting\n"), "{out}");
    assert!(err.starts_with("not shown: VMDiskImages cannot be listed: "), "{err}");
    let refused = ran(&["queue", "vmdiskimages", "--once"]);
    assert_eq!(refused.status.code(), Some(1));
}

async fn apply(client: &Client, parts: &[Value]) {
    for part in parts {
        let object: DynamicObject = serde_json::from_value(part.clone()).unwrap();
        let types = object.types.clone().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("test").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.unwrap();
    }
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
