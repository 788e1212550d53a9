//! The lease under slow calls, lost answers, hands, clocks that jump and machines that sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use otctl_kit::clock::{Clock, after};
use otctl_kit::cluster::{ApiError, Cluster, Request, erase};
use otctl_kit::kube_cluster::{Deadlines, KubeCluster};
use otctl_kit::leader::{BootClock, Candidate, Elector, Role, Timing};
use otctl_kit::tenure::Tenure;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Ask, Reply, map, object, refused, status, throttled};
use crate::clock::{VirtualClock, seconds};

const DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// What is done with a PUT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fair,
    /// It is carried out and answered with a failure.
    AnswerLost,
    /// It is refused, with an absurd time to wait.
    Throttled,
}

/// One lease, as the API server keeps it.
#[derive(Default)]
struct Held {
    lease: Option<Value>,
    version: u64,
    /// When each PUT that went through arrived, and whose name it wrote.
    writes: Vec<(Duration, String)>,
    conflicts: usize,
    /// What becomes of the next PUTs.
    fates: Vec<Fate>,
    creates: usize,
}

impl Held {
    fn answer(&mut self, ask: &Ask) -> Reply {
        if ask.kind != "leases" {
            self.creates += usize::from(ask.method == Method::POST);
            return object(&map("a", 7));
        }
        match (&ask.method, &self.lease) {
            (&Method::GET | &Method::PUT, None) => refused(404),
            (&Method::PATCH, None) => self.store(&ask.body),
            (&Method::PUT, Some(held)) => {
                if ask.body["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"] {
                    self.conflicts += 1;
                    return Reply::Whole(409, Vec::new(), status(409).to_string());
                }
                self.put(ask)
            }
            (_, Some(held)) => object(held),
            (method, None) => panic!("a lease is never changed by {method}"),
        }
    }

    fn put(&mut self, ask: &Ask) -> Reply {
        match self.fates.pop().unwrap_or(Fate::Fair) {
            Fate::Throttled => throttled(429, 1_000_000_000),
            fate => {
                let holder = ask.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
                self.writes.push((ask.at, holder.to_owned()));
                let stored = self.store(&ask.body);
                if fate == Fate::AnswerLost { refused(500) } else { stored }
            }
        }
    }

    fn store(&mut self, lease: &Value) -> Reply {
        self.version += 1;
        let mut lease = lease.clone();
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        object(&lease)
    }

    /// As somebody with kubectl would.
    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut lease = self.lease.clone().expect("somebody made it");
        change(&mut lease);
        self.store(&lease);
    }
}

/// The server of one lease and of whatever else is written.
#[derive(Clone)]
struct Server {
    api: Api,
    held: Arc<Mutex<Held>>,
}

impl Server {
    fn new() -> Self {
        let held = Arc::<Mutex<Held>>::default();
        let script = held.clone();
        Self { api: Api::new(move |ask| script.lock().unwrap().answer(ask)), held }
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.held.lock().unwrap().edit(change);
    }

    fn fates(&self, fates: &[Fate]) {
        self.held.lock().unwrap().fates = fates.to_vec();
    }
}

/// A clock of the machine that goes on while it sleeps, and how long it slept.
#[derive(Clone, Default)]
struct Sleep(Arc<AtomicU64>);

impl Sleep {
    fn boot_clock(&self) -> BootClock {
        let (slept, started) = (self.0.clone(), Instant::now());
        Arc::new(move || seconds(1000 + slept.load(Ordering::SeqCst)) + started.elapsed())
    }

