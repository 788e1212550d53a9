//! One controller process: its stores' feeds, its loops, the passes it is in the middle of. All of that is memory, and
//! is gone when the process dies.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use otctl_kit::cluster::Cluster;
use otctl_kit::driver::{self, Passed};
use otctl_kit::error::{Category, Error};
use otctl_kit::expectations::{Expectations, Sight};
use otctl_kit::plan::Next;
use otctl_kit::queue::{End, Queue};
use otctl_kit::reconciler::Reconciler;
use otctl_kit::report::Outcome;
use otctl_kit::store::Key;

use super::news::News;
use super::{Connection, Factory};
use crate::check::Linted;
use crate::clock::VirtualClock;
use crate::views::Feed;
use crate::wire::{Network, Wire};
use crate::world::{Version, World};

/// More requests than any pass makes: beyond it, it waits for something that is not the API server.
const MOST_POLLS: usize = 10_000;
/// Failures are tried again after so long at least, so that the clock moves between them.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a controller process consists of.
pub struct Instance {
    /// Everything it watches, in the order in which news are delivered.
    pub feeds: Vec<Feed>,
    /// Its loops, in the order in which they get turns.
    pub loops: Vec<Loop>,
}

/// The keys that want a pass of one loop: the kit's own work queue. Clone it into the subscriptions of stores.
#[derive(Clone)]
pub struct Wakes {
    queue: Arc<Mutex<Queue>>,
    /// What was woken in this turn: stores tell of their objects in no order, and a run must be the same each time.
    woken: Arc<Mutex<BTreeSet<Key>>>,
    clock: VirtualClock,
}

impl Wakes {
    /// No key wants a pass.
    #[must_use]
    pub fn new(clock: &VirtualClock) -> Self {
        Self { queue: Arc::default(), woken: Arc::default(), clock: clock.clone() }
    }

    /// `key` wants a pass.
    pub fn wake(&self, key: &Key) {
        lock(&self.woken).insert(key.clone());
    }

    /// The queue, with everything in it that was woken.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        let woken = std::mem::take(&mut *lock(&self.woken));
        let mut queue = lock(&self.queue);
        woken.iter().for_each(|key| queue.wake(key, self.clock.now()));
        queue
    }
}

type Pass = Box<dyn Fn(Key) -> BoxFuture<'static, Told>>;
type Look = Box<dyn Fn(&Key) -> Sight>;

/// One loop: a reconciler and the keys that want it.
pub struct Loop {
    name: String,
    wakes: Wakes,
    pass: Pass,
    /// Whether the views show what the last pass of a key wrote.
    look: Look,
}

impl Loop {
    /// The loop of `reconciler`, with every plan of it checked by [`Linted`].
    #[must_use]
    pub fn of<R: Reconciler>(reconciler: R, connection: &Connection, wakes: &Wakes) -> Self {
        let reconciler = Arc::new(Linted(reconciler));
        let (cluster, clock) = (connection.cluster.clone(), connection.clock.clone());
        let expectations: Arc<Mutex<Expectations>> = Arc::default();
        let look = connection.reads_own_writes.then(|| look(&reconciler, &clock, &expectations));
        let one = Self::new(R::NAME, wakes, move |key| {
            let (reconciler, cluster, clock) = (reconciler.clone(), cluster.clone(), clock.clone());
            let expectations = expectations.clone();
            async move {
                let mut passed = driver::pass(&*reconciler, &*cluster, &key, &clock).await;
                let expected = std::mem::take(&mut passed.expected);
                lock(&expectations).note(&key, expected, clock.now());
                Told::from(&passed)
            }
        });
        Self { look: look.unwrap_or(one.look), ..one }
    }

