//! What one stream takes in: into the store, with where the next watch begins and what was lost on the way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Watched;
use super::event::{Event, Item};
use super::unreadable::Unreadable;
use super::wire::StreamError;
use crate::store::{Change, Key, Listing, Store, Version};

/// The store of a stream, and how far it was told.
pub(super) struct Intake<K> {
    pub(super) store: Store<K>,
    slim: fn(&mut K),
    unreadable: Unreadable,
    /// Where the next watch begins; none before a complete list.
    version: Option<String>,
    gap: Gap,
}

/// Whether something was told that was lost on us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    /// It was, after the last version that was taken in: a watch from there tells it again.
    AtEnd,
    /// It was, before: only a list tells it again.
    Behind,
}

impl<K: Watched> Intake<K> {
    pub(super) fn new(store: Store<K>, slim: fn(&mut K), unreadable: Unreadable) -> Self {
        Self { store, slim, unreadable, version: None, gap: Gap::None }
    }

    /// Where the next watch begins; none when all must be told again.
    pub(super) fn version(&self) -> Option<String> {
        self.version.clone().filter(|_| self.gap != Gap::Behind)
    }

    /// All must be told again.
    pub(super) fn begin_anew(&mut self) {
        self.version = None;
    }

    /// All is told again from here.
    pub(super) fn begin_list(&mut self) -> Listing<K> {
        self.unreadable.begin_list();
        (self.version, self.gap) = (None, Gap::None);
        self.store.listing()
    }

    /// The list holds this.
    pub(super) fn list(&mut self, listing: &mut Listing<K>, item: Item<K>) {
        match self.readable(item) {
            Ok(object) => listing.present(object),
            Err(key) => listing.unreadable(key),
        }
    }

    /// All objects were told, at `version`.
    pub(super) fn listed(
        &mut self,
        listing: Listing<K>,
        version: String,
    ) -> Result<(), StreamError> {
        if version.is_empty() {
            return Err(StreamError::Unversioned);
        }
        listing.complete(Version::read(&version))?;
        self.unreadable.end_list();
        self.version = Some(version);
        Ok(())
    }

    /// The list holds something that cannot be read at all.
    pub(super) fn list_garbled(&mut self, listing: &mut Listing<K>, error: &serde_json::Error) {
        self.unreadable.note(None, &error.to_string());
        listing.unreadable(None);
    }

    /// A watch told this.
    pub(super) fn take_in(&mut self, event: Event<K>) {
        match event {
            Event::Present(item) => {
                let version = item.version();
                match self.readable(item) {
                    Ok(object) => self.store.apply(Change::Present(object)),
                    Err(key) => self.lost(key.as_ref()),
                }
                self.advance(version);
            }
            Event::Gone(item) => {
                let version = item.version();
                self.take_gone(item);
                self.advance(version);
            }
            Event::Bookmark { version, .. } => self.advance(Some(version)),
            Event::Garbled(error) => {
                self.unreadable.note(None, &error.to_string());
                self.lost(None);
            }
            Event::Refused(_) => unreachable!("refusals end the watch before"),
        }
    }

    /// What cannot be read is gone all the same, if it can be told what it is.
    pub(super) fn take_gone(&mut self, item: Item<K>) {
        let version = item.version();
        let object = match self.readable(item) {
            Ok(object) => Some(object),
            Err(key) => {
                self.lost(key.as_ref());
                key.and_then(|key| self.last_state(&key, version))
            }
        };
        object.into_iter().for_each(|object| self.store.apply(Change::Gone(object)));
    }

    /// What is held of an object that went at `version` in a state that cannot be read.
    fn last_state(&mut self, key: &Key, version: Option<String>) -> Option<K> {
        self.unreadable.clear(key);
        let mut held = K::clone(&*self.store.get(key)?);
        held.meta_mut().resource_version = version;
        Some(held)
    }

    /// Something was told that cannot be read. Without a name, nothing but a list makes it good.
    fn lost(&mut self, key: Option<&Key>) {
        if key.is_none() {
            self.gap = self.gap.after_loss();
        }
    }

    /// Everything up to this version was taken in; the next watch begins there, and never before.
    fn advance(&mut self, version: Option<String>) {
        let Some(version) = version.filter(|version| !version.is_empty()) else { return };
        self.gap = self.gap.after_version();
        let reached = Version::read(&version);
        if self.version.as_deref().is_none_or(|known| Version::read(known) < reached) {
            self.version = Some(version);
        }
        self.store.reached(reached);
    }

    /// An object as it is kept, or the name of one that cannot be: what is held of it stays.
    fn readable(&mut self, item: Item<K>) -> Result<K, Option<Key>> {
        match item {
            Item::Readable(object) => {
                let key = Key::of(&object);
                match slimmed(object, self.slim) {
                    Some(object) => {
                        self.unreadable.clear(&key);
                        Ok(object)
                    }
                    None => {
                        self.unreadable.note(Some(key.clone()), "slimming it panicked");
                        Err(Some(key))
                    }
                }
            }
            Item::Unreadable { key, error, .. } => {
                self.unreadable.note(key.clone(), &error);
                Err(key)
            }
        }
    }
}

impl Gap {
    fn after_loss(self) -> Self {
        if self == Self::Behind { self } else { Self::AtEnd }
    }

    fn after_version(self) -> Self {
        if self == Self::None { self } else { Self::Behind }
    }
}

/// Without what nobody reads; none when that panicked.
fn slimmed<K: Watched>(mut object: K, slim: fn(&mut K)) -> Option<K> {
    catch_unwind(AssertUnwindSafe(|| {
        object.meta_mut().managed_fields = None;
        slim(&mut object);
        object
    }))
    .ok()
}
