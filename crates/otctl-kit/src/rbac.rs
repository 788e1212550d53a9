//! The rights of a controller as values: charts are generated from them, and tests run under exactly them. Which rights
//! a controller has is said in its own `rbac.rs`.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Some verbs on some resources, and why the controller needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resources, subresources included: `jobs`, `vmdiskimages/status`.
    pub resources: &'static [&'static str],
    /// The objects it is limited to; empty for all.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// What breaks without it.
    pub because: &'static str,
}

/// Every right of one controller, by where it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// In every namespace, and on cluster-scoped objects.
    pub cluster: &'static [Rule],
    /// In each of the namespaces that the controller serves, where it does not serve all of them.
    pub served: &'static [Rule],
    /// In the namespace `default`, in which Events about cluster-scoped objects are, and in that of the policy, for those
    /// about it.
    pub events: &'static [Rule],
    /// In the namespace of the installation.
    pub installation: &'static [Rule],
    /// In the namespace of the policy, on the one ConfigMap that holds it: the verbs.
    pub policy: &'static [&'static str],
}

impl Rule {
    /// The rule as the API server takes it.
    #[must_use]
    pub fn policy_rule(&self) -> PolicyRule {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(owned(self.resources)),
            resource_names: Some(owned(self.names)).filter(|names| !names.is_empty()),
            verbs: owned(self.verbs),
            ..PolicyRule::default()
        }
    }
}

impl Rights {
    /// The rules of its ClusterRole.
    #[must_use]
    pub fn cluster_rules(&self) -> Vec<PolicyRule> {
        self.cluster.iter().map(Rule::policy_rule).collect()
    }

    /// The rules of its Role in a namespace that it serves.
    #[must_use]
    pub fn served_rules(&self) -> Vec<PolicyRule> {
        self.served.iter().map(Rule::policy_rule).collect()
    }

    /// The rules of its Role in the namespace `default`.
    #[must_use]
    pub fn event_rules(&self) -> Vec<PolicyRule> {
        self.events.iter().map(Rule::policy_rule).collect()
    }

    /// The rules of its Role in the namespace of the installation.
    #[must_use]
    pub fn installation_rules(&self) -> Vec<PolicyRule> {
        self.installation.iter().map(Rule::policy_rule).collect()
    }

    /// The rules of its Role in the namespace of the policy, which is the ConfigMap `name` there: to read it, and to say what
    /// is wrong with it.
    #[must_use]
    pub fn policy_rules(&self, name: &str) -> Vec<PolicyRule> {
        let verbs = self.policy.iter().map(|verb| (*verb).to_owned()).collect();
        let policy = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["configmaps".to_owned()]),
            resource_names: Some(vec![name.to_owned()]),
            verbs,
            ..PolicyRule::default()
        };
        [policy].into_iter().chain(self.event_rules()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASES: Rule = Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &["one"],
        verbs: &["get"],
        because: "a test says so",
    };

    #[test]
    fn names_limit_a_rule() {
        let rule = LEASES.policy_rule();
        assert_eq!(rule.resource_names, Some(vec!["one".to_owned()]));
        assert_eq!(rule.verbs, ["get"]);
    }

    #[test]
    fn no_names_are_no_limit() {
        // An empty list would mean the same to the API server, but differ from what it stores.
        assert_eq!(Rule { names: &[], ..LEASES }.policy_rule().resource_names, None);
    }

    #[test]
    fn the_policy_is_one_object() {
        let rights = Rights {
            cluster: &[],
            served: &[],
            events: &[],
            installation: &[LEASES],
            policy: &["get"],
        };
        let rules = rights.policy_rules("limits");
        assert_eq!(rules[0].resource_names, Some(vec!["limits".to_owned()]));
        assert_eq!(rights.installation_rules().len(), 1);
    }
}
