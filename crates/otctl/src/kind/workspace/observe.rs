//! What is read to describe a workspace: its pods by their label, the ledger, Events. Nothing of it is needed: what may not
//! be read is named and left out.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use otctl_types::names::{WORKSPACE_LABEL, WORKSPACE_QUEUE};
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, Workspace};

use crate::client::Cluster;
use crate::kind::Standing;
use crate::out;

/// Where Events about objects without a namespace are.
const EVENTS_NAMESPACE: &str = "default";

/// Everything that is told of a workspace.
pub(super) struct Facts {
    /// The workspace.
    pub(super) workspace: Workspace,
    /// Where it stands.
    pub(super) standing: Standing,
    /// The ledger and the policy in effect.
    pub(super) ledger: Option<AdmissionQueueStatus>,
    /// Its pods.
    pub(super) pods: Vec<Pod>,
    /// Events about it.
    pub(super) events: Vec<Event>,
    /// What could not be read, each with why.
    pub(super) unread: Vec<String>,
}

/// Reads everything.
pub(super) async fn observe(cluster: &Cluster, workspace: Workspace, standing: Standing) -> Facts {
    let (ledger, pods, events) =
        tokio::join!(ledger(cluster), pods(cluster, &workspace), events(cluster, &workspace));
    let mut unread = Vec::new();
    Facts {
        ledger: taken(ledger, &mut unread),
        pods: taken(pods, &mut unread),
        events: taken(events, &mut unread),
        workspace,
        standing,
        unread,
    }
}

/// What was read; nothing, and a remark, for what was not.
fn taken<T: Default>(read: Result<T, String>, unread: &mut Vec<String>) -> T {
    read.unwrap_or_else(|why| {
        unread.push(why);
        T::default()
    })
}

async fn ledger(cluster: &Cluster) -> Result<Option<AdmissionQueueStatus>, String> {
    let queues: Api<AdmissionQueue> = Api::all(cluster.client.clone());
    let read = queues.get_opt(WORKSPACE_QUEUE).await;
    let read = read.map_err(|error| unreadable(cluster, "the ledger (AdmissionQueue)", error))?;
    Ok(read.and_then(|queue| queue.status))
}

/// By the label that nobody but its controller may set.
async fn pods(cluster: &Cluster, workspace: &Workspace) -> Result<Vec<Pod>, String> {
    let namespace = workspace.status.as_ref().and_then(|status| status.namespace.as_deref());
    let Some(namespace) = namespace else { return Ok(Vec::new()) };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let label = format!("{WORKSPACE_LABEL}={}", workspace.uid().unwrap_or_default());
    let listed = api.list(&ListParams::default().labels(&label)).await;
    listed.map(|list| list.items).map_err(|error| unreadable(cluster, "its pods", error))
}

async fn events(cluster: &Cluster, workspace: &Workspace) -> Result<Vec<Event>, String> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), EVENTS_NAMESPACE);
    let uid = workspace.uid().unwrap_or_default();
    let listed =
        api.list(&ListParams::default().fields(&format!("involvedObject.uid={uid}"))).await;
    listed.map(|list| list.items).map_err(|error| unreadable(cluster, "Events", error))
}

fn unreadable(cluster: &Cluster, what: &str, error: kube::Error) -> String {
    format!("{what} cannot be read: {}", out::causes(&cluster.explained(error)))
}
