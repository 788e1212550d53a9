//! What an API server makes of the charts: admission, rights, the guard of the ledger.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use otctl_types::AdmissionQueue;
use serde_json::{Value, json};
use xtask::charts::{self, CHARTS, NAMESPACE};

use crate::support::Installation;

const ACCOUNT: &str = "diskimage-controller";
/// Charts of controllers, which by default are called like their accounts.
const CONTROLLERS: [&str; 2] = [ACCOUNT, "workspace-controller"];

fn status_of<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("not an answer of the API server: {other}"),
    }
}

fn queue(name: &str) -> Value {
    json!({"apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": name}})
}

#[tokio::test]
async fn pods_are_admitted_where_restricted_is_enforced() {
    let installed = Installation::shared().await;
    for controller in CONTROLLERS {
        let pod = installed.wait_for("a pod of the controller", |installed| {
            let selector = format!("app.kubernetes.io/name={controller}");
            let list =
                ["get", "pods", "--namespace", NAMESPACE, "--selector", &selector, "--output=json"];
            let pods: Value = serde_json::from_str(&installed.kubectl(&list).unwrap()).unwrap();
            pods["items"].get(0).cloned()
        });
        assert_eq!(pod.await["spec"]["serviceAccountName"], controller);
    }
}

#[tokio::test]
async fn every_value_is_taken_by_a_server() {
    let installed = Installation::shared().await;
    for chart in CHARTS {
        let values = charts::full_values(chart);
        let folder = charts::folder(chart);
        let install = [
            "install",
            "dry-run",
            folder.to_str().unwrap(),
            "--dry-run=server",
            "--values",
            values.to_str().unwrap(),
        ];
        // The objects of another release are there already; a dry run of its own names meets none.
        let rename = ["--namespace", "default", "--take-ownership"];
        installed.helm(&[&install[..], &rename[..]].concat()).unwrap();
    }
    let helm = charts::helm().unwrap();
    for chart in CONTROLLERS {
        let values = charts::full_values(chart);
        let rendered = charts::render(&helm, chart, Some(&values), &["policy.namespace=default"]);
        let file = installed.cluster.state_dir().join(format!("full-{chart}.yaml"));
        std::fs::write(&file, rendered.unwrap()).unwrap();
        let apply =
            ["apply", "--dry-run=server", "--validate=strict", "-f", file.to_str().unwrap()];
        installed.kubectl(&apply).unwrap();
    }
}

#[tokio::test]
async fn the_notes_print_commands_that_work() {
    let installed = Installation::shared().await;
    for chart in CONTROLLERS {
        let manifest = manifest(&installed.notes[chart]);
        let file = installed.cluster.state_dir().join(format!("printed-{chart}.yaml"));
        std::fs::write(&file, manifest).unwrap();
        let apply =
            ["apply", "--dry-run=server", "--validate=strict", "-f", file.to_str().unwrap()];
        installed.kubectl(&apply).unwrap();
    }
    let printed: Value = serde_saphyr::from_str(manifest(&installed.notes[ACCOUNT])).unwrap();
    let example = xtask::repository::read("examples/policy.yaml").unwrap();
    let example: Value = serde_saphyr::from_str(&example).unwrap();
    assert_eq!(printed, example);
}

/// The manifest that notes print.
fn manifest(notes: &str) -> &str {
    let (_, rest) = notes.split_once("<<'YAML'\n").unwrap();
    rest.split_once("\nYAML").unwrap().0
}

#[tokio::test]
async fn a_ledger_is_deleted_only_on_purpose() {
    let installed = Installation::shared().await;
    let queues: Api<AdmissionQueue> = Api::all(installed.cluster.admin());
    let apply = PatchParams::apply("test");
    queues.patch("guarded", &apply, &Patch::Apply(&queue("guarded"))).await.unwrap();
    // A new policy takes a moment to act.
    let refusal = installed.wait_for("a refusal", |installed| {
        installed.kubectl(&["delete", "aq", "guarded", "--dry-run=server"]).err()
    });
    let refusal = refusal.await.to_string();
    assert!(
        refusal.contains("kubectl annotate admissionqueue guarded pelotech.ot/force-delete=true"),
        "{refusal}"
    );

    assert_eq!(status_of(queues.delete("guarded", &DeleteParams::default()).await), 403);
    assert_eq!(
        status_of(queues.delete_collection(&DeleteParams::default(), &ListParams::default()).await),
        403
    );
    installed.kubectl(&["annotate", "aq", "guarded", "pelotech.ot/force-delete=yes"]).unwrap();
    assert_eq!(status_of(queues.delete("guarded", &DeleteParams::default()).await), 403);
    installed
        .kubectl(&["annotate", "--overwrite", "aq", "guarded", "pelotech.ot/force-delete=true"])
        .unwrap();
    assert_eq!(status_of(queues.delete("guarded", &DeleteParams::default()).await), 200);
}

