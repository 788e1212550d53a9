//! Images and their queue as the cluster tells of them, kept up to date by watches. What they mean is in `queue`.

use std::sync::Arc;

use anyhow::Context as _;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use otctl_types::names::IMAGE_QUEUE;
use otctl_types::{AdmissionQueue, VMDiskImage};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::queue::{Table, table};

/// All images and their queue. Dropping it ends the watches.
pub(crate) struct Live {
    images: Store<VMDiskImage>,
    queues: Store<AdmissionQueue>,
    changes: watch::Receiver<u64>,
    _watches: JoinSet<()>,
}

impl Live {
    /// Opens the watches and returns when both have their first complete list. Positions need the images of every
    /// namespace, so that is what is listed.
    pub(crate) async fn open(client: &Client) -> anyhow::Result<Self> {
        let images: Api<VMDiskImage> = Api::all(client.clone());
        let queues: Api<AdmissionQueue> = Api::all(client.clone());
        // Asked once by hand: a watch would retry for ever what a person has to change.
        images
            .list(&kube::api::ListParams::default().limit(1))
            .await
            .context("VMDiskImages cannot be listed")?;
        queues.get_opt(IMAGE_QUEUE).await.context("the AdmissionQueue cannot be read")?;
        let (change, changes) = watch::channel(0);
        let mut watches = JoinSet::new();
        let images = follow(images, watcher::Config::default(), &change, &mut watches);
        let only = watcher::Config::default().fields(&format!("metadata.name={IMAGE_QUEUE}"));
        let queues = follow(queues, only, &change, &mut watches);
        images.wait_until_ready().await.context("the watch of VMDiskImages ended")?;
        queues.wait_until_ready().await.context("the watch of the AdmissionQueue ended")?;
        Ok(Self { images, queues, changes, _watches: watches })
    }

    /// All images.
    pub(crate) fn images(&self) -> Vec<Arc<VMDiskImage>> {
        self.images.state()
    }

    /// What is the case now, as rows.
    pub(crate) fn table(&self) -> Table {
        let queue = self.queues.state().pop();
        table(queue.as_deref(), &self.images(), Timestamp::now())
    }

    /// Waits until something has changed since it was last asked.
    pub(crate) async fn changed(&mut self) -> anyhow::Result<()> {
        self.changes.changed().await.context("the watches have ended")
    }
}

fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    change: &watch::Sender<u64>,
    watches: &mut JoinSet<()>,
) -> Store<K>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let events = reflector::reflector(writer, watcher(api, config).default_backoff());
    let change = change.clone();
    watches.spawn(events.for_each(move |event| {
        if let Err(error) = event {
            tracing::warn!(%error, "a watch failed and is opened again");
        }
        change.send_modify(|count| *count += 1);
        std::future::ready(())
    }));
    store
}
