//! `Workspace` for commands.

mod observe;
mod tree;

use std::collections::BTreeSet;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use otctl_types::Workspace;
use otctl_types::condition::READY;

use super::{Kind, Retry};
use crate::cli::Goal;
use crate::client::Cluster;
use crate::progress::Progress;
use crate::tree::Node;

/// Workspaces.
pub(super) struct Workspaces;

impl Kind for Workspaces {
    fn resource(&self) -> ApiResource {
        ApiResource::erase::<Workspace>(&())
    }

    fn is_namespaced(&self) -> bool {
        false
    }

    fn names(&self) -> &'static [&'static str] {
        &["workspace", "workspaces", "ws"]
    }

    fn suspend_field(&self) -> &'static str {
        "suspended"
    }

    /// What there is of a workspace can be used once it is ready.
    fn available(&self) -> &'static str {
        READY
    }

    /// Everything that is asked of a workspace stands in its spec.
    fn has_heard(&self, _: &DynamicObject) -> bool {
        true
    }

    /// How many parts are ready.
    fn progress(&self, object: &DynamicObject) -> Progress {
        let told = object.data["status"]["readyParts"].as_str();
        told.and_then(Progress::of_told_parts).unwrap_or_default()
    }

    /// It goes on by itself whenever the cause goes; what can be asked again is an image that has failed.
    fn retry<'a>(
        &'a self,
        _: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Retry>> {
        async { Ok(Retry::Nothing(retry(&read(object)?))) }.boxed()
    }

    fn describe<'a>(
        &'a self,
        cluster: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Node>> {
        async {
            let standing = (self as &dyn Kind).judge(object, Goal::Ready);
            let facts = observe::observe(cluster, read(object)?, standing).await;
            Ok(tree::tree(&facts, Timestamp::now()))
        }
        .boxed()
    }
}

fn read(object: &DynamicObject) -> anyhow::Result<Workspace> {
    object
        .clone()
        .try_parse()
        .context("the cluster's Workspace is of another form than this program knows")
}

fn retry(workspace: &Workspace) -> String {
    let status = workspace.status.as_ref();
    let machines = status.and_then(|it| it.resource_status.as_ref()).into_iter();
    let machines = machines.flat_map(|it| &it.virtual_machines);
    let failed = machines.filter(|it| it.phase.as_deref() == Some("Failed"));
    // Entries may share an image, and each time that it is named gives it one more budget.
    let names: BTreeSet<_> = failed.filter_map(|it| it.image.as_deref()).collect();
    let namespace = status.and_then(|it| it.namespace.as_deref()).unwrap_or_default();
    if names.is_empty() {
        return "a workspace goes on by itself when its cause goes; see otctl describe".to_owned();
    }
    let names: Vec<_> = names.iter().map(|name| format!("vmdi/{name}")).collect();
    format!("ask its failed images again: otctl retry {} -n {namespace}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::Verdict;

    fn workspace(status: &Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": {"name": "lab"},
            "spec": {"containers": [{"name": "api", "image": "registry/api:1"}]}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn progress_is_in_parts() {
        let of = |parts: Value| Workspaces.progress(&workspace(&json!({"readyParts": parts})));
        assert_eq!(
            (of(json!("3/5")).text, of(json!("3/5")).percent()),
            ("3 of 5 parts".to_owned(), Some(60))
        );
        assert_eq!(of(Value::Null), Progress::default());
        assert_eq!(of(json!("many")), Progress::default());
    }

    #[test]
    fn a_workspace_is_available_when_it_is_ready() {
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-05-01T12:00:00Z"});
        let all: &dyn Kind = &Workspaces;
        let of = |status: Value| all.judge(&workspace(&status), Goal::Available).verdict;
        assert_eq!(of(json!({"observedGeneration": 1, "conditions": [ready]})), Verdict::Reached);
        assert_eq!(of(json!({"observedGeneration": 1})), Verdict::Going);
    }

    #[test]
    fn what_can_be_asked_again_is_an_image() {
        let of = |status: Value| retry(&read(&workspace(&status)).unwrap());
        let failed = json!({"namespace": "labs", "resourceStatus": {"virtualMachines": [
            {"name": "db", "image": "debian", "phase": "Failed"},
            {"name": "web", "image": "alpine", "phase": "Succeeded"},
            {"name": "twin", "image": "debian", "phase": "Failed"},
            {"name": "data", "image": "arch", "phase": "Failed"},
        ]}});
        assert!(of(failed).ends_with("otctl retry vmdi/arch vmdi/debian -n labs"));
        assert!(of(json!({})).contains("by itself"));
    }
}
