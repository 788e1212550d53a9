//! Whole controllers against an API server in memory: real client, real lease, real watch, real HTTP.

mod api;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::api::Api;
use super::*;
use crate::cluster::ApiError;
use crate::leader::Timing;
use crate::plan::Plan;
use crate::reconciler::{Observation, Reconciler, Subject};
use crate::store::{Key, Store};

/// Wide: nothing here is about speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts its passes; they wait as long as the gate is closed.
struct Counter {
    passes: Arc<watch::Sender<usize>>,
    dropped: Arc<AtomicUsize>,
    gate: watch::Receiver<bool>,
}

struct Nothing;

impl Observation for Nothing {
    fn subject(&self) -> Option<Subject> {
        None
    }
}

/// Counts a pass that was dropped before it ended.
struct Unfinished<'a>(&'a AtomicUsize);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Reconciler for Counter {
    type Observed = Nothing;
    type Status = Value;
    const NAME: &'static str = "counter";

    async fn observe(&self, _key: &Key) -> Result<Nothing, ApiError> {
        self.passes.send_modify(|passes| *passes += 1);
        let unfinished = Unfinished(&self.dropped);
        self.gate.clone().wait_for(|is_open| *is_open).await.unwrap();
        std::mem::forget(unfinished);
        Ok(Nothing)
    }

    fn decide(_observed: &Nothing, _now: Timestamp) -> Plan<Value> {
        Plan::rest("counted")
    }
}

/// One controller at work.
struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    passes: watch::Receiver<usize>,
    dropped: Arc<AtomicUsize>,
    gate: watch::Sender<bool>,
    store: Store<ConfigMap>,
    task: JoinHandle<Result<(), RunError>>,
}

fn settings(identity: &str, election: Option<Timing>) -> Settings {
    Settings {
        build: Build::of("test-controller"),
        namespace: "ns".to_owned(),
        policy: Key::new("ns", "policy"),
        identity: identity.to_owned(),
        election,
        listen: "127.0.0.1:0".parse().unwrap(),
        state_anywhere: false,
    }
}

fn fast() -> Option<Timing> {
    let millis = Duration::from_millis;
    Some(Timing::new(millis(3000), millis(2000), millis(100)).unwrap())
}

impl Running {
    async fn start(api: &Api, settings: Settings, is_open: bool) -> Self {
        Self::start_with(api.client(), settings, is_open, |_, controllers| controllers).await
    }

    /// `more` adds to what is watched.
    async fn start_with(
        client: Client,
        settings: Settings,
        is_open: bool,
        more: impl FnOnce(&Context, Controllers) -> Controllers,
    ) -> Self {
        let context = Context::new(settings, client);
        let (passes, dropped) = (Arc::new(watch::Sender::new(0)), Arc::default());
        let (gate, store) = (watch::Sender::new(is_open), Store::<ConfigMap>::default());
        let counter = Counter {
            passes: passes.clone(),
            dropped: Arc::clone(&dropped),
            gate: gate.subscribe(),
        };
        let controllers = context.controllers().watch(&store, context.watch_all()).reconcile(
            counter,
            2,
            |trigger| {
                let trigger = trigger.clone();
                store.subscribe(move |map| trigger.wake(&Key::of(map)));
            },
        );
        let controllers = more(&context, controllers);
        let runtime = Runtime::bind(context, controllers, None).await.unwrap();
        let (address, shutdown) = (runtime.address(), Shutdown::new());
        let task = tokio::spawn(runtime.run(shutdown.clone()));
        Self { address, shutdown, passes: passes.subscribe(), dropped, gate, store, task }
    }

