//! A log sink that blocks: a full pipe that nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use otctl_kit::args::Build;
use otctl_kit::clock::SystemClock;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};
use otctl_kit::driver::{Driver, DriverOptions};
use otctl_kit::health::Health;
use otctl_kit::plan::Plan;
use otctl_kit::reconciler::{Observation, Reconciler, Subject};
use otctl_kit::store::Key;
use otctl_kit::telemetry::{LogFormat, Settings, Telemetry};
use serde_json::Value;
use tokio::sync::Notify;

/// Marks the process that logs.
const IS_CHILD: &str = "OTCTL_KIT_LOGS";
/// Each logs a line: far more than a pipe and the lines in waiting hold.
const PASSES: usize = 30_000;

/// Counts its passes.
struct Counting {
    passes: Arc<AtomicUsize>,
    all: Arc<Notify>,
}

struct Nothing;

impl Observation for Nothing {
    fn subject(&self) -> Option<Subject> {
        None
    }
}

impl Reconciler for Counting {
    type Observed = Nothing;
    type Status = Value;
    const NAME: &'static str = "counting";

    async fn observe(&self, _key: &Key) -> Result<Nothing, ApiError> {
        if self.passes.fetch_add(1, Ordering::SeqCst) + 1 == PASSES {
            self.all.notify_one();
        }
        Ok(Nothing)
    }

    fn decide(_observed: &Nothing, _now: Timestamp) -> Plan<Value> {
        Plan::rest("counted")
    }
}

/// Is never asked.
struct Nobody;

impl Cluster for Nobody {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        futures::future::ready(Err(ApiError::Unknown { detail: request.verb().to_owned() })).boxed()
    }
}

/// Logs a line for each of many passes, and says how it went.
#[tokio::main(flavor = "current_thread")]
async fn child() {
    let settings = Settings {
        filter: "info",
        format: LogFormat::Json,
        build: Build::of("test"),
        instance: "child",
    };
    let telemetry = Telemetry::install(&settings).unwrap();
    let (passes, all) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let counting = Counting { passes: passes.clone(), all: all.clone() };
    let options = DriverOptions { concurrency: 4, metrics: None, health: Health::default() };
    let driver = Driver::new(counting, Arc::new(Nobody), Arc::new(SystemClock), options);
    let trigger = driver.trigger();
    (0..PASSES).for_each(|n| trigger.wake(&Key::new("lab", &n.to_string())));
    driver.run(all.notified(), std::future::pending()).await;
    let dropped = telemetry.dropped_lines();
    drop(telemetry);
    println!("{} passes, {} lines dropped", passes.load(Ordering::SeqCst), dropped.dropped_lines());
}

#[test]
fn a_log_sink_that_blocks_holds_up_no_pass_and_what_is_dropped_is_counted() {
    if std::env::var_os(IS_CHILD).is_some() {
        child();
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["logs::a_log_sink_that_blocks_holds_up_no_pass_and_what_is_dropped_is_counted"])
        .args(["--exact", "--nocapture"])
        .env(IS_CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody reads its log until it has ended.
    let code = wait(&mut child, Duration::from_secs(120));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let line = said.lines().find(|line| line.contains(" passes, ")).unwrap_or_default();
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(numbers[0], PASSES, "{said}");
    assert!(numbers[1] > PASSES / 2, "{said}");
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&log.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["message"], "verdict changed");
    println!("nobody reads the log: {line}");
}

/// Its exit code; it is ended when it does not end.
fn wait(child: &mut std::process::Child, patience: Duration) -> Option<i32> {
    let deadline = std::time::Instant::now() + patience;
    while std::time::Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap().code()
}
