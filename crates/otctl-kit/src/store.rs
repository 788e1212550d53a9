//! What the watches have seen: one [`Store`] per kind, fed by [`watch`](crate::watch) in production and by the
//! in-memory world in sequence tests. Reads from it may be stale; decisions that must not be use
//! [`Reader`](crate::reader::Reader).

mod gone;
mod key;
mod listing;
mod scoped;
mod version;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube::Resource;
use tokio::sync::watch;

pub use self::key::Key;
pub use self::listing::{Listing, OlderList};
pub use self::scoped::Scoped;
pub use self::version::Version;

use self::gone::Gone;
use crate::cluster::Target;
use crate::expectations::{Expectation, Fact};

/// Something that a watch saw.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is there, new or changed.
    Present(K),
    /// The object is gone; this was its last state.
    Gone(K),
    /// A complete list: what is not in it is gone.
    All(Vec<K>),
}

type Subscriber<K> = Box<dyn Fn(&K) + Send + Sync>;
type OnSynced = Box<dyn Fn() + Send + Sync>;

/// The last seen state of every object of a kind.
pub struct Store<K> {
    inner: Arc<RwLock<Inner<K>>>,
    subscribers: Arc<RwLock<Vec<Subscriber<K>>>>,
    on_installed: Arc<RwLock<Vec<OnSynced>>>,
    synced: Arc<watch::Sender<bool>>,
    /// Whether the server once refused to tell of the kind.
    refused: Arc<watch::Sender<bool>>,
}

struct Inner<K> {
    objects: HashMap<Key, Arc<K>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
    /// What went lately.
    gone: Gone,
    /// Everything of the kind up to this version was seen: a watch tells in order.
    reached: Version,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            subscribers: self.subscribers.clone(),
            on_installed: self.on_installed.clone(),
            synced: self.synced.clone(),
            refused: self.refused.clone(),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        let inner = Inner {
            objects: HashMap::new(),
            by_owner: HashMap::new(),
            gone: Gone::default(),
            reached: Version::default(),
        };
        Self {
            inner: Arc::new(RwLock::new(inner)),
            subscribers: Arc::default(),
            on_installed: Arc::default(),
            synced: Arc::new(watch::Sender::new(false)),
            refused: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Store<K> {
    /// The object of that key as last seen.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|inner| inner.objects.get(key).cloned())
    }

    /// Everything, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|inner| inner.objects.values().cloned().collect())
    }