    async fn passes(&mut self, at_least: usize) {
        timeout(PATIENCE, self.passes.wait_for(|passes| *passes >= at_least))
            .await
            .unwrap()
            .unwrap();
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn ends(self) -> Result<(), RunError> {
        timeout(PATIENCE, self.task).await.unwrap().unwrap()
    }

    async fn stop(self) {
        self.shutdown.ask();
        self.ends().await.unwrap();
    }
}

#[tokio::test]
async fn a_standby_is_warm_and_ready_and_works_when_the_leader_is_gone() {
    let api = Api::with_maps(&["a", "b"]);
    let mut first = Running::start(&api, settings("first", fast()), true).await;
    first.passes(2).await;
    assert_eq!(api.holder().as_deref(), Some("first"));

    let mut second = Running::start(&api, settings("second", fast()), true).await;
    timeout(PATIENCE, second.store.synced()).await.unwrap();
    assert!(second.get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(second.get("/metrics").await.contains("otctl_leader 0"));
    assert_eq!(*second.passes.borrow(), 0, "a standby made a pass");

    first.stop().await;
    second.passes(2).await;
    assert_eq!(api.holder().as_deref(), Some("second"));
    second.stop().await;
    assert_eq!(api.holder().as_deref(), Some(""), "the lease was not given back");
}

#[tokio::test]
async fn the_pass_at_work_ends_before_the_lease_is_given_back() {
    let api = Api::with_maps(&["a"]);
    let mut running = Running::start(&api, settings("only", fast()), false).await;
    running.passes(1).await;
    running.shutdown.ask();
    api.renewed().await;
    assert_eq!(
        api.holder().as_deref(),
        Some("only"),
        "the lease was given back under a pass at work"
    );
    running.gate.send_replace(true);
    let dropped = running.dropped.clone();
    running.ends().await.unwrap();
    assert_eq!((dropped.load(Ordering::SeqCst), api.holder().as_deref()), (0, Some("")));
}

#[tokio::test]
async fn passes_are_dropped_when_the_lease_is_lost_and_made_again_when_it_is_won() {
    let api = Api::with_maps(&["a"]);
    let mut running = Running::start(&api, settings("only", fast()), false).await;
    running.passes(1).await;
    api.take_lease_as("stranger");
    running.passes(2).await;
    assert_eq!(running.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(api.holder().as_deref(), Some("only"));
    running.gate.send_replace(true);
    running.stop().await;
}

#[tokio::test]
async fn no_loop_begins_on_an_incomplete_cache() {
    let api = Api::with_maps(&["a"]);
    api.fail_lists(true);
    let mut running = Running::start(&api, settings("only", fast()), true).await;
    api.renewed().await;
    let answer = running.get("/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("not synced: ConfigMap"),
        "{answer}"
    );
    assert!(
        running.get("/livez").await.starts_with("HTTP/1.1 200"),
        "an API server that refuses is not our death"
    );
    assert_eq!(*running.passes.borrow(), 0);
    api.fail_lists(false);
    running.passes(1).await;
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"));
    running.stop().await;
}

#[tokio::test]
async fn without_election_it_works_and_takes_no_lease() {
    let api = Api::with_maps(&["a"]);
    let mut running = Running::start(&api, settings("only", None), true).await;
    running.passes(1).await;
    running.stop().await;
    assert_eq!(api.holder(), None);
}

#[tokio::test]
async fn the_state_tells_who_leads_and_what_is_at_work() {
    let api = Api::with_maps(&["a"]);
    let mut running = Running::start(&api, settings("only", None), false).await;
    running.passes(1).await;
    let answer = running.get("/debug/state").await;
    let state: Value = serde_json::from_str(answer.rsplit("\r\n\r\n").next().unwrap()).unwrap();
    assert_eq!((&state["identity"], &state["leading"]), (&Value::from("only"), &Value::from(true)));
    assert_eq!(state["caches"]["ConfigMap"], serde_json::json!({"synced": true, "objects": 1}));
    assert_eq!(state["loops"]["counter"][0]["object"], "ns/a");
    assert_eq!(state["loops"]["counter"][0]["state"], "running");
    assert!(state["tasks"]["watch ConfigMap"].is_object(), "{state}");
    running.gate.send_replace(true);
    running.stop().await;
}

/// The same server, which first says nothing about Secrets and then that there is no such kind.
fn without_secrets(api: &Api, is_told: watch::Receiver<bool>) -> Client {
    let inner = api.client();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, mut is_told) = (inner.clone(), is_told.clone());
        async move {
            if !request.uri().path().ends_with("/secrets") {
                return inner.send(request).await;
            }
            is_told.wait_for(|is_told| *is_told).await.unwrap();
            let refusal = http::Response::builder().status(404);
            Ok(refusal.body(kube::client::Body::empty()).unwrap())
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn no_loop_begins_before_it_is_known_whether_an_optional_kind_is_there() {
    let (api, is_told) = (Api::with_maps(&["a"]), watch::Sender::new(false));
    let client = without_secrets(&api, is_told.subscribe());
    let secrets = Store::<Secret>::default();
    let mut running =
        Running::start_with(client, settings("only", fast()), true, |context, controllers| {
            controllers.watch_optional(&secrets, context.watch_all())
        })
        .await;
    api.renewed().await;
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"), "it need not be there");
    assert_eq!(*running.passes.borrow(), 0, "a pass began without knowing");
    is_told.send_replace(true);
    running.passes(1).await;
    assert!(!secrets.is_synced(), "there is none");
    running.stop().await;
}
