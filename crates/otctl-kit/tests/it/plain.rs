//! kube-rs as it comes: its watcher with its default backoff into its store, and its Controller with its defaults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A store and the task that feeds it.
pub(crate) struct Reflected {
    pub(crate) store: Store<ConfigMap>,
    task: JoinHandle<()>,
}

impl Drop for Reflected {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reflected {
    pub(crate) fn start(client: Client) -> Self {
        let (store, writer) = reflector::store();
        let stream = watcher(Api::all(client), watcher::Config::default()).default_backoff();
        let task = tokio::spawn(async move {
            reflector(writer, stream).for_each(|_| std::future::ready(())).await;
        });
        Self { store, task }
    }

    /// Name and version of everything in it.
    pub(crate) fn held(&self) -> Vec<String> {
        let held = self.store.state();
        let mut held: Vec<String> = held.iter().map(|map| shown(map)).collect();
        held.sort();
        held
    }
}

/// Name and version.
pub(crate) fn shown(map: &ConfigMap) -> String {
    format!("{} {}", map.name_any(), map.resource_version().unwrap_or_default())
}

#[derive(Debug, thiserror::Error)]
#[error("it never fails")]
pub(crate) struct Never;

/// A Controller of ConfigMaps that own Secrets, at work.
pub(crate) struct Controlled {
    pub(crate) task: JoinHandle<()>,
    passes: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Drop for Controlled {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controlled {
    /// Passes do what `pass` does with the object's name.
    pub(crate) fn start(client: Client, pass: fn(&str)) -> Self {
        let (passes, started) = (Arc::<Mutex<Vec<_>>>::default(), Instant::now());
        let log = passes.clone();
        let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
            log.lock().unwrap().push((started.elapsed(), shown(&map)));
            async move {
                pass(&map.name_any());
                Ok::<_, Never>(Action::await_change())
            }
        };
        let controller =
            Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
                .owns(Api::<Secret>::all(client), watcher::Config::default());
        let task = tokio::spawn(async move {
            let again = |_: Arc<ConfigMap>, _: &Never, _: Arc<()>| Action::await_change();
            controller
                .run(reconcile, again, Arc::new(()))
                .for_each(|_| std::future::ready(()))
                .await;
        });
        Self { task, passes }
    }

    /// When each pass was, and over what.
    pub(crate) fn passes(&self) -> Vec<(Duration, String)> {
        self.passes.lock().unwrap().clone()
    }
}
