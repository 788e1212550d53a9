//! `Workspace`, as a user, an API server and the kinds that it is made into see it.

mod bounds;
mod children;
mod rules;
mod samples;
mod server;

use serde_json::{Value, json};

use crate::support::examples;

/// The namespace of what has none; `kubectl` does not look at it.
const NOWHERE: &str = "default";

/// The example with every field, under a name of its own: others make the examples meanwhile.
fn full() -> Value {
    let (_, text) = examples().into_iter().find(|(file, _)| file == "workspace-full.yaml").unwrap();
    let mut full: Value = serde_saphyr::from_str(&text).unwrap();
    full["metadata"]["name"] = json!("full");
    full
}

/// A workspace with one container.
fn least(name: &str) -> Value {
    json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]},
    })
}

/// The value at `pointer` in the spec replaced, or removed where `value` is null.
fn with(mut workspace: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = workspace["spec"].pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match (parent, value) {
        (Value::Object(fields), Value::Null) => {
            fields.remove(field).unwrap_or_else(|| panic!("no {pointer}"));
        }
        (parent @ Value::Object(_), value) => parent[field] = value,
        (Value::Array(items), value) => {
            let index: usize = field.parse().unwrap();
            items.resize(items.len().max(index + 1), Value::Null);
            items[index] = value;
        }
        (other, _) => panic!("{pointer} is in {other}"),
    }
    workspace
}
