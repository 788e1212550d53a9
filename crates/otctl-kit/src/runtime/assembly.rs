//! What a controller is made of: the kinds that it watches and the loops that it runs.

use futures::future::BoxFuture;
use kube::Client;
use tokio::task::JoinHandle;

use super::Context;
use super::duty::{Duty, Signs};
use crate::driver::{Driver, DriverOptions, Trigger};
use crate::queue::Place;
use crate::reconciler::Reconciler;
use crate::shutdown::Shutdown;
use crate::store::{Scoped, Store};
use crate::watch::{WatchOptions, Watched, spawn_watch};

/// The parts of one controller, put together before anything runs.
pub struct Controllers {
    context: Context,
    parts: Parts,
}

/// The parts, without their types.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) streams: Vec<StartStream>,
    pub(super) caches: Vec<Cache>,
    /// Of each kind that need not be there: when it is known whether it is.
    pub(super) optional: Vec<Told>,
    pub(super) loops: Vec<Box<dyn Loop>>,
}

type StartStream = Box<dyn Fn(Client, Shutdown) -> JoinHandle<()> + Send + Sync>;

/// Waits for what [`Store::told`] waits for.
pub(super) type Told = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What is asked of a store.
pub(super) struct Cache {
    pub(super) kind: String,
    pub(super) is_synced: Box<dyn Fn() -> bool + Send + Sync>,
    pub(super) synced: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    pub(super) count: Box<dyn Fn() -> usize + Send + Sync>,
}

/// A driver of any reconciler.
pub(super) trait Loop: Send + Sync {
    fn name(&self) -> &'static str;
    fn places(&self) -> Vec<Place>;
    fn run<'a>(&'a self, drain: BoxFuture<'a, ()>, abort: BoxFuture<'a, ()>) -> BoxFuture<'a, ()>;
}

impl<R: Reconciler> Loop for Driver<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn places(&self) -> Vec<Place> {
        self.trigger().places()
    }

    fn run<'a>(&'a self, drain: BoxFuture<'a, ()>, abort: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(Driver::run(self, drain, abort))
    }
}

impl Controllers {
    pub(super) fn new(context: Context) -> Self {
        Self { context, parts: Parts::default() }
    }

    /// Keeps `store` up to date all the time, also on standby. No loop begins before its first complete list.
    #[must_use]
    pub fn watch<K: Watched>(mut self, store: &Store<K>, options: WatchOptions<K>) -> Self {
        self.parts.caches.push(Cache::of(store));
        let store = store.clone();
        let start =
            move |client, shutdown| spawn_watch(client, options.clone(), store.clone(), shutdown);
        self.parts.streams.push(Box::new(start));
        self
    }

    /// Like [`watch`](Self::watch), for a kind that need not be installed: no loop begins before its first complete list
    /// or the answer that there is no such kind, so a decision must know what an empty store means
    /// ([`Store::is_synced`]).
    #[must_use]
    pub fn watch_optional<K: Watched>(
        mut self,
        store: &Store<K>,
        options: WatchOptions<K>,
    ) -> Self {
        let told = store.clone();
        self.parts.optional.push(Box::new(move || {
            let store = told.clone();
            Box::pin(async move { store.told().await })
        }));
        let options = WatchOptions { is_optional: true, ..options };
        self.parts.streams.push(stream(store, options));
        self
    }

    /// [`watch`](Self::watch) in each namespace of `stores`, and nowhere else.
    #[must_use]
    pub fn watch_each<K: Watched>(self, stores: &Scoped<K>, options: &WatchOptions<K>) -> Self {
        stores.each().fold(self, |parts, (namespace, store)| {
            let namespace = Some(namespace.to_owned());
            parts.watch(store, WatchOptions { namespace, ..options.clone() })
        })
    }

    /// [`watch_optional`](Self::watch_optional) in each namespace of `stores`, and nowhere else.
    #[must_use]
    pub fn watch_each_optional<K: Watched>(
        self,
        stores: &Scoped<K>,
        options: &WatchOptions<K>,
    ) -> Self {
        stores.each().fold(self, |parts, (namespace, store)| {
            let namespace = Some(namespace.to_owned());
            parts.watch_optional(store, WatchOptions { namespace, ..options.clone() })
        })
    }

    /// Runs `reconciler` while leading, at most `concurrency` passes at a time. `wire` gets the trigger and subscribes
    /// to the stores whose changes want a pass.
    #[must_use]
    pub fn reconcile<R: Reconciler>(
        mut self,
        reconciler: R,
        concurrency: usize,
        wire: impl FnOnce(&Trigger),
    ) -> Self {
        let options = DriverOptions {
            concurrency,
            metrics: Some(self.context.metrics.clone()),
            health: self.context.health.clone(),
        };
        let driver = Driver::new(
            reconciler,
            self.context.cluster.clone(),
            self.context.clock.clone(),
            options,
        );
        wire(&driver.trigger());
        self.parts.loops.push(Box::new(driver));
        self
    }

    /// Does something else while leading, beside the loops: `begin` is called when this process begins to lead, and what
    /// it returns is dropped when that ends. It must beat at least once a minute.
    #[must_use]
    pub fn while_leading<F>(
        mut self,
        name: &'static str,
        begin: impl Fn(Signs) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let duty = Duty::new(name, self.context.health.clone(), begin);
        self.parts.loops.push(Box::new(duty));
        self
    }

    pub(super) fn into_parts(self) -> Parts {
        self.parts
    }
}

fn stream<K: Watched>(store: &Store<K>, options: WatchOptions<K>) -> StartStream {
    let store = store.clone();
    Box::new(move |client, shutdown| spawn_watch(client, options.clone(), store.clone(), shutdown))
}

impl Cache {
    fn of<K: Watched>(store: &Store<K>) -> Self {
        let (is_synced, synced, count) = (store.clone(), store.clone(), store.clone());
        Self {
            kind: K::kind(&()).into_owned(),
            is_synced: Box::new(move || is_synced.is_synced()),
            synced: Box::new(move || {
                let store = synced.clone();
                Box::pin(async move { store.synced().await })
            }),
            count: Box::new(move || count.all().len()),
        }
    }
}
