//! Images and their queue as the cluster tells of them, kept up to date by watches. What they mean is in `queue`.

use std::collections::BTreeMap;
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

use crate::client::explained;
use crate::out;
use crate::queue::{Table, table};

/// What the watches tell beside objects.
#[derive(Debug, Default)]
struct News {
    /// Why a watch does not stand, by its kind.
    broken: BTreeMap<String, String>,
}

/// All images and their queue. Dropping it ends the watches.
pub(crate) struct Live {
    images: Store<VMDiskImage>,
    queues: Store<AdmissionQueue>,
    news: watch::Receiver<News>,
    _watches: JoinSet<()>,
}

impl Live {
    /// Opens the watches and returns when both have their first complete list. Positions need the images of every
    /// namespace, so that is what is listed.
    pub(crate) async fn open(client: &Client) -> anyhow::Result<Self> {
        let images: Api<VMDiskImage> = Api::all(client.clone());
        let queues: Api<AdmissionQueue> = Api::all(client.clone());
        // Asked once by hand: a watch would retry for ever what a person has to change.
        let listed = images.list(&kube::api::ListParams::default().limit(1)).await;
        listed.map_err(explained).context("VMDiskImages cannot be listed")?;
        let queue = queues.get_opt(IMAGE_QUEUE).await;
        queue.map_err(explained).context("the AdmissionQueue cannot be read")?;
        let (teller, news) = watch::channel(News::default());
        let mut watches = JoinSet::new();
        let images = follow(images, watcher::Config::default(), &teller, &mut watches);
        let only = watcher::Config::default().fields(&format!("metadata.name={IMAGE_QUEUE}"));
        let queues = follow(queues, only, &teller, &mut watches);
        images.wait_until_ready().await.context("the watch of VMDiskImages ended")?;
        queues.wait_until_ready().await.context("the watch of the AdmissionQueue ended")?;
        Ok(Self { images, queues, news, _watches: watches })
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

    /// Why what is known may be old: the API server cannot be asked.
    pub(crate) fn broken(&self) -> Option<String> {
        self.news.borrow().broken.values().next().cloned()
    }

    /// Waits until something has changed since it was last asked.
    pub(crate) async fn changed(&mut self) -> anyhow::Result<()> {
        self.news.changed().await.context("the watches have ended")
    }
}

impl News {
    /// The next of a watch of `kind`: that it stands, or why it does not. It is opened again in any case.
    fn take(&mut self, kind: &str, error: Option<watcher::Error>) {
        match error {
            None => self.broken.remove(kind),
            Some(error) => {
                self.broken.insert(kind.to_owned(), out::causes(&anyhow::Error::new(error)))
            }
        };
    }
}

fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    teller: &watch::Sender<News>,
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
    let teller = teller.clone();
    let kind = K::plural(&()).into_owned();
    watches.spawn(events.for_each(move |event| {
        teller.send_modify(|news| news.take(&kind, event.err()));
        std::future::ready(())
    }));
    store
}
