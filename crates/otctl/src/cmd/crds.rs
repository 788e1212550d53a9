//! `otctl crds`: the definitions of every kind, to read, to commit or to apply.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::CrdsArgs;
use crate::{client, installation, out};

/// Prints or applies the definitions.
pub(crate) async fn run(args: &CrdsArgs) -> anyhow::Result<ExitCode> {
    if args.apply {
        let cluster = client::connect(&args.cluster).await?;
        let applied = installation::apply_kinds(&cluster.client).await;
        for name in applied.with_context(|| cluster.address)? {
            out::line(&format!("customresourcedefinition.apiextensions.k8s.io/{name} applied"));
        }
    } else {
        out::text(&documents()?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Every definition as a YAML document.
fn documents() -> anyhow::Result<String> {
    let mut text = String::new();
    for crd in otctl_types::crds() {
        let document =
            serde_saphyr::to_string(&crd).context("a definition cannot be written as YAML")?;
        text.push_str("---\n");
        text.push_str(&document);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;

    #[test]
    fn documents_read_back_as_the_definitions() {
        let text = documents().unwrap();
        let read: Vec<CustomResourceDefinition> = text
            .split("---\n")
            .skip(1)
            .map(|document| {
                let tree: serde_json::Value = serde_saphyr::from_str(document).unwrap();
                serde_json::from_value(tree).unwrap()
            })
            .collect();
        assert_eq!(read, otctl_types::crds());
    }
}
