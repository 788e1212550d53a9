use std::process::{Child, Command};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};

use super::*;
use crate::fault::{Answer, Point, What, at};

/// What a server of the tests saw.
type Seen = Arc<std::sync::Mutex<Vec<String>>>;

/// A server that answers everything with the same object, and a watch with five events, then waits.
async fn server() -> (Config, Seen) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let told = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let told = told.clone();
            let service = service_fn(move |request| answer(told.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { connection.await.map_err(drop) });
        }
    });
    (Config::new(url.parse().unwrap()), seen)
}

async fn answer(seen: Seen, request: Request<Incoming>) -> Result<Reply, hyper::Error> {
    let account = request.headers().get("authorization").map(|text| text.to_str().unwrap());
    let line = format!("{} {}", request.method(), account.unwrap_or("nobody"));
    seen.lock().unwrap().push(line);
    let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
    request.into_body().collect().await?;
    let body = if is_watch {
        let events = (1..=5).map(|number| event(["a", "b"][number % 2], number));
        let events = futures::stream::iter(events.map(|line| Ok(Frame::data(Bytes::from(line)))));
        StreamBody::new(events.chain(futures::stream::pending())).boxed_unsync()
    } else {
        Full::new(Bytes::from(object("a", 1))).map_err(|error| match error {}).boxed_unsync()
    };
    Ok(Response::new(body))
}

type Reply = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, hyper::Error>>;

fn object(name: &str, version: usize) -> String {
    let metadata =
        json!({"name": name, "namespace": "lab", "resourceVersion": version.to_string()});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
}

fn event(name: &str, version: usize) -> String {
    format!("{{\"type\": \"MODIFIED\", \"object\": {}}}\n", object(name, version))
}

/// A proxy before such a server, and a client that goes through it.
struct Scene {
    proxy: Proxy,
    maps: Api<ConfigMap>,
    seen: Seen,
}

impl Scene {
    async fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        let (config, seen) = server().await;
        let proxy = Proxy::start(&config).await.unwrap();
        faults.into_iter().for_each(|fault| proxy.add(fault));
        let directory = tempfile::tempdir().unwrap();
        let original = directory.path().join("config");
        let cluster = json!({"server": "https://192.0.2.1", "insecure-skip-tls-verify": true});
        let config = json!({
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "sesame"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        std::fs::write(&original, config.to_string()).unwrap();
        let file = proxy.kubeconfig(&original).unwrap();
        let kubeconfig = kube::config::Kubeconfig::read_from(file).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        Self { proxy, maps: Api::namespaced(client, "lab"), seen }
    }

    fn lines(&self) -> Vec<String> {
        self.proxy.log().iter().map(|entry| entry.call.to_string()).collect()
    }

    fn asked(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// `name version` of so many events of one watch.
    async fn events(&self, count: usize) -> Vec<String> {
        let events = self.maps.watch(&WatchParams::default(), "0").await.unwrap();
        events.take(count).map_ok(|event| told(&event)).try_collect().await.unwrap()
    }
}

fn told(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Modified(map) => {
            format!("{} {}", map.name_any(), map.resource_version().unwrap())
        }
        WatchEvent::Error(status) => format!("error {}", status.code),
        other => panic!("{other:?}"),
    }
}

fn gone() -> What {
    What::Answer(Answer::refusal(410, "Expired"))
}

#[tokio::test]
async fn requests_pass_with_their_credentials_and_are_kept_as_lines() {
    let scene = Scene::with([]).await;
    scene.maps.get("a").await.unwrap();
    let map: ConfigMap = serde_json::from_str(&object("b", 1)).unwrap();
    for _ in 0..2 {
        scene.maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let lines = ["get ConfigMap lab/a", "create ConfigMap lab/b", "create ConfigMap lab/b"];
    assert_eq!(scene.lines(), lines);
    let log = scene.proxy.log();
    assert_eq!(log.iter().map(|entry| entry.nth).collect::<Vec<_>>(), [1, 1, 2]);
    assert!(log.iter().all(|entry| entry.outcome == Outcome::Answered(200)));
    let seen = scene.seen.lock().unwrap().clone();
    assert_eq!(seen, ["GET Bearer sesame", "POST Bearer sesame", "POST Bearer sesame"]);
}

#[tokio::test]
async fn an_answer_can_come_before_the_server_saw_anything_or_after() {
    let taken = || What::Answer(Answer { retry_after: Some(3), ..Answer::refusal(429, "Full") });
    let get = || at("get ConfigMap lab/*");
    let after = get().nth(2).point(Point::Commit).then(taken());
    let scene = Scene::with([get().then(taken()), after]).await;
    for asked in [0, 1] {
        let refused = scene.maps.get("a").await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 429));
        assert_eq!(scene.asked(), asked);
    }
    assert_eq!(scene.maps.get("a").await.unwrap().name_any(), "a");
    assert!(scene.proxy.faults().unmet().is_empty());
    assert_eq!(scene.proxy.log()[1].outcome, Outcome::Answered(429));
}

#[tokio::test]
async fn an_answer_is_lost_cut_or_that_to_a_second_request() {
    for (what, asked) in [(What::Lose, 1), (What::Cut(10), 1), (What::Duplicate, 2)] {
        let scene = Scene::with([at("get").then(what.clone())]).await;
        let got = scene.maps.get("a").await;
        assert_eq!(got.is_ok(), what == What::Duplicate, "{what}: {got:?}");
        assert_eq!(scene.asked(), asked, "{what}");
    }
}

