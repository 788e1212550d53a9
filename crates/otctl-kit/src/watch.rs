//! Feeds a [`Store`] from the API server: all objects, then what changes, for ever. One stream per kind, each with its own
//! backoff, so one that fails (a missing kind, a right taken away) slows down no other. When it begins again, and how, is
//! decided in `reconnect`; what goes over the wire is in `wire`, what a line says in `event`.
//!
//! Where the server can, the objects come one by one at the beginning of a watch that then goes on; else in small pages.
//! Either way each is slimmed and taken in as it comes, so that at no time there are two of all.
//!
//! Nothing is taken out of the store on a partial list, on one that is older than what was seen, or because it cannot be
//! read: none of these is proof that something is gone.

mod event;
mod intake;
mod reconnect;
mod unreadable;
mod wire;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::StatusCode;
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::event::{Event, Item};
use self::intake::Intake;
use self::reconnect::{Ended, INTERVAL, Reconnect};
use self::unreadable::Unreadable;
use self::wire::{ANSWER_DEADLINE, Lines, Start, StreamError, Wire};
use crate::health::{Health, Pulse};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;
use crate::store::{Listing, Store, Version};

/// The server ends a watch after a time from this range: random, so that streams do not begin again together.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 25..=30;
/// A watch that the server has not ended so long after it should have is a black hole: noticed after 35 s at most.
const GRACE: Duration = Duration::from_secs(5);
/// A watch that lasted so long worked, whatever ended it.
const LASTED: Duration = Duration::from_secs(10);
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
    /// Whether the kind need not be there, or not be for us: that is told once, and once more when it is.
    pub is_optional: bool,
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
            is_optional: false,
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

/// The stream's name: of a kind there is one per namespace, or one of all.
fn name(kind: &str, namespace: Option<&str>) -> String {
    namespace.map_or(format!("watch {kind}"), |namespace| format!("watch {kind} in {namespace}"))
}

/// Keeps `store` up to date until told to stop.
pub fn spawn_watch<K: Watched>(
    client: Client,
    options: WatchOptions<K>,
    store: Store<K>,
    shutdown: Shutdown,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut feed = Feed::new(client, options, store);
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = feed.run() => {}
        }
        feed.pulse.retire();
    })
}

/// One stream.
struct Feed<K> {
    wire: Wire,
    intake: Intake<K>,
    metrics: Option<Arc<Metrics>>,
    pulse: Pulse,
    /// Whether the server can tell a list as the beginning of a watch, as far as is known.
    can_stream: bool,
    /// Whether the last try to have a list told so failed: then it is asked for in pages once.
    failed_to_stream: bool,
    /// When the last watch began.
    watched_at: Option<Instant>,
    is_optional: bool,
    /// Whether it was told that the kind is missing.
    is_missed: bool,
}

/// An open watch.
struct Opened {
    lines: Lines,
    began: Instant,
    /// The server has ended it by then, or the way to it is broken.
    ends: Instant,
}

impl<K: Watched> Feed<K> {
    fn new(client: Client, options: WatchOptions<K>, store: Store<K>) -> Self {
        let kind = K::kind(&()).into_owned();
        let path = Request::new(K::url_path(&(), options.namespace.as_deref()));
        Self {
            pulse: options.health.stream(&name(&kind, options.namespace.as_deref()), SILENCE),
            wire: Wire { client, path, labels: options.labels, fields: options.fields },
            intake: Intake::new(
                store,
                options.slim,
                Unreadable::new(kind, options.metrics.clone()),
            ),
            metrics: options.metrics,
            can_stream: true,
            failed_to_stream: false,
            watched_at: None,
            is_optional: options.is_optional,
            is_missed: false,
        }
    }

    async fn run(&mut self) {
        let mut reconnect = Reconnect::default();
        loop {
            let started = Instant::now();
            self.pulse.beat();
            let ended = match self.intake.version() {
                None => self.begin().await,
                Some(version) => self.resume(&version).await,
            };
            let again = reconnect.after(ended, started.elapsed(), rand::random());
            if again.relist {
                self.intake.begin_anew();
            }
            self.pulse.beat();
            tokio::time::sleep(again.pause).await;
        }
    }

    /// A complete list, one way or the other.
    async fn begin(&mut self) -> Ended {
        let listing = self.intake.begin_list();
        if self.can_stream && !self.failed_to_stream {
            return self.stream(listing).await;
        }
        self.failed_to_stream = false;
        match self.pages(listing).await {
            Ok(()) => Ended::Listed,
            Err(error) => self.failed("list", &error),
        }
    }

    /// In pages, as every server can.
    async fn pages(&mut self, mut listing: Listing<K>) -> Result<(), StreamError> {
        let mut token = None;
        loop {
            let page = self.wire.page(token).await?;
            self.answered("list");
            let version = page.metadata.resource_version.clone().unwrap_or_default();
            listing.check(Version::read(&version))?;
            token = page.next();
            let items = page.items.into_iter().map(Item::of);
            items.for_each(|item| self.intake.list(&mut listing, item));
            if token.is_none() {
                return self.listed(listing, version);
            }
        }
    }

    fn listed(&mut self, listing: Listing<K>, version: String) -> Result<(), StreamError> {
        self.intake.listed(listing, version)?;
        if std::mem::take(&mut self.is_missed) {
            tracing::info!(kind = %K::kind(&()), "an optional kind is there");
        }
        self.pulse.well();
        Ok(())
    }

