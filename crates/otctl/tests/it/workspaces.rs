//! Workspaces as they are installed: what admission refuses, and what the controller does with its rights.

mod carriers;
mod crash_points;
mod deletion;
mod fleet;
mod healing;
mod label;
mod labs;
mod life;
mod lives;
mod namespaces;
mod pipeline;
mod queue;
mod retention;
mod rights;
mod trouble;
mod users;

use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, Config, ResourceExt as _};
use local_cluster::kubevirt::install_kinds;
use local_cluster::{LocalCluster, Options};
use otctl::installation::{self, Policy};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::stage::until;

/// Where Workspaces are made that name no namespace, and where others may be.
const LABS: &str = "labs";
const EXAMS: &str = "exams";

/// The cluster that the tests of admission share: what an installation puts there, and nobody who acts on it. It has no
/// nodes, so that pods are made and wait.
async fn installed() -> &'static LocalCluster {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let bare = || Options { nodes: 0, storage: false, ..Options::default() };
    let cluster = LocalCluster::shared(bare).await.unwrap();
    INSTALLED.get_or_init(|| install(cluster)).await;
    cluster
}

async fn install(cluster: &LocalCluster) {
    let admin = cluster.admin();
    installation::apply(&admin, Policy::new(), &[LABS, EXAMS]).await.unwrap();
    install_kinds(&admin).await.unwrap();
    carriers::install_kinds(&admin).await;
    installation::guard(&admin).await.unwrap();
    // Policies take a moment to act, each its own.
    let spoof = carriers::CARRIERS[0].object("spoof", Some("u"));
    until("the label is guarded", async || is_refused(&admin, &spoof).await.then_some(())).await;
    let nobody = as_user(cluster, "nobody");
    let workspace = workspace("nobodys", &json!({}));
    until("users are asked for rights", async || {
        is_refused(&nobody, &workspace).await.then_some(())
    })
    .await;
    until("queues stay", async || queue::is_guarded(&admin).await.then_some(())).await;
}

/// Whether admission refuses to create it, tried without an effect.
async fn is_refused(client: &Client, object: &Value) -> bool {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    match api(client, &object).create(&dry, &object).await {
        Err(kube::Error::Api(answer)) => answer.code == 403,
        _ => false,
    }
}

/// Where an object of that kind and namespace is.
fn api(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().unwrap();
    let kind = types.try_into().map(|kind| kube::api::ApiResource::from_gvk(&kind)).unwrap();
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// A client with every right, as which the API server sees this user: what is refused then, admission refuses.
fn almighty(cluster: &LocalCluster, user: &str) -> Client {
    acting(cluster, user, "system:masters")
}

/// A client with the rights that this user was given, and no other.
fn as_user(cluster: &LocalCluster, user: &str) -> Client {
    acting(cluster, user, "system:authenticated")
}

fn acting(cluster: &LocalCluster, user: &str, group: &str) -> Client {
    let mut config: Config = cluster.admin_config();
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec![group.to_owned()]);
    Client::try_from(config).unwrap()
}

/// A Workspace with one container and these fields besides.
fn workspace(name: &str, fields: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "web", "image": "example.com/web:1"}]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// What admission says, which must have refused.
fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> String {
    match answer {
        Err(kube::Error::Api(answer)) if answer.code == 403 => answer.message,
        other => panic!("it was not refused: {other:?}"),
    }
}
