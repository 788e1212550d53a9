//! The cluster in memory: objects as JSON, one resourceVersion for all, and a history of every committed version.
//!
//! Here is what tests and controllers call. How objects change is in `objects`, what the API server answers in
//! `requests`, what the other components of a cluster do in a file each.

mod actors;
mod apply;
mod collector;
mod history;
mod jobs;
mod kubelet;
mod namespaces;
mod objects;
mod requests;
mod schema;
mod snapshots;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::Resource;
use otctl_kit::cluster::{Answer, ApiError, Request};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use actors::{Act, Actor};
pub use history::{Verb, Version};
pub use kubelet::Run;
pub use snapshots::Cut;
pub use workloads::Health;

use crate::clock::VirtualClock;
use crate::script::{Ending, Role};
use objects::State;

/// Names one object of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Its kind; no two API groups here share one.
    pub kind: String,
    /// Its namespace and name.
    pub key: Key,
}

impl Id {
    /// The object of that kind and key.
    #[must_use]
    pub fn new(kind: &str, key: &Key) -> Self {
        Self { kind: kind.to_owned(), key: key.clone() }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// A cluster. Clones are the same cluster.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    clock: VirtualClock,
}

impl World {
    /// An empty cluster that takes its time from `clock`.
    #[must_use]
    pub fn new(clock: &VirtualClock) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(clock.clone()))), clock: clock.clone() }
    }

    /// The clock of the cluster.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// What the API server answers to `request`, which `by` sends.
    ///
    /// # Errors
    /// As the API server does: absent, exists, precondition does not hold.
    pub fn request(&self, by: &str, request: Request) -> Result<Answer, ApiError> {
        let mut state = self.lock();
        state.by = by.to_owned();
        requests::answer(&mut state, request)
    }

    /// A user creates `object`; its status is kept, so that a test can begin in the middle.
    ///
    /// # Panics
    /// When it exists.
    pub fn create<K: Resource<DynamicType = ()> + Serialize>(&self, object: &K) -> Value {
        let object = serde_json::to_value(otctl_kit::cluster::erase(object))
            .expect("a dynamic object serialises");
        self.create_value(object)
    }

    /// As [`create`](Self::create), of a kind that has no Rust type here.
    ///
    /// # Panics
    /// When it exists.
    pub fn create_value(&self, object: Value) -> Value {
        let mut state = self.as_user();
        let id = objects::id_of(&object);
        assert!(state.get(&id).is_none(), "{id} exists");
        state.insert(id, object)
    }

    /// A user changes an object, status included, by `change`.
    ///
    /// # Panics
    /// When it does not exist.
    pub fn edit(&self, kind: &str, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut state = self.as_user();
        let id = Id::new(kind, key);
        let mut object = state.get(&id).unwrap_or_else(|| panic!("no {id} to edit")).clone();
        change(&mut object);
        state.update(&id, object, Verb::Update);
    }

    /// A user deletes an object.
    ///
    /// # Panics
    /// When it does not exist.
    pub fn delete(&self, kind: &str, key: &Key, propagation: Propagation) {
        let mut state = self.as_user();
        let id = Id::new(kind, key);
        assert!(state.get(&id).is_some(), "no {id} to delete");
        state.delete(&id, propagation);
    }

    /// The object as it is now.
    #[must_use]
    pub fn get(&self, kind: &str, key: &Key) -> Option<Value> {
        self.lock().get(&Id::new(kind, key)).cloned()
    }

    /// The object as it is now, as its type.
    ///
    /// # Panics
    /// When it has not the shape of `K`.
    #[must_use]
    pub fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(&self, key: &Key) -> Option<K> {
        let object = self.get(&K::kind(&()), key)?;
        Some(
            serde_json::from_value(object)
                .unwrap_or_else(|error| panic!("{} {key}: {error}", K::kind(&()))),
        )
    }

    /// All objects of a kind, by key.
    #[must_use]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.lock().of_kind(kind).map(|(_, object)| object.clone()).collect()
    }

    /// Every object.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        self.lock().objects().map(|(_, object)| object.clone()).collect()
    }

    /// Looks at every version ever committed, oldest first.
    pub fn history<T>(&self, look: impl FnOnce(&[Version]) -> T) -> T {
        look(self.lock().history())
    }

    /// resourceVersion of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.lock().revision()
    }

    /// The next run of that image and role which is not scripted yet ends like this.
    pub fn script(&self, image: &Key, role: Role, ending: Ending) {
        let mut state = self.lock();
        state.acts = None;
        state.scripts.push(image.clone(), role, ending);
    }

    /// Every run of that image and role beyond the scripted ones ends like this.
    pub fn script_always(&self, image: &Key, role: Role, ending: Ending) {
        let mut state = self.lock();
        state.acts = None;
        state.scripts.fall_back(image.clone(), role, ending);
    }

    /// From now on the pods of that entry of a workspace fare so.
    pub fn fare(&self, entry: &str, health: Health) {
        let mut state = self.lock();
        state.acts = None;
        state.fates.insert(entry.to_owned(), health);
    }

    /// Every run of the importer that has ended, in order.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.lock().runs.clone()
    }

    /// How many downloads the source of an image has seen.
    #[must_use]
    pub fn downloads(&self, image: &Key) -> usize {
        self.lock().runs.iter().filter(|run| run.download_started && run.image == *image).count()
    }

    /// Every snapshot that was cut, in order.
    #[must_use]
    pub fn cuts(&self) -> Vec<Cut> {
        self.lock().cuts.clone()
    }

    /// Whether the claim of that UID holds a complete disk.
    #[must_use]
    pub fn has_complete_data(&self, claim_uid: &str) -> bool {
        self.lock().complete.contains(claim_uid)
    }

    /// What the other components of the cluster could do now.
    #[must_use]
    pub fn acts(&self) -> Vec<Act> {
        actors::pending(&mut self.lock())
    }

    /// Lets a component do one thing; says what it did.
    ///
    /// # Panics
    /// When it has nothing to do with that object now.
    pub fn perform(&self, act: &Act) -> String {
        let mut state = self.lock();
        state.by = act.actor.to_string();
        actors::perform(&mut state, act)
    }

    /// When a component will have something to do that it has not now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        actors::next_deadline(&self.lock())
    }

    fn as_user(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.by = "user".to_owned();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
