//! The stream against a server in memory and a paused clock: what it asks, when it asks again, and what it keeps.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use futures::stream;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::cluster::Target;
use crate::expectations::{Expectation, Fact};
use crate::store::Key;

/// One answer of the server.
enum Reply {
    /// A list at this version of these objects.
    List(u64, Vec<Value>),
    /// A page that another one follows.
    Page(Vec<Value>, &'static str),
    /// A watch that brings these events and then ends.
    Events(Vec<Value>),
    /// A watch that brings these events and then nothing more, for ever.
    Stuck(Vec<Value>),
    /// A refusal.
    Refused(u16),
}

/// Answers in turn and keeps what it was asked, and when. When the script ends, watches end at once.
#[derive(Clone, Default)]
struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<(Duration, String)>>>,
}

/// More requests than any test asks for.
const STORM: usize = 3000;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { replies: Arc::new(Mutex::new(replies.into_iter().collect())), asked: Arc::default() }
    }

    fn client(&self) -> Client {
        let (server, started) = (self.clone(), Instant::now());
        let answer = move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let answer = server.answer(started.elapsed(), query);
            let is_storm = server.asked.lock().unwrap().len() > STORM;
            async move {
                // On a paused clock a storm would never let a second pass, and the test hang instead of fail.
                if is_storm {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        };
        Client::new(service_fn(answer), "default")
    }

    /// An old server: it does not tell lists at the beginning of a watch.
    fn answer(&self, at: Duration, query: String) -> Response<Answer> {
        if query.contains("sendInitialEvents=true") {
            return full(422, &status(422));
        }
        self.asked.lock().unwrap().push((at, query));
        let reply = self.replies.lock().unwrap().pop_front().unwrap_or(Reply::Events(Vec::new()));
        match reply {
            Reply::List(version, items) => full(
                200,
                &json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}),
            ),
            Reply::Page(items, token) => full(
                200,
                &json!({"metadata": {"resourceVersion": "30", "continue": token}, "items": items}),
            ),
            Reply::Events(events) => {
                Response::new(StreamBody::new(stream::iter(frames(events))).boxed_unsync())
            }
            Reply::Stuck(events) => Response::new(
                StreamBody::new(stream::iter(frames(events)).chain(stream::pending()))
                    .boxed_unsync(),
            ),
            Reply::Refused(code) => full(code, &status(code)),
        }
    }

    /// When each watch began.
    fn watches(&self) -> Vec<Duration> {
        self.of(|query| query.contains("watch=true")).into_iter().map(|(at, _)| at).collect()
    }

    fn lists(&self) -> Vec<(Duration, String)> {
        self.of(|query| !query.contains("watch=true"))
    }

    /// The version from which each watch began.
    fn versions(&self) -> Vec<String> {
        let watches = self.of(|query| query.contains("watch=true"));
        watches
            .iter()
            .map(|(_, query)| query.rsplit_once("resourceVersion=").unwrap().1.to_owned())
            .collect()
    }

    fn of(&self, which: impl Fn(&str) -> bool) -> Vec<(Duration, String)> {
        self.asked.lock().unwrap().iter().filter(|(_, query)| which(query)).cloned().collect()
    }
}

fn frames(events: Vec<Value>) -> Vec<Result<Frame<Bytes>, Infallible>> {
    events.into_iter().map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n"))))).collect()
}

fn full(code: u16, body: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn status(code: u16) -> Value {
    let reason = if code == 410 { "Expired" } else { "NotFound" };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "no", "code": code})
}

fn config(name: &str, version: u64) -> Value {
    let fields = json!([{"manager": "kubectl", "operation": "Update"}]);
    json!({"metadata": {"name": name, "namespace": "lab", "resourceVersion": version.to_string(), "managedFields": fields}})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u64) -> Value {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}});
    event("BOOKMARK", &object)
}

/// Runs a stream against `server` for this long, on the paused clock.
async fn watched(server: &Server, lasting: Duration) -> (Store<ConfigMap>, Health) {
    let (store, shutdown, health) = (Store::default(), Shutdown::new(), Health::default());
    let task = spawn_watch(
        server.client(),
        WatchOptions::all(health.clone()),
        store.clone(),
        shutdown.clone(),
    );
    tokio::time::sleep(lasting).await;
    let seen = health.clone();
    let wedged = health.wedged();
    shutdown.ask();
    task.await.unwrap();
    assert_eq!(wedged, [], "a stream at work is not wedged");
    (store, seen)
}

