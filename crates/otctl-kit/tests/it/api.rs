//! An API server that answers what a test says, in memory, so that time can be virtual. It keeps what it was asked, and
//! when.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

/// More requests than any test that goes well asks. The next are not answered: on a paused clock a storm would never let
/// a moment pass, and the test hang instead of fail.
pub(crate) const STORM: usize = 3000;

/// What the server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Since the server's start.
    pub(crate) at: Duration,
    pub(crate) method: Method,
    /// The plural of the kind.
    pub(crate) kind: String,
    /// Empty for a list or a watch.
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) body: Value,
    /// How many such came before: same method and kind, a list, a watch or an object.
    pub(crate) nth: usize,
}

impl Ask {
    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && self.name.is_empty() && !self.is_watch()
    }

    /// Whether the watch is to begin with all objects.
    pub(crate) fn wants_list(&self) -> bool {
        self.query.contains("sendInitialEvents=true")
    }

    /// The version that a watch begins after.
    pub(crate) fn version(&self) -> &str {
        self.query.rsplit_once("resourceVersion=").map_or("", |(_, version)| version)
    }

    /// How long a watch is to last.
    pub(crate) fn timeout(&self) -> Duration {
        let (_, rest) = self.query.split_once("timeoutSeconds=").expect("watches have an end");
        let seconds = rest.split('&').next().unwrap_or_default();
        Duration::from_secs(seconds.parse().unwrap())
    }

    fn class(&self) -> Class {
        let is_of_one = !self.name.is_empty();
        (self.method.clone(), self.kind.clone(), self.is_watch(), self.wants_list(), is_of_one)
    }
}

/// Method and kind, whether it is a watch, one that wants a list too, or about one object.
type Class = (Method, String, bool, bool, bool);

/// What it answers.
pub(crate) enum Reply {
    /// A status code, headers, and a whole body.
    Whole(u16, Vec<(&'static str, String)>, String),
    /// Lines that come one after the other, each after a delay, and how it ends.
    Lines(Vec<(Duration, String)>, End),
    /// Nothing, ever.
    Never,
}

/// How a body ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Cleanly.
    Close,
    /// Not at all.
    Silence,
    /// In the middle.
    Break,
}

type Script = dyn Fn(&Ask) -> Reply + Send + Sync;
type Answer = UnsyncBoxBody<Bytes, std::io::Error>;

/// The server; cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<Ask>>>,
    /// How many of each class came.
    counts: Arc<Mutex<HashMap<Class, usize>>>,
    /// Whether it tells lists at the beginning of a watch; servers before 1.34 do not.
    streams: bool,
    /// How long each request and each answer is under way.
    slow: Arc<Mutex<Duration>>,
}

impl Api {
    /// Answers as `script` says; not asked for lists at the beginning of watches, which it refuses as older servers do.
    pub(crate) fn new(script: impl Fn(&Ask) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            asked: Arc::default(),
            counts: Arc::default(),
            streams: false,
            slow: Arc::default(),
        }
    }

    /// The same, asked for those too.
    pub(crate) fn streaming(script: impl Fn(&Ask) -> Reply + Send + Sync + 'static) -> Self {
        Self { streams: true, ..Self::new(script) }
    }

    pub(crate) fn client(&self) -> Client {
        let (api, started) = (self.clone(), Instant::now());
        let service = service_fn(move |request: Request<Body>| {
            let api = api.clone();
            // A task of its own: what was sent arrives, though its sender gives up.
            let sent = tokio::spawn(async move { api.answer(request, started).await });
            async move { Ok::<_, Infallible>(sent.await.unwrap()) }
        });
        Client::new(service, "default")
    }

    /// From now on each request and each answer is under way so long.
    pub(crate) fn slow_down(&self, by: Duration) {
        *self.slow.lock().unwrap() = by;
    }

    async fn answer(&self, request: Request<Body>, started: Instant) -> Response<Answer> {
        let slow = *self.slow.lock().unwrap();
        under_way(slow).await;
        let reply = match self.hear(request, started).await {
            Some(ask) if ask.wants_list() && !self.streams => refused(422),
            Some(ask) => (self.script)(&ask),
            None => Reply::Never,
        };
        under_way(slow).await;
        match reply {
            Reply::Whole(code, headers, body) => whole(code, headers, body),
            Reply::Lines(lines, end) => Response::new(body(lines, end)),
            Reply::Never => std::future::pending().await,
        }
    }

    /// Keeps what is asked; none when that is enough.
    async fn hear(&self, request: Request<Body>, started: Instant) -> Option<Ask> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let (kind, name) = resource(head.uri.path());
        let mut ask = Ask {
            at: started.elapsed(),
            method: head.method,
            kind,
            name,
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            nth: 0,
        };
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(ask.class()).or_default();
        ask.nth = *count;
        *count += 1;
        let mut asked = self.asked.lock().unwrap();
        asked.push(ask.clone());
        (asked.len() <= STORM).then_some(ask)
    }

    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.asked.lock().unwrap().clone()
    }

    /// When each watch of that kind began.
    pub(crate) fn watches(&self, kind: &str) -> Vec<Duration> {
        let asked = self.asked();
        asked.iter().filter(|ask| ask.is_watch() && ask.kind == kind).map(|ask| ask.at).collect()
    }

    pub(crate) fn lists(&self, kind: &str) -> Vec<Duration> {
        let asked = self.asked();
        asked.iter().filter(|ask| ask.is_list() && ask.kind == kind).map(|ask| ask.at).collect()
    }
}

