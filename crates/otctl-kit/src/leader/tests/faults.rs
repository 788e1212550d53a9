//! Several electors against one lease in memory, on virtual time: calls are slow, fail before or after they were
//! carried out, and the candidates' clocks have different origins and speeds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::DynamicObject;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::cluster::{Answer, ApiError, Cluster, Request, erase, typed};
use crate::leader::{BootClock, Candidate, Elector, Role, Timing};

const TICK: Duration = Duration::from_millis(20);

/// An API server that holds one lease, as far as leases need one.
#[derive(Default)]
struct Fake {
    lease: Mutex<(u64, Option<Lease>)>,
}

impl Fake {
    fn carry_out(&self, request: &Request) -> Result<Answer, ApiError> {
        let mut held = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, lease) = &mut *held;
        match request {
            Request::Get(_) => {}
            Request::Apply(object) => {
                assert!(object.data.get("spec").is_none(), "only metadata may be applied");
                if lease.is_none() {
                    store(version, lease, object);
                }
            }
            Request::Replace(object) => {
                let Some(current) = lease else {
                    return Err(ApiError::NotFound { detail: "no lease".to_owned() });
                };
                let sent = object.metadata.resource_version.as_ref();
                assert!(sent.is_some(), "a PUT must carry the resourceVersion");
                if sent != current.metadata.resource_version.as_ref() {
                    return Err(ApiError::Conflict { detail: "changed".to_owned() });
                }
                store(version, lease, object);
            }
            other => panic!("a lease is never changed by {}", other.verb()),
        }
        Ok(lease.as_ref().map_or(Answer::Absent, |lease| Answer::Object(erase(lease))))
    }

    fn holder(&self) -> Option<String> {
        let held = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        held.1.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    fn delete(&self) {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).1 = None;
    }
}

fn store(version: &mut u64, lease: &mut Option<Lease>, object: &DynamicObject) {
    *version += 1;
    let mut new: Lease = typed(object.clone()).unwrap();
    new.metadata.resource_version = Some(version.to_string());
    *lease = Some(new);
}

/// What happens to the calls of one candidate.
#[derive(Clone, Copy)]
struct Weather {
    /// Of a hundred calls, so many are lost before they arrive, and as many lose their answer.
    lost_percent: u32,
    /// A request and an answer take up to this time each.
    slow: Duration,
}

const FAIR: Weather = Weather { lost_percent: 0, slow: Duration::from_millis(3) };
const FOUL: Weather = Weather { lost_percent: 20, slow: Duration::from_millis(2500) };

/// A candidate's way to the API server.
struct Link {
    fake: Arc<Fake>,
    random: Mutex<SmallRng>,
    weather: Mutex<Weather>,
    is_cut: AtomicBool,
}

impl Link {
    /// Delays of both ways, and which of them is lost.
    fn roll(&self) -> (Duration, Duration, bool, bool) {
        let weather = *self.weather.lock().unwrap();
        let mut random = self.random.lock().unwrap();
        let cut = self.is_cut.load(Ordering::SeqCst);
        let slow = weather.slow.as_secs_f64();
        let (there, back) = (random.random_range(0.0..=slow), random.random_range(0.0..=slow));
        let fate = random.random_range(0..100);
        (
            Duration::from_secs_f64(there),
            Duration::from_secs_f64(back),
            cut || fate < weather.lost_percent,
            (weather.lost_percent..2 * weather.lost_percent).contains(&fate),
        )
    }
}

impl Cluster for Link {
    /// The request goes on when its sender gives up: it is a task of its own.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        let (there, back, lost, mute) = self.roll();
        let fake = self.fake.clone();
        let sent = tokio::spawn(async move {
            sleep(there).await;
            let answer = if lost {
                Err(ApiError::Unknown { detail: "cut".to_owned() })
            } else {
                fake.carry_out(&request)
            };
            sleep(back).await;
            if mute { Err(ApiError::Unknown { detail: "answer lost".to_owned() }) } else { answer }
        });
        Box::pin(async move { sent.await.unwrap() })
    }
}

/// One candidate and its elector at work.
struct Runner {
    link: Arc<Link>,
    role: watch::Receiver<Role>,
    vacate: CancellationToken,
    task: JoinHandle<()>,
    identity: String,
}

impl Runner {
    fn start(fake: &Arc<Fake>, seed: u64, weather: Weather) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let clock = skewed_clock(random.random_range(0..100_000), random.random_range(0.92..=1.08));
        let link = Arc::new(Link {
            fake: fake.clone(),
            random: Mutex::new(random),
            weather: Mutex::new(weather),
            is_cut: AtomicBool::new(false),
        });
        let identity = Candidate::unique("pod");
        let candidate = Candidate {
            namespace: "ns".to_owned(),
            lease: "test-controller".to_owned(),
            identity: identity.clone(),
            timing: Timing::default(),
        };
        let elector = Elector::with_clocks(link.clone(), candidate, clock, Arc::new(SystemClock));
        let (role, vacate) = (elector.role(), CancellationToken::new());
        let task = tokio::spawn(elector.run(vacate.clone()));
        Self { link, role, vacate, task, identity }
    }

    fn leads(&self) -> bool {
        *self.role.borrow() == Role::Leading
    }

    async fn wait_for(&mut self, role: Role) {
        let wait = self.role.wait_for(|now| *now == role);
        timeout(Duration::from_secs(120), wait).await.unwrap().unwrap();
    }

    async fn vacate(self) {
        self.vacate.cancel();
        timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap();
    }
}

