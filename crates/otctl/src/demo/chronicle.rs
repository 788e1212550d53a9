//! What the workspace went through: every version that was told of it and of what must come before or after it, from
//! watches that were opened before the run.
//!
//! Versions of all kinds are numbers of one store, so that they say what was made first, whichever watch was quicker.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use otctl_types::names::{WORKSPACE_LABEL, WORKSPACE_QUEUE};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::peak::{follow, only_queue, version};
use super::scenario::NAMESPACE;
use super::story::Story;

/// Events may be underway when the run has ended.
const AT_REST_WITHIN: Duration = Duration::from_secs(20);

/// The story so far, and the watches that go on telling it.
pub(crate) struct Chronicle {
    teller: watch::Sender<Story>,
    story: watch::Receiver<Story>,
    watches: JoinSet<anyhow::Error>,
    opened: Instant,
}

impl Chronicle {
    /// Opens the watches; nothing that happens after this is missed.
    pub(crate) async fn open(client: &Client) -> anyhow::Result<Self> {
        let (teller, story) = watch::channel(Story::default());
        let watches = JoinSet::new();
        let mut chronicle = Self { teller, story, watches, opened: Instant::now() };
        let all = WatchParams::default;
        let workspaces: Api<Workspace> = Api::all(client.clone());
        chronicle.watch(workspaces, all(), Story::see_workspace).await?;
        let queues: Api<AdmissionQueue> = Api::all(client.clone());
        chronicle.watch(queues, only_queue(WORKSPACE_QUEUE), Story::see_queue).await?;
        let images: Api<VMDiskImage> = Api::namespaced(client.clone(), NAMESPACE);
        chronicle.watch(images, all(), Story::see_image).await?;
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), NAMESPACE);
        chronicle.watch(policies, all(), Story::see_policy).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        chronicle.watch(pods, all().labels(WORKSPACE_LABEL), Story::see_pod).await?;
        Ok(chronicle)
    }

    async fn watch<K>(
        &mut self,
        api: Api<K>,
        only: WatchParams,
        see: fn(&mut Story, &WatchEvent<K>, Duration),
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    {
        let from = version(&api).await?;
        let (teller, opened) = (self.teller.clone(), self.opened);
        self.watches.spawn(follow(api, only, from, move |event| {
            teller.send_modify(|story| see(story, &event, opened.elapsed()));
        }));
        Ok(())
    }

    /// The story so far.
    pub(crate) fn story(&self) -> Story {
        self.story.borrow().clone()
    }

    /// Waits until there is more of it.
    pub(crate) async fn changed(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.story.changed() => changed.context("the watches have ended"),
            Some(broken) = self.watches.join_next() => Err(broken?),
        }
    }

    /// Waits until the story has come so far.
    pub(crate) async fn until(&mut self, is_so_far: impl Fn(&Story) -> bool) -> anyhow::Result<()> {
        while !is_so_far(&self.story.borrow()) {
            self.changed().await?;
        }
        Ok(())
    }

    /// The story, once it has been heard to its end. A part of it that does not come is missing in it, which is for the
    /// report to say.
    ///
    /// # Errors
    /// When a watch broke, so that something may have been missed.
    pub(crate) async fn close(mut self) -> anyhow::Result<Story> {
        let heard = tokio::time::timeout(AT_REST_WITHIN, self.until(Story::is_whole)).await;
        heard.unwrap_or(Ok(()))?;
        Ok(self.story())
    }
}
