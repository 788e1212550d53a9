//! The loop around passes: takes keys from the [`queue`](crate::queue) in turn, a bounded number at a time, and gives
//! back how they ended. What a pass is stands with [`pass()`].

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Resource;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::cluster::{ApiError, Cluster, Request, erase};
use crate::commit::Author;
use crate::expectations::{Expectation, Expectations, Sight, VIEW_PATIENCE};
use crate::health::{Health, Pulse};
use crate::metrics::Metrics;
use crate::notice;
pub use crate::pass::{Passed, pass};
use crate::plan::Notice;
use crate::queue::{End, Place, Queue};
use crate::reconciler::Reconciler;
use crate::report::Reporter;
use crate::store::Key;

/// The loop shows that it lives at least so often,
const BEAT: Duration = Duration::from_secs(5);
/// or is taken for wedged.
const SILENCE: Duration = Duration::from_secs(60);

/// How a loop runs.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Passes at a time.
    pub concurrency: usize,
    /// Where passes are counted.
    pub metrics: Option<Arc<Metrics>>,
    /// Where the loop shows that it lives.
    pub health: Health,
}

/// One loop: a reconciler and the keys that wait for it.
pub struct Driver<R> {
    reconciler: Arc<R>,
    cluster: Arc<dyn Cluster>,
    clock: Arc<dyn Clock>,
    options: DriverOptions,
    reporter: Arc<Reporter>,
    trigger: Trigger,
    expectations: Arc<Mutex<Expectations>>,
}

/// Wakes keys of a driver; cheap to clone into the subscriptions of stores.
#[derive(Clone)]
pub struct Trigger {
    queue: Arc<Mutex<Queue>>,
    woken: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

impl Trigger {
    /// `key` wants a pass.
    pub fn wake(&self, key: &Key) {
        self.lock().wake(key, self.clock.now());
        self.woken.notify_one();
    }

    /// The keys that are due, at work, or will be due, for `/debug/state`.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        self.lock().places()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger").finish_non_exhaustive()
    }
}

/// The key of the controller owner of `child`, if that is of kind `O`.
pub fn owner_key<O: Resource<DynamicType = ()>, K: Resource>(child: &K) -> Option<Key> {
    let meta = child.meta();
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let is_o = owner.kind == O::kind(&()) && owner.api_version == O::api_version(&());
    is_o.then(|| Key::new(meta.namespace.as_deref().unwrap_or_default(), &owner.name))
}

impl<R: Reconciler> Driver<R> {
    /// A loop of `reconciler`, which writes through `cluster`.
    pub fn new(
        reconciler: R,
        cluster: Arc<dyn Cluster>,
        clock: Arc<dyn Clock>,
        options: DriverOptions,
    ) -> Self {
        let trigger =
            Trigger { queue: Arc::default(), woken: Arc::default(), clock: clock.clone() };
        let reporter = Arc::new(Reporter::new(R::NAME, options.metrics.clone()));
        let (reconciler, expectations) = (Arc::new(reconciler), Arc::default());
        Self { reconciler, cluster, clock, options, reporter, trigger, expectations }
    }

    /// Wakes keys of this loop.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// Makes passes until `drain` resolves, then finishes those at work; drops them in the middle when `abort` resolves,
    /// which does what a crash would. It may be run again: the keys that wait are kept.
    pub async fn run(&self, drain: impl Future<Output = ()>, abort: impl Future<Output = ()>) {
        let pulse = self.options.health.pulse(&format!("loop {}", R::NAME), SILENCE);
        let mut passes = JoinSet::new();
        tokio::select! {
            biased;
            () = abort => {}
            () = async {
                tokio::select! {
                    biased;
                    () = drain => {}
                    () = self.turns(&mut passes, &pulse) => {}
                }
                while passes.join_next().await.is_some() {
                    pulse.beat();
                }
            } => {}
        }
        passes.shutdown().await;
        self.trigger.lock().recall();
        lock(&self.expectations).forget();
        pulse.retire();
    }

    /// Starts passes as long as there are keys due and room; never ends by itself.
    async fn turns(&self, passes: &mut JoinSet<()>, pulse: &Pulse) {
        let room = self.options.concurrency.max(1);
        loop {
            pulse.beat();
            while passes.len() < room
                && let Some(key) = self.take()
            {
                passes.spawn(self.turn(key));
            }
            tokio::select! {
                Some(_) = passes.join_next() => {}
                () = self.trigger.woken.notified(), if passes.len() < room => {}
                () = self.due(), if passes.len() < room => {}
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// The next key that is due and whose views are current.
    fn take(&self) -> Option<Key> {
        std::iter::from_fn(|| self.next()).find(|key| self.may_begin(key))
    }

    fn next(&self) -> Option<Key> {
        let mut queue = self.trigger.lock();
        let key = queue.take(self.clock.now());
        if let Some(metrics) = &self.options.metrics {
            metrics.queue_depth(R::NAME, queue.depth());
        }
        key
    }

    /// Puts `key` off while its views are older than what its last pass wrote.
    fn may_begin(&self, key: &Key) -> bool {
        let now = self.clock.now();
        let has_seen = |expectation: &Expectation| self.reconciler.has_seen(expectation);
        let sight = lock(&self.expectations).look(key, now, has_seen);
        match sight {
            Sight::Current => true,
            Sight::Behind { again } => {
                self.trigger.lock().finish(key, End::PutOff(again), now, 0.0);
                false
            }
            Sight::Overdue { unseen } => {
                self.tell_overdue(key, &unseen);
                true
            }
        }
    }

    fn tell_overdue(&self, key: &Key, unseen: &Expectation) {
        tracing::warn!(
            controller = R::NAME,
            object = %key,
            unseen = %unseen,
            "a watch is behind our own writes for {VIEW_PATIENCE:?}; the pass begins on an old view"
        );
        if let Some(metrics) = &self.options.metrics {
            metrics.overdue(R::NAME);
        }
    }

    async fn due(&self) {
        let due = self.trigger.lock().next_due();
        match due {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// One pass and all that follows from it.
    fn turn(&self, key: Key) -> impl Future<Output = ()> + Send + use<R> {
        let (reconciler, cluster, clock) =
            (self.reconciler.clone(), self.cluster.clone(), self.clock.clone());
        let (reporter, trigger) = (self.reporter.clone(), self.trigger.clone());
        let expectations = self.expectations.clone();
        async move {
            let started = Instant::now();
            let mut passed = pass(&*reconciler, &*cluster, &key, &*clock).await;
            lock(&expectations).note(&key, std::mem::take(&mut passed.expected), clock.now());
            if let Some(notice) = reporter.tell(&key, &passed, started.elapsed()) {
                let author = Author { controller: R::CONTROLLER, at: clock.now() };
                publish(&*cluster, &passed, &notice, author).await;
            }
            trigger.lock().finish(&key, passed.end(), clock.now(), rand::random());
        }
    }
}

impl<R: Reconciler> fmt::Debug for Driver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("loop", &R::NAME).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Event of a failure, on the object that failed; without one there is nothing to hang it on.
async fn publish(cluster: &dyn Cluster, passed: &Passed, notice: &Notice, author: Author) {
    let Some(subject) = &passed.subject else { return };
    let event = notice::event(notice, subject.reference(), author);
    match cluster.call(Request::Create(erase(&event))).await {
        Ok(_) | Err(ApiError::AlreadyExists) => {}
        Err(error) => tracing::debug!(%error, "an event was not published"),
    }
}

#[cfg(test)]
mod tests;
