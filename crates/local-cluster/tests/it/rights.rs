//! A service account may do what it was given, and nothing else.

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec},
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use local_cluster::{LocalCluster, audit::service_account_user, certificates::Subject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::support::shared;

const NOTHING: Value = json!([]);

async fn create<K>(client: Client, namespace: &str, object: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client, namespace);
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A question to the API server: about the worker of a namespace, or about nobody in particular.
fn may(verb: &str, namespace: Option<&str>) -> SubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        verb: Some(verb.to_owned()),
        resource: Some("configmaps".to_owned()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: namespace.map(|namespace| service_account_user(namespace, "worker")),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

/// A namespace with the account `worker`, which has these rights in it.
async fn worker(cluster: &LocalCluster, rules: Value) -> String {
    let namespace = cluster.namespace("rights").await.unwrap();
    let admin = cluster.admin();
    let metadata = json!({ "name": "worker" });
    create::<ServiceAccount>(admin.clone(), &namespace, json!({ "metadata": metadata })).await;
    let role = json!({ "metadata": metadata, "rules": rules });
    create::<Role>(admin.clone(), &namespace, role).await;
    let binding = json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker" },
        "subjects": [{ "kind": "ServiceAccount", "name": "worker", "namespace": namespace }],
    });
    create::<RoleBinding>(admin, &namespace, binding).await;
    namespace
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API server: {other}"),
    }
}

#[tokio::test]
async fn an_account_without_rights_is_refused() {
    let cluster = shared().await;
    let namespace = worker(cluster, NOTHING).await;
    let client = cluster.service_account_client(&namespace, "worker").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    assert_eq!(code(maps.list(&ListParams::default()).await.unwrap_err()), 403);
}

#[tokio::test]
async fn an_account_does_what_its_role_says_and_no_more() {
    let cluster = shared().await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]);
    let namespace = worker(cluster, rules).await;
    cluster.await_right(may("list", Some(&namespace))).await.unwrap();
    let path = cluster.service_account_kubeconfig(&namespace, "worker").await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    assert!(!maps.list(&ListParams::default()).await.unwrap().items.is_empty());
    let map = serde_json::from_value(json!({ "metadata": { "name": "new" } })).unwrap();
    assert_eq!(code(maps.create(&PostParams::default(), &map).await.unwrap_err()), 403);
}

#[tokio::test]
async fn blocking_an_owners_deletion_takes_the_right_to_its_finalizers() {
    let cluster = shared().await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] }]);
    let namespace = worker(cluster, rules).await;
    let admin: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let owner = serde_json::from_value(json!({ "metadata": { "name": "owner" } })).unwrap();
    let owner = admin.create(&PostParams::default(), &owner).await.unwrap();
    let owned =
        serde_json::from_value(json!({ "metadata": { "name": "owned", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
            "blockOwnerDeletion": true,
        }]}}));
    cluster.await_right(may("create", Some(&namespace))).await.unwrap();
    let client = cluster.service_account_client(&namespace, "worker").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let refusal = maps.create(&PostParams::default(), &owned.unwrap()).await.unwrap_err();
    assert_eq!(code(refusal), 403);
}

#[tokio::test]
async fn a_missing_account_gets_no_client() {
    let cluster = shared().await;
    assert!(cluster.service_account_client("default", "nobody").await.is_err());
}

#[tokio::test]
async fn a_client_certificate_names_a_user_and_a_group() {
    let cluster = shared().await;
    let reader = Subject { user: "ada", group: Some("readers") };
    let client = cluster.client_as(reader).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    assert_eq!(code(maps.list(&ListParams::default()).await.unwrap_err()), 403);

    let name = json!({ "name": "local-cluster-readers" });
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]);
    let role = json!({ "metadata": name, "rules": rules });
    let binding = json!({
        "metadata": name,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name["name"] },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers" }],
    });
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(cluster.admin()), Api::all(cluster.admin()));
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let groups = Some(vec!["readers".to_owned()]);
    cluster.await_right(SubjectAccessReviewSpec { groups, ..may("list", None) }).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
}