    /// One by one at the beginning of a watch, which then goes on as any other.
    async fn stream(&mut self, listing: Listing<K>) -> Ended {
        match self.open(Start::Everything).await {
            Ok(mut watch) => match self.initial(&mut watch, listing).await {
                Ok(()) => self.follow(watch).await,
                Err(error) => {
                    self.failed_to_stream = true;
                    self.failed("watch", &error)
                }
            },
            Err(error) if error.is_unsupported() => {
                tracing::info!(kind = %K::kind(&()), %error, "the server tells lists in pages only");
                self.answered("watch");
                self.can_stream = false;
                Ended::Unsupported
            }
            Err(error) => {
                self.failed_to_stream = true;
                self.failed("watch", &error)
            }
        }
    }

    async fn initial(
        &mut self,
        watch: &mut Opened,
        mut listing: Listing<K>,
    ) -> Result<(), StreamError> {
        loop {
            let deadline = watch.ends.min(Instant::now() + ANSWER_DEADLINE);
            let line = timeout_at(deadline, watch.lines.next()).await;
            let line = line.map_err(|_| StreamError::TimedOut)?.ok_or(StreamError::EndEarly)??;
            self.pulse.contact();
            match Event::read(&line) {
                Event::Present(item) => self.intake.list(&mut listing, item),
                Event::Gone(item) => self.intake.take_gone(item),
                Event::Bookmark { version, ends_list: true } => {
                    return self.listed(listing, version);
                }
                Event::Bookmark { ends_list: false, .. } => {}
                Event::Refused(error) => return Err(error),
                Event::Garbled(error) => self.intake.list_garbled(&mut listing, &error),
            }
        }
    }

    async fn resume(&mut self, version: &str) -> Ended {
        match self.open(Start::After(version)).await {
            Ok(watch) => self.follow(watch).await,
            Err(error) => self.failed("watch", &error),
        }
    }

    /// Begins a watch, but not within a second of the last one: whatever made that end, it is no storm.
    async fn open(&mut self, start: Start<'_>) -> Result<Opened, StreamError> {
        if let Some(last) = self.watched_at {
            sleep_until(last + INTERVAL).await;
        }
        let (began, seconds) = (Instant::now(), rand::random_range(WATCH_SECONDS));
        self.watched_at = Some(began);
        let lines = self.wire.watch(start, seconds).await?;
        self.answered("watch");
        Ok(Opened { lines, began, ends: began + Duration::from_secs(seconds.into()) + GRACE })
    }

    async fn follow(&mut self, mut watch: Opened) -> Ended {
        let mut progressed = false;
        loop {
            let line = match timeout_at(watch.ends, watch.lines.next()).await {
                Err(_) => {
                    tracing::warn!(kind = %K::kind(&()), "a watch was silent; it begins again");
                    self.pulse.unanswered(watch.began);
                    return Ended::Silent { progressed };
                }
                Ok(None) => return self.closed(progressed),
                Ok(Some(line)) => line.map_err(StreamError::from),
            };
            match line.map(|line| Event::read(&line)) {
                Ok(Event::Refused(error)) | Err(error) => {
                    progressed |= watch.began.elapsed() >= LASTED;
                    return self.failed("watch", &error).after_progress(progressed);
                }
                Ok(event) => {
                    self.pulse.contact();
                    self.pulse.well();
                    self.intake.take_in(event);
                    progressed = true;
                }
            }
        }
    }

    /// The server ended the watch, as it should.
    fn closed(&self, progressed: bool) -> Ended {
        self.pulse.contact();
        self.pulse.well();
        Ended::Closed { progressed }
    }

    fn answered(&self, verb: &'static str) {
        self.pulse.contact();
        self.count(verb, Some(StatusCode::OK.as_u16()));
    }

    fn failed(&mut self, verb: &'static str, error: &StreamError) -> Ended {
        let (code, wait) = (error.code(), error.wait());
        self.count(verb, code);
        if is_refusal(error.code()) {
            self.intake.store.refuse();
        }
        // A right that is taken away says nothing of the kind.
        if self.is_optional && code == Some(StatusCode::NOT_FOUND.as_u16()) {
            self.intake.store.uninstalled();
        }
        self.judge(error);
        self.tell(verb, error);
        if error.is_expired() {
            return Ended::Expired { progressed: false };
        }
        match code {
            Some(_) => Ended::Refused { progressed: false, wait },
            None => Ended::Unanswered { progressed: false },
        }
    }

    /// A kind that need not be there may be missing for ever: to say so at each try would tell nobody anything.
    fn tell(&mut self, verb: &'static str, error: &StreamError) {
        let (kind, shown) = (K::kind(&()), error as &dyn std::error::Error);
        if !(self.is_optional && is_refusal(error.code())) {
            tracing::warn!(%kind, verb, error = shown, "a stream failed; it begins again");
        } else if std::mem::replace(&mut self.is_missed, true) {
            tracing::debug!(%kind, verb, error = shown, "an optional kind is not there yet");
        } else {
            tracing::info!(%kind, verb, error = shown, "an optional kind is not there; it is asked for again, at most each 30 s");
        }
    }

    /// What a failure tells of the health of this stream: a refusal would be another's too, and silence may be.
    fn judge(&self, error: &StreamError) {
        match error {
            StreamError::Older(_) => self.pulse.stuck(),
            _ if error.code().is_some() => {
                self.pulse.contact();
                self.pulse.well();
            }
            _ => self.pulse.unanswered(self.watched_at.unwrap_or_else(Instant::now)),
        }
    }

    fn count(&self, verb: &'static str, code: Option<u16>) {
        if let Some(metrics) = &self.metrics {
            metrics.api_request(verb, code);
        }
    }
}

/// Whether the server says that the kind is not there, or not for us.
fn is_refusal(code: Option<u16>) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN]
        .iter()
        .any(|refusal| code == Some(refusal.as_u16()))
}

#[cfg(test)]
mod tests;