fn names(store: &Store<ConfigMap>) -> Vec<String> {
    let mut names: Vec<String> = store.all().iter().map(|object| Key::of(&**object).name).collect();
    names.sort();
    names
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn it_lists_then_follows_and_goes_on_from_the_last_version_it_saw() {
    let events =
        [event("ADDED", &config("b", 11)), event("DELETED", &config("a", 12)), bookmark(15)];
    let server = Server::new([Reply::List(10, vec![config("a", 5)]), Reply::Events(events.into())]);
    let (store, _) = watched(&server, Duration::from_millis(2500)).await;
    assert_eq!(names(&store), ["b"]);
    assert_eq!(server.versions(), ["10", "15"]);
    assert_eq!(server.lists().len(), 1);
    assert_eq!(store.all()[0].metadata.managed_fields, None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_closes_at_once_is_asked_once_a_second() {
    let server = Server::new([Reply::List(10, vec![])]);
    watched(&server, MINUTE).await;
    let watches = server.watches();
    assert!((55..=61).contains(&watches.len()), "{}", watches.len());
    let gaps = watches.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.min().unwrap() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_410_as_the_answer_is_listed_again() {
    let server = Server::new([
        Reply::List(10, vec![config("a", 5)]),
        Reply::Refused(410),
        Reply::List(20, vec![config("b", 15)]),
    ]);
    let (store, _) = watched(&server, Duration::from_secs(5)).await;
    assert_eq!(names(&store), ["b"]);
    assert_eq!(server.versions()[..2], ["10", "20"]);
}

#[tokio::test(start_paused = true)]
async fn a_410_as_an_event_is_listed_again() {
    let gone = Reply::Events(vec![event("ERROR", &status(410))]);
    let server = Server::new([
        Reply::List(10, vec![config("a", 5)]),
        gone,
        Reply::List(20, vec![config("b", 15)]),
    ]);
    let (store, _) = watched(&server, Duration::from_secs(5)).await;
    assert_eq!(names(&store), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn versions_that_always_expire_do_not_become_a_storm_of_lists() {
    let pairs = (0..1000).flat_map(|_| [Reply::List(10, vec![]), Reply::Refused(410)]);
    let server = Server::new(pairs);
    watched(&server, MINUTE * 5).await;
    assert!(server.lists().len() <= 25, "{}", server.lists().len());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_missing_is_asked_for_until_it_is_there() {
    let missing = (0..4).map(|_| Reply::Refused(404));
    let server = Server::new(missing.chain([Reply::List(10, vec![config("a", 5)])]));
    let (store, _) = watched(&server, MINUTE).await;
    assert_eq!(names(&store), ["a"]);
    assert_eq!(server.lists().len(), 5);
}

/// What is logged while this future runs, from `info` on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_is_missing_is_asked_for_at_most_each_30_s_and_told_of_once() {
    let missing = |count| (0..count).map(|_| Reply::Refused(404));
    let list = || Reply::List(10, vec![config("a", 5)]);
    // Missing for a long time, there, taken away, and there again.
    let replies = missing(60).chain([list()]).chain(missing(9)).chain([list()]);
    let server = Server::new(replies);
    let log = Log::default();
    let logging = log.begin();
    let (store, shutdown) = (Store::<ConfigMap>::default(), Shutdown::new());
    let options = WatchOptions { is_optional: true, ..WatchOptions::all(Health::default()) };
    let task = spawn_watch(server.client(), options, store.clone(), shutdown.clone());
    tokio::time::sleep(MINUTE * 60).await;
    shutdown.ask();
    task.await.unwrap();
    drop(logging);
    let lines = log.lines();
    let told = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(told("WARN"), 0, "{lines:#?}");
    assert_eq!((told("kind is not there; it"), told("kind is there")), (2, 2), "{lines:#?}");
    let asked: Vec<_> = server.lists().into_iter().map(|(at, _)| at).take(60).collect();
    let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(31)), "{gaps:?}");
    assert!(gaps[10..].iter().all(|gap| *gap >= Duration::from_secs(14)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn of_an_optional_kind_that_is_taken_away_nothing_is_left() {
    for (code, is_optional, left) in [(404, true, 0), (403, true, 1), (404, false, 1)] {
        let refusals = (0..4).map(|_| Reply::Refused(code));
        let list = Reply::List(10, vec![config("a", 5)]);
        let server = Server::new([list, Reply::Refused(410)].into_iter().chain(refusals));
        let (store, shutdown) = (Store::<ConfigMap>::default(), Shutdown::new());
        let options = WatchOptions { is_optional, ..WatchOptions::all(Health::default()) };
        let (wakes, woken) = tokio::sync::mpsc::unbounded_channel();
        let seen = store.clone();
        store.when_installed(move || wakes.send(seen.is_synced()).unwrap());
        let mut woken = woken;
        let task = spawn_watch(server.client(), options, store.clone(), shutdown.clone());
        tokio::time::sleep(Duration::from_secs(5)).await;
        shutdown.ask();
        task.await.unwrap();
        assert_eq!((store.all().len(), store.is_synced()), (left, left == 1), "{code}");
        assert_eq!(woken.recv().await, Some(true));
        assert_eq!(woken.try_recv().ok(), (left == 0).then_some(false), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_must_be_there_is_missed_aloud() {
    let missing = (0..4).map(|_| Reply::Refused(404));
    let server = Server::new(missing.chain([Reply::List(10, Vec::new())]));
    let log = Log::default();
    let logging = log.begin();
    watched(&server, MINUTE).await;
    drop(logging);
    let lines = log.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("WARN")).count(), 4, "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_noticed_within_35_seconds_and_nothing_is_lost() {
    let replies = [
        Reply::List(10, vec![]),
        Reply::Stuck(vec![bookmark(14)]),
        Reply::Events(vec![event("ADDED", &config("a", 20))]),
    ];
    let server = Server::new(replies);
    let (store, _) = watched(&server, Duration::from_secs(40)).await;
    let watches = server.watches();
    assert!(watches[1] - watches[0] <= Duration::from_secs(35), "{watches:?}");
    assert_eq!(server.versions()[1], "14");
    assert_eq!(names(&store), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_for_gone_on_half_a_list() {
    let replies = [
        Reply::List(10, vec![config("a", 5), config("b", 6)]),
        Reply::Refused(410),
        Reply::Page(vec![config("a", 5)], "next"),
        Reply::Refused(410),
        Reply::Page(vec![config("a", 5)], "next"),
        Reply::List(30, vec![config("c", 29)]),
    ];
    let server = Server::new(replies);
    let client = server.client();
    let (store, shutdown) = (Store::<ConfigMap>::default(), Shutdown::new());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    store.subscribe(move |object| log.lock().unwrap().push(Key::of(object).name));
    let task =
        spawn_watch(client, WatchOptions::all(Health::default()), store.clone(), shutdown.clone());
    tokio::time::sleep(MINUTE).await;
    shutdown.ask();
    task.await.unwrap();
    assert_eq!(names(&store), ["a", "c"]);
    let mut changes = seen.lock().unwrap().clone();
    changes.sort();
    assert_eq!(changes, ["a", "b", "b", "c"], "b came, and went once");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_keeps_its_last_state_and_stops_no_other() {
    let mut broken = config("a", 12);
    broken["data"] = json!("not a map");
    let events = vec![event("MODIFIED", &broken.clone()), event("ADDED", &config("b", 13))];
    let server = Server::new([
        Reply::List(10, vec![config("a", 5)]),
        Reply::Events(events),
        Reply::Refused(410),
        Reply::List(20, vec![broken, config("b", 13)]),
    ]);
    let (store, _) = watched(&server, Duration::from_secs(10)).await;
    assert_eq!(names(&store), ["a", "b"]);
    assert_eq!(
        store.get(&Key::new("lab", "a")).unwrap().metadata.resource_version.as_deref(),
        Some("5")
    );
    assert_eq!(server.versions()[..2], ["10", "13"]);
}

#[tokio::test(start_paused = true)]
async fn the_store_knows_how_far_it_was_told_whatever_it_was_told() {
    let mut unreadable = config("a", 12);
    unreadable["data"] = json!("not a map");
    let told = [
        (10, vec![]),
        (11, vec![bookmark(11)]),
        (12, vec![event("MODIFIED", &unreadable)]),
        (13, vec![event("DELETED", &config("never-seen", 13))]),
    ];
    for (version, events) in told {
        let server = Server::new([Reply::List(10, Vec::new()), Reply::Events(events)]);
        let (store, _) = watched(&server, Duration::from_millis(1500)).await;
        let has_seen = |version: u64| {
            let target = Target::new::<ConfigMap>(Some("lab"), "written");
            let fact = Fact::Reached(Version::read(&version.to_string()));
            store.has_seen(&Expectation { target, fact })
        };
        assert!(has_seen(version), "{version}");
        assert!(!has_seen(version + 1), "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_not_kept() {
    let mut large = config("a", 5);
    large["data"] = json!({"k": "v"});
    let server = Server::new([Reply::List(10, vec![large])]);
    let (store, shutdown) = (Store::<ConfigMap>::default(), Shutdown::new());
    let options = WatchOptions {
        slim: |config: &mut ConfigMap| config.data = None,
        ..WatchOptions::all(Health::default())
    };
    let task = spawn_watch(server.client(), options, store.clone(), shutdown.clone());
    store.synced().await;
    shutdown.ask();
    task.await.unwrap();
    assert_eq!(store.all()[0].data, None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_silence_of_the_server_and_not_of_the_loop() {
    let hang =
        |_: http::Request<Body>| std::future::pending::<Result<Response<Answer>, Infallible>>();
    let client = Client::new(service_fn(hang), "default");
    let (health, shutdown) = (Health::default(), Shutdown::new());
    let store = Store::<ConfigMap>::default();
    let task =
        spawn_watch(client, WatchOptions::all(health.clone()), store.clone(), shutdown.clone());
    tokio::time::sleep(MINUTE * 10).await;
    assert_eq!(health.wedged(), []);
    assert_eq!(health.contacts()[0].lasted, None);
    assert!(!store.is_synced());
    shutdown.ask();
    task.await.unwrap();
    assert_eq!(health.contacts(), []);
}
