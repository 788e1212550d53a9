//! Secrets and ConfigMaps of a pod: as files of a volume, and as values of variables.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapVolumeSource, KeyToPath, Pod,
    Secret, SecretEnvSource, SecretKeySelector, SecretVolumeSource,
};
use kube::ResourceExt;
use kube::api::Api;

use super::NodeContext;
use super::mounts::NotYet;

/// An object with keys that a pod refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    kind: Kind,
    name: String,
    is_optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    ConfigMap,
}

/// As kubelet names it where a key is missing; where the object is, it is lower-case.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        })
    }
}

type Keys = BTreeMap<String, Vec<u8>>;

impl Source {
    fn new(kind: Kind, name: Option<&str>, optional: Option<bool>) -> Self {
        Self {
            kind,
            name: name.unwrap_or_default().to_owned(),
            is_optional: optional == Some(true),
        }
    }

    /// The keys of the object; none if it is optional and absent.
    async fn keys(&self, context: &NodeContext, pod: &Pod) -> Result<Option<Keys>, Trouble> {
        let namespace = pod.namespace().unwrap_or_default();
        let client = context.client.clone();
        let found = match self.kind {
            Kind::Secret => {
                let secrets: Api<Secret> = Api::namespaced(client, &namespace);
                secrets.get_opt(&self.name).await.map(|found| found.map(keys_of_secret))
            }
            Kind::ConfigMap => {
                let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
                maps.get_opt(&self.name).await.map(|found| found.map(keys_of_map))
            }
        };
        match found.map_err(|error| Trouble::Ask(error.to_string()))? {
            None if !self.is_optional => Err(Trouble::Missing(self.not_found())),
            found => Ok(found),
        }
    }

    fn not_found(&self) -> String {
        format!("{} \"{}\" not found", self.kind.to_string().to_lowercase(), self.name)
    }

    /// The value of a variable taken from one key; none if it is optional and absent.
    pub(super) async fn value(
        &self,
        context: &NodeContext,
        pod: &Pod,
        key: &str,
    ) -> Result<Option<String>, NotYet> {
        let Some(mut keys) = self.keys(context, pod).await.map_err(Trouble::of_variable)? else {
            return Ok(None);
        };
        match keys.remove(key) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            None if self.is_optional => Ok(None),
            None => Err(NotYet::config(format!(
                "couldn't find key {key} in {} {}/{}",
                self.kind,
                pod.namespace().unwrap_or_default(),
                self.name
            ))),
        }
    }

    /// Every key as a variable.
    pub(super) async fn values(
        &self,
        context: &NodeContext,
        pod: &Pod,
    ) -> Result<BTreeMap<String, String>, NotYet> {
        let keys = self.keys(context, pod).await.map_err(Trouble::of_variable)?;
        let text =
            |(key, value): (String, Vec<u8>)| (key, String::from_utf8_lossy(&value).into_owned());
        Ok(keys.into_iter().flatten().map(text).collect())
    }
}

/// A volume with the keys of an object as files.
pub(super) struct SourceVolume<'a> {
    source: Source,
    items: Option<&'a [KeyToPath]>,
}

impl SourceVolume<'_> {
    /// Writes the files into `dir`. An absent optional source leaves it empty.
    pub(super) async fn fill(
        &self,
        context: &NodeContext,
        pod: &Pod,
        dir: &Path,
    ) -> Result<(), NotYet> {
        let keys = self.source.keys(context, pod).await.map_err(Trouble::of_volume)?;
        let keys = keys.unwrap_or_default();
        for (key, file) in files(self.items, &keys) {
            let Some(value) = keys.get(&key) else {
                if self.source.is_optional {
                    continue;
                }
                let kind = self.source.kind.to_string().to_lowercase();
                return Err(NotYet::volume(format!("references non-existent {kind} key: {key}")));
            };
            write_file(dir, &file, value).map_err(|error| NotYet::volume(error.to_string()))?;
        }
        Ok(())
    }
}

/// Why a source cannot be read. What it is needed for decides how that is told.
enum Trouble {
    Missing(String),
    Ask(String),
}

impl Trouble {
    fn of_variable(self) -> NotYet {
        match self {
            Self::Missing(message) => NotYet::config(message),
            Self::Ask(message) => NotYet::volume(message),
        }
    }

    fn of_volume(self) -> NotYet {
        let (Self::Missing(message) | Self::Ask(message)) = self;
        NotYet::volume(message)
    }
}

fn keys_of_secret(secret: Secret) -> Keys {
    secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect()
}

fn keys_of_map(map: ConfigMap) -> Keys {
    let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
    text.chain(binary).collect()
}

impl From<&SecretKeySelector> for Source {
    fn from(key: &SecretKeySelector) -> Self {
        Self::new(Kind::Secret, Some(&key.name), key.optional)
    }
}

impl From<&ConfigMapKeySelector> for Source {
    fn from(key: &ConfigMapKeySelector) -> Self {
        Self::new(Kind::ConfigMap, Some(&key.name), key.optional)
    }
}

impl From<&SecretEnvSource> for Source {
    fn from(source: &SecretEnvSource) -> Self {
        Self::new(Kind::Secret, Some(&source.name), source.optional)
    }
}

impl From<&ConfigMapEnvSource> for Source {
    fn from(source: &ConfigMapEnvSource) -> Self {
        Self::new(Kind::ConfigMap, Some(&source.name), source.optional)
    }
}

impl<'a> From<&'a SecretVolumeSource> for SourceVolume<'a> {
    fn from(volume: &'a SecretVolumeSource) -> Self {
        let source = Source::new(Kind::Secret, volume.secret_name.as_deref(), volume.optional);
        Self { source, items: volume.items.as_deref() }
    }
}

impl<'a> From<&'a ConfigMapVolumeSource> for SourceVolume<'a> {
    fn from(volume: &'a ConfigMapVolumeSource) -> Self {
        let source = Source::new(Kind::ConfigMap, Some(&volume.name), volume.optional);
        Self { source, items: volume.items.as_deref() }
    }
}

fn write_file(dir: &Path, file: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path = dir.join(file);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, bytes)
}

/// Which key goes into which file: the items of the source, else every key under its own name.
fn files(items: Option<&[KeyToPath]>, keys: &Keys) -> Vec<(String, String)> {
    match items {
        Some(items) => items.iter().map(|item| (item.key.clone(), item.path.clone())).collect(),
        None => keys.keys().map(|key| (key.clone(), key.clone())).collect(),
    }
}
