//! The label of a workspace: nobody but the controller sets it, changes it or takes it off, wherever it may stand.

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use local_cluster::audit::service_account_user;
use local_cluster::programs::{Program, Sources};
use local_cluster::{LocalCluster, Progress};
use otctl_types::names::{DEFAULT_NAMESPACE, WORKSPACE_CONTROLLER, WORKSPACE_LABEL};
use serde_json::{Value, json};

use super::carriers::{CARRIERS, Carrier};
use super::{LABS, almighty, api, installed, refusal};
use crate::stage::until;

const SENTENCE: &str = "only the workspace controller sets, changes or removes it";

fn controller(cluster: &LocalCluster) -> Client {
    almighty(cluster, &service_account_user(DEFAULT_NAMESPACE, WORKSPACE_CONTROLLER))
}

async fn create(client: &Client, object: &DynamicObject) -> kube::Result<Value> {
    let made = api(client, object).create(&PostParams::default(), object).await?;
    Ok(serde_json::to_value(made).unwrap())
}

async fn change(client: &Client, object: &DynamicObject, patch: &Value) -> kube::Result<Value> {
    let api = api(client, object);
    let changed =
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(serde_json::to_value(changed).unwrap())
}

fn expect_refused(answer: kube::Result<Value>, what: &str) {
    let told = refusal(answer);
    assert!(told.contains(SENTENCE), "{what}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_neither_sets_nor_changes_nor_removes_it() {
    let cluster = installed().await;
    let (stranger, controller) = (cluster.admin(), controller(cluster));
    for carrier in &CARRIERS {
        let kind = carrier.kind;
        let labelled = carrier.dynamic("a-labelled", Some("u-1"));
        expect_refused(create(&stranger, &labelled).await, &format!("{kind} with the label"));
        let empty = carrier.dynamic("a-labelled", Some(""));
        expect_refused(create(&stranger, &empty).await, &format!("{kind} with an empty label"));
        let mut generated = labelled.clone();
        generated.metadata.name = None;
        generated.metadata.generate_name = Some("a-".to_owned());
        expect_refused(create(&stranger, &generated).await, &format!("{kind} of a generated name"));

        let plain = carrier.dynamic("a-plain", None);
        create(&stranger, &plain).await.unwrap();
        create(&controller, &labelled).await.unwrap();
        if !carrier.is_frozen {
            expect_guarded(&stranger, carrier, &plain, &labelled).await;
        }
        expect_kept(&stranger, carrier, &labelled).await;
    }
}

/// What is there gets no label from a stranger, and keeps the one that it has.
async fn expect_guarded(
    stranger: &Client,
    carrier: &Carrier,
    plain: &DynamicObject,
    labelled: &DynamicObject,
) {
    let to = |value: &Value| carrier.patch(value);
    for (object, value, what) in [
        (plain, json!("u-1"), "is added"),
        (labelled, json!("u-2"), "is changed"),
        (labelled, Value::Null, "is removed"),
    ] {
        let what = format!("the label of a {} {what}", carrier.kind);
        expect_refused(change(stranger, object, &to(&value)).await, &what);
    }
}

/// Whatever else is changed may be, by a patch, a whole object and an apply.
async fn expect_kept(stranger: &Client, carrier: &Carrier, labelled: &DynamicObject) {
    let note = |text: &str| json!({"metadata": {"annotations": {"note": text}}});
    let changed = change(stranger, labelled, &note("patched")).await.unwrap();
    assert_eq!(carrier.label(&changed), Some("u-1"), "{}", carrier.kind);
    let api = api(stranger, labelled);
    // Its own controller writes its status meanwhile.
    until("the whole object is written", async || {
        let mut whole = api.get(&labelled.name_any()).await.unwrap();
        whole.annotations_mut().insert("note".to_owned(), "replaced".to_owned());
        match api.replace(&labelled.name_any(), &PostParams::default(), &whole).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => None,
            answer => Some(answer.unwrap()),
        }
    })
    .await;
    let applied = json!({
        "apiVersion": carrier.version, "kind": carrier.kind,
        "metadata": {"name": labelled.name_any(), "annotations": {"another": "applied"}},
    });
    if carrier.version.contains("kubevirt.io") {
        let apply = PatchParams::apply("a-person");
        api.patch(&labelled.name_any(), &apply, &Patch::Apply(&applied)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_makes_one_from_the_other_passes_it_on_and_does_nothing_else() {
    let cluster = installed().await;
    let kube = |name: &str| service_account_user("kube-system", name);
    let kubevirt = service_account_user("kubevirt", "kubevirt-controller");
    let makers = [
        (kube("deployment-controller"), &["ReplicaSet"][..]),
        (kube("replicaset-controller"), &["Pod"]),
        (kubevirt, &["Pod", "VirtualMachineInstance"]),
        (kube("replication-controller"), &[]),
        (kube("statefulset-controller"), &[]),
        (kube("daemon-set-controller"), &[]),
        (kube("job-controller"), &[]),
        (kube("cronjob-controller"), &[]),
        (kube("generic-garbage-collector"), &[]),
        ("system:node:node-0".to_owned(), &[]),
        // The same account elsewhere.
        (service_account_user(LABS, WORKSPACE_CONTROLLER), &[]),
    ];
    for (number, (user, makes)) in makers.iter().enumerate() {
        let client = almighty(cluster, user);
        for carrier in &CARRIERS {
            let made = carrier.dynamic(&format!("of-{number}"), Some("u-1"));
            let answer = create(&client, &made).await;
            if !makes.contains(&carrier.kind) {
                expect_refused(answer, &format!("a {} by {user}", carrier.kind));
                continue;
            }
            answer.unwrap_or_else(|error| panic!("a {} by {user}: {error}", carrier.kind));
            let patch = carrier.patch(&json!("u-2"));
            expect_refused(change(&client, &made, &patch).await, &format!("a change by {user}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_controllers_own_deployment_are_made_with_it() {
    let cluster = installed().await;
    let deployment = CARRIERS.iter().find(|carrier| carrier.kind == "Deployment").unwrap();
    let mut deployment = deployment.dynamic("made", Some("u-3"));
    deployment.data["spec"]["replicas"] = json!(2);
    // With the rights of its role and no other.
    let account =
        cluster.service_account_client(DEFAULT_NAMESPACE, WORKSPACE_CONTROLLER).await.unwrap();
    create(&account, &deployment).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), LABS);
    let selector = ListParams::default().labels(&format!("{WORKSPACE_LABEL}=u-3"));
    until("both pods are made", async || {
        (pods.list(&selector).await.unwrap().items.len() == 2).then_some(())
    })
    .await;
    let pod = pods.list(&selector).await.unwrap().items.remove(0).name_any();
    for label in [format!("{WORKSPACE_LABEL}-"), format!("{WORKSPACE_LABEL}=u-4")] {
        let told = kubectl(cluster, &["label", "--overwrite", "pod", &pod, &label]).unwrap_err();
        assert!(told.contains(SENTENCE), "{told}");
    }
    kubectl(cluster, &["label", "pod", &pod, "note=kept"]).unwrap();
    let run =
        ["run", "spoof", "--image=example.com/a:1", &format!("--labels={WORKSPACE_LABEL}=u-3")];
    assert!(kubectl(cluster, &run).unwrap_err().contains(SENTENCE));
}

fn kubectl(cluster: &LocalCluster, arguments: &[&str]) -> Result<(), String> {
    let found = Sources::from_env().unwrap();
    let programs = found.find_or_build(&[Program::Kubectl], &Progress::default()).unwrap();
    let mut kubectl = Command::new(&programs[&Program::Kubectl]);
    kubectl.arg("--kubeconfig").arg(cluster.kubeconfig_path()).args(["-n", LABS]);
    let output = kubectl.args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(told) }
}

/// Who writes the status of a pod can write its labels beside it; so may who binds it, from Kubernetes 1.35 on.
#[tokio::test(flavor = "multi_thread")]
async fn no_subresource_of_a_pod_is_a_way_around() {
    let cluster = installed().await;
    let (stranger, carrier) = (cluster.admin(), &CARRIERS[0]);
    let (plain, labelled) =
        (carrier.dynamic("s-plain", None), carrier.dynamic("s-labelled", Some("u-1")));
    create(&stranger, &plain).await.unwrap();
    create(&controller(cluster), &labelled).await.unwrap();
    let pods = api(&stranger, &plain);
    let params = PatchParams::default();
    for (name, value) in
        [("s-plain", json!("u-1")), ("s-labelled", json!("u-2")), ("s-labelled", Value::Null)]
    {
        let mut patch = carrier.patch(&value);
        patch["status"] = json!({"message": "as a node writes it"});
        let told = refusal(pods.patch_status(name, &params, &Patch::Merge(&patch)).await);
        assert!(told.contains(SENTENCE), "{told}");
        for other in ["resize", "ephemeralcontainers"] {
            // The API server takes nothing else from these; refused or not, the labels stay.
            let patch = carrier.patch(&value);
            let _ = pods.patch_subresource(other, name, &params, &Patch::Merge(&patch)).await;
            let pod = serde_json::to_value(pods.get(name).await.unwrap()).unwrap();
            let expected = (name == "s-labelled").then_some("u-1");
            assert_eq!(carrier.label(&pod), expected, "{name} after {other}");
        }
    }
    let status = json!({"status": {"message": "of a node"}});
    pods.patch_status("s-labelled", &params, &Patch::Merge(&status)).await.unwrap();
    expect_bindings_guarded(&stranger).await;
}

async fn expect_bindings_guarded(stranger: &Client) {
    let binding = |labels: Value| {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "s-plain", "namespace": LABS, "labels": labels},
            "target": {"kind": "Node", "name": "none"},
        });
        serde_json::to_vec(&binding).unwrap()
    };
    for path in ["pods/s-plain/binding", "bindings"] {
        let url = format!("/api/v1/namespaces/{LABS}/{path}");
        let bind = async |labels: Value| {
            let request = http::Request::post(&url).header("content-type", "application/json");
            let request = request.body(binding(labels)).unwrap();
            stranger.request::<Value>(request).await
        };
        let told = refusal(bind(json!({WORKSPACE_LABEL: "u-1"})).await);
        assert!(told.contains(SENTENCE), "{path}: {told}");
    }
}

/// A guard that fails on an object of a shape that it did not think of would refuse it.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_labels_at_all_is_nobodys_business() {
    let stranger = installed().await.admin();
    for carrier in &CARRIERS {
        for (number, labels) in [json!({}), Value::Null].into_iter().enumerate() {
            let mut object = carrier.object(&format!("bare-{number}"), None);
            for path in
                ["/metadata", "/spec/template/metadata", "/spec/jobTemplate/spec/template/metadata"]
            {
                if let Some(metadata) = object.pointer_mut(path) {
                    metadata["labels"] = labels.clone();
                }
            }
            expect_not_guarded(&stranger, object, carrier.kind).await;
        }
    }
    for (kind, spec) in [
        ("VirtualMachine", json!({"template": null})),
        ("VirtualMachine", json!({"template": {"metadata": null}})),
        ("VirtualMachine", json!({"template": {"metadata": {"labels": null}}})),
        ("VirtualMachine", json!({"template": {"metadata": {}}})),
        ("VirtualMachineInstanceReplicaSet", json!({"template": "a text"})),
        ("VirtualMachineInstanceReplicaSet", json!(null)),
    ] {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {"name": "bare", "namespace": LABS}, "spec": spec,
        });
        expect_not_guarded(&stranger, object, &format!("{kind} {spec}")).await;
    }
}

/// It may be refused, for want of a selector, say, but not by the guard.
async fn expect_not_guarded(client: &Client, object: Value, what: &str) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    if let Err(error) = api(client, &object).create(&dry, &object).await {
        let told = error.to_string();
        assert!(!told.contains("ValidatingAdmissionPolicy"), "{what}: {told}");
    }
}
