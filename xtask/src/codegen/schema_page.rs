//! The page of one kind, from the schema of its definition.

use std::fmt::Write as _;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::reference::cell;

pub(super) fn page(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    let names = &crd.spec.names;
    let version = crd.spec.versions.first().context("a definition has no version")?;
    let schema = version
        .schema
        .as_ref()
        .and_then(|it| it.open_api_v3_schema.as_ref())
        .context("no schema")?;
    let short = names
        .short_names
        .iter()
        .flatten()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut text = format!("# {}\n\n{}\n\n", names.kind, description(schema));
    let _ = writeln!(
        text,
        "`{}/{}`, {}, short name {short}.",
        crd.spec.group,
        version.name,
        scope(&crd.spec.scope)
    );
    for (name, part) in schema.properties.iter().flatten() {
        let _ = write!(text, "\n## {name}\n\n{}\n", description(part));
        if part.properties.iter().flatten().next().is_some() {
            text += "\n| field | type | meaning |\n|---|---|---|\n";
            rows(&mut text, "", part);
        }
    }
    rules(&mut text, schema);
    Ok(text)
}

fn scope(scope: &str) -> &'static str {
    if scope == "Cluster" { "cluster-scoped" } else { "namespaced" }
}

fn rows(text: &mut String, prefix: &str, schema: &JSONSchemaProps) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{prefix}{name}");
        let required = schema.required.iter().flatten().any(|required| required == name);
        let kind = if required && prefix.is_empty() {
            format!("{}, required", kind(field))
        } else {
            kind(field)
        };
        let _ = writeln!(text, "| `{path}` | {} | {} |", cell(&kind), cell(&description(field)));
        rows(text, &format!("{path}."), field);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            rows(text, &format!("{path}[]."), items);
        }
    }
}

/// The rules over several fields, which are what an error message will quote.
fn rules(text: &mut String, schema: &JSONSchemaProps) {
    let spec = schema.properties.iter().flatten().find(|(name, _)| *name == "spec");
    let rules: Vec<_> = [schema]
        .into_iter()
        .chain(spec.map(|(_, spec)| spec))
        .flat_map(|it| it.x_kubernetes_validations.iter().flatten())
        .filter_map(|it| it.message.as_ref())
        .collect();
    if !rules.is_empty() {
        *text += "\n## Refused\n\n";
        for rule in rules {
            let _ = writeln!(text, "- {rule}");
        }
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    let mut kind = match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => {
            format!("list of {}", kind_of_one(items))
        }
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => {
            format!("map of {}", kind_of_one(values))
        }
        _ => kind_of_one(schema),
    };
    if let Some(default) = &schema.default {
        let _ = write!(kind, ", default `{}`", default.0.to_string().replace('"', ""));
    }
    kind
}

fn kind_of_one(schema: &JSONSchemaProps) -> String {
    if let Some(values) = &schema.enum_ {
        let values: Vec<_> = values
            .iter()
            .map(|value| format!("`{}`", value.0.as_str().unwrap_or_default()))
            .collect();
        return values.join(", ");
    }
    let text =
        || schema.max_length.map_or("text".to_owned(), |most| format!("text of at most {most}"));
    if schema.x_kubernetes_int_or_string == Some(true) {
        return format!("integer or {}", text());
    }
    match (schema.type_.as_deref().unwrap_or_default(), schema.format.as_deref()) {
        ("string", Some("date-time")) => "time".to_owned(),
        ("string", _) => text(),
        (other, _) => other.to_owned(),
    }
}

fn description(schema: &JSONSchemaProps) -> String {
    schema.description.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_every_kind_is_on_its_page() {
        for crd in otctl_types::crds() {
            let page = page(&crd).unwrap();
            assert!(page.contains("## status"), "{page}");
            assert!(!page.contains("|  |"), "a row without a meaning: {page}");
        }
    }

    #[test]
    fn a_kind_is_told_by_its_page() {
        check(
            "VMDiskImage",
            &[
                "| `url` | text of at most 2048, required |",
                "`Filesystem`, `Block`, default `Filesystem`",
                "## Refused\n\n- this image has data: ",
            ],
        );
        check(
            "Workspace",
            &[
                "cluster-scoped, short name `ws`",
                "| `containers[].livenessProbe.httpGet.port` | integer or text of at most 15 |",
                "## Refused\n\n- namespace cannot change any more",
            ],
        );
    }

    #[track_caller]
    fn check(kind: &str, parts: &[&str]) {
        let crd = otctl_types::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let page = page(&crd).unwrap();
        for part in parts {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
