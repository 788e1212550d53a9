//! Whether a value is in the bounds that the API server would hold it to: types, lengths, ranges, lists and words.
//! Patterns and rules are left to the API server's own tests.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use otctl_types::crds::crds;
use serde_json::Value;

/// What is wrong with the status of an object of that kind, with paths.
pub(crate) fn problems(kind: &str, status: &Value) -> Vec<String> {
    static SCHEMAS: LazyLock<Vec<(String, JSONSchemaProps)>> = LazyLock::new(|| {
        let status = |schema: &JSONSchemaProps| schema.properties.as_ref()?.get("status").cloned();
        let of = |version: &_| status(schema_of(version)?);
        let kinds = crds().into_iter();
        kinds
            .filter_map(|crd| Some((crd.spec.names.kind.clone(), of(crd.spec.versions.first()?)?)))
            .collect()
    });
    let (_, schema) =
        SCHEMAS.iter().find(|(known, _)| known == kind).expect("a kind of ours has a status");
    let mut found = Vec::new();
    look(schema, status, "status", &mut found);
    found
}

fn schema_of(
    version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion,
) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn look(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<String>) {
    let mut told = |what: &str| found.push(format!("{path} {what}"));
    let is_wrong = |bound: Option<i64>, size: usize, is_least: bool| {
        let bound = bound.map(|bound| usize::try_from(bound).unwrap_or(0));
        bound.is_some_and(|bound| if is_least { size < bound } else { size > bound })
    };
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            if is_wrong(schema.max_length, length, false)
                || is_wrong(schema.min_length, length, true)
            {
                told(&format!("is {length} characters long"));
            }
        }
        Value::Number(number) => {
            let number = number.as_i64().map_or(f64::INFINITY, |number| number as f64);
            let is_below = schema.minimum.is_some_and(|least| number < least);
            if is_below || schema.maximum.is_some_and(|most| number > most) || number.is_infinite()
            {
                told("is out of range");
            }
        }
        Value::Array(items) => {
            if is_wrong(schema.max_items, items.len(), false) {
                told(&format!("has {} items", items.len()));
            }
        }
        Value::Object(fields) => {
            if is_wrong(schema.max_properties, fields.len(), false) {
                told(&format!("has {} fields", fields.len()));
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
    let words = schema.enum_.as_ref();
    if words.is_some_and(|words| !words.iter().any(|word| word.0 == *value)) {
        told(&format!("is {value}"));
    }
    let kind = schema.type_.as_deref();
    if kind.is_some_and(|kind| !is_of_type(kind, value)) {
        told(&format!("is no {}", kind.unwrap_or_default()));
    }
    look_inside(schema, value, path, found);
}

fn look_inside(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<String>) {
    match (value, &schema.items) {
        (Value::Array(items), Some(JSONSchemaPropsOrArray::Schema(schema))) => {
            for (at, item) in items.iter().enumerate() {
                look(schema, item, &format!("{path}[{at}]"), found);
            }
        }
        (Value::Object(fields), _) => {
            for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name))
            {
                found.push(format!("{path}.{name} is missing"));
            }
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                let known = schema.properties.as_ref().and_then(|known| known.get(name));
                match (known, &schema.additional_properties) {
                    (Some(schema), _) => look(schema, field, &path, found),
                    (None, Some(JSONSchemaPropsOrBool::Schema(schema))) => {
                        look(schema, field, &path, found)
                    }
                    (None, _) => found.push(format!("{path} is no field")),
                }
            }
        }
        _ => {}
    }
}

fn is_of_type(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}
