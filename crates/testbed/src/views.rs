//! Feeds the kit's stores from the world's history, in the order of each kind's versions, and only when told to: what
//! was not delivered yet has not happened as far as a controller's store knows.

use std::fmt;

use kube::Resource;
use otctl_kit::store::{Change, Store};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::world::{Id, Version, World};

/// The watch of one kind.
pub struct Feed {
    kind: String,
    /// How much of the history was looked at.
    seen: usize,
    /// What must be there before anything can be seen, and whether a complete list was.
    awaits: Option<Id>,
    is_listed: bool,
    is_watched: Box<dyn Fn(&Value) -> bool + Send>,
    apply: Box<dyn Fn(Delivery) + Send>,
}

enum Delivery {
    Present(Value),
    Gone(Value),
    All(Vec<Value>),
    Uninstalled,
}

impl Feed {
    /// Feeds `store` with the objects of its kind.
    #[must_use]
    pub fn new<K>(store: &Store<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        Self::named(&K::kind(&()), store)
    }

    /// Feeds `store` with the objects of `kind`, whatever type they are cached as.
    #[must_use]
    pub fn named<K>(kind: &str, store: &Store<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        Self::mapped(kind, store, |object| serde_json::from_value(object))
    }

    /// Feeds `store` with what `read` makes of the objects of `kind`.
    ///
    /// # Panics
    /// Later, when `read` refuses an object.
    #[must_use]
    pub fn mapped<K, E>(
        kind: &str,
        store: &Store<K>,
        read: impl Fn(Value) -> Result<K, E> + Send + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        E: fmt::Display,
    {
        let (store, named) = (store.clone(), kind.to_owned());
        let read = move |object: Value| {
            read(object).unwrap_or_else(|error| panic!("unreadable {named}: {error}"))
        };
        let apply = move |delivery| match delivery {
            Delivery::Present(object) => store.apply(Change::Present(read(object))),
            Delivery::Gone(object) => store.apply(Change::Gone(read(object))),
            Delivery::All(objects) => {
                store.apply(Change::All(objects.into_iter().map(&read).collect()));
            }
            Delivery::Uninstalled => store.uninstalled(),
        };
        Self {
            kind: kind.to_owned(),
            seen: 0,
            awaits: None,
            is_listed: false,
            is_watched: Box::new(|_| true),
            apply: Box::new(apply),
        }
    }

    /// Only what `is_watched`, as a selector does.
    #[must_use]
    pub fn only(mut self, is_watched: impl Fn(&Value) -> bool + Send + 'static) -> Self {
        self.is_watched = Box::new(is_watched);
        self
    }

    /// Nothing is seen while that object is not there: the definition of a kind that is installed later, or taken away.
    #[must_use]
    pub fn once_there(mut self, definition: Id) -> Self {
        self.awaits = Some(definition);
        self
    }

    /// The kind it watches.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// A complete list, as the watch begins with; none of a kind that is not installed.
    pub fn relist(&mut self, world: &World) {
        if !self.is_installed(world) {
            return;
        }
        self.is_listed = true;
        self.seen = world.history(<[Version]>::len);
        let objects = world.list(&self.kind).into_iter().filter(|object| (self.is_watched)(object));
        (self.apply)(Delivery::All(objects.collect()));
    }

    fn is_installed(&self, world: &World) -> bool {
        self.awaits.as_ref().is_none_or(|id| world.get(&id.kind, &id.key).is_some())
    }

    /// How many versions were not delivered yet.
    #[must_use]
    pub fn pending(&self, world: &World) -> usize {
        world.history(|history| {
            history[self.seen..].iter().filter(|version| self.is_mine(version)).count()
        })
    }

    /// Whether a version is due. What is not this feed's is looked at once only.
    pub(crate) fn has_news(&mut self, world: &World) -> bool {
        if self.awaits.is_some() && self.is_listed != self.is_installed(world) {
            return true;
        }
        if !self.is_listed && self.awaits.is_some() {
            return false;
        }
        let seen = world.history(|history| {
            let mut rest = history.iter().enumerate().skip(self.seen);
            rest.find(|(_, version)| self.is_mine(version)).map_or(history.len(), |(at, _)| at)
        });
        self.seen = seen;
        seen < world.history(<[Version]>::len)
    }

    fn is_mine(&self, version: &Version) -> bool {
        version.id.kind == self.kind && (self.is_watched)(&version.object)
    }

    /// Delivers the next version; says which it was.
    pub fn deliver(&mut self, world: &World) -> Option<String> {
        if self.awaits.is_some() && !(self.is_listed && self.is_installed(world)) {
            return self.follow_definition(world);
        }
        let (at, version) = world.history(|history| {
            let mut rest = history.iter().enumerate().skip(self.seen);
            rest.find(|(_, version)| self.is_mine(version))
                .map(|(at, version)| (at, version.clone()))
        })?;
        self.seen = at + 1;
        let told = format!("{} at {}", version.id, version.revision);
        let is_removal = version.is_removal();
        (self.apply)(if is_removal {
            Delivery::Gone(version.object)
        } else {
            Delivery::Present(version.object)
        });
        Some(told)
    }

    /// The kind came, or was taken away.
    fn follow_definition(&mut self, world: &World) -> Option<String> {
        if std::mem::take(&mut self.is_listed) {
            (self.apply)(Delivery::Uninstalled);
            return Some(format!("{} is not installed any more", self.kind));
        }
        self.relist(world);
        self.is_listed.then(|| format!("{} is installed", self.kind))
    }

    /// Delivers all that is due.
    pub fn deliver_all(&mut self, world: &World) {
        while self.deliver(world).is_some() {}
    }

    /// Delivers only the last version of what changed, as a watch does that fell behind.
    pub fn skip_to_last(&mut self, world: &World) {
        let news = world.history(|history| history[self.seen..].to_vec());
        self.seen += news.len();
        let mine: Vec<Version> = news.into_iter().filter(|version| self.is_mine(version)).collect();
        for (at, version) in mine.iter().enumerate() {
            if mine[at + 1..].iter().any(|later| later.id == version.id) {
                continue;
            }
            let object = version.object.clone();
            (self.apply)(if version.is_removal() {
                Delivery::Gone(object)
            } else {
                Delivery::Present(object)
            });
        }
    }
}
