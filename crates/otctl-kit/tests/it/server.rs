//! The one thing that no script can show: that a real API server tells lists at the beginning of a watch as we ask.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use local_cluster::{LocalCluster, Options};
use otctl_kit::args::Build;
use otctl_kit::health::Health;
use otctl_kit::metrics::Metrics;
use otctl_kit::shutdown::Shutdown;
use otctl_kit::store::{Key, Store};
use otctl_kit::watch::{WatchOptions, spawn_watch};
use tokio::time::timeout;

use crate::kit::value;

/// More than two pages.
const OBJECTS: usize = 120;
const PATIENCE: Duration = Duration::from_secs(120);

fn labelled(name: &str) -> ConfigMap {
    let labels = [("kit".to_owned(), "lists".to_owned())];
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_tells_a_list_at_the_beginning_of_a_watch() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bare = Options { nodes: 0, storage: false, ..Options::default() };
    let cluster = LocalCluster::start(bare).await.unwrap();
    let namespace = cluster.namespace("lists").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(cluster.admin(), &namespace);
    for n in 0..OBJECTS {
        maps.create(&PostParams::default(), &labelled(&format!("o{n}"))).await.unwrap();
    }
    let (store, metrics) = (Store::default(), Arc::new(Metrics::new(Build::of("test"))));
    let options = WatchOptions {
        namespace: Some(namespace.clone()),
        labels: "kit=lists".to_owned(),
        metrics: Some(metrics.clone()),
        ..WatchOptions::all(Health::default())
    };
    let shutdown = Shutdown::new();
    let client = otctl_kit::kube_cluster::client(cluster.admin_config()).unwrap();
    let task = spawn_watch(client, options, store.clone(), shutdown.clone());
    timeout(PATIENCE, store.synced()).await.unwrap();
    assert_eq!(store.all().len(), OBJECTS);

    maps.create(&PostParams::default(), &labelled("later")).await.unwrap();
    timeout(PATIENCE, seen(&store, &Key::new(&namespace, "later"))).await.unwrap();
    let requests = |verb: &str| {
        value(&metrics, &format!("otctl_api_requests_total{{code=\"200\",verb=\"{verb}\"}}"))
    };
    assert_eq!(requests("list"), 0, "it was not told so");
    assert!(requests("watch") >= 1);
    shutdown.ask();
    task.await.unwrap();
    cluster.shutdown().await;
}

/// Waits until the store holds it.
async fn seen(store: &Store<ConfigMap>, key: &Key) {
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    store.subscribe(move |_| told.send(()).unwrap_or_default());
    while store.get(key).is_none() {
        changes.recv().await.unwrap();
    }
}
