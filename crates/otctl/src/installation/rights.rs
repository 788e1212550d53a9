//! The controllers' service accounts and their roles, built from the lists that the charts' are generated from.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ObjectMeta;
use kube::{Api, Client};
use otctl_kit::rbac::Rights;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};

use super::{Controller, apply_object, named};

/// Where Events about cluster-scoped objects are.
const EVENTS_NAMESPACE: &str = "default";

/// Makes the account of each controller and gives it its rights; in these namespaces Workspaces may be made.
pub(super) async fn apply(client: &Client, served: &[&str]) -> anyhow::Result<()> {
    for controller in Controller::ALL {
        let account = Account { client, name: controller.account(), rights: controller.rights() };
        account.apply(served).await?;
    }
    Ok(())
}

/// One account and what it may do.
struct Account<'a> {
    client: &'a Client,
    name: &'static str,
    rights: &'static Rights,
}

impl Account<'_> {
    async fn apply(&self, served: &[&str]) -> anyhow::Result<()> {
        let account = ServiceAccount {
            metadata: metadata(DEFAULT_NAMESPACE, self.name),
            ..ServiceAccount::default()
        };
        apply_object(&Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE), &account).await?;
        self.in_cluster(self.rights.cluster_rules()).await?;
        let (name, served_role) = (self.name, format!("{}-served", self.name));
        for namespace in served {
            self.within(namespace, &served_role, self.rights.served_rules()).await?;
        }
        let events = format!("{name}-events");
        self.within(EVENTS_NAMESPACE, &events, self.rights.event_rules()).await?;
        self.within(DEFAULT_NAMESPACE, name, self.rights.installation_rules()).await?;
        let policy = format!("{name}-policy");
        let rules = self.rights.policy_rules(DEFAULT_POLICY_NAME);
        self.within(DEFAULT_NAMESPACE, &policy, rules).await
    }

    async fn in_cluster(&self, rules: Vec<PolicyRule>) -> anyhow::Result<()> {
        let role =
            ClusterRole { metadata: named(self.name), rules: Some(rules), aggregation_rule: None };
        apply_object(&Api::all(self.client.clone()), &role).await?;
        let binding = ClusterRoleBinding {
            metadata: named(self.name),
            role_ref: reference("ClusterRole", self.name),
            subjects: Some(vec![self.subject()]),
        };
        apply_object(&Api::all(self.client.clone()), &binding).await
    }

    /// A role in a namespace; none where there is nothing in it.
    async fn within(
        &self,
        namespace: &str,
        name: &str,
        rules: Vec<PolicyRule>,
    ) -> anyhow::Result<()> {
        if rules.is_empty() {
            return Ok(());
        }
        let role = Role { metadata: metadata(namespace, name), rules: Some(rules) };
        apply_object(&Api::namespaced(self.client.clone(), namespace), &role).await?;
        let binding = RoleBinding {
            metadata: metadata(namespace, name),
            role_ref: reference("Role", name),
            subjects: Some(vec![self.subject()]),
        };
        apply_object(&Api::namespaced(self.client.clone(), namespace), &binding).await
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            namespace: Some(DEFAULT_NAMESPACE.to_owned()),
            name: self.name.to_owned(),
            api_group: None,
        }
    }
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), ..named(name) }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}
