//! Feeds a [`Store`] from the API server: list, then watch, for ever. One stream per kind, each with its own backoff, so
//! one that fails (a missing kind, a right taken away) slows down no other. When it begins again, and how, is decided
//! in `reconnect`.
//!
//! Nothing is taken out of the store on a partial list, and an object that cannot be read keeps its last readable state:
//! neither is proof that something is gone.

mod reconnect;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use http::StatusCode;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{DeserializeGuard, Request, WatchEvent};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use self::reconnect::{Ended, Reconnect};
use crate::health::{Health, Pulse};
use crate::metrics::Metrics;
use crate::page::{PAGE_SIZE, Page};
use crate::shutdown::Shutdown;
use crate::store::{Change, Key, Store, Version};

/// For one page, and for the beginning of a watch.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The server ends a watch after a time from this range: random, so that streams do not begin again together.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 25..=30;
/// A watch that the server has not ended so long after it should have is a black hole: noticed after 35 s at most.
const GRACE: Duration = Duration::from_secs(5);
/// A stream beats at least each 35 s (a whole watch) when it is well.
const SILENCE: Duration = Duration::from_secs(60);

/// Which objects are watched, and what of them is kept.
#[derive(Clone)]
pub struct WatchOptions<K> {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label selector; empty for all.
    pub labels: String,
    /// Field selector; empty for all.
    pub fields: String,
    /// Takes out of an object what nobody reads, before it is kept. managedFields go anyway.
    pub slim: fn(&mut K),
    /// Where the stream shows that it lives.
    pub health: Health,
    /// Where requests are counted.
    pub metrics: Option<Arc<Metrics>>,
}

impl<K> WatchOptions<K> {
    /// All objects of the kind, whole.
    #[must_use]
    pub fn all(health: Health) -> Self {
        Self {
            namespace: None,
            labels: String::new(),
            fields: String::new(),
            slim: |_| {},
            health,
            metrics: None,
        }
    }
}

/// A kind that can be watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static>
    Watched for K
{
}

/// Keeps `store` up to date until told to stop.
pub fn spawn_watch<K: Watched>(
    client: Client,
    options: WatchOptions<K>,
    store: Store<K>,
    shutdown: Shutdown,
) -> JoinHandle<()> {
    let name = format!("watch {}", K::kind(&()));
    tokio::spawn(async move {
        let pulse = options.health.pulse(&name, SILENCE);
        let path = Request::new(K::url_path(&(), options.namespace.as_deref()));
        let mut stream = Feed { client, path, options, store, pulse, version: None };
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = stream.run() => {}
        }
        stream.pulse.retire();
    })
}

/// One stream.
struct Feed<K> {
    client: Client,
    path: Request,
    options: WatchOptions<K>,
    store: Store<K>,
    pulse: Pulse,
    /// Where the next watch begins; none before a complete list.
    version: Option<String>,
}

impl<K: Watched> Feed<K> {
    async fn run(&mut self) {
        let mut reconnect = Reconnect::default();
        loop {
            let started = Instant::now();
            self.pulse.beat();
            let ended = match self.version.clone() {
                None => self.list().await,
                Some(version) => self.watch(&version).await,
            };
            let again = reconnect.after(ended, started.elapsed(), rand::random());
            if again.relist {
                self.version = None;
            }
            self.pulse.beat();
            tokio::time::sleep(again.pause).await;
        }
    }

    /// A complete list, or nothing.
    async fn list(&mut self) -> Ended {
        match self.pages().await {
            Ok((objects, version)) => {
                self.store.apply(Change::All(objects));
                self.version = None;
                self.advance(version);
                Ended::Listed
            }
            Err(error) => self.failed("list", &error),
        }
    }

    async fn pages(&self) -> Result<(Vec<K>, Option<String>), StreamError> {
        let mut params = ListParams::default()
            .limit(PAGE_SIZE)
            .labels(&self.options.labels)
            .fields(&self.options.fields);
        let mut objects = Vec::new();
        loop {
            let request = self.path.list(&params).map_err(kube::Error::BuildRequest)?;
            let page: Page<DeserializeGuard<K>> =
                timeout(ANSWER_DEADLINE, self.client.request(request)).await??;
            self.answered("list");
            let next = page.next();
            objects.extend(page.items.into_iter().filter_map(|item| self.readable(item)));
            match next {
                Some(token) => params.continue_token = Some(token),
                None => return Ok((objects, page.metadata.resource_version)),
            }
        }
    }