/// A kind as a controller's client sees it.
fn api(
    client: kube::Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

#[tokio::test]
async fn the_account_makes_its_own_ledger_and_lease_and_no_other() {
    let installed = Installation::shared().await;
    let client = installed.cluster.service_account_client(NAMESPACE, ACCOUNT).await.unwrap();
    let apply = PatchParams::apply(ACCOUNT).force();
    let queues = api(client.clone(), "pelotech.ot", "v1alpha1", "AdmissionQueue", None);
    for (name, expected) in [("vmdiskimages", 200), ("vmdiskimages", 200), ("datasyncs", 403)] {
        assert_eq!(
            status_of(queues.patch(name, &apply, &Patch::Apply(&queue(name))).await),
            expected,
            "{name}"
        );
    }
    let posted: DynamicObject = serde_json::from_value(queue("vmdiskimages")).unwrap();
    assert_eq!(status_of(queues.create(&PostParams::default(), &posted).await), 403);
    assert_eq!(status_of(queues.delete("vmdiskimages", &DeleteParams::default()).await), 403);

    let leases = api(client, "coordination.k8s.io", "v1", "Lease", Some(NAMESPACE));
    for (name, expected) in [(ACCOUNT, 200), ("other", 403)] {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        assert_eq!(
            status_of(leases.patch(name, &apply, &Patch::Apply(&lease)).await),
            expected,
            "{name}"
        );
    }
    let mut held = leases.get(ACCOUNT).await.unwrap();
    held.data["spec"]["holderIdentity"] = json!("somebody");
    assert_eq!(status_of(leases.replace(ACCOUNT, &PostParams::default(), &held).await), 200);
}

#[tokio::test]
async fn the_account_reads_the_policy_and_nothing_beside_it() {
    let installed = Installation::shared().await;
    let client = installed.cluster.service_account_client(NAMESPACE, ACCOUNT).await.unwrap();
    let maps = api(client.clone(), "", "v1", "ConfigMap", Some(NAMESPACE));
    assert_eq!(status_of(maps.get("sync-operator-policy").await), 404);
    let one = ListParams::default().fields("metadata.name=sync-operator-policy");
    assert_eq!(status_of(maps.list(&one).await), 200);
    assert_eq!(status_of(maps.list(&ListParams::default()).await), 403);
    assert_eq!(status_of(maps.get("kube-root-ca.crt").await), 403);

    let secrets = api(client.clone(), "", "v1", "Secret", Some(NAMESPACE));
    assert_eq!(status_of(secrets.list(&ListParams::default()).await), 403);
    assert_eq!(status_of(secrets.get("any").await), 403);
    let images = api(client, "pelotech.ot", "v1alpha1", "VMDiskImage", Some("default"));
    assert_eq!(status_of(images.list(&ListParams::default()).await), 200);
    assert_eq!(status_of(images.delete("any", &DeleteParams::default()).await), 403);
}

#[tokio::test]
async fn objects_outlive_the_release_of_their_definitions() {
    let installed = Installation::shared().await;
    let queues: Api<AdmissionQueue> = Api::all(installed.cluster.admin());
    queues.patch("kept", &PatchParams::apply("test"), &Patch::Apply(&queue("kept"))).await.unwrap();
    installed.helm(&["uninstall", "otctl-crds", "--namespace", NAMESPACE]).unwrap();
    assert!(queues.get_opt("kept").await.unwrap().is_some());
    // What was kept is taken up again.
    installed.install_chart("otctl-crds").unwrap();
    assert!(queues.get_opt("kept").await.unwrap().is_some());
}