/// The least time between two of them; a day when there are not two.
pub(crate) fn least_gap(times: &[Duration]) -> Duration {
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.min().unwrap_or(Duration::from_secs(86_400))
}

/// The plural and the name in a path.
fn resource(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = if parts[0] == "api" { &parts[2..] } else { &parts[3..] };
    let parts = if parts[0] == "namespaces" && parts.len() > 2 { &parts[2..] } else { parts };
    (parts[0].to_owned(), parts.get(1).copied().unwrap_or_default().to_owned())
}

/// Even the shortest sleep waits for a tick of the clock.
async fn under_way(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn whole(code: u16, headers: Vec<(&'static str, String)>, body: String) -> Response<Answer> {
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    response.body(body).unwrap()
}

fn body(lines: Vec<(Duration, String)>, end: End) -> Answer {
    let told = futures::stream::iter(lines).then(|(delay, line)| async move {
        under_way(delay).await;
        Ok(Frame::data(Bytes::from(line)))
    });
    let broken = || std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset by peer");
    let end = match end {
        End::Close => futures::stream::empty().boxed(),
        End::Silence => futures::stream::pending().boxed(),
        End::Break => futures::stream::once(async move { Err(broken()) }).boxed(),
    };
    StreamBody::new(told.chain(end)).boxed_unsync()
}

/// An object of the kind that these tests are about.
pub(crate) fn map(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "namespace": "lab", "uid": name, "resourceVersion": version.to_string(),
    }})
}

/// An object of the kind that passes read.
pub(crate) fn secret(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "lab", "uid": name, "resourceVersion": "1"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
}

/// A complete list at that version.
pub(crate) fn list(version: u64, objects: &[Value]) -> Reply {
    page(version, objects, "")
}

/// A part of a list; with a token, another follows.
pub(crate) fn page(version: u64, objects: &[Value], token: &str) -> Reply {
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": objects});
    Reply::Whole(200, Vec::new(), list.to_string())
}

pub(crate) fn object(object: &Value) -> Reply {
    Reply::Whole(200, Vec::new(), object.to_string())
}

/// A watch that tells this at once.
pub(crate) fn events(events: &[Value], end: End) -> Reply {
    Reply::Lines(events.iter().map(|event| (Duration::ZERO, format!("{event}\n"))).collect(), end)
}

/// The same after a delay.
pub(crate) fn late(delay: Duration, reply: Reply) -> Reply {
    match reply {
        Reply::Whole(200, _, body) => Reply::Lines(vec![(delay, body)], End::Close),
        _ => panic!("only successes are late"),
    }
}

/// An object that changes at set times of the server's, each time into the next version.
pub(crate) struct Changes {
    pub(crate) name: &'static str,
    /// The version before the first change.
    pub(crate) from: u64,
    pub(crate) at: Vec<Duration>,
}

impl Changes {
    /// What a watch tells of them, each when it happens, until the server ends it as it was asked to.
    pub(crate) fn told(&self, ask: &Ask) -> Reply {
        let seen: u64 = ask.version().parse().unwrap();
        let ends = ask.at + ask.timeout();
        let (mut last, mut lines) = (ask.at, Vec::new());
        for (at, version) in self.at.iter().zip(self.from + 1..) {
            if version > seen && *at < ends {
                let line = format!("{}\n", event("MODIFIED", &map(self.name, version)));
                lines.push((at.saturating_sub(last), line));
                last = last.max(*at);
            }
        }
        lines.push((ends - last, "\n".to_owned()));
        Reply::Lines(lines, End::Close)
    }
}

pub(crate) fn event(says: &str, object: &Value) -> Value {
    json!({"type": says, "object": object})
}

pub(crate) fn bookmark(version: u64) -> Value {
    let metadata = json!({"resourceVersion": version.to_string()});
    event("BOOKMARK", &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}))
}

/// The bookmark after the last object of a list that a watch tells.
pub(crate) fn list_ends(version: u64) -> Value {
    let mut end = bookmark(version);
    end["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    end
}

pub(crate) fn refused(code: u16) -> Reply {
    Reply::Whole(code, Vec::new(), status(code).to_string())
}

/// Refused, with the time to wait.
pub(crate) fn throttled(code: u16, seconds: u64) -> Reply {
    Reply::Whole(code, vec![("retry-after", seconds.to_string())], status(code).to_string())
}

/// A refusal as the API server words it.
pub(crate) fn status(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": reason, "code": code})
}
