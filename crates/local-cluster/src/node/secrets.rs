//! Secrets of a pod: as files of a volume, and as values of variables.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret, SecretKeySelector, SecretVolumeSource};
use kube::ResourceExt;
use kube::api::Api;

use super::NodeContext;
use super::mounts::NotYet;

/// Writes the files of a Secret volume into `dir`. An absent optional Secret leaves it empty.
pub(super) async fn fill_volume(
    context: &NodeContext,
    pod: &Pod,
    source: &SecretVolumeSource,
    dir: &Path,
) -> Result<(), NotYet> {
    let name = source.secret_name.clone().unwrap_or_default();
    let optional = source.optional == Some(true);
    let Some(keys) = read(context, pod, &name).await? else {
        return absent(optional, || NotYet::volume(format!("secret \"{name}\" not found")));
    };
    for (key, file) in files(source, &keys) {
        let Some(value) = keys.get(&key) else {
            absent(optional, || {
                NotYet::volume(format!("references non-existent secret key: {key}"))
            })?;
            continue;
        };
        write_file(dir, &file, &value.0).map_err(|error| NotYet::volume(error.to_string()))?;
    }
    Ok(())
}

fn write_file(dir: &Path, file: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path = dir.join(file);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, bytes)
}

/// Which key goes into which file: the items of the source, else every key under its own name.
fn files(
    source: &SecretVolumeSource,
    keys: &BTreeMap<String, ByteString>,
) -> Vec<(String, String)> {
    match &source.items {
        Some(items) => items.iter().map(|item| (item.key.clone(), item.path.clone())).collect(),
        None => keys.keys().map(|key| (key.clone(), key.clone())).collect(),
    }
}

/// The value of a variable taken from a Secret; none if it is optional and absent.
pub(super) async fn value(
    context: &NodeContext,
    pod: &Pod,
    source: &SecretKeySelector,
) -> Result<Option<String>, NotYet> {
    let optional = source.optional == Some(true);
    let Some(keys) = read(context, pod, &source.name).await? else {
        let missing = || NotYet::config(format!("secret \"{}\" not found", source.name));
        return absent(optional, missing).map(|()| None);
    };
    let Some(value) = keys.get(&source.key) else {
        let missing = || {
            NotYet::config(format!("couldn't find key {} in Secret {}", source.key, source.name))
        };
        return absent(optional, missing).map(|()| None);
    };
    Ok(Some(String::from_utf8_lossy(&value.0).into_owned()))
}

fn absent(optional: bool, problem: impl FnOnce() -> NotYet) -> Result<(), NotYet> {
    if optional { Ok(()) } else { Err(problem()) }
}

async fn read(
    context: &NodeContext,
    pod: &Pod,
    name: &str,
) -> Result<Option<BTreeMap<String, ByteString>>, NotYet> {
    let namespace = pod.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let secret = secrets.get_opt(name).await.map_err(|error| NotYet::volume(error.to_string()))?;
    Ok(secret.map(|secret| secret.data.unwrap_or_default()))
}
