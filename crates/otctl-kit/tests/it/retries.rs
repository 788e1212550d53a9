//! Answers that tell nothing, and answers that ask to wait.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api as Typed;
use kube::api::PostParams;
use kube::client::retry::RetryPolicy;
use kube::core::ObjectMeta;
use otctl_kit::cluster::{Cluster, Target, erase};
use otctl_kit::commit::{Author, commit};
use otctl_kit::kube_cluster::{Deadlines, KubeCluster};
use otctl_kit::plan::{Action, Plan, Write};
use otctl_kit::reconciler::Subject;
use serde_json::Value;
use tokio::time::sleep;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use crate::api::{Api, End, events, least_gap, list, map, object, refused, secret, throttled};
use crate::clock::seconds;
use crate::kit::{Looping, Watched};
use crate::loopback::{After, Loopback};

/// A child of [`parent`].
fn child() -> ConfigMap {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "parent".to_owned(),
        uid: "u-parent".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some("child".to_owned()),
        namespace: Some("lab".to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn parent() -> Subject {
    Subject {
        target: Target::new::<ConfigMap>(Some("lab"), "parent"),
        uid: "u-parent".to_owned(),
        resource_version: "1".to_owned(),
        status: Value::Null,
    }
}

/// Creates the child as a controller does.
async fn commit_child(cluster: &dyn Cluster) -> Vec<String> {
    let write = Write { action: Action::Create(erase(&child())), because: "it was admitted" };
    let plan = Plan::<Value> { writes: vec![write], ..Plan::rest("start") };
    let author = Author { controller: "test", at: jiff::Timestamp::UNIX_EPOCH };
    let committed = commit(cluster, author, Some(&parent()), &plan).await;
    committed.expect("what was made is found").into_made().lines
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_looked_up_and_not_sent_again() {
    for code in [500, 503, 504] {
        let server = Loopback::start(After::Refuse(code)).await;
        let cluster = KubeCluster::new(server.kit(), "test", Deadlines::default());
        assert_eq!(commit_child(&cluster).await.len(), 1);
        let asked = (server.count(&Method::POST), server.count(&Method::GET), server.objects());
        assert_eq!(asked, (1, 1, 1), "{code}: creates, reads, objects");
    }
}

#[tokio::test]
async fn a_plain_client_sends_creates_again_and_hears_that_they_exist_or_makes_two() {
    for code in [503, 504] {
        let server = Loopback::start(After::Refuse(code)).await;
        let maps = Typed::<ConfigMap>::namespaced(server.plain(), "lab");
        let error = maps.create(&PostParams::default(), &child()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
        let posts = server.count(&Method::POST);
        assert!(posts > 1, "kube-rs sends creates once now");

        let twice = Loopback::start(After::Refuse(code)).await;
        let maps = Typed::<ConfigMap>::namespaced(twice.plain(), "lab");
        let mut unnamed = child();
        unnamed.metadata.name = None;
        unnamed.metadata.generate_name = Some("child-".to_owned());
        maps.create(&PostParams::default(), &unnamed).await.unwrap();
        assert_eq!(twice.objects(), 2);
        println!(
            "{code} after a create was carried out: plain kube-rs sent {posts}, heard 409 of its own object, and made two of one without a name; the kit sends 1 and reads 1"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn reads_are_tried_again_at_once() {
    let api = Api::new(|ask| match (ask.kind.as_str(), ask.is_list(), ask.is_watch()) {
        ("secrets", true, _) => list(10, &[]),
        ("configmaps", true, _) => list(10, &[map("reads", 1)]),
        ("secrets", false, false) if ask.nth < 3 => refused(503),
        ("secrets", false, false) => object(&secret("reads")),
        _ => events(&[], End::Silence),
    });
    let kit = Looping::start(api.client());
    sleep(seconds(10)).await;
    let times = kit.of("reads");
    assert_eq!(times.len(), 4, "three that failed, one that did not");
    assert!(times[3] - times[0] <= Duration::from_millis(50), "{times:?}");
}

/// Every read of an object and every watch is told to come back in so many seconds.
fn throttling(wait: u64) -> Api {
    Api::new(move |ask| match (ask.kind.as_str(), ask.is_list()) {
        ("secrets", true) => list(10, &[]),
        ("configmaps", true) => list(10, &[map("reads", 1)]),
        ("configmaps", false) if ask.nth == 1 => throttled(429, wait),
        ("secrets", false) if !ask.is_watch() => throttled(429, wait),
        _ => events(&[], End::Close),
    })
}

#[tokio::test(start_paused = true)]
async fn an_absurd_retry_after_is_waited_for_by_a_plain_client_and_not_by_the_kit() {
    let day = 86_400;
    let api = throttling(day);
    let policy = RetryLayer::new(RetryPolicy::server_retry());
    let inner = api.client();
    let service = ServiceBuilder::new().layer(policy).service(tower::service_fn(move |request| {
        let inner = inner.clone();
        async move { inner.send(request).await.map_err(BoxError::from) }
    }));
    let plain = kube::Client::new(service, "lab");
    let ask = tokio::spawn(async move {
        Typed::<Secret>::namespaced(plain, "lab").get("reads-one").await.map(drop)
    });
    sleep(Duration::from_hours(12)).await;
    assert!(!ask.is_finished(), "kube-rs caps Retry-After now");
    ask.abort();

    let api = throttling(1_000_000_000);
    let kit = Looping::start(api.client());
    sleep(Duration::from_mins(3)).await;
    let passes = kit.of("reads");
    assert!(least_gap(&passes) >= seconds(30), "it asked for more than that: {passes:?}");
    assert!((6..=7).contains(&passes.len()), "{passes:?}");
    println!(
        "Retry-After of a day: plain kube-rs had not asked again after 12 h; the kit asks each {:?}",
        least_gap(&passes),
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_asked_to_wait_waits_but_not_for_ever() {
    for (wait, from, to) in [(20, 20, 25), (1_000_000_000, 30, 35)] {
        let api = throttling(wait);
        let _kit = Watched::start(api.client());
        sleep(Duration::from_mins(2)).await;
        let watches: Vec<_> =
            api.asked().into_iter().filter(|ask| ask.is_watch() && !ask.wants_list()).collect();
        let gap = watches[2].at - watches[1].at;
        assert!((seconds(from)..=seconds(to)).contains(&gap), "{wait}: {gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_waits_as_long_as_it_is_asked_and_others_do_not() {
    let api = Api::new(|ask| match (ask.kind.as_str(), ask.is_list(), ask.is_watch()) {
        ("secrets", true, _) => list(10, &[]),
        ("configmaps", true, _) => list(10, &[map("reads", 1), map("a", 2)]),
        ("secrets", false, false) if ask.nth == 0 => throttled(429, 7),
        ("secrets", false, false) => object(&secret("reads")),
        _ => events(&[], End::Silence),
    });
    let kit = Looping::start(api.client());
    sleep(Duration::from_mins(1)).await;
    let times = kit.of("reads");
    assert_eq!(times.len(), 2);
    assert!((seconds(7)..=seconds(8)).contains(&(times[1] - times[0])), "{times:?}");
    assert_eq!(kit.of("a").len(), 1);
}
