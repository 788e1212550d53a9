//! The kit on the same server: a watch into a store, and a loop of passes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use otctl_kit::args::Build;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::driver::{Driver, DriverOptions, Trigger};
use otctl_kit::health::Health;
use otctl_kit::kube_cluster::{Deadlines, KubeCluster};
use otctl_kit::metrics::Metrics;
use otctl_kit::plan::Plan;
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::{Observation, Reconciler, RefusalCause, Subject, Told, Undone};
use otctl_kit::shutdown::Shutdown;
use otctl_kit::store::{Key, Store};
use otctl_kit::watch::{WatchOptions, spawn_watch};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::VirtualClock;
use crate::plain::shown;

/// A store and the stream that feeds it.
pub(crate) struct Watched {
    pub(crate) store: Store<ConfigMap>,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    pub(crate) fn start(client: Client) -> Self {
        Self::start_slimmed(client, |_| {})
    }

    pub(crate) fn start_slimmed(client: Client, slim: fn(&mut ConfigMap)) -> Self {
        Self::start_into(client, slim, Store::default())
    }

    pub(crate) fn start_into(
        client: Client,
        slim: fn(&mut ConfigMap),
        store: Store<ConfigMap>,
    ) -> Self {
        let (health, metrics) = (Health::default(), Arc::new(Metrics::new(Build::of("test"))));
        let options = WatchOptions {
            slim,
            metrics: Some(metrics.clone()),
            ..WatchOptions::all(health.clone())
        };
        let task = spawn_watch(client, options, store.clone(), Shutdown::new());
        Self { store, health, metrics, task }
    }

    /// Name and version of everything in it.
    pub(crate) fn held(&self) -> Vec<String> {
        let mut held: Vec<String> = self.store.all().iter().map(|map| shown(map)).collect();
        held.sort();
        held
    }

    /// The value of a series; zero when there is none.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        value(&self.metrics, series)
    }
}

/// The value of a series; zero when there is none.
pub(crate) fn value(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.render().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

/// The names of what is silent.
pub(crate) fn names(silences: Vec<otctl_kit::health::Silence>) -> Vec<String> {
    silences.into_iter().map(|silence| silence.name).collect()
}

/// Passes do what their object is called.
pub(crate) struct Named {
    pub(crate) store: Store<ConfigMap>,
    reader: Reader,
    passes: Arc<Mutex<Vec<(Duration, String)>>>,
    started: Instant,
}

/// The object of a pass.
pub(crate) struct Seen(Arc<ConfigMap>);

impl Observation for Seen {
    fn subject(&self) -> Option<Subject> {
        let meta = &self.0.metadata;
        Some(Subject {
            target: Target::new::<ConfigMap>(meta.namespace.as_deref(), meta.name.as_deref()?),
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.clone()?,
            status: Value::Null,
        })
    }
}

impl Reconciler for Named {
    type Observed = Seen;
    type Status = Value;
    const NAME: &'static str = "named";

    async fn observe(&self, key: &Key) -> Result<Seen, ApiError> {
        let map = self.store.get(key).unwrap();
        self.passes.lock().unwrap().push((self.started.elapsed(), shown(&map)));
        if key.name.starts_with("reads") {
            self.reader.get::<Secret>(key.scope(), &key.name).await?;
        }
        Ok(Seen(map))
    }

    fn decide(observed: &Seen, _now: Timestamp) -> Plan<Value> {
        let name = observed.0.metadata.name.as_deref().unwrap_or_default();
        assert!(name != "bad", "an index out of bounds");
        Plan::rest("calm")
    }

    fn refused(_: &Seen, undone: &Undone<'_>, _now: Timestamp) -> Option<Told<Value>> {
        match undone.first.cause {
            RefusalCause::Panicked { message } => {
                Some(json!({"reason": "InternalError", "why": message}).into())
            }
            RefusalCause::Api(_) | RefusalCause::Foreign(_) => None,
        }
    }
}

/// A loop of [`Named`] over ConfigMaps, woken by their watch and by one of Secrets.
pub(crate) struct Looping {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trigger: Trigger,
    passes: Arc<Mutex<Vec<(Duration, String)>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Looping {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Looping {
    pub(crate) fn start(client: Client) -> Self {
        let (metrics, health) = (Arc::new(Metrics::new(Build::of("test"))), Health::default());
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new());
        let cluster = Arc::new(KubeCluster::new(client.clone(), "test", Deadlines::default()));
        let (store, passes) = (Store::default(), Arc::<Mutex<Vec<_>>>::default());
        let named = Named {
            store: store.clone(),
            reader: Reader::new(cluster.clone()),
            passes: passes.clone(),
            started: Instant::now(),
        };
        let options = DriverOptions {
            concurrency: 2,
            metrics: Some(metrics.clone()),
            health: health.clone(),
        };
        let driver = Driver::new(named, cluster, clock, options);
        let trigger = driver.trigger();
        let wake = trigger.clone();
        store.subscribe(move |map| wake.wake(&Key::of(map)));
        let maps = WatchOptions::all(health.clone());
        let secrets = WatchOptions::<Secret>::all(health);
        let tasks = vec![
            spawn_watch(client.clone(), maps, store, Shutdown::new()),
            spawn_watch(client, secrets, Store::default(), Shutdown::new()),
            tokio::spawn(async move {
                driver.run(std::future::pending(), std::future::pending()).await;
            }),
        ];
        Self { metrics, trigger, passes, tasks }
    }

    /// When each pass was, and over what.
    pub(crate) fn passes(&self) -> Vec<(Duration, String)> {
        self.passes.lock().unwrap().clone()
    }

    /// When each pass over that name was.
    pub(crate) fn of(&self, name: &str) -> Vec<Duration> {
        let passes = self.passes();
        let of = passes.iter().filter(|(_, shown)| shown.split(' ').next() == Some(name));
        of.map(|(at, _)| *at).collect()
    }
}
