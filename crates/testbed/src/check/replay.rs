//! Goes through a history version by version, with what was alive at each.

use std::collections::BTreeMap;

use otctl_types::names::{ATTEMPT_ANNOTATION, ROLE_LABEL};
use serde_json::{Value, json};

use crate::json::{controller, is_condition_true, items, text, uid};
use crate::world::{Id, Version};

/// The world at one version.
#[derive(Default)]
pub(super) struct Replay<'a> {
    live: BTreeMap<&'a Id, &'a Value>,
    /// The last state of every UID, of the dead too.
    last: BTreeMap<&'a str, &'a Value>,
}

/// An import pod or Job: whose, and which attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    /// UID of the image.
    pub(super) image: String,
    /// Number of the attempt.
    pub(super) attempt: i64,
}

impl<'a> Replay<'a> {
    /// Calls `look` with the world after each version, that version, and what its object was before.
    pub(super) fn walk(
        history: &'a [Version],
        mut look: impl FnMut(&Self, &'a Version, Option<&'a Value>),
    ) {
        let mut replay = Self::default();
        for version in history {
            let before = replay.live.get(&version.id).copied();
            replay.last.insert(uid(&version.object), &version.object);
            if version.is_removal() {
                replay.live.remove(&version.id);
            } else {
                replay.live.insert(&version.id, &version.object);
            }
            look(&replay, version, before);
        }
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.live.iter().filter(move |(id, _)| id.kind == kind).map(|(_, object)| *object)
    }

    pub(super) fn everything(&self) -> impl Iterator<Item = &'a Value> {
        self.live.values().copied()
    }

    pub(super) fn is_alive(&self, wanted: &str) -> bool {
        self.live.values().any(|object| uid(object) == wanted)
    }

    /// The last state of the object of that UID, dead or alive.
    pub(super) fn last_of(&self, uid: &str) -> Option<&'a Value> {
        self.last.get(uid).copied()
    }

    /// The ledger's entries.
    pub(super) fn active(&self) -> Vec<&'a Value> {
        self.of_kind("AdmissionQueue").flat_map(|queue| items(&queue["status"]["active"])).collect()
    }

    /// The import pods that have not ended, with what they are for.
    pub(super) fn import_pods(&self) -> Vec<(&'a Value, Slot)> {
        let pods = self
            .of_kind("Pod")
            .filter(|pod| !matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed"));
        pods.filter_map(|pod| Some((pod, self.slot_of_pod(pod)?))).collect()
    }

    pub(super) fn slot_of_pod(&self, pod: &Value) -> Option<Slot> {
        slot_of_job(self.last_of(text(&controller(pod)?["uid"]))?)
    }
}

/// What an import Job is for; none when it is no import Job of an image.
pub(super) fn slot_of_job(job: &Value) -> Option<Slot> {
    let owner = controller(job).filter(|owner| owner["kind"] == "VMDiskImage")?;
    let is_import = job["kind"] == "Job" && job["metadata"]["labels"][ROLE_LABEL] == "import";
    let attempt = text(&job["metadata"]["annotations"][ATTEMPT_ANNOTATION]).parse().ok()?;
    is_import.then(|| Slot { image: text(&owner["uid"]).to_owned(), attempt })
}

/// What an entry of the ledger is for.
pub(super) fn slot_of_entry(entry: &Value) -> Slot {
    Slot { image: text(&entry["uid"]).to_owned(), attempt: entry["attempt"].as_i64().unwrap_or(0) }
}

/// Whether a Job may have a pod.
pub(super) fn is_started(job: &Value) -> bool {
    job["spec"]["suspend"] != json!(true)
}

/// Whether a Job is over.
pub(super) fn is_finished(job: &Value) -> bool {
    is_condition_true(job, "Complete") || is_condition_true(job, "Failed")
}