    /// A loop whose passes are `pass`.
    #[must_use]
    pub fn new<F>(name: &str, wakes: &Wakes, pass: impl Fn(Key) -> F + 'static) -> Self
    where
        F: Future<Output = Told> + Send + 'static,
    {
        Self {
            name: name.to_owned(),
            wakes: wakes.clone(),
            pass: Box::new(move |key| Box::pin(pass(key))),
            look: Box::new(|_| Sight::Current),
        }
    }
}

/// As the driver looks before a pass.
fn look<R: Reconciler>(
    reconciler: &Arc<R>,
    clock: &VirtualClock,
    expectations: &Arc<Mutex<Expectations>>,
) -> Look {
    let (reconciler, clock, expectations) =
        (reconciler.clone(), clock.clone(), expectations.clone());
    Box::new(move |key| {
        lock(&expectations).look(key, clock.now(), |expected| reconciler.has_seen(expected))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a pass did, as it tells itself.
#[derive(Clone, Debug)]
pub struct Told {
    /// The state the object was judged to be in.
    pub verdict: String,
    /// A line per write that was made.
    pub writes: Vec<String>,
    /// What it means for the next turn of its key.
    pub end: End,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Whether the failure is a defect of ours, which no fault excuses: it ends the test.
    pub is_defect: bool,
}

impl From<&Passed> for Told {
    fn from(passed: &Passed) -> Self {
        let is_defect =
            matches!(passed.outcome, Outcome::Failed(Category::Internal | Category::Panicked));
        let end = match passed.outcome {
            Outcome::Rested | Outcome::Wrote => End::Done(passed.next),
            Outcome::Gone => End::Done(Next::Wait),
            Outcome::Failed(Category::Conflict) => End::Conflict,
            Outcome::Failed(_) => End::Failed { at_least: AGAIN_AFTER, next: passed.next },
        };
        Self {
            verdict: passed.verdict.to_owned(),
            writes: passed.writes.clone(),
            end,
            failure: passed.error.as_ref().map(Error::chain),
            is_defect,
        }
    }
}

/// A turn that a process could take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// Go on with a pass that is under way.
    Resume(usize),
    /// Take the next version of a kind.
    Deliver(usize),
    /// Begin the pass of the next key of a loop.
    Begin(usize),
}

/// What came of a turn.
pub(super) enum Landing {
    /// Nothing that can be seen.
    Nothing,
    /// The process died.
    Died(String),
    /// A pass has ended.
    Passed { loop_name: String, key: Key, line: Line },
}

/// A pass, for the story.
pub(super) struct Line {
    pub(super) verdict: String,
    pub(super) text: String,
    pub(super) is_news: bool,
    pub(super) is_defect: bool,
}

/// A controller process, up or down.
pub(super) struct Process {
    name: String,
    factory: Factory,
    running: Option<Running>,
    pub(super) is_paused: bool,
}

struct Running {
    wire: Arc<Wire>,
    instance: Instance,
    flights: Vec<Flight>,
}

/// A pass under way.
struct Flight {
    at: usize,
    key: Key,
    pass: BoxFuture<'static, Told>,
    polls: usize,
    /// Which versions of the history it committed.
    wrote: Vec<usize>,
}

impl Process {
    pub(super) fn new(name: &str, factory: Factory) -> Self {
        Self { name: name.to_owned(), factory, running: None, is_paused: false }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_down(&self) -> bool {
        self.running.is_none()
    }

    pub(super) fn start(&mut self, world: &World, network: &Network, reads_own_writes: bool) {
        let wire = Arc::new(Wire::new(world, &self.name, network));
        let cluster: Arc<dyn Cluster> = wire.clone();
        let clock = world.clock().clone();
        let mut instance = (self.factory)(&Connection { cluster, clock, reads_own_writes });
        instance.feeds.iter_mut().for_each(|feed| feed.relist(world));
        self.running = Some(Running { wire, instance, flights: Vec::new() });
    }

    /// Memory and passes under way are gone.
    pub(super) fn stop(&mut self) {
        self.running = None;
    }

    pub(super) fn turns(&mut self, world: &World, held: &BTreeSet<String>) -> Vec<Turn> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let mut turns: Vec<Turn> = (0..running.flights.len()).map(Turn::Resume).collect();
        for (at, feed) in running.instance.feeds.iter_mut().enumerate() {
            let is_due = !held.contains(feed.kind()) && feed.has_news(world);
            turns.extend(is_due.then_some(Turn::Deliver(at)));
        }
        for (at, one) in running.instance.loops.iter().enumerate() {
            let now = world.clock().now();
            let queue = one.wakes.queue();
            let is_due = queue.depth() > 0 || queue.next_due().is_some_and(|due| due <= now);
            turns.extend(is_due.then_some(Turn::Begin(at)));
        }
        turns
    }

    pub(super) fn next_time(&self) -> Option<Timestamp> {
        let loops = self.running.iter().flat_map(|running| &running.instance.loops);
        loops.filter_map(|one| one.wakes.queue().next_due()).min()
    }

    pub(super) fn give(&mut self, turn: Turn, world: &World, is_whole_pass: bool) -> Landing {
        let running = self.running.as_mut().expect("a process that is down has no turns");
        let at = match turn {
            Turn::Deliver(feed) => {
                running.instance.feeds[feed].deliver(world);
                return Landing::Nothing;
            }
            Turn::Begin(at) => {
                if !running.begin(at, world) {
                    return Landing::Nothing;
                }
                running.flights.len() - 1
            }
            Turn::Resume(at) => at,
        };
        running.fly(at, world, is_whole_pass)
    }
}

impl Running {
    /// Whether a pass began; one whose views are behind its own writes is put off.
    fn begin(&mut self, at: usize, world: &World) -> bool {
        let (one, now) = (&self.instance.loops[at], world.clock().now());
        let key = one.wakes.queue().take(now).expect("a loop with a turn has a key that is due");
        if let Sight::Behind { again } = (one.look)(&key) {
            one.wakes.queue().finish(&key, End::PutOff(again), now, 1.0);
            return false;
        }
        let pass = (one.pass)(key.clone());
        self.flights.push(Flight { at, key, pass, polls: 0, wrote: Vec::new() });
        true
    }

    /// Goes on with a pass: to its next request, or to its end.
    fn fly(&mut self, at: usize, world: &World, is_whole_pass: bool) -> Landing {
        loop {
            let flight = &mut self.flights[at];
            flight.polls += 1;
            assert!(
                flight.polls < MOST_POLLS,
                "a pass over {} waits for something else than its requests",
                flight.key
            );
            let before = world.history(<[Version]>::len);
            let polled = flight.pass.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            flight.wrote.extend(before..world.history(<[Version]>::len));
            if let Some(how) = self.wire.death() {
                return Landing::Died(how);
            }
            match polled {
                Poll::Ready(told) => return self.land(at, &told, world),
                Poll::Pending if is_whole_pass => {}
                Poll::Pending => return Landing::Nothing,
            }
        }
    }

    fn land(&mut self, at: usize, told: &Told, world: &World) -> Landing {
        let flight = self.flights.remove(at);
        let one = &self.instance.loops[flight.at];
        // Without jitter: a run is the same each time.
        one.wakes.queue().finish(&flight.key, told.end, world.clock().now(), 1.0);
        let news =
            world.history(|history| News { history, wrote: &flight.wrote }.tell(&told.writes));
        let is_news = !told.writes.is_empty() || told.failure.is_some();
        let text = line(told, news);
        let line = Line { verdict: told.verdict.clone(), text, is_news, is_defect: told.is_defect };
        Landing::Passed { loop_name: one.name.clone(), key: flight.key, line }
    }
}

fn line(told: &Told, mut parts: Vec<String>) -> String {
    parts.extend(told.failure.as_ref().map(|failure| format!("failed: {failure}")));
    if let End::Done(Next::At(at)) = told.end {
        parts.push(format!("next: {}", at.strftime("%H:%M:%S")));
    }
    if parts.is_empty() {
        told.verdict.clone()
    } else {
        format!("{}: {}", told.verdict, parts.join("; "))
    }
}
