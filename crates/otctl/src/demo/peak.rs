//! The most that was active at once, by three counts that know nothing of each other: slots in the ledger and import
//! pods, each over the whole history of a watch that was opened before the run, and transfers, by the server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use otctl_types::AdmissionQueue;
use otctl_types::names::{IMAGE_QUEUE, ROLE_LABEL};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Events may be underway when the run has ended.
const AT_REST_WITHIN: Duration = Duration::from_secs(20);

/// The most at once, by each count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Entries in the ledger.
    pub entries: usize,
    /// Import pods between Running and their end.
    pub pods: usize,
    /// Transfers, first looks left out.
    pub transfers: usize,
}

impl Peak {
    /// The largest.
    pub fn most(self) -> usize {
        self.entries.max(self.pods).max(self.transfers)
    }
}

/// Watches from before the run on.
pub struct History {
    entries: watch::Receiver<Entries>,
    pods: watch::Receiver<Pods>,
    watches: JoinSet<anyhow::Error>,
}

impl History {
    /// Opens the watches; nothing that happens after this is missed.
    pub async fn open(client: &Client) -> anyhow::Result<Self> {
        let (queue_count, entries) = watch::channel(Entries::default());
        let (pod_count, pods) = watch::channel(Pods::default());
        let mut watches = JoinSet::new();
        let queues: Api<AdmissionQueue> = Api::all(client.clone());
        let from = version(&queues).await?;
        watches.spawn(follow(queues, only_queue(IMAGE_QUEUE), from, move |event| {
            queue_count.send_modify(|count| count.see(&event));
        }));
        let imports: Api<Pod> = Api::all(client.clone());
        let from = version(&imports).await?;
        let only = WatchParams::default().labels(&format!("{ROLE_LABEL}=import"));
        watches.spawn(follow(imports, only, from, move |event| {
            pod_count.send_modify(|count| count.see(&event))
        }));
        Ok(Self { entries, pods, watches })
    }

    /// Waits until both counts are back at nothing, which proves that the whole run was seen, and gives the most at
    /// once of each: entries, pods.
    ///
    /// # Errors
    /// When a watch broke, so that something may have been missed, or the end of something was not seen.
    pub async fn close(mut self) -> anyhow::Result<(usize, usize)> {
        let at_rest = async {
            let entries = self.entries.wait_for(|count| count.now == 0).await?.most;
            let pods = self.pods.wait_for(|count| count.now.is_empty()).await?.most;
            anyhow::Ok((entries, pods))
        };
        tokio::select! {
            counted = tokio::time::timeout(AT_REST_WITHIN, at_rest) => {
                counted.context("the ledger or the import pods did not come to rest")?
            }
            Some(broken) = self.watches.join_next() => Err(broken?),
        }
    }
}

/// Events about the queue of that name.
pub(super) fn only_queue(name: &str) -> WatchParams {
    WatchParams::default().fields(&format!("metadata.name={name}"))
}

/// Slots in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    pub(super) now: usize,
    pub(super) most: usize,
}

impl Entries {
    pub(super) fn see(&mut self, event: &WatchEvent<AdmissionQueue>) {
        self.now = match event {
            WatchEvent::Added(queue) | WatchEvent::Modified(queue) => {
                queue.status.as_ref().map_or(0, |status| status.active.len())
            }
            WatchEvent::Deleted(_) => 0,
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
        };
        self.most = self.most.max(self.now);
    }
}

/// Import pods between Running and their end, by UID.
#[derive(Debug, Default)]
struct Pods {
    now: BTreeSet<String>,
    most: usize,
}

impl Pods {
    fn see(&mut self, event: &WatchEvent<Pod>) {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.see_pod(pod),
            WatchEvent::Deleted(pod) => drop(self.now.remove(&pod.uid().unwrap_or_default())),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
        self.most = self.most.max(self.now.len());
    }

    fn see_pod(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Running") => drop(self.now.insert(uid)),
            Some("Succeeded" | "Failed") => drop(self.now.remove(&uid)),
            // Pending, or Unknown: what was running may still be.
            Some(_) | None => {}
        }
    }
}

