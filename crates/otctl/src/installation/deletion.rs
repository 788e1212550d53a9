//! The refusal to delete a ledger by mistake, as the chart has it: read from the chart, so that there is one text.

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use otctl_types::names::DISKIMAGE_CONTROLLER;
use serde::de::DeserializeOwned;

use super::apply_object;

const TEMPLATE: &str =
    include_str!("../../../../charts/diskimage-controller/templates/deletionguard.yaml");

/// Installs it.
pub(super) async fn apply(client: &Client) -> anyhow::Result<()> {
    let (policy, binding) = objects()?;
    apply_object(&Api::all(client.clone()), &policy).await?;
    apply_object(&Api::all(client.clone()), &binding).await
}

fn objects() -> anyhow::Result<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    let text = rendered();
    let (policy, binding) =
        text.split_once("\n---\n").context("the chart's guard is a policy and a binding")?;
    Ok((object(policy)?, object(binding)?))
}

/// Without conditions and labels, which are lines of their own, and with the name that the chart gives by default.
fn rendered() -> String {
    let name = format!("{DISKIMAGE_CONTROLLER}-queue-deletion");
    let lines = TEMPLATE.lines().filter(|line| !line.trim_start().starts_with("{{-"));
    let lines = lines.filter(|line| line.trim() != "labels:");
    lines.collect::<Vec<_>>().join("\n").replace("{{ $name }}", &name)
}

fn object<K: DeserializeOwned>(document: &str) -> anyhow::Result<K> {
    let tree: serde_json::Value =
        serde_saphyr::from_str(document).context("the chart's guard cannot be read as YAML")?;
    serde_json::from_value(tree).context("the chart's guard is not of its kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_template_is_left_and_the_two_belong_together() {
        assert!(!rendered().contains("{{"), "{}", rendered());
        let (policy, binding) = objects().unwrap();
        let spec = policy.spec.unwrap();
        assert_eq!(binding.spec.unwrap().policy_name, policy.metadata.name);
        let [validation] = &spec.validations.unwrap()[..] else { panic!("there is one rule") };
        assert!(validation.expression.contains("pelotech.ot/force-delete"));
        assert_eq!(policy.metadata.name.as_deref(), Some("diskimage-controller-queue-deletion"));
    }
}
