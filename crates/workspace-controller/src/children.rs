//! What a Workspace is made of: one file per kind, each a pure function from facts to the whole object. What is common to
//! them, owner and labels, is here. Which of their fields are kept as they are made is a table in [`owned`](crate::owned).

pub mod claim;
pub mod deployment;
mod door;
pub mod host_aliases;
pub mod image;
pub mod machine;
pub mod network_policy;
pub mod service;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use otctl_types::Workspace;
use otctl_types::names::REVISION_ANNOTATION;
use policy::Policy;
use serde::Serialize;

use crate::config::Settings;
use crate::names::{self, Component};

/// Everything that a child is made from, besides its entry.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The owner.
    pub workspace: &'a Workspace,
    /// The namespace that it was accepted in.
    pub namespace: &'a str,
    /// Settings of the Deployment of this controller.
    pub settings: &'a Settings,
    /// The policy in effect.
    pub policy: &'a Policy,
}

impl Facts<'_> {
    /// The workspace's name.
    pub fn name(&self) -> String {
        self.workspace.name_any()
    }

    /// The workspace's UID.
    pub fn uid(&self) -> String {
        self.workspace.uid().unwrap_or_default()
    }

    /// Name of the Service, and of the Deployment or VirtualMachine, of an entry.
    pub fn child_name(&self, entry: &str) -> String {
        names::child_name(&self.name(), &self.uid(), entry)
    }

    /// Name, namespace, owner and labels of a child.
    fn meta(&self, name: String, component: Component, entry: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.to_owned()),
            owner_references: Some(vec![controller(self.workspace)]),
            labels: Some(names::child_labels(&self.name(), &self.uid(), component, entry)),
            ..ObjectMeta::default()
        }
    }

    /// Metadata of the pods of an entry, as a template carries it.
    fn pod_meta(&self, component: Component, entry: &str) -> ObjectMeta {
        ObjectMeta {
            labels: Some(names::pod_labels(&self.name(), &self.uid(), component, entry)),
            ..ObjectMeta::default()
        }
    }
}

/// The controller owner reference. A cluster-scoped owner may own in every namespace.
fn controller(workspace: &Workspace) -> OwnerReference {
    OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..owner(workspace) }
}

/// An owner reference that decides nothing but how long the object lives.
fn owner(workspace: &Workspace) -> OwnerReference {
    OwnerReference {
        api_version: Workspace::api_version(&()).into_owned(),
        kind: Workspace::kind(&()).into_owned(),
        name: workspace.name_any(),
        uid: workspace.uid().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Notes on a child what it was made from. A field that is not asked for any more leaves no other trace in what is to be
/// applied: without this the child would look as it should.
fn note_revision(metadata: &mut ObjectMeta, made_from: &impl Serialize) {
    let text = serde_json::to_string(made_from).expect("a Kubernetes object serialises");
    let revision = (REVISION_ANNOTATION.to_owned(), names::hash(&text, 16));
    metadata.annotations.get_or_insert_default().extend([revision]);
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
