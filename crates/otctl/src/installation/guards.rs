//! What admission refuses by mistake or by right, as the charts have it: read from the charts, so that there is one text.

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER, WORKSPACE_CONTROLLER};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{WORKSPACE_NAMESPACE, apply_object};

/// A controller, what is behind its name, and a template of its chart.
type Template = (&'static str, &'static str, &'static str);

/// Deleting the ledger of either queue, the label of workspaces, and what a Workspace asks for in a user's name.
const TEMPLATES: [Template; 4] = [
    (
        DISKIMAGE_CONTROLLER,
        "queue-deletion",
        include_str!("../../../../charts/diskimage-controller/templates/deletionguard.yaml"),
    ),
    (
        WORKSPACE_CONTROLLER,
        "queue-deletion",
        include_str!("../../../../charts/workspace-controller/templates/deletionguard.yaml"),
    ),
    (
        WORKSPACE_CONTROLLER,
        "label",
        include_str!("../../../../charts/workspace-controller/templates/labelguard.yaml"),
    ),
    (
        WORKSPACE_CONTROLLER,
        "user",
        include_str!("../../../../charts/workspace-controller/templates/userguard.yaml"),
    ),
];
/// What the templates take from the values of their chart.
const VALUES: &str = include_str!("../../../../charts/workspace-controller/values.yaml");

/// Installs all of them.
pub(super) async fn apply(client: &Client) -> anyhow::Result<()> {
    for template in TEMPLATES {
        let (policy, binding) = objects(template)?;
        apply_object(&Api::all(client.clone()), &policy).await?;
        apply_object(&Api::all(client.clone()), &binding).await?;
    }
    Ok(())
}

fn objects(
    template: Template,
) -> anyhow::Result<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    let text = rendered(template)?;
    let (policy, binding) =
        text.split_once("\n---\n").context("a guard of a chart is a policy and a binding")?;
    Ok((object(policy)?, object(binding)?))
}

/// Without conditions and labels, which are lines of their own, and with what the chart puts in by default.
fn rendered((controller, what, template): Template) -> anyhow::Result<String> {
    let values: Value =
        serde_saphyr::from_str(VALUES).context("the chart's values cannot be read as YAML")?;
    let users = |name: &str| values["labelGuard"][name].to_string();
    let lines = template.lines().filter(|line| !line.trim_start().starts_with("{{-"));
    let lines = lines.filter(|line| line.trim() != "labels:");
    let text = lines.collect::<Vec<_>>().join("\n");
    Ok(text
        .replace("{{ $name }}", &format!("{controller}-{what}"))
        .replace("{{ $user }}", &format!("system:serviceaccount:{DEFAULT_NAMESPACE}:{controller}"))
        .replace(
            "{{ $releaseUser }}",
            &format!("system:serviceaccount:{DEFAULT_NAMESPACE}:{controller}-release"),
        )
        .replace("{{ $defaultNamespace }}", WORKSPACE_NAMESPACE)
        .replace("{{ $replicaSetUsers }}", &users("replicaSetUsers"))
        .replace("{{ $podUsers }}", &users("podUsers"))
        .replace("{{ $kubevirtUsers }}", &users("kubevirtUsers")))
}

fn object<K: DeserializeOwned>(document: &str) -> anyhow::Result<K> {
    let tree: Value = serde_saphyr::from_str(document).context("a guard cannot be read as YAML")?;
    serde_json::from_value(tree).context("a guard is not of its kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_template_is_left_and_its_two_objects_belong_together() {
        for template in TEMPLATES {
            let text = rendered(template).unwrap();
            assert!(!text.contains("{{"), "{text}");
            let (policy, binding) = objects(template).unwrap();
            assert_eq!(binding.spec.unwrap().policy_name, policy.metadata.name);
            let spec = policy.spec.unwrap();
            let rules = spec.validations.unwrap();
            assert!(rules.iter().all(|rule| rule.reason.as_deref() == Some("Forbidden")));
            assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
        }
    }

    #[test]
    fn the_users_are_those_of_the_charts_values() {
        let text = rendered(TEMPLATES[2]).unwrap();
        for user in [
            "'system:serviceaccount:sync-operator:workspace-controller'",
            r#"["system:serviceaccount:kube-system:deployment-controller"]"#,
            r#"["system:serviceaccount:kube-system:replicaset-controller"]"#,
            r#"["system:serviceaccount:kubevirt:kubevirt-controller"]"#,
        ] {
            assert!(text.contains(user), "{user}: {text}");
        }
        let values: Value = serde_saphyr::from_str(VALUES).unwrap();
        assert_eq!(values["defaultNamespace"], WORKSPACE_NAMESPACE);
    }
}
