//! The snapshot controller: it cuts a snapshot at one moment, and says some time later that it can be used. Whether the
//! data was complete at the moment of the cut is recorded, because nothing in the API tells it afterwards.

use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::kubelet::{claims, is_ended};
use super::objects::State;
use super::{Id, Verb};
use crate::json::{is_deleting, text, uid};

/// A snapshot that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The VolumeSnapshot.
    pub snapshot: Key,
    /// Its UID.
    pub uid: String,
    /// Whether its claim held a complete disk at that moment, and no pod that could still write.
    pub complete: bool,
}

/// What is due for a VolumeSnapshot or its content.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    Cut,
    Refuse(&'static str),
    Ready,
    DropContent,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    match id.kind.as_str() {
        "VolumeSnapshot" => due_for_snapshot(state, id),
        "VolumeSnapshotContent" => {
            let owner = text(&state.get(id)?["spec"]["volumeSnapshotRef"]["uid"]);
            let is_used =
                state.of_kind("VolumeSnapshot").any(|(_, snapshot)| uid(snapshot) == owner);
            (!is_used).then_some(Deed::DropContent)
        }
        _ => None,
    }
}

fn due_for_snapshot(state: &State, id: &Id) -> Option<Deed> {
    let snapshot = state.get(id).filter(|snapshot| !is_deleting(snapshot))?;
    if !snapshot["status"]["boundVolumeSnapshotContentName"].is_null() {
        let has_content = state.get(&content_of(snapshot)).is_some();
        return (has_content && snapshot["status"]["readyToUse"] != json!(true))
            .then_some(Deed::Ready);
    }
    let class = Key::new("", text(&snapshot["spec"]["volumeSnapshotClassName"]));
    let claim = state.get(&claim_of(id, snapshot));
    let refusal = match claim {
        _ if state.get(&Id::new("VolumeSnapshotClass", &class)).is_none() => {
            Some("no such VolumeSnapshotClass")
        }
        None => Some("no such claim"),
        Some(_) => None,
    };
    if let Some(why) = refusal {
        return (snapshot["status"]["error"]["message"] != why).then_some(Deed::Refuse(why));
    }
    claim.filter(|claim| claim["status"]["phase"] == "Bound").map(|_| Deed::Cut)
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    match deed {
        Deed::Cut => {
            let complete = cut(state, id);
            format!(
                "VolumeSnapshot {} is cut from {} data",
                id.key,
                if complete { "complete" } else { "incomplete" }
            )
        }
        Deed::Refuse(why) => {
            let time = state.timestamp();
            state.update_status(id, |snapshot| {
                snapshot["status"] =
                    json!({"readyToUse": false, "error": {"message": why, "time": time}});
            });
            format!("VolumeSnapshot {} is refused: {why}", id.key)
        }
        Deed::Ready => {
            let snapshot = state.get(id).expect("a deed is about what is held").clone();
            state.update_status(&content_of(&snapshot), |content| {
                content["status"]["readyToUse"] = json!(true);
            });
            state.update_status(id, |snapshot| snapshot["status"]["readyToUse"] = json!(true));
            format!("VolumeSnapshot {} is ready", id.key)
        }
        Deed::DropContent => {
            state.remove(id);
            format!("{id} is dropped")
        }
    }
}

/// The content that a snapshot says it is bound to.
fn content_of(snapshot: &Value) -> Id {
    let name = text(&snapshot["status"]["boundVolumeSnapshotContentName"]);
    Id::new("VolumeSnapshotContent", &Key::new("", name))
}

fn claim_of(id: &Id, snapshot: &Value) -> Id {
    let name = text(&snapshot["spec"]["source"]["persistentVolumeClaimName"]);
    Id::new("PersistentVolumeClaim", &Key::new(&id.key.namespace, name))
}

fn cut(state: &mut State, id: &Id) -> bool {
    let snapshot = state.get(id).expect("a deed is about what is held").clone();
    let claim_id = claim_of(id, &snapshot);
    let claim = state.get(&claim_id).expect("a snapshot is cut from a claim that is held").clone();
    let complete = state.complete.contains(uid(&claim)) && !is_mounted(state, &claim_id.key);
    if complete {
        state.complete.insert(uid(&snapshot).to_owned());
    }
    state.cuts.push(Cut { snapshot: id.key.clone(), uid: uid(&snapshot).to_owned(), complete });
    let content = Key::new("", &format!("snapcontent-{}", uid(&snapshot)));
    let size = bytes(text(&claim["spec"]["resources"]["requests"]["storage"]));
    make_content(state, &content, &snapshot, size);
    let (time, requested) =
        (state.timestamp(), claim["spec"]["resources"]["requests"]["storage"].clone());
    let mut bound = snapshot;
    bound["status"] = json!({
        "boundVolumeSnapshotContentName": content.name, "creationTime": time, "readyToUse": false,
        "restoreSize": requested,
    });
    state.update(id, bound, Verb::Status);
    complete
}

fn make_content(state: &mut State, key: &Key, snapshot: &Value, size: Option<i64>) {
    let class = Id::new(
        "VolumeSnapshotClass",
        &Key::new("", text(&snapshot["spec"]["volumeSnapshotClassName"])),
    );
    let driver = state.get(&class).map(|class| class["driver"].clone()).unwrap_or_default();
    let metadata = &snapshot["metadata"];
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": key.name},
        "spec": {
            "deletionPolicy": "Delete", "driver": driver, "volumeSnapshotClassName": class.key.name,
            "volumeSnapshotRef": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
        },
        "status": {"readyToUse": false, "restoreSize": size, "snapshotHandle": format!("handle-{}", uid(snapshot))},
    });
    state.insert(Id::new("VolumeSnapshotContent", key), content);
}

fn is_mounted(state: &State, claim: &Key) -> bool {
    let pods = state
        .of_kind("Pod")
        .filter(|(id, pod)| id.key.namespace == claim.namespace && !is_ended(pod));
    pods.into_iter().any(|(_, pod)| claims(pod).any(|name| name == claim.name))
}

/// A quantity in bytes, for whole numbers with a binary suffix or none: what claims here ask for.
fn bytes(quantity: &str) -> Option<i64> {
    let digits = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &quantity[digits.len()..] {
        "" => 0,
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        _ => return None,
    };
    digits.parse::<i64>().ok().map(|number| number << shift)
}
