//! What the watches have seen: one [`Store`] per kind, fed by [`watch`](crate::watch) in production and by the
//! in-memory world in sequence tests. Reads from it may be stale; decisions that must not be use
//! [`Reader`](crate::reader::Reader).

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use kube::Resource;
use tokio::sync::watch;

use crate::cluster::Target;
use crate::expectations::{Expectation, Fact};

/// Names an object within its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    /// The namespace, if there is one.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// A resourceVersion. They compare as integers (Kubernetes 1.35 says so; etcd's revisions always did), within a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u128);

impl Version {
    /// The version of that text; an unreadable one is the oldest.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self(text.parse().unwrap_or_default())
    }

    /// The version of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        object.meta().resource_version.as_deref().map(Self::read).unwrap_or_default()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

/// The last seen state of every object of a kind.
pub struct Store<K> {
    inner: Arc<RwLock<Inner<K>>>,
    subscribers: Arc<RwLock<Vec<Subscriber<K>>>>,
    synced: Arc<watch::Sender<bool>>,
}

struct Inner<K> {
    objects: HashMap<Key, Arc<K>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
    /// Everything of the kind up to this version was seen: a watch tells in order.
    reached: Version,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            subscribers: self.subscribers.clone(),
            synced: self.synced.clone(),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        let inner = Inner {
            objects: HashMap::new(),
            by_owner: HashMap::new(),
            reached: Version::default(),
        };
        Self {
            inner: Arc::new(RwLock::new(inner)),
            subscribers: Arc::default(),
            synced: Arc::new(watch::Sender::new(false)),
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

    /// Whether a complete list was seen once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until a complete list was seen.
    pub async fn synced(&self) {
        let mut receiver = self.synced.subscribe();
        receiver.wait_for(|synced| *synced).await.expect("the store holds the sender");
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
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.reached = inner.reached.max(version);
    }

    /// Calls `wake` for every object that changes from now on, with its last state when it is gone.
    pub fn subscribe(&self, wake: impl Fn(&K) + Send + Sync + 'static) {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(wake));
    }

    /// Takes in what a watch saw. A version older than the one held is ignored: a replayed or late event never takes
    /// an object back in time.
    pub fn apply(&self, change: Change<K>) {
        let complete = matches!(change, Change::All(_));
        let changed = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            inner.apply(change)
        };
        if complete {
            self.synced.send_replace(true);
        }
        let subscribers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for object in &changed {
            subscribers.iter().for_each(|wake| wake(object));
        }
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
        if let Some(held) = self.objects.get(&key)
            && Version::of(&**held) >= Version::of(&object)
        {
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
        let key = Key::of(object);
        let held = self.objects.get(&key)?;
        if Version::of(&**held) > Version::of(object) {
            return None;
        }
        self.unlink(&key)
    }

    fn replace(&mut self, objects: Vec<K>) -> Vec<Arc<K>> {
        let listed: BTreeSet<Key> = objects.iter().map(Key::of).collect();
        let absent: Vec<Key> =
            self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let mut changed: Vec<Arc<K>> = absent.iter().filter_map(|key| self.unlink(key)).collect();
        changed.extend(objects.into_iter().filter_map(|object| self.put(object)));
        changed
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
