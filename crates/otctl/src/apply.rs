//! Manifests to the cluster, by server-side apply.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::error::DiscoveryError;
use otctl_types::names::GROUP;
use serde_json::{Value, json};

use crate::client::{Cluster, lacks_kind};
use crate::kind::{self, Found};
use crate::manifest::Manifest;

/// Who applies.
const FIELD_MANAGER: &str = "otctl";

/// Where manifests become objects.
pub(crate) struct Applier<'a> {
    cluster: &'a Cluster,
    terms: Terms,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

/// How it is applied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// The namespace of objects that name none.
    pub(crate) namespace: Option<String>,
    /// Whether fields that somebody else has set are taken over.
    pub(crate) is_forced: bool,
    /// Whether everything is checked and nothing stored.
    pub(crate) is_dry: bool,
}

/// One object that was applied.
pub(crate) struct Applied {
    /// Where it is at the API server.
    pub(crate) resource: ApiResource,
    /// As it is now.
    pub(crate) object: DynamicObject,
    /// What that did.
    pub(crate) change: Change,
    /// The same, if it is of a kind that can be waited for.
    pub(crate) ours: Option<Found>,
}

/// What applying did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// There was none.
    Created,
    /// It was another.
    Configured,
    /// It was the same.
    Unchanged,
}

impl<'a> Applier<'a> {
    /// One for this cluster, on these terms.
    pub(crate) fn new(cluster: &'a Cluster, terms: Terms) -> Self {
        Self { cluster, terms, kinds: BTreeMap::new() }
    }

    /// Applies one manifest.
    pub(crate) async fn apply(&mut self, manifest: &Manifest) -> anyhow::Result<Applied> {
        let (resource, scope) =
            self.kind(manifest).await.with_context(|| manifest.origin.clone())?;
        let name = kind::reference(&resource, &manifest.name);
        let applied = self.put(manifest, resource, scope).await;
        applied.with_context(|| format!("{}: {name} cannot be applied", manifest.origin))
    }

    async fn put(
        &self,
        manifest: &Manifest,
        resource: ApiResource,
        scope: Scope,
    ) -> anyhow::Result<Applied> {
        let client = self.cluster.client.clone();
        let api: Api<DynamicObject> = match scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => {
                Api::namespaced_with(client, &self.namespace(manifest)?, &resource)
            }
        };
        let before = api.get_opt(&manifest.name).await;
        let before = before.map_err(|error| self.cluster.explained(error))?;
        let patched =
            api.patch(&manifest.name, &self.params(), &Patch::Apply(&manifest.object)).await;
        let object = patched.map_err(|error| self.refused(error))?;
        let ours = kind::of(&manifest.types).map(|kind| Found { kind, object: object.clone() });
        Ok(Applied { resource, change: change(before.as_ref(), &object), object, ours })
    }

    fn params(&self) -> PatchParams {
        PatchParams {
            dry_run: self.terms.is_dry,
            force: self.terms.is_forced,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        }
    }

    /// Where it goes: where it says, which must be where the flag says.
    fn namespace(&self, manifest: &Manifest) -> anyhow::Result<String> {
        match (&manifest.namespace, &self.terms.namespace) {
            (Some(own), Some(flag)) if own != flag => {
                anyhow::bail!("it says namespace '{own}', and -n says '{flag}'")
            }
            (Some(namespace), _) | (None, Some(namespace)) => Ok(namespace.clone()),
            (None, None) => Ok(self.cluster.namespace.clone()),
        }
    }

    fn refused(&self, error: kube::Error) -> anyhow::Error {
        match &error {
            kube::Error::Api(answer) if answer.reason == "Conflict" => anyhow::anyhow!(
                "{}; --force-conflicts takes the fields over",
                answer.message.trim_end_matches('.')
            ),
            _ => self.cluster.explained(error),
        }
    }

    /// What the API server knows of the kind; asked once.
    async fn kind(&mut self, manifest: &Manifest) -> anyhow::Result<(ApiResource, Scope)> {
        let types = &manifest.types;
        let key = (types.api_version.clone(), types.kind.clone());
        if let Some(known) = self.kinds.get(&key) {
            return Ok(known.clone());
        }
        let kind = GroupVersionKind::try_from(types)
            .with_context(|| format!("'{}' is no apiVersion", types.api_version))?;
        let found = pinned_kind(&self.cluster.client, &kind).await;
        let (resource, capabilities) = found.map_err(|error| self.unknown(&kind, error))?;
        let known = (resource, capabilities.scope);
        self.kinds.insert(key, known.clone());
        Ok(known)
    }

    fn unknown(&self, kind: &GroupVersionKind, error: kube::Error) -> anyhow::Error {
        let is_missing = lacks_kind(&error)
            || matches!(error, kube::Error::Discovery(DiscoveryError::MissingKind(_)));
        if !is_missing {
            return self.cluster.explained(error);
        }
        let way_out = if kind.group == GROUP {
            "`otctl crds --apply` installs those of otctl"
        } else {
            "install its definition first"
        };
        anyhow::anyhow!(
            "the cluster has no kind {} in {}; {way_out}",
            kind.kind,
            kind.api_version()
        )
    }
}

impl Change {
    /// As kubectl says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What applying did. Not by resourceVersion: a controller writes the status in between, and a dry run makes none.
fn change(before: Option<&DynamicObject>, after: &DynamicObject) -> Change {
    match before {
        None => Change::Created,
        Some(before) if essence(before) == essence(after) => Change::Unchanged,
        Some(_) => Change::Configured,
    }
}

/// An object without what applying it does not set.
fn essence(object: &DynamicObject) -> Value {
    let mut object = json!(object);
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for own in ["managedFields", "resourceVersion"] {
            metadata.remove(own);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, url: &str, phase: &str) -> DynamicObject {
        let object = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
            "metadata": {"name": "a", "resourceVersion": version, "managedFields": [{"manager": version}]},
            "spec": {"url": url}, "status": {"phase": phase},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_what_is_applied_counts_as_a_change() {
        let before = object("1", "http://a", "Queued");
        assert_eq!(change(None, &before), Change::Created);
        assert_eq!(change(Some(&before), &object("2", "http://a", "Syncing")), Change::Unchanged);
        assert_eq!(change(Some(&before), &object("2", "http://b", "Queued")), Change::Configured);
    }
}
