//! What every schema has: bounds, descriptions, known formats; and `crds/` is what the code says.

use std::{fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use otctl_types::crds;
use serde_json::Value;

use crate::support::repository;

/// What one schema in a tree lacks.
struct Lint {
    problems: Vec<String>,
}

impl Lint {
    fn of(schema: &Value) -> Vec<String> {
        let mut lint = Self { problems: Vec::new() };
        lint.look("", schema);
        lint.problems
    }

    fn look(&mut self, path: &str, schema: &Value) {
        let has = |key: &str| !schema[key].is_null();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                self.problems.push(format!("{path}: {what}"));
            }
        };
        must(has("description"), "no description");
        must(!has("nullable"), "null is not the same as absent");
        match schema["type"].as_str() {
            Some("string") => {
                must(has("maxLength") || has("enum") || has("format"), "unbounded string")
            }
            Some("array") => must(has("maxItems"), "unbounded list"),
            Some("integer") => {
                must(
                    matches!(schema["format"].as_str(), Some("int32" | "int64")),
                    "unknown integer format",
                );
            }
            Some("object") => {
                must(!has("additionalProperties") || has("maxProperties"), "unbounded map");
                must(!has("x-kubernetes-preserve-unknown-fields"), "takes anything");
            }
            Some("boolean") => {}
            None if has("x-kubernetes-int-or-string") => {
                must(has("maxLength") && has("pattern"), "unbounded text of a number or text");
                must(has("minimum") && has("maximum"), "unbounded number of a number or text");
            }
            other => must(false, &format!("unexpected type {other:?}")),
        }
        self.look_inside(path, schema);
    }

    fn look_inside(&mut self, path: &str, schema: &Value) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            self.look(&format!("{path}.{name}"), field);
        }
        // What is in a list of plain values is described by the list.
        for (mark, key) in [("[]", "items"), ("{}", "additionalProperties")] {
            let Value::Object(inner) = &schema[key] else { continue };
            let mut inner = inner.clone();
            inner.entry("description").or_insert_with(|| schema["description"].clone());
            self.look(&format!("{path}{mark}"), &Value::Object(inner));
        }
    }
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    serde_json::to_value(schema).unwrap()
}

#[test]
fn every_field_is_bounded_and_described() {
    for crd in crds() {
        assert_eq!(Lint::of(&schema(&crd)), Vec::<String>::new(), "{}", crd.spec.names.kind);
    }
}

#[test]
fn the_lint_sees_what_is_missing() {
    let schema = serde_json::json!({"type": "object", "description": "Root.", "properties": {
        "free": {"type": "string", "description": "Free."},
        "list": {"type": "array", "maxItems": 2, "description": "List.", "items": {"type": "string"}},
        "map": {"type": "object", "description": "Map.", "additionalProperties": {"type": "string", "maxLength": 1}},
        "mute": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": true, "maximum": 2, "maxLength": 1, "description": "Port."},
        "unsigned": {"type": "integer", "format": "uint64", "description": "Unsigned."},
    }});
    let expected = [
        ".free: unbounded string",
        ".list[]: unbounded string",
        ".map: unbounded map",
        ".mute: no description",
        ".port: unbounded text of a number or text",
        ".port: unbounded number of a number or text",
        ".unsigned: unknown integer format",
    ];
    assert_eq!(Lint::of(&schema), expected);
}

/// A field that names another namespace would let people use what they have no right to. A kind without a namespace of
/// its own, such as Workspace, has one field that says where everything is made, and no second one. The selectors of its
/// doors choose namespaces by their labels; nothing in those is read.
#[test]
fn no_field_of_a_spec_names_another_namespace() {
    for crd in crds() {
        let mut spec = schema(&crd)["properties"]["spec"].clone();
        let home = spec["properties"].as_object_mut().and_then(|fields| fields.remove("namespace"));
        let names_its_own = crd.spec.names.kind == "Workspace";
        assert_eq!(home.is_some(), names_its_own, "{}", crd.spec.names.kind);
        assert!(!names_its_own || crd.spec.scope == "Cluster");
        let fields = spec["properties"].to_string().to_lowercase();
        assert!(!fields.contains("namespace\":"), "{}", crd.spec.names.kind);
    }
}

#[test]
fn every_kind_is_found_as_people_expect() {
    for crd in crds() {
        let (kind, names, version) = (&crd.spec.names.kind, &crd.spec.names, &crd.spec.versions[0]);
        assert_eq!(names.categories, Some(vec!["otctl".to_owned()]), "{kind}");
        assert_eq!(names.short_names.as_ref().map(Vec::len), Some(1), "{kind}");
        assert!(version.subresources.as_ref().is_some_and(|it| it.status.is_some()), "{kind}");
        assert_eq!(crd.metadata.labels.unwrap()["app.kubernetes.io/part-of"], "otctl", "{kind}");
    }
}

#[test]
fn the_committed_definitions_are_those_of_the_code() {
    let folder = repository().join("crds");
    for crd in crds() {
        let name = crd.metadata.name.clone().unwrap();
        let committed = read(&folder.join(format!("{name}.yaml")));
        assert_eq!(committed, crd, "{name}: run `cargo xtask codegen`");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), crds().len(), "crds/ holds a file too many");
}

fn read(path: &Path) -> CustomResourceDefinition {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap()
}