    fn sleeps(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// One candidate at work.
struct Standing {
    role: watch::Receiver<Role>,
    tenure: Tenure,
    cluster: Arc<KubeCluster>,
    machine: Sleep,
    vacate: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Standing {
    fn start(server: &Server, identity: &str) -> Self {
        Self::start_at(server, identity, Arc::new(VirtualClock::new()))
    }

    fn start_at(server: &Server, identity: &str, wall: Arc<dyn Clock>) -> Self {
        let machine = Sleep::default();
        let boot = machine.boot_clock();
        let tenure = Tenure::not_begun(boot.clone());
        let cluster = KubeCluster::new(server.api.client(), "test", Deadlines::default());
        let cluster = Arc::new(cluster.during(tenure.clone()));
        let candidate = Candidate {
            namespace: "ns".to_owned(),
            lease: "test-controller".to_owned(),
            identity: identity.to_owned(),
            timing: Timing::default(),
        };
        let elector = Elector::with_clocks(cluster.clone(), candidate, boot, wall).grants(&tenure);
        let (role, vacate) = (elector.role(), CancellationToken::new());
        let task = tokio::spawn(elector.run(vacate.clone()));
        Self { role, tenure, cluster, machine, vacate, task }
    }

    fn leads(&self) -> bool {
        *self.role.borrow() == Role::Leading
    }

    async fn turns(&mut self, role: Role) {
        let turned = self.role.wait_for(|now| *now == role);
        drop(timeout(Duration::from_mins(5), turned).await.unwrap().unwrap());
    }

    /// Writes as a pass would.
    async fn write(&self) -> Result<(), ApiError> {
        let map: ConfigMap = serde_json::from_value(map("a", 7)).unwrap();
        self.cluster.call(Request::Create(erase(&map))).await.map(drop)
    }
}

/// Lets time pass and looks all the time; how long somebody led.
async fn watch_over(standing: &[&Standing], time: Duration) -> Duration {
    let (tick, end) = (Duration::from_millis(20), Instant::now() + time);
    let mut led = Duration::ZERO;
    while Instant::now() < end {
        let leaders = standing.iter().filter(|each| each.leads()).count();
        let writers = standing.iter().filter(|each| each.tenure.is_on()).count();
        assert!(leaders <= 1 && writers <= 1, "{leaders} lead, {writers} may write");
        led += tick * u32::try_from(leaders).unwrap();
        sleep(tick).await;
    }
    led
}

#[tokio::test(start_paused = true)]
async fn leadership_outlasts_calls_of_two_seconds_and_is_given_up_in_time_when_they_take_fifteen() {
    let server = Server::new();
    let mut first = Standing::start(&server, "first");
    first.turns(Role::Leading).await;
    let second = Standing::start(&server, "second");
    sleep(seconds(20)).await;
    let started = Instant::now() - seconds(20);
    server.api.slow_down(seconds(1));
    let led = watch_over(&[&first, &second], seconds(120)).await;
    assert!(led >= seconds(119), "calls of 2 s cost the lease: led for {led:?}");

    server.api.slow_down(Duration::from_millis(7500));
    let slowed = Instant::now();
    timeout(Duration::from_mins(1), first.role.changed()).await.unwrap().unwrap();
    let gave_up = Instant::now();
    assert!(!first.leads() && !first.tenure.is_on());
    let (arrived, holder) = server.held.lock().unwrap().writes.last().cloned().unwrap();
    assert_eq!(holder, "first");
    let since_write = gave_up.duration_since(started).saturating_sub(arrived);
    assert!(gave_up - slowed <= RENEW_DEADLINE && since_write < DURATION, "{since_write:?}");
    watch_over(&[&first, &second], seconds(120)).await;
    server.api.slow_down(Duration::ZERO);
    let led = watch_over(&[&first, &second], seconds(60)).await;
    assert!(led >= seconds(25), "nobody leads when it is over: {led:?}");
    println!(
        "calls of 2 s: led on for 2 min; calls of 15 s: given up {:?} later, {since_write:?} after the last renewal arrived (the lease: {DURATION:?})",
        gave_up - slowed,
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_past_its_lease_writes_nothing_when_it_wakes_up() {
    let server = Server::new();
    let mut first = Standing::start(&server, "first");
    first.turns(Role::Leading).await;
    first.write().await.unwrap();
    first.machine.sleeps(60);
    assert!(first.leads(), "its timers stood still: it does not know yet");
    assert!(matches!(first.write().await, Err(ApiError::Conflict { .. })));
    assert_eq!(server.held.lock().unwrap().creates, 1);
    let woke = Instant::now();
    first.role.mark_unchanged();
    timeout(Duration::from_mins(1), first.role.changed()).await.unwrap().unwrap();
    let late = woke.elapsed();
    assert!(late <= seconds(3), "{late:?}");
    first.turns(Role::Leading).await;
    first.write().await.unwrap();
    println!(
        "a machine that slept for 60 s: no write from the first moment, standing by after {late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn each_holder_has_a_higher_term_than_the_one_before() {
    let server = Server::new();
    let mut first = Standing::start(&server, "first");
    first.turns(Role::Leading).await;
    let term = first.tenure.term();
    sleep(seconds(60)).await;
    assert_eq!(first.tenure.term(), term, "a renewal begins no term");
    first.vacate.cancel();
    first.turns(Role::Standby).await;
    let mut second = Standing::start(&server, "second");
    second.turns(Role::Leading).await;
    assert!(second.tenure.term() > term, "{} after {term}", second.tenure.term());
    assert!(Tenure::without_end().term() > second.tenure.term());
}

/// Jumps by a minute, to and fro, each time it is read.
struct Jumping(AtomicU64);

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let read = self.0.fetch_add(1, Ordering::SeqCst);
        after(
            Timestamp::UNIX_EPOCH,
            seconds(1_000_000) + seconds(120) * u32::try_from(read % 2).unwrap(),
        )
    }

    fn sleep_until(&self, _at: Timestamp) -> BoxFuture<'_, ()> {
        panic!("an election waits by no time of day")
    }
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_time_of_day_change_nothing() {
    let server = Server::new();
    let jumping = || Arc::new(Jumping(AtomicU64::new(0)));
    let mut first = Standing::start_at(&server, "first", jumping());
    first.turns(Role::Leading).await;
    let second = Standing::start_at(&server, "second", jumping());
    first.role.mark_unchanged();
    let led = watch_over(&[&first, &second], Duration::from_mins(10)).await;
    assert!(!first.role.has_changed().unwrap() && first.leads());
    assert!(led >= seconds(599), "{led:?}");
    let lease = server.held.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

/// What somebody does to a lease by hand.
type Edit = (&'static str, fn(&mut Value));

fn edits() -> Vec<Edit> {
    vec![
        ("another holder", |lease| lease["spec"]["holderIdentity"] = json!("stranger")),
        ("no holder", |lease| lease["spec"]["holderIdentity"] = json!("")),
        ("no holder at all", |lease| lease["spec"]["holderIdentity"] = Value::Null),
        ("no spec", |lease| lease["spec"] = Value::Null),
        ("no duration", |lease| lease["spec"]["leaseDurationSeconds"] = Value::Null),
        ("a duration of none", |lease| lease["spec"]["leaseDurationSeconds"] = json!(0)),
        ("a negative duration", |lease| lease["spec"]["leaseDurationSeconds"] = json!(-5)),
        ("an endless duration", |lease| {
            lease["spec"]["leaseDurationSeconds"] = json!(2_000_000_000)
        }),
        ("renewed next year", |lease| {
            lease["spec"]["renewTime"] = json!("2031-01-01T00:00:00.000000Z")
        }),
        ("another holder, for no time", |lease| {
            lease["spec"] = json!({"holderIdentity": "stranger", "leaseDurationSeconds": 0});
        }),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_edited_by_hand_has_its_leader_within_two_durations() {
    let server = Server::new();
    let standing = [Standing::start(&server, "first"), Standing::start(&server, "second")];
    let both = [&standing[0], &standing[1]];
    watch_over(&both, seconds(30)).await;
    let mut worst = (Duration::ZERO, "");
    let delete = ("deleted", None);
    let edits = edits().into_iter().map(|(how, edit)| (how, Some(edit)));
    for (how, edit) in std::iter::once(delete).chain(edits) {
        match edit {
            Some(edit) => server.edit(edit),
            None => server.held.lock().unwrap().lease = None,
        }
        let without = 2 * DURATION - watch_over(&both, 2 * DURATION).await;
        assert!(both.iter().any(|each| each.leads()), "{how}: nobody leads after 30 s");
        worst = worst.max((without, how));
        let led = watch_over(&both, seconds(20)).await;
        assert!(led >= seconds(19), "{how}: it does not last");
    }
    println!("a lease in the hands of people: longest without a leader {:?}, {}", worst.0, worst.1);
}

#[tokio::test(start_paused = true)]
async fn of_a_claim_whose_answer_is_lost_at_most_one_believes() {
    for lost in 1..6 {
        let server = Server::new();
        server.fates(&vec![Fate::AnswerLost; lost]);
        let standing = [Standing::start(&server, "first"), Standing::start(&server, "second")];
        watch_over(&[&standing[0], &standing[1]], seconds(60)).await;
        let led = watch_over(&[&standing[0], &standing[1]], seconds(10)).await;
        assert!(led >= seconds(9), "{lost} answers lost: nobody leads");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_see_the_lease_run_out_together_exactly_one_takes_it() {
    let server = Server::new();
    let mut dead = Standing::start(&server, "dead");
    dead.turns(Role::Leading).await;
    let standing = [Standing::start(&server, "first"), Standing::start(&server, "second")];
    sleep(seconds(20)).await;
    dead.task.abort();
    sleep(RENEW_DEADLINE).await;
    let led = watch_over(&[&standing[0], &standing[1]], seconds(20)).await;
    assert!(led >= seconds(10), "{led:?}");
    assert!(server.held.lock().unwrap().conflicts >= 1, "they did not meet");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_told_to_wait_for_ever_is_tried_again_in_time() {
    let server = Server::new();
    let mut only = Standing::start(&server, "only");
    only.turns(Role::Leading).await;
    server.fates(&[Fate::Throttled; 2]);
    only.role.mark_unchanged();
    let led = watch_over(&[&only], seconds(60)).await;
    assert!(led >= seconds(59) && !only.role.has_changed().unwrap(), "{led:?}");
    assert_eq!(server.held.lock().unwrap().fates.len(), 0);
    only.vacate.cancel();
    timeout(Duration::from_mins(1), &mut only.task).await.unwrap().unwrap();
    assert_eq!(server.held.lock().unwrap().writes.last().unwrap().1, "");
}
