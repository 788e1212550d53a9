//! The controller's service account and its roles, built from the list that the chart's are generated from.

use diskimage_controller::rbac::RIGHTS;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ObjectMeta;
use kube::{Api, Client};
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, DISKIMAGE_CONTROLLER};

use super::{apply_object, named};

/// The name of the role that reads the policy.
const POLICY_READER: &str = "diskimage-controller-policy";

/// Makes the account and gives it its rights.
pub(super) async fn apply(client: &Client) -> anyhow::Result<()> {
    let here = DEFAULT_NAMESPACE;
    let account =
        ServiceAccount { metadata: metadata(DISKIMAGE_CONTROLLER), ..ServiceAccount::default() };
    apply_object(&Api::namespaced(client.clone(), here), &account).await?;
    let cluster = ClusterRole {
        metadata: named(DISKIMAGE_CONTROLLER),
        rules: Some(RIGHTS.cluster_rules()),
        aggregation_rule: None,
    };
    apply_object(&Api::all(client.clone()), &cluster).await?;
    apply_object(&Api::all(client.clone()), &cluster_binding()).await?;
    let policy_rules = RIGHTS.policy_rules(DEFAULT_POLICY_NAME);
    for (name, rules) in
        [(DISKIMAGE_CONTROLLER, RIGHTS.installation_rules()), (POLICY_READER, policy_rules)]
    {
        apply_object(&Api::namespaced(client.clone(), here), &role(name, rules)).await?;
        apply_object(&Api::namespaced(client.clone(), here), &binding(name)).await?;
    }
    Ok(())
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(DEFAULT_NAMESPACE.to_owned()), ..named(name) }
}

fn role(name: &str, rules: Vec<PolicyRule>) -> Role {
    Role { metadata: metadata(name), rules: Some(rules) }
}

fn binding(name: &str) -> RoleBinding {
    RoleBinding {
        metadata: metadata(name),
        role_ref: reference("Role", name),
        subjects: Some(vec![subject()]),
    }
}

fn cluster_binding() -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: named(DISKIMAGE_CONTROLLER),
        role_ref: reference("ClusterRole", DISKIMAGE_CONTROLLER),
        subjects: Some(vec![subject()]),
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn subject() -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        namespace: Some(DEFAULT_NAMESPACE.to_owned()),
        name: DISKIMAGE_CONTROLLER.to_owned(),
        api_group: None,
    }
}
