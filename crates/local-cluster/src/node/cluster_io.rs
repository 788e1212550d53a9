//! What a node writes about its pods: statuses, and the last delete. Events are in `pod_events`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::Value;

use super::NodeContext;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Whether the pod a write was about is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    Gone,
}

impl NodeContext {
    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Writes a pod's status until it is written or the pod is gone. Waits for the link.
    pub(super) async fn write_status(&self, pod: &Pod, status: &Value) -> Presence {
        let name = pod.name_any();
        // The UID makes the write fail when another pod has taken the name.
        let patch = serde_json::json!({"metadata": {"uid": pod.uid()}, "status": status});
        let pods = self.pods(pod);
        self.until_settled(pod, || async {
            let params = PatchParams::default();
            pods.patch_status(&name, &params, &Patch::Strategic(&patch)).await.map(drop)
        })
        .await
    }

    /// Tells the API server that nothing of a deleted pod is left on the node.
    pub(super) async fn confirm_deletion(&self, pod: &Pod) {
        let name = pod.name_any();
        let preconditions = Preconditions { uid: pod.uid(), ..Preconditions::default() };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let pods = self.pods(pod);
        self.until_settled(pod, || async { pods.delete(&name, &params).await.map(drop) }).await;
    }

    async fn until_settled<F>(&self, pod: &Pod, mut write: impl FnMut() -> F) -> Presence
    where
        F: Future<Output = Result<(), kube::Error>>,
    {
        let mut delay = FIRST_RETRY;
        loop {
            self.link.up().await;
            match write().await {
                Ok(()) => return Presence::Present,
                Err(kube::Error::Api(answer)) if answer.is_not_found() => return Presence::Gone,
                // Another pod has the name, or others were faster, time and again: only a read tells.
                Err(kube::Error::Api(answer)) if answer.is_conflict() => {
                    match self.pods(pod).get_opt(&pod.name_any()).await {
                        Ok(found) if found.as_ref().and_then(Pod::uid) != pod.uid() => {
                            return Presence::Gone;
                        }
                        Ok(_) => tracing::debug!(node = self.name, "others wrote a pod meanwhile"),
                        Err(error) => tracing::warn!(%error, "will look at a pod again"),
                    }
                }
                Err(error) => tracing::warn!(%error, node = self.name, "will write a pod again"),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }
}
