//! Every file in `examples/` is taken, every way in which people send files, and reads back as it was written.

use serde_json::{Map, Value, json};

use crate::support::{self, Kubectl};

pub(crate) const WAYS: [&[&str]; 5] = [
    &["create", "-f", "-"],
    &["create", "--dry-run=server", "--validate=strict", "-f", "-"],
    &["apply", "-f", "-"],
    &["apply", "--server-side", "-f", "-"],
    &["apply", "--dry-run=server", "--validate=strict", "-f", "-"],
];

/// Those that are in a namespace; a Workspace is not, and has tests of its own.
fn examples() -> Vec<(String, String)> {
    let all = support::examples().into_iter();
    all.filter(|(file, _)| !file.starts_with("workspace")).collect()
}

/// What an image has in its spec that nobody wrote.
fn defaults() -> Map<String, Value> {
    let defaults =
        json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "suspend": false});
    defaults.as_object().unwrap().clone()
}

/// The object that comes back from a manifest sent to a namespace of its own.
fn sent(kubectl: &Kubectl, way: &[&str], namespace: &str, manifest: &str) -> Value {
    let mut arguments = way.to_vec();
    arguments.push("--output=json");
    let json = kubectl.run_in(namespace, &arguments, manifest).fine();
    serde_json::from_str(&json).unwrap()
}

fn with_namespace(mut manifest: Value, namespace: &str) -> Value {
    manifest["metadata"]["namespace"] = json!(namespace);
    manifest
}

#[tokio::test]
async fn every_example_is_taken_every_way_and_reads_back() {
    let kubectl = Kubectl::shared().await;
    for way in WAYS {
        let namespace = kubectl.cluster.namespace("samples").await.unwrap();
        for (file, text) in examples() {
            let written: Value = serde_saphyr::from_str(&text).unwrap();
            // One names its namespace; all ways would meet there.
            let written = with_namespace(written, &namespace);
            let stored = sent(kubectl, way, &namespace, &written.to_string());
            assert_eq!(
                stored["metadata"]["name"], written["metadata"]["name"],
                "{file} by {way:?}"
            );
            assert_eq!(stored["data"], written["data"], "{file} by {way:?}");
            assert_eq!(stored["spec"], with_defaults(&written["spec"]), "{file} by {way:?}");
        }
    }
}

fn with_defaults(spec: &Value) -> Value {
    let Value::Object(written) = spec else { return spec.clone() };
    let mut expected = defaults();
    expected.extend(written.clone());
    Value::Object(expected)
}

#[tokio::test]
async fn the_files_are_taken_as_they_are() {
    let kubectl = Kubectl::shared().await;
    kubectl.run(&["create", "namespace", "sync-operator"], "").fine();
    let namespace = kubectl.cluster.namespace("as-is").await.unwrap();
    for (file, text) in examples() {
        let here: &[&str] = if text.contains("namespace: sync-operator") {
            &[]
        } else {
            &["--namespace", &namespace]
        };
        let created = kubectl.run(&[here, &["create", "-f", "-"]].concat(), &text);
        assert!(created.succeeded, "{file}: {created:?}");
        let applied = kubectl.run(
            &[here, &["apply", "--server-side", "--force-conflicts", "-f", "-"]].concat(),
            &text,
        );
        assert!(applied.succeeded, "{file}: {applied:?}");
    }
}

#[test]
fn one_example_of_an_image_has_every_field() {
    let (_, full) =
        examples().into_iter().find(|(file, _)| file == "vmdiskimage-full.yaml").unwrap();
    let full: otctl_types::VMDiskImage = serde_saphyr::from_str(&full).unwrap();
    let written = serde_json::to_value(full.spec).unwrap();
    let crd =
        otctl_types::crds().into_iter().find(|crd| crd.spec.names.kind == "VMDiskImage").unwrap();
    let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
    let fields = schema["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object().unwrap();
    for field in fields.keys() {
        assert!(!written[field].is_null(), "{field} is not in the full example");
    }
}
