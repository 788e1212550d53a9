//! The storage's provisioner, and the protection of claims that a pod uses.

use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::kubelet::claims;
use super::objects::{CLAIM_IN_USE, State};
use super::{Id, Verb};
use crate::json::{is_deleting, list, text, uid};

/// Marks the class of claims that name none.
pub(super) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What is due for a claim.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    Bind,
    Unprotect,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let claim = state.get(id).filter(|_| id.kind == "PersistentVolumeClaim")?;
    if is_deleting(claim) {
        let is_protected =
            crate::json::items(&claim["metadata"]["finalizers"]).contains(&json!(CLAIM_IN_USE));
        // A pod that has ended uses its claims until it is removed, as on a real cluster.
        let is_used = users(state, &id.key).any(is_scheduled);
        return (is_protected && !is_used).then_some(Deed::Unprotect);
    }
    let is_waiting = matches!(text(&claim["status"]["phase"]), "" | "Pending");
    (is_waiting && may_bind(state, &id.key, claim)).then_some(Deed::Bind)
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    match deed {
        Deed::Bind => {
            bind(state, id);
            format!("claim {} is bound", id.key)
        }
        Deed::Unprotect => {
            let mut claim = state.get(id).expect("a deed is about what is held").clone();
            list(&mut claim["metadata"]["finalizers"])
                .retain(|finalizer| finalizer != CLAIM_IN_USE);
            state.update(id, claim, Verb::Update);
            format!("claim {} is not in use any more", id.key)
        }
    }
}

fn is_scheduled(pod: &Value) -> bool {
    !text(&pod["spec"]["nodeName"]).is_empty()
}

fn users<'a>(state: &'a State, claim: &'a Key) -> impl Iterator<Item = &'a Value> {
    let pods = state.of_kind("Pod").filter(|(id, _)| id.key.namespace == claim.namespace);
    pods.map(|(_, pod)| pod).filter(|pod| claims(pod).any(|name| name == claim.name))
}

fn may_bind(state: &State, key: &Key, claim: &Value) -> bool {
    let Some(class) = class(state, claim) else { return false };
    let waits_for_pod = class["volumeBindingMode"] == "WaitForFirstConsumer";
    let source = snapshot_source(state, key, claim);
    let has_source = source
        .is_none_or(|snapshot| snapshot.is_some_and(|s| s["status"]["readyToUse"] == json!(true)));
    has_source && (!waits_for_pod || users(state, key).next().is_some())
}

fn class<'a>(state: &'a State, claim: &Value) -> Option<&'a Value> {
    let named = text(&claim["spec"]["storageClassName"]);
    let mut classes = state.of_kind("StorageClass").map(|(_, class)| class);
    classes.find(|class| {
        let is_default = class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
        if named.is_empty() { is_default } else { class["metadata"]["name"] == named }
    })
}

/// None when the claim is to be empty; `Some(None)` when the snapshot it is to be filled from is absent.
fn snapshot_source<'a>(state: &'a State, key: &Key, claim: &Value) -> Option<Option<&'a Value>> {
    let source = ["dataSource", "dataSourceRef"].map(|field| &claim["spec"][field]);
    let source = source.into_iter().find(|source| source["kind"] == "VolumeSnapshot")?;
    Some(state.get(&Id::new("VolumeSnapshot", &Key::new(&key.namespace, text(&source["name"])))))
}

fn bind(state: &mut State, id: &Id) {
    let mut claim = state.get(id).expect("a deed is about what is held").clone();
    let filled_from =
        snapshot_source(state, &id.key, &claim).flatten().map(|snapshot| uid(snapshot).to_owned());
    if filled_from.is_some_and(|snapshot| state.complete.contains(&snapshot)) {
        state.complete.insert(uid(&claim).to_owned());
    }
    if text(&claim["spec"]["storageClassName"]).is_empty() {
        let name =
            class(state, &claim).map(|class| class["metadata"]["name"].clone()).unwrap_or_default();
        claim["spec"]["storageClassName"] = name;
    }
    claim["spec"]["volumeName"] = json!(format!("pvc-{}", uid(&claim)));
    claim["status"]["phase"] = json!("Bound");
    claim["status"]["accessModes"] = claim["spec"]["accessModes"].clone();
    claim["status"]["capacity"] = claim["spec"]["resources"]["requests"].clone();
    state.update(id, claim, Verb::Update);
}
