//! The rules of a kind without an API server, judged as one judges them.

use std::{collections::BTreeMap, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::cel::Validator;
use otctl_types::crds;
use serde_json::{Map, Value};

/// The schema of a kind.
pub(crate) fn schema(kind: &str) -> &'static Value {
    static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
        crds().into_iter().map(|crd| (crd.spec.names.kind.clone(), of(crd))).collect()
    });
    &SCHEMAS[kind]
}

fn of(crd: CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions.into_iter().next().unwrap().schema.unwrap();
    serde_json::to_value(schema.open_api_v3_schema).unwrap()
}

/// The messages of the rules that `new` breaks.
pub(crate) fn broken(kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    match Validator::new().validate(schema(kind), new, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.as_slice().iter().map(|error| error.message.clone()).collect(),
    }
}

/// The messages of every rule in a schema.
pub(crate) fn messages(schema: &Value) -> Vec<String> {
    let own = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let mut messages: Vec<_> =
        own.map(|rule| rule["message"].as_str().unwrap().to_owned()).collect();
    let fields = schema["properties"].as_object().into_iter().flat_map(Map::values);
    let inner = fields.chain([&schema["items"], &schema["additionalProperties"]]);
    for inner in inner.filter(|inner| inner.is_object()) {
        messages.extend(self::messages(inner));
    }
    messages
}

/// A merge patch: null removes.
pub(crate) fn merge(target: &mut Value, change: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *target, change) else {
        *target = change.clone();
        return;
    };
    for (name, value) in changes {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}
