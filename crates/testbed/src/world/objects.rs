//! How objects come, change and go, whoever asks: UIDs, resourceVersions, generations, finalizers, deletion. Nothing
//! here knows a request.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::kubelet::{self, Run};
use super::snapshots::Cut;
use super::workloads::{self, Fates};
use super::{Act, Id, Verb, Version, namespaces};
use crate::clock::VirtualClock;
use crate::json::{controller, is_deleting, items, list, text, uid};
use crate::script::Scripts;

/// The finalizer by which the garbage collector keeps an object until its dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer by which a claim stays while a pod uses it.
pub(super) const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";

/// Everything the world knows.
pub(super) struct State {
    objects: BTreeMap<Id, Value>,
    history: Vec<Version>,
    /// Where in the history the last version of each UID is.
    last: BTreeMap<String, usize>,
    revision: u64,
    uids: u64,
    clock: VirtualClock,
    /// Who writes now.
    pub(super) by: String,
    /// How pods will end.
    pub(super) scripts: Scripts,
    /// How the pods of workloads fare.
    pub(super) fates: Fates,
    /// Names of the namespaces that there ever were.
    pub(super) namespaces: BTreeSet<String>,
    /// Runs of the importer that have ended.
    pub(super) runs: Vec<Run>,
    /// Snapshots that were cut.
    pub(super) cuts: Vec<Cut>,
    /// UIDs of claims, and of snapshots, with a complete disk in them.
    pub(super) complete: BTreeSet<String>,
    /// What was applied last to each object, by its UID.
    pub(super) applied: BTreeMap<String, Value>,
    /// The pod that the Job controller made, by the UID of its Job.
    pub(super) pods_of_jobs: BTreeMap<String, Id>,
    /// What the components could do when that was asked last: at which revision, and when.
    pub(super) acts: Option<(u64, Timestamp, Vec<Act>)>,
}