/// A boot-time clock that starts anywhere and runs at `speed`.
fn skewed_clock(origin_seconds: u64, speed: f64) -> BootClock {
    let started = Instant::now();
    Arc::new(move || Duration::from_secs(origin_seconds) + started.elapsed().mul_f64(speed))
}

/// Lets `duration` pass and looks all the time; returns how many ticks had a leader.
async fn watch_over(runners: &[Runner], duration: Duration) -> u32 {
    let end = Instant::now() + duration;
    let mut led = 0;
    while Instant::now() < end {
        let leaders = runners.iter().filter(|runner| runner.leads()).count();
        assert!(leaders <= 1, "{leaders} lead at once");
        led += u32::try_from(leaders).unwrap();
        sleep(TICK).await;
    }
    led
}

#[tokio::test(start_paused = true)]
async fn never_two_lead_whatever_the_network_does() {
    let mut led = 0;
    for seed in 0..20 {
        let fake = Arc::new(Fake::default());
        let runners: Vec<Runner> =
            (0..3).map(|n| Runner::start(&fake, seed * 10 + n, FOUL)).collect();
        let mut random = SmallRng::seed_from_u64(seed);
        for _ in 0..12 {
            let victim = &runners[random.random_range(0..runners.len())];
            victim.link.is_cut.store(random.random_bool(0.5), Ordering::SeqCst);
            if random.random_bool(0.1) {
                fake.delete();
            }
            led += watch_over(&runners, Duration::from_secs(random.random_range(3..40))).await;
        }
        for runner in &runners {
            runner.link.is_cut.store(false, Ordering::SeqCst);
            *runner.link.weather.lock().unwrap() = FAIR;
        }
        watch_over(&runners, Duration::from_secs(60)).await;
        assert_eq!(
            runners.iter().filter(|runner| runner.leads()).count(),
            1,
            "seed {seed}: nobody leads in the end"
        );
        for runner in runners {
            runner.vacate().await;
        }
        assert_eq!(fake.holder().as_deref(), Some(""), "seed {seed}: the lease was not given back");
    }
    assert!(
        led > 10_000,
        "in foul weather there were leaders for {led} ticks only: little was tested"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_given_back_is_followed_within_a_retry_period() {
    let fake = Arc::new(Fake::default());
    let mut first = Runner::start(&fake, 1, FAIR);
    first.wait_for(Role::Leading).await;
    let mut second = Runner::start(&fake, 2, FAIR);
    sleep(Duration::from_secs(30)).await;
    assert!(first.leads() && !second.leads());
    first.vacate().await;
    let given_back = Instant::now();
    second.wait_for(Role::Leading).await;
    assert!(given_back.elapsed() < Duration::from_secs(3), "{:?}", given_back.elapsed());
    assert_eq!(fake.holder(), Some(second.identity.clone()));
    second.vacate().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_after_the_lease_duration() {
    let fake = Arc::new(Fake::default());
    let mut first = Runner::start(&fake, 3, FAIR);
    first.wait_for(Role::Leading).await;
    let mut second = Runner::start(&fake, 4, FAIR);
    sleep(Duration::from_secs(30)).await;
    first.task.abort();
    let died = Instant::now();
    second.wait_for(Role::Leading).await;
    let took = died.elapsed();
    assert!(took > Duration::from_secs(11) && took < Duration::from_secs(20), "{took:?}");
    second.vacate().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_at_its_deadline_and_comes_back_as_standby() {
    let fake = Arc::new(Fake::default());
    let mut first = Runner::start(&fake, 5, FAIR);
    first.wait_for(Role::Leading).await;
    sleep(Duration::from_secs(20)).await;
    first.link.is_cut.store(true, Ordering::SeqCst);
    let cut = Instant::now();
    first.wait_for(Role::Standby).await;
    assert!(cut.elapsed() < Duration::from_secs(12), "{:?}", cut.elapsed());
    let mut second = Runner::start(&fake, 6, FAIR);
    second.wait_for(Role::Leading).await;
    first.link.is_cut.store(false, Ordering::SeqCst);
    watch_over(&[first, second], Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_gives_nothing_back_and_does_not_call() {
    let fake = Arc::new(Fake::default());
    let mut first = Runner::start(&fake, 7, FAIR);
    first.wait_for(Role::Leading).await;
    let second = Runner::start(&fake, 8, FAIR);
    sleep(Duration::from_secs(10)).await;
    second.vacate().await;
    assert_eq!(fake.holder(), Some(first.identity.clone()));
    first.vacate().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_the_lease_does_not_make_two_lead() {
    let fake = Arc::new(Fake::default());
    let runners: Vec<Runner> = (20..23).map(|seed| Runner::start(&fake, seed, FAIR)).collect();
    watch_over(&runners, Duration::from_secs(30)).await;
    for _ in 0..10 {
        fake.delete();
        assert!(watch_over(&runners, Duration::from_secs(30)).await > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_and_led_by_one() {
    let fake = Arc::new(Fake::default());
    let mut only = Runner::start(&fake, 9, FAIR);
    only.wait_for(Role::Leading).await;
    fake.delete();
    only.wait_for(Role::Standby).await;
    only.wait_for(Role::Leading).await;
    assert_eq!(fake.holder(), Some(only.identity.clone()));
    only.vacate().await;
}