    /// Everything whose controller owner has that UID, ordered by key.
    #[must_use]
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.read(|inner| {
            let keys = inner.by_owner.get(uid);
            keys.into_iter().flatten().filter_map(|key| inner.objects.get(key).cloned()).collect()
        })
    }

    /// Whether a complete list was seen, and the kind has not been taken away since.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until a complete list was seen.
    pub async fn synced(&self) {
        let mut receiver = self.synced.subscribe();
        receiver.wait_for(|synced| *synced).await.expect("the store holds the sender");
    }

    /// The server refuses to tell of the kind: it is not installed, or none of our business. So there is none for us.
    pub fn refuse(&self) {
        self.refused.send_replace(true);
    }

    /// The kind is not installed any more, and so there is nothing of it.
    pub fn uninstalled(&self) {
        let gone = self.write(|inner| inner.replace(Vec::new()));
        if self.synced.send_replace(false) {
            self.wake_for_kind();
        }
        self.wake(&gone);
    }

    /// Waits until a complete list was seen, or the server refused one: before, what is not there may only be unseen.
    pub async fn told(&self) {
        let mut refused = self.refused.subscribe();
        tokio::select! {
            () = self.synced() => {}
            refused = refused.wait_for(|refused| *refused) => {
                drop(refused.expect("the store holds the sender"));
            }
        }
    }

    /// Whether it shows what a write made so. Other kinds are none of its business: of them it has seen everything. An
    /// object that was written and went before anything of it was told is covered by how far the whole kind was told.
    #[must_use]
    pub fn has_seen(&self, expectation: &Expectation) -> bool {
        let Expectation { target, fact } = expectation;
        !is_of::<K>(target) || self.read(|inner| inner.has_seen(&key_of(target), fact))
    }

    /// Everything up to `version` was taken in, whether or not there was anything.
    pub fn reached(&self, version: Version) {
        self.write(|inner| inner.reached = inner.reached.max(version));
    }

    /// Calls `wake` for every object that changes from now on, with its last state when it is gone.
    pub fn subscribe(&self, wake: impl Fn(&K) + Send + Sync + 'static) {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(wake));
    }

    /// Calls `wake` when the first complete list was seen: of a kind that was not installed, say, and is now, though there
    /// be no object of it. And when the kind was taken away.
    pub fn when_installed(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.on_installed.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(wake));
    }

    /// A complete list was seen.
    fn set_synced(&self) {
        if !self.synced.send_replace(true) {
            self.wake_for_kind();
        }
    }

    fn wake_for_kind(&self) {
        let wakes = self.on_installed.read().unwrap_or_else(PoisonError::into_inner);
        wakes.iter().for_each(|wake| wake());
    }

    /// Takes in what a watch saw. A version older than the one held, or than the one that went, is ignored: a replayed or
    /// late event never takes an object back in time, nor back from the dead.
    pub fn apply(&self, change: Change<K>) {
        let complete = matches!(change, Change::All(_));
        let changed = self.write(|inner| inner.apply(change));
        if complete {
            self.set_synced();
        }
        self.wake(&changed);
    }

    /// A complete list that comes object by object.
    #[must_use]
    pub fn listing(&self) -> Listing<K> {
        Listing::of(self.clone())
    }

    fn wake(&self, changed: &[Arc<K>]) {
        let subscribers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for object in changed {
            subscribers.iter().for_each(|wake| wake(object));
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Inner<K>) -> T) -> T {
        change(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, look: impl FnOnce(&Inner<K>) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Resource<DynamicType = ()>> Inner<K> {
    /// Returns what changed.
    fn apply(&mut self, change: Change<K>) -> Vec<Arc<K>> {
        self.reached = self.reached.max(change.version());
        match change {
            Change::Present(object) => self.put(object).into_iter().collect(),
            Change::Gone(object) => self.remove(&object).into_iter().collect(),
            Change::All(objects) => self.replace(objects),
        }
    }

    fn has_seen(&self, key: &Key, fact: &Fact) -> bool {
        let held = self.objects.get(key);
        match fact {
            Fact::Reached(version) => self.reached >= *version,
            Fact::Left(version) => held.is_none_or(|held| Version::of(&**held) > *version),
            Fact::Gone { uid } => {
                held.is_none_or(|held| held.meta().uid.as_deref() != Some(uid.as_str()))
            }
        }
    }

    fn put(&mut self, object: K) -> Option<Arc<K>> {
        let key = Key::of(&object);
        let version = Version::of(&object);
        let held = self.objects.get(&key).map(|held| Version::of(&**held));
        if held.is_some_and(|held| held >= version) || self.gone.since(&key, version) {
            return None;
        }
        self.unlink(&key);
        let object = Arc::new(object);
        for uid in controllers(&*object) {
            self.by_owner.entry(uid).or_default().insert(key.clone());
        }
        self.objects.insert(key, object.clone());
        Some(object)
    }

    fn remove(&mut self, object: &K) -> Option<Arc<K>> {
        let (key, version) = (Key::of(object), Version::of(object));
        let held = self.objects.get(&key);
        if held.is_some_and(|held| Version::of(&**held) > version) {
            return None;
        }
        self.bury(&key, version)
    }

    fn replace(&mut self, objects: Vec<K>) -> Vec<Arc<K>> {
        let listed: HashSet<Key> = objects.iter().map(Key::of).collect();
        let mut changed = self.retain(&listed);
        changed.extend(objects.into_iter().filter_map(|object| self.put(object)));
        changed
    }

    /// Everything else is gone.
    fn retain(&mut self, listed: &HashSet<Key>) -> Vec<Arc<K>> {
        let held = self.objects.iter().filter(|(key, _)| !listed.contains(key));
        let absent: Vec<(Key, Version)> =
            held.map(|(key, held)| (key.clone(), Version::of(&**held))).collect();
        absent.iter().filter_map(|(key, version)| self.bury(key, *version)).collect()
    }

    fn bury(&mut self, key: &Key, version: Version) -> Option<Arc<K>> {
        self.gone.note(key, version);
        self.unlink(key)
    }

    fn unlink(&mut self, key: &Key) -> Option<Arc<K>> {
        let held = self.objects.remove(key)?;
        for uid in controllers(&*held) {
            if let Some(keys) = self.by_owner.get_mut(&uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(&uid);
                }
            }
        }
        Some(held)
    }
}

impl<K: Resource> Change<K> {
    /// The latest version in it.
    fn version(&self) -> Version {
        match self {
            Self::Present(object) | Self::Gone(object) => Version::of(object),
            Self::All(objects) => objects.iter().map(Version::of).max().unwrap_or_default(),
        }
    }
}

fn is_of<K: Resource<DynamicType = ()>>(target: &Target) -> bool {
    target.resource.kind == K::kind(&()) && target.resource.group == K::group(&())
}

fn key_of(target: &Target) -> Key {
    Key::new(target.namespace.as_deref().unwrap_or_default(), &target.name)
}

fn controllers<K: Resource>(object: &K) -> Vec<String> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
}

#[cfg(test)]
mod tests;