impl State {
    pub(super) fn new(clock: VirtualClock) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: Vec::new(),
            last: BTreeMap::new(),
            revision: 0,
            uids: 0,
            clock,
            by: String::new(),
            scripts: Scripts::default(),
            fates: Fates::default(),
            namespaces: BTreeSet::new(),
            runs: Vec::new(),
            cuts: Vec::new(),
            complete: BTreeSet::new(),
            applied: BTreeMap::new(),
            pods_of_jobs: BTreeMap::new(),
            acts: None,
        }
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.iter()
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.iter().filter(move |(id, _)| id.kind == kind)
    }

    /// The object of that UID, or its last state if it is gone.
    pub(super) fn last_of(&self, wanted: &str) -> Option<&Value> {
        self.last.get(wanted).map(|at| &self.history[*at].object)
    }

    /// The living objects that name `owner` among their owners.
    pub(super) fn dependents<'a>(
        &'a self,
        owner: &'a str,
    ) -> impl Iterator<Item = (&'a Id, &'a Value)> {
        self.objects.iter().filter(move |(_, object)| {
            items(&object["metadata"]["ownerReferences"])
                .iter()
                .any(|reference| reference["uid"] == owner)
        })
    }

    pub(super) fn history(&self) -> &[Version] {
        &self.history
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time as objects carry it: whole seconds.
    pub(super) fn timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Five characters that no other name of this world ends in.
    pub(super) fn suffix(&mut self) -> String {
        self.uids += 1;
        format!("{:05x}", self.uids)
    }

    /// Commits a new object as it is given, with the metadata that the server sets.
    pub(super) fn insert(&mut self, id: Id, mut object: Value) -> Value {
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(self.timestamp());
        object["metadata"]["generation"] = json!(1);
        if id.kind == "Service" {
            workloads::address(self, &mut object);
        }
        if id.kind == "Namespace" {
            list(&mut object["metadata"]["finalizers"]).push(json!(namespaces::EMPTIED));
            self.namespaces.insert(id.key.name.clone());
        }
        if id.kind == "PersistentVolumeClaim" {
            list(&mut object["metadata"]["finalizers"]).push(json!(CLAIM_IN_USE));
        }
        self.commit(id, object, Verb::Created)
    }

    /// Commits a changed object. One that did not change keeps its version; one whose deletion waited for the last
    /// finalizer is removed.
    pub(super) fn update(&mut self, id: &Id, mut object: Value, verb: Verb) -> Value {
        let held = self.objects.get(id).expect("only what is held is updated");
        for field in
            ["uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp"]
        {
            object["metadata"][field] = held["metadata"][field].clone();
        }
        drop_empty_metadata(&mut object);
        if object == *held {
            return object;
        }
        let is_released =
            items(&object["metadata"]["finalizers"]).is_empty() && !kubelet::has_node(id, &object);
        if is_deleting(&object) && is_released {
            return self.remove(id);
        }
        if wanted(&object) != wanted(held) {
            object["metadata"]["generation"] =
                json!(held["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        self.commit(id.clone(), object, verb)
    }

    /// Commits `change` of the status of an object.
    pub(super) fn update_status(&mut self, id: &Id, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects.get(id).expect("only what is held is updated").clone();
        change(&mut object);
        self.update(id, object, Verb::Status);
    }

    /// Asks for the deletion of an object: it goes at once unless a finalizer, its dependents or its node hold it.
    pub(super) fn delete(&mut self, id: &Id, propagation: Propagation) {
        let mut object = self.objects.get(id).expect("only what is held is deleted").clone();
        let finalizers = list(&mut object["metadata"]["finalizers"]);
        if propagation == Propagation::Foreground && !finalizers.contains(&json!(FOREGROUND)) {
            finalizers.push(json!(FOREGROUND));
        }
        let is_held = !finalizers.is_empty()
            || (kubelet::has_node(id, &object) && !kubelet::is_ended(&object));
        drop_empty_metadata(&mut object);
        if !is_held {
            self.remove(id);
        } else if !is_deleting(&object) {
            object["metadata"]["deletionTimestamp"] = json!(self.timestamp());
            self.commit(id.clone(), object, Verb::Deleting);
        } else if Some(&object) != self.objects.get(id) {
            self.commit(id.clone(), object, Verb::Deleting);
        }
    }

    /// The object is gone.
    pub(super) fn remove(&mut self, id: &Id) -> Value {
        let object = self.objects.get(id).expect("only what is held is removed").clone();
        let object = self.commit(id.clone(), object, Verb::Removed);
        self.objects.remove(id);
        object
    }

    fn commit(&mut self, id: Id, mut object: Value, verb: Verb) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        drop_empty_metadata(&mut object);
        let version = Version {
            id: id.clone(),
            revision: self.revision,
            verb,
            by: self.by.clone(),
            object: object.clone(),
        };
        self.last.insert(uid(&object).to_owned(), self.history.len());
        self.history.push(version);
        self.objects.insert(id, object.clone());
        object
    }
}

/// The id of an object by its own metadata.
///
/// # Panics
/// When it has no kind or name.
pub(super) fn id_of(object: &Value) -> Id {
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    assert!(!kind.is_empty(), "an object without kind: {object}");
    Id::new(kind, &Key::new(text(&metadata["namespace"]), text(&metadata["name"])))
}

/// The image, or whatever else the controller owner of the controller owner of a pod is.
pub(super) fn grand_owner(state: &State, pod: &Value) -> Option<Key> {
    let job = state.last_of(text(&controller(pod)?["uid"]))?;
    let owner = controller(job)?;
    Some(Key::new(text(&job["metadata"]["namespace"]), text(&owner["name"])))
}

/// What the user wants: everything but metadata and status. A change of it is a new generation.
fn wanted(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = crate::json::map(&mut object);
    fields.remove("metadata");
    fields.remove("status");
    object
}

/// The API server sends no null, and no empty list, in metadata.
fn drop_empty_metadata(object: &mut Value) {
    let metadata = crate::json::map(&mut object["metadata"]);
    metadata.retain(|_, field| !field.is_null() && field != &json!([]));
}
