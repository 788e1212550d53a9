//! What waits in queues, and the queues, as the cluster tells of them, kept up to date by watches. What they mean is in
//! `queue`.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use otctl_types::names::{IMAGE_QUEUE, WORKSPACE_QUEUE};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::QueueName;
use crate::client::{explained, lacks_kind};
use crate::out;
use crate::queue::{Queues, Table, table, workspaces};

/// What the watches tell beside objects.
#[derive(Debug, Default)]
struct News {
    /// Why a watch does not stand, by what it watches.
    broken: BTreeMap<String, String>,
}

/// The objects of every queue that is looked at. Dropping it ends the watches.
pub(crate) struct Live {
    images: Option<Line<VMDiskImage>>,
    workspaces: Option<Line<Workspace>>,
    news: watch::Receiver<News>,
    _watches: JoinSet<()>,
}

/// Everything of one kind, and its queue.
struct Line<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    objects: Store<K>,
    queues: Store<AdmissionQueue>,
}

/// What is watched: a kind that this program knows.
trait Watched:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

impl Live {
    /// Opens the watches of the queue that is `asked` for, or of all that the cluster has and that may be seen, and
    /// returns when each has its first complete list. Positions need the objects of every namespace, so that is what is
    /// listed.
    pub(crate) async fn open(client: &Client, asked: Option<QueueName>) -> anyhow::Result<Self> {
        let is_asked = |queue| asked.is_none_or(|asked| asked == queue);
        let (teller, news) = watch::channel(News::default());
        let mut opening = Opening { client, teller, watches: JoinSet::new() };
        let (mut images, mut workspaces) = (None, None);
        if is_asked(QueueName::Images) {
            images = Some(opening.line::<VMDiskImage>(IMAGE_QUEUE).await);
        }
        if is_asked(QueueName::Workspaces) {
            workspaces = Some(opening.line::<Workspace>(WORKSPACE_QUEUE).await);
        }
        let is_any = matches!(images, Some(Ok(_))) || matches!(workspaces, Some(Ok(_)));
        Ok(Self {
            images: seen(images, is_any)?,
            workspaces: seen(workspaces, is_any)?,
            news,
            _watches: opening.watches,
        })
    }

    /// All images.
    pub(crate) fn images(&self) -> Vec<Arc<VMDiskImage>> {
        self.images.as_ref().map(|line| line.objects.state()).unwrap_or_default()
    }

    /// The queue of images as it is now, as rows.
    pub(crate) fn table(&self) -> Table {
        let queue = self.images.as_ref().and_then(Line::queue);
        table(queue.as_deref(), &self.images(), Timestamp::now())
    }

    /// What is the case now. Nothing is said of a queue that nobody has made and nobody waits in, beside another one.
    pub(crate) fn queues(&self) -> Queues {
        let (images, workspaces) = (&self.images, &self.workspaces);
        let is_in_use = (
            images.as_ref().is_some_and(Line::is_in_use),
            workspaces.as_ref().is_some_and(Line::is_in_use),
        );
        let images = images.as_ref().filter(|_| is_in_use.0 || !is_in_use.1);
        let workspaces = workspaces.as_ref().filter(|_| is_in_use.1 || images.is_none());
        Queues {
            images: images.map(|_| self.table()),
            workspaces: workspaces.map(Line::<Workspace>::table),
        }
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
    /// The next of a watch of this: that it stands, or why it does not. It is opened again in any case.
    fn take(&mut self, what: &str, error: Option<watcher::Error>) {
        match error {
            None => self.broken.remove(what),
            Some(error) => {
                self.broken.insert(what.to_owned(), out::causes(&anyhow::Error::new(error)))
            }
        };
    }
}

impl<K: Watched> Line<K> {
    fn queue(&self) -> Option<Arc<AdmissionQueue>> {
        self.queues.state().pop()
    }

    /// Whether a controller has made the queue, or somebody waits for one that will.
    fn is_in_use(&self) -> bool {
        self.queue().is_some() || !self.objects.is_empty()
    }
}

impl Line<Workspace> {
    fn table(&self) -> workspaces::Table {
        workspaces::table(self.queue().as_deref(), &self.objects.state(), Timestamp::now())
    }
}

/// Why a queue cannot be shown.
enum Hidden {
    /// The cluster has no such kind.
    Absent(anyhow::Error),
    /// Whoever asks may not see it.
    Forbidden(anyhow::Error),
    /// It cannot be asked.
    Unasked(anyhow::Error),
}

impl Hidden {
    fn of(error: kube::Error, what: String) -> Self {
        let is_forbidden = matches!(&error, kube::Error::Api(answer) if answer.code == 403);
        let is_absent = lacks_kind(&error);
        let why = explained(error).context(what);
        match (is_absent, is_forbidden) {
            (true, _) => Self::Absent(why),
            (false, true) => Self::Forbidden(why),
            (false, false) => Self::Unasked(why),
        }
    }
}

/// What was opened of it. Beside another queue one that is not there is left out, and so is one that may not be seen.
fn seen<K>(opened: Option<Result<Line<K>, Hidden>>, is_any: bool) -> anyhow::Result<Option<Line<K>>>
where
    K: Resource<DynamicType = ()> + 'static,
{
    match opened.transpose() {
        Ok(line) => Ok(line),
        Err(Hidden::Absent(_)) if is_any => Ok(None),
        Err(Hidden::Forbidden(why)) if is_any => {
            out::remark(&format!("not shown: {}", out::causes(&why)));
            Ok(None)
        }
        Err(Hidden::Absent(why) | Hidden::Forbidden(why) | Hidden::Unasked(why)) => Err(why),
    }
}

/// Watches that are being opened.
struct Opening<'a> {
    client: &'a Client,
    teller: watch::Sender<News>,
    watches: JoinSet<()>,
}

impl Opening<'_> {
    async fn line<K: Watched>(&mut self, queue: &str) -> Result<Line<K>, Hidden> {
        let objects: Api<K> = Api::all(self.client.clone());
        let queues: Api<AdmissionQueue> = Api::all(self.client.clone());
        let (kind, name) = (K::kind(&()), format!("the AdmissionQueue '{queue}'"));
        // Asked once by hand: a watch would retry for ever what a person has to change.
        let listed = objects.list(&ListParams::default().limit(1)).await;
        listed.map_err(|error| Hidden::of(error, format!("{kind}s cannot be listed")))?;
        let read = queues.get_opt(queue).await;
        read.map_err(|error| Hidden::of(error, format!("{name} cannot be read")))?;
        let objects = self.follow(objects, watcher::Config::default(), kind.to_string());
        let only = watcher::Config::default().fields(&format!("metadata.name={queue}"));
        let queues = self.follow(queues, only, name);
        let ended =
            |_| Hidden::Unasked(anyhow::anyhow!("the watch of {kind}s or of their queue ended"));
        objects.wait_until_ready().await.map_err(ended)?;
        queues.wait_until_ready().await.map_err(ended)?;
        Ok(Line { objects, queues })
    }

    fn follow<K: Watched>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        what: String,
    ) -> Store<K> {
        let (store, writer) = reflector::store();
        let events = reflector::reflector(writer, watcher(api, config).default_backoff());
        let teller = self.teller.clone();
        self.watches.spawn(events.for_each(move |event| {
            teller.send_modify(|news| news.take(&what, event.err()));
            std::future::ready(())
        }));
        store
    }
}