/// The version from which a watch misses nothing that happens from now on.
pub async fn version<K>(api: &Api<K>) -> anyhow::Result<String>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let kind = api.resource_url();
    let list = api
        .list(&ListParams::default())
        .await
        .with_context(|| format!("{kind} cannot be listed"))?;
    list.metadata.resource_version.with_context(|| format!("the list of {kind} has no version"))
}

/// Gives every event to `see`, in order and without a gap, for as long as that can be had.
pub async fn follow<K>(
    api: Api<K>,
    params: WatchParams,
    from: String,
    see: impl Fn(WatchEvent<K>),
) -> anyhow::Error
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut version = from;
    loop {
        if let Err(error) = follow_once(&api, &params, &mut version, &see).await {
            return error.context(format!("the history of {} has a gap", api.resource_url()));
        }
    }
}

/// One watch until the server ends it, which it does every few minutes.
async fn follow_once<K>(
    api: &Api<K>,
    params: &WatchParams,
    version: &mut String,
    see: &impl Fn(WatchEvent<K>),
) -> anyhow::Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(api.watch(params, version).await?);
    while let Some(event) = events.try_next().await? {
        match &event {
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => {
                *version = object.resource_version().unwrap_or_default();
            }
            WatchEvent::Bookmark(bookmark) => {
                version.clone_from(&bookmark.metadata.resource_version)
            }
            WatchEvent::Error(error) => anyhow::bail!("the watch failed: {error:?}"),
        }
        see(event);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use otctl_types::AdmissionQueueSpec;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, phase: &str) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase}}),
        )
        .unwrap()
    }

    fn most_pods(history: &[WatchEvent<Pod>]) -> (usize, usize) {
        let mut pods = Pods::default();
        history.iter().for_each(|event| pods.see(event));
        (pods.most, pods.now.len())
    }

    #[test]
    fn pods_count_from_running_to_their_end() {
        use WatchEvent::{Added, Deleted, Modified};
        let history = [
            Added(pod("a", "Pending")),
            Modified(pod("a", "Running")),
            Added(pod("b", "Pending")),
            Modified(pod("b", "Running")),
            Modified(pod("b", "Running")),
            Modified(pod("a", "Succeeded")),
            Added(pod("c", "Running")),
            Deleted(pod("b", "Running")),
            Modified(pod("c", "Failed")),
        ];
        assert_eq!(most_pods(&history), (2, 0));
        assert_eq!(most_pods(&history[..6]), (2, 1));
        assert_eq!(most_pods(&history[..1]), (0, 0));
    }

    #[test]
    fn a_pod_whose_node_is_silent_still_counts() {
        let history = [
            WatchEvent::Added(pod("a", "Running")),
            WatchEvent::Modified(pod("a", "Unknown")),
            WatchEvent::Added(pod("b", "Running")),
        ];
        assert_eq!(most_pods(&history), (2, 2));
    }

    #[test]
    fn entries_count_as_the_ledger_shows_them() {
        let entry = |name: &str| json!({"namespace": "labs", "name": name, "uid": name, "attempt": 1, "ticket": "1", "since": "2026-05-01T12:00:00Z"});
        let mut entries = Entries::default();
        for active in [vec![], vec!["a"], vec!["a", "b", "c"], vec!["c"], vec![]] {
            let mut queue = AdmissionQueue::new("vmdiskimages", AdmissionQueueSpec::default());
            let active: Vec<_> = active.into_iter().map(entry).collect();
            queue.status = Some(serde_json::from_value(json!({"active": active})).unwrap());
            entries.see(&WatchEvent::Modified(queue));
        }
        assert_eq!((entries.most, entries.now), (3, 0));
    }

    #[test]
    fn the_largest_count_is_the_peak() {
        let peaks = [(3, 1, 2), (1, 3, 2), (1, 2, 3)];
        assert!(
            peaks
                .into_iter()
                .all(|(entries, pods, transfers)| Peak { entries, pods, transfers }.most() == 3)
        );
    }
}