    async fn watch(&mut self, version: &str) -> Ended {
        let seconds = rand::random_range(WATCH_SECONDS);
        let silent_at = Instant::now() + Duration::from_secs(seconds.into()) + GRACE;
        match self.open(version, seconds).await {
            Ok(events) => self.follow(std::pin::pin!(events), silent_at).await,
            Err(error) => self.failed("watch", &error),
        }
    }

    async fn open(
        &self,
        version: &str,
        seconds: u32,
    ) -> Result<
        impl Stream<Item = kube::Result<WatchEvent<DeserializeGuard<K>>>> + use<K>,
        StreamError,
    > {
        let selector = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let params = WatchParams {
            label_selector: selector(&self.options.labels),
            field_selector: selector(&self.options.fields),
            timeout: Some(seconds),
            ..WatchParams::default()
        };
        let request = self.path.watch(&params, version).map_err(kube::Error::BuildRequest)?;
        let events = timeout(ANSWER_DEADLINE, self.client.request_events(request)).await??;
        self.answered("watch");
        Ok(events)
    }

    async fn follow<S>(&mut self, mut events: S, silent_at: Instant) -> Ended
    where
        S: Stream<Item = kube::Result<WatchEvent<DeserializeGuard<K>>>> + Unpin,
    {
        let mut progressed = false;
        loop {
            match timeout_at(silent_at, events.next()).await {
                Err(_) => {
                    tracing::warn!(kind = %K::kind(&()), "a watch was silent; it begins again");
                    return Ended::Silent { progressed };
                }
                Ok(None) => return Ended::Closed { progressed },
                Ok(Some(Err(error))) => {
                    return self.failed("watch", &error.into()).after_progress(progressed);
                }
                Ok(Some(Ok(WatchEvent::Error(status)))) => {
                    return self
                        .failed("watch", &kube::Error::Api(status).into())
                        .after_progress(progressed);
                }
                Ok(Some(Ok(event))) => {
                    self.pulse.contact();
                    self.take_in(event);
                    progressed = true;
                }
            }
        }
    }

    fn take_in(&mut self, event: WatchEvent<DeserializeGuard<K>>) {
        match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                let version = item.meta().resource_version.clone();
                if let Some(object) = self.readable(item) {
                    self.store.apply(Change::Present(object));
                }
                self.advance(version);
            }
            WatchEvent::Deleted(item) => {
                let version = item.meta().resource_version.clone();
                if let Some(object) = self.readable(item) {
                    self.store.apply(Change::Gone(object));
                }
                self.advance(version);
            }
            WatchEvent::Bookmark(bookmark) => {
                self.advance(Some(bookmark.metadata.resource_version))
            }
            WatchEvent::Error(_) => unreachable!("errors end the stream before"),
        }
    }

    /// Everything up to this version was taken in; the next watch begins there.
    fn advance(&mut self, version: Option<String>) {
        self.version = version.filter(|version| !version.is_empty()).or(self.version.take());
        self.store.reached(self.version.as_deref().map(Version::read).unwrap_or_default());
    }

    /// An object as it is kept; the state held before when it cannot be read.
    fn readable(&self, item: DeserializeGuard<K>) -> Option<K> {
        match item.0 {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                (self.options.slim)(&mut object);
                Some(object)
            }
            Err(invalid) => {
                let meta = invalid.metadata;
                let key = Key {
                    namespace: meta.namespace.unwrap_or_default(),
                    name: meta.name.unwrap_or_default(),
                };
                tracing::warn!(kind = %K::kind(&()), object = %key, error = invalid.error, "an object cannot be read");
                self.store.get(&key).map(|held| K::clone(&held))
            }
        }
    }

    fn answered(&self, verb: &'static str) {
        self.pulse.contact();
        self.count(verb, Some(StatusCode::OK.as_u16()));
    }

    fn failed(&self, verb: &'static str, error: &StreamError) -> Ended {
        self.count(verb, error.code());
        tracing::warn!(kind = %K::kind(&()), verb, %error, "a stream failed; it begins again");
        if error.code() == Some(StatusCode::GONE.as_u16()) {
            return Ended::Expired { progressed: false };
        }
        Ended::Failed { progressed: false }
    }

    fn count(&self, verb: &'static str, code: Option<u16>) {
        if let Some(metrics) = &self.options.metrics {
            metrics.api_request(verb, code);
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Refused(#[from] kube::Error),
    #[error("no answer within {ANSWER_DEADLINE:?}")]
    TimedOut(#[from] tokio::time::error::Elapsed),
}

impl StreamError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(kube::Error::Api(status)) => Some(status.code),
            Self::Refused(_) | Self::TimedOut(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
