//! The CustomResourceDefinitions as they are installed: what the derives say, and what they cannot say.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::names::PART_OF;
use crate::{AdmissionQueue, VMDiskImage, Workspace};

/// Every kind of otctl, in the order of their names.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        with_empty_spec(installable(AdmissionQueue::crd())),
        installable(VMDiskImage::crd()),
        installable(Workspace::crd()),
    ]
}

/// The definition with our labels and a schema that an API server takes without a warning.
fn installable(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let labels = crd.metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/part-of".to_owned(), PART_OF.to_owned());
    for schema in schemas(&mut crd) {
        describe(schema);
        visit(schema, &mut |schema| {
            with_known_integer(schema);
            without_null(schema);
            without_line_ends(schema);
        });
    }
    crd
}

/// The derive describes the kind where its spec is; people ask `kubectl explain` for the kind.
fn describe(schema: &mut JSONSchemaProps) {
    let spec = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec"));
    let wanted = Some("What is wanted.".to_owned());
    schema.description =
        std::mem::replace(&mut spec.expect("every kind has a spec").description, wanted);
}

/// A queue is created by an apply of metadata alone, since nobody sets anything in it.
fn with_empty_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for schema in schemas(&mut crd) {
        if let Some(required) = &mut schema.required {
            required.retain(|field| field != "spec");
        }
        let spec = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec"));
        spec.expect("every kind has a spec").default = Some(JSON(json!({})));
    }
    crd
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

/// The API server knows signed integers only, and warns of other formats.
fn with_known_integer(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int64".to_owned());
        schema.minimum = Some(schema.minimum.unwrap_or(0.0));
    }
}

/// Where null is not allowed the API server drops it, so that a field is there or absent and nothing else.
fn without_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
}

/// Our lines are broken for readers of the code; a description is broken by its reader, but for its paragraphs.
fn without_line_ends(schema: &mut JSONSchemaProps) {
    if let Some(text) = &mut schema.description {
        let paragraphs: Vec<_> =
            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
}

fn visit(schema: &mut JSONSchemaProps, change: &mut impl FnMut(&mut JSONSchemaProps)) {
    change(schema);
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        visit(field, change);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        visit(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        visit(values, change);
    }
}