#[tokio::test]
async fn what_is_held_is_let_go_and_arrives_without_its_sender() {
    let scene = Scene::with([at("get").then(What::Hold)]).await;
    let asking = tokio::spawn({
        let maps = scene.maps.clone();
        async move { maps.get("a").await }
    });
    while scene.lines().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(scene.asked(), 0);
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    while scene.asked() == 0 {
        scene.proxy.release();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_black_hole_answers_nothing_and_breaks_nothing() {
    let scene = Scene::with([at("get ConfigMap lab/a").then(What::Blackhole)]).await;
    let waited = tokio::time::timeout(Duration::from_millis(200), scene.maps.get("a")).await;
    assert!(waited.is_err(), "it must not be answered");
    assert!(scene.maps.list(&ListParams::default()).await.is_err(), "this server lists nothing");
    assert_eq!(scene.asked(), 1);
}

#[tokio::test]
async fn events_are_dropped_doubled_and_told_again() {
    let all = ["b 1", "a 2", "b 3", "a 4", "b 5"];
    assert_eq!(Scene::with([]).await.events(5).await, all);
    let dropped = Scene::with([at("event any ConfigMap lab/a").always().then(What::Drop)]).await;
    assert_eq!(dropped.events(3).await, ["b 1", "b 3", "b 5"]);
    let doubled = Scene::with([at("event").nth(2).then(What::Duplicate)]).await;
    assert_eq!(doubled.events(4).await, ["b 1", "a 2", "a 2", "b 3"]);
    let again = Scene::with([at("event modified").nth(3).then(What::Replay(2))]).await;
    assert_eq!(again.events(6).await, ["b 1", "a 2", "b 3", "b 1", "a 2", "a 4"]);
    assert_eq!(again.lines(), ["watch ConfigMap lab", "event modified ConfigMap lab/b"]);
}

#[tokio::test]
async fn of_events_that_are_close_only_the_last_is_told() {
    let time = What::Coalesce(Duration::from_millis(200));
    let scene = Scene::with([at("event").always().then(time)]).await;
    assert_eq!(scene.events(2).await, ["a 4", "b 5"]);
}

#[tokio::test]
async fn a_late_event_is_late_and_in_order() {
    let late = What::Delay(Duration::from_millis(100));
    let scene = Scene::with([at("event").always().then(late)]).await;
    let began = std::time::Instant::now();
    assert_eq!(scene.events(5).await.len(), 5);
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_watch_ends_in_the_middle_by_an_error_a_cut_or_silence() {
    let watch = async |what: What| {
        let scene = Scene::with([at("event").nth(2).then(what)]).await;
        let events = scene.maps.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = std::pin::pin!(events);
        assert_eq!(told(&events.next().await.unwrap().unwrap()), "b 1");
        tokio::time::timeout(Duration::from_millis(300), events.next()).await
    };
    let expired = watch(gone()).await.unwrap().unwrap().unwrap();
    assert_eq!(told(&expired), "error 410");
    let cut = watch(What::Cut(10)).await.unwrap();
    assert!(cut.is_none_or(|event| event.is_err()), "half an event is none");
    assert!(watch(What::Blackhole).await.is_err(), "nothing comes, and nothing ends");
}

#[tokio::test]
async fn a_watch_that_is_refused_or_closed_at_once_is_never_begun() {
    let empty = What::Answer(Answer { body: Some(String::new()), ..Answer::refusal(200, "") });
    for (what, is_closed) in [(gone(), false), (empty, true)] {
        let scene = Scene::with([at("watch ConfigMap").then(what)]).await;
        let watched = scene.maps.watch(&WatchParams::default(), "0").await;
        assert_eq!(watched.is_ok(), is_closed);
        if let Ok(events) = watched {
            assert_eq!(events.count().await, 0);
        }
        assert_eq!(scene.asked(), 0);
    }
}

/// A process to kill.
struct Sleeper(Child);

impl Sleeper {
    fn attached_to(proxy: &Proxy) -> Self {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        proxy.attach(i32::try_from(child.id()).unwrap());
        Self(child)
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_sender_dies_before_its_request_leaves_after_it_landed_or_with_its_answer() {
    for (point, asked, answered) in [
        (Point::Before, 0, false),
        (Point::UnderWay, 1, true),
        (Point::Commit, 1, false),
        (Point::Reply, 1, true),
    ] {
        let scene = Scene::with([at("get").point(point).then(What::Kill)]).await;
        let mut sleeper = Sleeper::attached_to(&scene.proxy);
        let got = scene.maps.get("a").await;
        assert_eq!(got.is_ok(), answered, "{point:?}");
        assert_eq!(scene.asked(), asked, "{point:?}");
        let next = tokio::time::timeout(Duration::from_millis(100), scene.maps.get("b")).await;
        assert!(next.is_err(), "{point:?}: nothing passes after that");
        scene.proxy.killed(1).await;
        assert!(!sleeper.0.wait().unwrap().success(), "{point:?}");
        assert_eq!(scene.asked(), asked, "{point:?}");
        assert_eq!(scene.proxy.kills(), 1);

        let mut next = Sleeper::attached_to(&scene.proxy);
        scene.maps.get("b").await.unwrap();
        assert!(next.lives(), "the next one is not meant");
    }
}

#[tokio::test]
async fn a_sender_is_stopped_while_its_request_waits_and_goes_on() {
    let pause = What::Stop(Duration::from_millis(200));
    let scene = Scene::with([at("get").then(pause)]).await;
    let mut sleeper = Sleeper::attached_to(&scene.proxy);
    let asking = tokio::spawn({
        let maps = scene.maps.clone();
        async move { maps.get("a").await }
    });
    while sleeper.state() != 'T' {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(scene.asked(), 0);
    asking.await.unwrap().unwrap();
    assert_ne!(sleeper.state(), 'T');
    assert!(sleeper.lives());
}
