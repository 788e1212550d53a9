//! A loop whose view is late: it makes one child per object, and its store shows the child when the test says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::args::Build;
use crate::expectations::Expectation;
use crate::plan::{Action, Write};
use crate::store::{Change, Store};

/// Makes a child of its object's name unless the store has it; tells each pass and whether it saw the child.
struct Parent {
    children: Store<ConfigMap>,
    began: UnboundedSender<(String, bool)>,
}

struct Family {
    parent: Seen,
    has_child: bool,
}

impl Observation for Family {
    fn subject(&self) -> Option<Subject> {
        self.parent.subject()
    }
}

impl Reconciler for Parent {
    type Observed = Family;
    type Status = Value;
    const NAME: &'static str = "parent";

    async fn observe(&self, key: &Key) -> Result<Family, ApiError> {
        let has_child = self.children.get(key).is_some();
        self.began.send((key.name.clone(), has_child)).unwrap();
        Ok(Family { parent: Seen(key.clone()), has_child })
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.children.has_seen(expectation)
    }

    fn decide(observed: &Family, _: Timestamp) -> Plan<Value> {
        let create = Write {
            action: Action::Create(erase(&child(&observed.parent.0))),
            because: "it is missing",
        };
        let writes = if observed.has_child { Vec::new() } else { vec![create] };
        Plan { writes, ..Plan::rest("parent") }
    }
}

fn child(key: &Key) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        resource_version: Some("7".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Takes every create and counts them.
#[derive(Default)]
struct Nursery {
    creates: AtomicUsize,
}

impl Cluster for Nursery {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        let Request::Create(object) = request else { panic!("{request:?}") };
        self.creates.fetch_add(1, Ordering::Relaxed);
        futures::future::ready(Ok(Answer::Object(object))).boxed()
    }
}

/// The runtime's clock, which tests pause.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        let left = crate::clock::until(self.now(), at).unwrap_or_default();
        tokio::time::sleep(left).boxed()
    }
}

struct Late {
    driver: Arc<Driver<Parent>>,
    children: Store<ConfigMap>,
    nursery: Arc<Nursery>,
    metrics: Arc<Metrics>,
    began: UnboundedReceiver<(String, bool)>,
}

/// A loop of one pass at a time, over an empty view.
fn late() -> Late {
    let (sender, began) = unbounded_channel();
    let (children, nursery) = (Store::default(), Arc::new(Nursery::default()));
    children.apply(Change::All(Vec::new()));
    let metrics = Arc::new(Metrics::new(Build::of("test-controller")));
    let options =
        DriverOptions { concurrency: 1, metrics: Some(metrics.clone()), health: Health::default() };
    let parent = Parent { children: children.clone(), began: sender };
    let clock = Arc::new(RuntimeClock(Instant::now()));
    let driver = Arc::new(Driver::new(parent, nursery.clone(), clock, options));
    let trigger = driver.trigger();
    children.subscribe(move |child| trigger.wake(&Key::of(child)));
    Late { driver, children, nursery, metrics, began }
}

impl Late {
    /// Runs the loop until `script` has ended.
    async fn during<T>(&mut self, script: impl AsyncFnOnce(&mut Self) -> T) -> T {
        let (driver, drain) = (self.driver.clone(), CancellationToken::new());
        let drained = drain.clone();
        let task = tokio::spawn(async move {
            driver.run(drained.cancelled(), std::future::pending()).await;
        });
        let told = script(self).await;
        drain.cancel();
        task.await.unwrap();
        told
    }

    fn wake(&self, name: &str) {
        self.driver.trigger().wake(&Key::new("lab", name));
    }

    /// The object of the next pass, and whether it saw the child.
    async fn next(&mut self) -> (String, bool) {
        self.began.recv().await.expect("the loop goes on")
    }

    fn creates(&self) -> usize {
        self.nursery.creates.load(Ordering::Relaxed)
    }

    fn overdue(&self) -> bool {
        let line = "otctl_reconcile_overdue_views_total{controller=\"parent\"} 1";
        self.metrics.render().unwrap().contains(line)
    }
}

fn pass_of(name: &str, saw_child: bool) -> (String, bool) {
    (name.to_owned(), saw_child)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_twice_on_a_view_older_than_our_own_write() {
    let mut late = late();
    late.during(async |late| {
        late.wake("a");
        assert_eq!(late.next().await, pass_of("a", false));
        // One pass at a time, so the turn of `a` comes before that of `b`; and `a` is put off.
        late.wake("a");
        late.wake("b");
        assert_eq!(late.next().await, pass_of("b", false));
        late.children.apply(Change::Present(child(&Key::new("lab", "a"))));
        assert_eq!(late.next().await, pass_of("a", true));
    })
    .await;
    assert_eq!(late.creates(), 2);
    assert!(!late.overdue());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_went_before_it_was_seen_is_made_again() {
    let mut late = late();
    late.during(async |late| {
        late.wake("a");
        assert_eq!(late.next().await, pass_of("a", false));
        late.wake("a");
        // A complete list at a later version lacks it; no object changes, so nobody wakes the key.
        late.children.apply(Change::All(Vec::new()));
        late.children.reached(crate::store::Version::read("8"));
        assert_eq!(late.next().await, pass_of("a", false));
    })
    .await;
    assert_eq!(late.creates(), 2);
    assert!(!late.overdue());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stands_still_does_not_stop_the_loop() {
    let mut late = late();
    let started = Instant::now();
    late.during(async |late| {
        late.wake("a");
        assert_eq!(late.next().await, pass_of("a", false));
        late.wake("a");
        assert_eq!(late.next().await, pass_of("a", false));
    })
    .await;
    assert_eq!(started.elapsed().as_secs(), VIEW_PATIENCE.as_secs());
    assert!(late.overdue());
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_runs_again_expects_nothing() {
    let mut late = late();
    let started = Instant::now();
    for _ in 0..2 {
        late.during(async |late| {
            late.wake("a");
            assert_eq!(late.next().await, pass_of("a", false));
        })
        .await;
    }
    assert!(started.elapsed() < VIEW_PATIENCE, "{:?}", started.elapsed());
    assert!(!late.overdue());
}
