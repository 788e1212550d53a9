//! Every example of a Workspace is taken, every way in which people send files, and reads back as it was written.

use std::collections::BTreeSet;

use otctl_types::Workspace;
use serde_json::{Map, Value, json};

use super::{NOWHERE, full};
use crate::judge::schema;
use crate::samples::WAYS;
use crate::support::{Kubectl, examples};

fn workspaces() -> Vec<(String, String)> {
    let all = examples().into_iter();
    all.filter(|(file, _)| file.starts_with("workspace")).collect()
}

/// The spec that comes back: nulls are dropped, and what nobody wrote has its default.
fn with_defaults(mut spec: Value) -> Value {
    fn fill(target: &mut Value, defaults: &Value) {
        let Value::Object(fields) = target else { return };
        fields.retain(|_, value| !value.is_null());
        for (name, value) in defaults.as_object().unwrap() {
            fields.entry(name).or_insert_with(|| value.clone());
        }
    }
    let image =
        json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "suspend": false});
    fill(
        &mut spec,
        &json!({"suspended": false, "imageRetention": "Retain", "network": {"isolate": true, "dns": true}}),
    );
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        fill(container, &json!({"replicas": 1}));
    }
    for machine in spec["virtualMachines"].as_array_mut().into_iter().flatten() {
        if let Some(made) = machine["spec"].get_mut("image") {
            fill(made, &image);
        }
    }
    spec
}

#[tokio::test]
async fn every_example_is_taken_every_way_and_reads_back() {
    let kubectl = Kubectl::shared().await;
    assert_eq!(workspaces().len(), 2);
    for (file, text) in workspaces() {
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let expected = with_defaults(written["spec"].clone());
        let name = format!("ws/{}", written["metadata"]["name"].as_str().unwrap());
        for way in WAYS {
            let sent = kubectl.run(&[way, &["--output=json"]].concat(), &text).fine();
            let sent: Value = serde_json::from_str(&sent).unwrap();
            assert_eq!(sent["spec"], expected, "{file} by {way:?}");
            if way.contains(&"--dry-run=server") {
                continue;
            }
            assert_eq!(kubectl.read(NOWHERE, &name)["spec"], expected, "{file} by {way:?}");
            if way[0] == "apply" {
                kubectl.run(way, &text).fine();
                let stored = kubectl.read(NOWHERE, &name);
                assert_eq!(stored["metadata"]["generation"], 1, "{file} twice by {way:?}");
            }
            kubectl.run(&["delete", &name], "").fine();
        }
    }
}

#[test]
fn an_example_reads_as_its_type_and_writes_as_it_was() {
    for (file, text) in workspaces() {
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let read: Workspace = serde_saphyr::from_str(&text).unwrap();
        let again = serde_json::to_value(read.spec).unwrap();
        assert_eq!(again, with_defaults(written["spec"].clone()), "{file}");
    }
}

#[test]
fn one_example_has_every_field() {
    let (mut known, mut written) = (BTreeSet::new(), BTreeSet::new());
    fields_of_schema(&schema("Workspace")["properties"]["spec"], "spec", &mut known);
    fields_of(&full()["spec"], "spec", &mut written);
    let missing: Vec<_> = known.difference(&written).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

fn fields_of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flat_map(Map::iter) {
        let path = normal(path, name);
        // The image has examples of its own.
        if !path.ends_with(".image") {
            fields_of_schema(field, &path, found);
            fields_of_schema(&field["items"], &path, found);
        }
        found.insert(path);
    }
}

fn fields_of(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    for item in value.as_array().into_iter().flatten() {
        fields_of(item, path, found);
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let path = normal(path, name);
        fields_of(field, &path, found);
        found.insert(path);
    }
}

/// What has one type has one path: it is enough to be shown once.
fn normal(path: &str, name: &str) -> String {
    match name {
        "livenessProbe" | "readinessProbe" | "startupProbe" => "probe".to_owned(),
        "configMapKeyRef" | "secretKeyRef" => "key".to_owned(),
        "configMapRef" | "secretRef" => "name".to_owned(),
        "from" | "to" => "peer".to_owned(),
        "namespaceSelector" | "podSelector" => "selector".to_owned(),
        "ports" if path.ends_with("gress") => "ports of doors".to_owned(),
        _ => format!("{path}.{name}"),
    }
}
