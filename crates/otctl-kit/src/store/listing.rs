//! A complete list that comes object by object. Each is taken in as it comes, so that at no time there are two of all;
//! only when the list is complete is what it lacks gone.

use std::collections::HashSet;

use kube::Resource;

use super::{Key, Store, Version};

/// A list is older than what was told before: it is no proof of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list at version {listed} is older than what was seen, {reached}")]
pub struct OlderList {
    /// The list's version.
    pub listed: Version,
    /// What was seen before.
    pub reached: Version,
}

/// A list under way. Dropping it leaves what it brought and takes nothing away.
pub struct Listing<K> {
    store: Store<K>,
    listed: HashSet<Key>,
    /// Something was listed that names no object: what the list lacks may be just that.
    has_unnamed: bool,
}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Listing<K> {
    pub(super) fn of(store: Store<K>) -> Self {
        Self { store, listed: HashSet::new(), has_unnamed: false }
    }

    /// Whether a list of this version tells anything.
    ///
    /// # Errors
    /// When it is older than what was seen.
    pub fn check(&self, listed: Version) -> Result<(), OlderList> {
        let reached = self.store.read(|inner| inner.reached);
        if listed < reached { Err(OlderList { listed, reached }) } else { Ok(()) }
    }

    /// The list holds `object`.
    pub fn present(&mut self, object: K) {
        self.listed.insert(Key::of(&object));
        let changed = self.store.write(|inner| inner.put(object));
        self.store.wake(changed.as_slice());
    }

    /// The list holds something that cannot be read: of that name, or without one. What is held stays.
    pub fn unreadable(&mut self, key: Option<Key>) {
        self.has_unnamed |= key.is_none();
        self.listed.extend(key);
    }

    /// That was all, at `version`: what was not listed is gone.
    ///
    /// # Errors
    /// When the list is older than what was seen; then nothing is gone.
    pub fn complete(self, version: Version) -> Result<(), OlderList> {
        self.check(version)?;
        let Self { store, listed, has_unnamed } = self;
        let gone = store.write(|inner| {
            inner.reached = version;
            if has_unnamed { Vec::new() } else { inner.retain(&listed) }
        });
        store.set_synced();
        store.wake(&gone);
        Ok(())
    }
}
