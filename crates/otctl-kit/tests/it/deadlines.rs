//! Answers that do not come.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api as Typed;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use otctl_kit::args::Build;
use otctl_kit::cluster::{Cluster, Request, erase};
use otctl_kit::kube_cluster::{Deadlines, KubeCluster};
use otctl_kit::runtime::{Context, Runtime, Settings};
use otctl_kit::shutdown::Shutdown;
use otctl_kit::store::{Key, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{pause, resume, sleep, timeout};

use crate::api::{Api, Changes, End, Reply, bookmark, event, events, least_gap, list, map};
use crate::clock::seconds;
use crate::kit::{Looping, Watched, names};
use crate::loopback::{After, Loopback};
use crate::plain::Reflected;

fn one() -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some("a".to_owned()),
        namespace: Some("lab".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_waited_for_by_a_plain_client_and_given_up_by_the_kit() {
    let mut server = Loopback::start(After::Hold).await;
    let maps = Typed::<ConfigMap>::namespaced(server.plain(), "lab");
    let plain = tokio::spawn(async move { maps.create(&PostParams::default(), &one()).await });
    server.heard().await;
    pause();
    sleep(Duration::from_hours(1)).await;
    assert!(!plain.is_finished(), "kube-rs has a deadline now");
    plain.abort();
    resume();

    let mut server = Loopback::start(After::Hold).await;
    let cluster = KubeCluster::new(server.kit(), "test", Deadlines::default());
    let kit = tokio::spawn(async move { cluster.call(Request::Create(erase(&one()))).await });
    server.heard().await;
    pause();
    sleep(seconds(16)).await;
    assert!(kit.is_finished());
    assert!(kit.await.unwrap().unwrap_err().is_unknown());
    assert_eq!(server.count(&Method::POST), 1);
    println!(
        "an answer that never comes: plain kube-rs waits after 1 h; the kit gave up after 15 s"
    );
}

#[tokio::test(start_paused = true)]
async fn held_answers_hold_up_their_own_objects_only() {
    let times: Vec<Duration> = (1..=10).map(|n| seconds(3 * n)).collect();
    let changes = Changes { name: "calm", from: 10, at: times.clone() };
    let api = Api::new(move |ask| match (ask.kind.as_str(), ask.is_list(), ask.is_watch()) {
        ("secrets", true, _) => list(10, &[]),
        ("configmaps", true, _) => list(10, &[map("reads", 1), map("calm", 2)]),
        ("secrets", false, false) => Reply::Never,
        ("configmaps", false, true) => changes.told(ask),
        _ => events(&[], End::Silence),
    });
    let kit = Looping::start(api.client());
    sleep(seconds(40)).await;
    let held = kit.of("reads");
    assert!(held[1] - held[0] >= seconds(15) && held[1] - held[0] <= seconds(17), "{held:?}");
    assert_eq!(kit.of("calm")[1..], times, "its passes came with its changes");
}

/// A watch that goes silent five seconds after it began, and what the next ones are answered.
fn black_hole(then: fn() -> Reply) -> Api {
    Api::new(move |ask| match (ask.is_list(), ask.version()) {
        (true, _) => list(10, &[map("a", 5)]),
        (false, "10") => {
            Reply::Lines(vec![(seconds(5), format!("{}\n", bookmark(14)))], End::Silence)
        }
        (false, _) => then(),
    })
}

/// How long after the silence began another watch did.
fn noticed(api: &Api) -> Duration {
    let watches: Vec<_> = api.asked().into_iter().filter(|ask| ask.is_watch()).collect();
    let last = watches.iter().find(|ask| ask.version() == "10").unwrap().at + seconds(5);
    watches.iter().find(|ask| ask.at > last).unwrap().at - last
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_noticed_in_five_minutes_by_plain_watchers_and_in_35_seconds_by_the_kit() {
    let heals = || events(&[event("ADDED", &map("b", 20))], End::Silence);
    let api = black_hole(heals);
    let plain = Reflected::start(api.client());
    sleep(Duration::from_mins(10)).await;
    assert_eq!(plain.held(), ["a 5", "b 20"]);
    let late = noticed(&api);
    assert!(late >= seconds(290), "kube-rs notices sooner now");

    let api = black_hole(heals);
    let kit = Watched::start(api.client());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(kit.held(), ["a 5", "b 20"]);
    let soon = noticed(&api);
    assert!(soon <= seconds(35), "{soon:?}");
    assert!(least_gap(&api.watches("configmaps")) >= seconds(1));
    assert_eq!(names(kit.health.wedged()), Vec::<String>::new());
    println!("a black hole: noticed by plain kube-rs after {late:?}, by the kit after {soon:?}");
}

/// A controller of two kinds on a server of which one kind is lost in a black hole.
async fn two_kinds(api: &Api) -> (Runtime, [Store<ConfigMap>; 1]) {
    let settings = Settings {
        build: Build::of("test-controller"),
        namespace: "ns".to_owned(),
        policy: Key::new("ns", "policy"),
        identity: "only".to_owned(),
        election: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        state_anywhere: false,
    };
    let context = Context::new(settings, api.client());
    let (maps, secrets) = (Store::<ConfigMap>::default(), Store::<Secret>::default());
    let controllers = context
        .controllers()
        .watch(&maps, context.watch_all())
        .watch(&secrets, context.watch_all());
    (Runtime::bind(context, controllers, None).await.unwrap(), [maps])
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(seconds(60), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

/// Lets virtual time pass, and asks in real time.
async fn probe_after(time: Duration, address: std::net::SocketAddr, path: &str) -> String {
    pause();
    sleep(time).await;
    resume();
    get(address, path).await
}

#[tokio::test]
async fn a_stream_that_does_not_heal_fails_the_probe_that_names_it() {
    let api = Api::new(|ask| match (ask.kind.as_str(), ask.is_list()) {
        ("secrets", true) => list(10, &[]),
        ("secrets", false) => Reply::Lines(vec![(seconds(25), "\n".to_owned())], End::Close),
        (_, true) if ask.nth == 0 => list(10, &[map("a", 5)]),
        (_, false) if ask.nth == 0 => events(&[], End::Silence),
        _ => Reply::Never,
    });
    let (runtime, [maps]) = two_kinds(&api).await;
    let (address, shutdown) = (runtime.address(), Shutdown::new());
    let running = tokio::spawn(runtime.run(shutdown.clone()));
    timeout(seconds(60), maps.synced()).await.unwrap();
    assert!(probe_after(seconds(30), address, "/livez").await.starts_with("HTTP/1.1 200"));
    let mut failed_after = seconds(30);
    let failed = loop {
        let answer = probe_after(seconds(5), address, "/livez").await;
        failed_after += seconds(5);
        if answer.starts_with("HTTP/1.1 503") {
            break answer;
        }
        assert!(failed_after < seconds(120), "{answer}");
    };
    assert!(failed.contains("wedged: watch ConfigMap\n"), "{failed}");
    assert!(!failed.contains("Secret"), "{failed}");
    let ready = get(address, "/readyz").await;
    assert!(ready.contains("not answered: watch ConfigMap\n"), "{ready}");
    let watches = api.watches("configmaps");
    assert!(least_gap(&watches) >= seconds(1), "{watches:?}");
    println!(
        "a kind in a black hole for good: /livez failed {failed_after:?} after it began, {} watch starts till then",
        watches.len(),
    );
    shutdown.ask();
    timeout(seconds(60), running).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_api_server_that_is_away_makes_nobody_restart_for_minutes() {
    let api = Api::new(|ask| match (ask.is_list(), ask.nth) {
        (true, 0) => list(10, &[]),
        _ => Reply::Never,
    });
    let (runtime, [maps]) = two_kinds(&api).await;
    let (address, shutdown) = (runtime.address(), Shutdown::new());
    let running = tokio::spawn(runtime.run(shutdown.clone()));
    timeout(seconds(60), maps.synced()).await.unwrap();
    assert!(probe_after(seconds(500), address, "/livez").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(probe_after(seconds(200), address, "/livez").await.starts_with("HTTP/1.1 503"));
    shutdown.ask();
    timeout(seconds(60), running).await.unwrap().unwrap().unwrap();
}
