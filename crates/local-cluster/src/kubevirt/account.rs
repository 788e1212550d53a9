//! The account under which KubeVirt's controllers act, with what the stand-in needs.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ACCOUNT, KubeVirtError, NAMESPACE};

/// Creates the account and its rights, or brings them back to what they were.
pub(super) async fn install(client: &Client) -> Result<(), KubeVirtError> {
    let namespace: Namespace = from(json!({"metadata": {"name": NAMESPACE}}));
    apply(&Api::all(client.clone()), &namespace).await?;
    let account: ServiceAccount =
        from(json!({"metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}));
    apply(&in_namespace(client), &account).await?;
    let role: ClusterRole = from(json!({"metadata": {"name": ACCOUNT}, "rules": rules()}));
    apply(&Api::all(client.clone()), &role).await?;
    let binding: ClusterRoleBinding = from(json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }));
    apply(&Api::all(client.clone()), &binding).await
}

fn rules() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!([
        rule("", &["pods"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["persistentvolumeclaims"], &["get"]),
        rule("kubevirt.io", &["virtualmachines"], &["get", "list", "watch", "patch"]),
        rule("kubevirt.io", &["virtualmachines/status", "virtualmachines/finalizers"], &["update"]),
        rule(
            "kubevirt.io",
            &["virtualmachineinstances"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        rule("kubevirt.io", &["virtualmachineinstances/finalizers"], &["update"]),
    ])
}

fn from<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the object is written here")
}

fn in_namespace<K>(client: &Client) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn apply<K>(api: &Api<K>, object: &K) -> Result<(), KubeVirtError>
where
    K: Resource + k8s_openapi::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let params = PatchParams::apply("local-cluster").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(object)).await?;
    Ok(())
}
