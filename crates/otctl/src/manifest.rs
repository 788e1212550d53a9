//! Files as objects: which files, and what is in them. All are read before anything is done.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use kube::api::TypeMeta;
use serde_json::Value;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";
/// What a directory's manifests end with.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// One object that a file holds, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// Which object, for what is told of it.
    pub(crate) origin: String,
    /// What it is.
    pub(crate) types: TypeMeta,
    /// Its name.
    pub(crate) name: String,
    /// Its namespace, if it says one.
    pub(crate) namespace: Option<String>,
    /// All of it.
    pub(crate) object: Value,
}

/// Every object of these files and directories, in order.
pub(crate) fn read(paths: &[PathBuf], is_recursive: bool) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in paths {
        if path.as_os_str() == STANDARD_INPUT {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
            manifests.extend(parse("standard input", &text)?);
            continue;
        }
        for file in files(path, is_recursive)? {
            let name = format!("'{}'", file.display());
            let text = fs::read_to_string(&file);
            manifests
                .extend(parse(&name, &text.with_context(|| format!("{name} cannot be read"))?)?);
        }
    }
    anyhow::ensure!(!manifests.is_empty(), "there are no objects in what -f names");
    Ok(manifests)
}

/// The file itself, or the manifests of a directory by name.
fn files(path: &Path, is_recursive: bool) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.with_context(|| format!("'{}' cannot be read", path.display()))?;
    let mut inner: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    inner.sort();
    let mut files_found = Vec::new();
    for path in inner {
        if path.is_dir() {
            files_found.extend(if is_recursive { files(&path, true)? } else { Vec::new() });
        } else if path
            .extension()
            .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
        {
            files_found.push(path);
        }
    }
    Ok(files_found)
}

/// The objects of a text of any number of documents; a List stands for what is in it.
fn parse(name: &str, text: &str) -> anyhow::Result<Vec<Manifest>> {
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .with_context(|| format!("{name} cannot be read as YAML"))?;
    let mut manifests = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let origin = format!("{name}, object {}", index + 1);
        for object in members(document) {
            manifests.push(manifest(&origin, object)?);
        }
    }
    Ok(manifests)
}

fn members(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document.get_mut("items") {
        Some(Value::Array(items)) if is_list => std::mem::take(items),
        Some(_) | None => vec![document],
    }
}

fn manifest(origin: &str, mut object: Value) -> anyhow::Result<Manifest> {
    let text = |path: &str, what: &str| {
        let found = object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        found.map(str::to_owned).with_context(|| format!("{origin} has no {what}"))
    };
    let types =
        TypeMeta { api_version: text("/apiVersion", "apiVersion")?, kind: text("/kind", "kind")? };
    let name = text("/metadata/name", "metadata.name, which apply needs")?;
    let namespace = text("/metadata/namespace", "namespace").ok();
    // What was read from a cluster has it, and no apply may bring it.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(Manifest { origin: origin.to_owned(), types, name, namespace, object })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        let manifests = parse("'a.yaml'", text);
        manifests
            .map(|all| all.iter().map(|one| format!("{}/{}", one.types.kind, one.name)).collect())
            .map_err(|error| crate::out::causes(&error))
    }

    #[test]
    fn documents_and_members_of_lists_are_objects() {
        let text = "\
# empty documents are none
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: b}}
- {apiVersion: v1, kind: Secret, metadata: {name: c}}
";
        assert_eq!(names(text).unwrap(), ["ConfigMap/a", "Secret/b", "Secret/c"]);
        let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
        assert_eq!(names(json).unwrap(), ["ConfigMap/a"]);
    }

    #[test]
    fn what_is_no_object_is_named_in_one_line() {
        let cases = [
            ("{kind: A, metadata: {name: a}}", "'a.yaml', object 1 has no apiVersion"),
            ("{apiVersion: v1, metadata: {name: a}}", "'a.yaml', object 1 has no kind"),
            (
                "{apiVersion: v1, kind: A}",
                "'a.yaml', object 1 has no metadata.name, which apply needs",
            ),
            ("just a text", "'a.yaml', object 1 has no apiVersion"),
        ];
        for (text, expected) in cases {
            assert_eq!(names(text).unwrap_err(), expected);
        }
        let broken = names("a: [").unwrap_err();
        assert!(
            broken.starts_with("'a.yaml' cannot be read as YAML: ") && !broken.contains('\n'),
            "{broken}"
        );
        assert!(names("a: 1\na: 2\n").unwrap_err().contains("duplicate"));
    }

    #[test]
    fn a_directory_is_its_manifests_in_order() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        for name in ["b.yaml", "a.yml", "c.json", "notes.txt", "inner/d.yaml"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let found = |is_recursive| {
            let files = files(directory.path(), is_recursive).unwrap();
            let inner =
                |file: &PathBuf| file.strip_prefix(directory.path()).unwrap().display().to_string();
            files.iter().map(inner).collect::<Vec<_>>()
        };
        assert_eq!(found(false), ["a.yml", "b.yaml", "c.json"]);
        assert_eq!(found(true), ["a.yml", "b.yaml", "c.json", "inner/d.yaml"]);
    }

    #[test]
    fn what_a_cluster_wrote_into_an_object_is_left_out() {
        let text = "{apiVersion: v1, kind: A, metadata: {name: a, managedFields: [{}]}}";
        assert_eq!(parse("a", text).unwrap()[0].object["metadata"]["managedFields"], Value::Null);
    }
}
