//! What people and neighbours do to a stage: delete, kill, suspend, add what is theirs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::audit::{AuditEntry, Mark};
use local_cluster::node::PodName;
use otctl_types::VMDiskImage;
use otctl_types::names::{OWNER_LABEL, ROLE_LABEL};
use serde_json::Value;

use crate::stage::{NAMESPACE, Stage, pod_phase, told, until};

impl Stage {
    /// Deletes an image and does not wait.
    pub(crate) async fn delete(&self, name: &str) {
        self.images().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Images of any namespace.
    pub(crate) fn images_in(&self, namespace: &str) -> Api<VMDiskImage> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates an image in another namespace.
    pub(crate) async fn create_in(&self, namespace: &str, mut image: VMDiskImage) -> VMDiskImage {
        image.metadata.namespace = Some(namespace.to_owned());
        self.credentials_in(namespace).await;
        self.images_in(namespace).create(&PostParams::default(), &image).await.unwrap()
    }

    /// Jobs of the namespace.
    pub(crate) fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Claims of the namespace.
    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The import Job of this image that has not ended.
    pub(crate) async fn import_job(&self, name: &str) -> Job {
        let uid = self.read(name).await.metadata.uid.unwrap();
        let imports =
            ListParams::default().labels(&format!("{ROLE_LABEL}=import,{OWNER_LABEL}={uid}"));
        let jobs = self.jobs().list(&imports).await.unwrap().items;
        let is_open = |job: &Job| {
            job.status.as_ref().is_none_or(|status| {
                status
                    .conditions
                    .iter()
                    .flatten()
                    .all(|condition| !matches!(condition.type_.as_str(), "Complete" | "Failed"))
            })
        };
        jobs.into_iter().find(is_open).expect("an import is open")
    }

    /// Kills the running import of this image as the kernel does when memory is short.
    pub(crate) async fn kill_import(&self, name: &str) {
        let pod = self.running_pod(name).await;
        let pod = PodName::new(NAMESPACE, pod.name_any());
        let killed = self.cluster().nodes().iter().any(|node| node.kill(&pod).is_ok());
        assert!(killed, "no node runs {pod:?}");
    }

    /// The running import pod of this image.
    pub(crate) async fn running_pod(&self, name: &str) -> Pod {
        let uid = self.read(name).await.metadata.uid.unwrap();
        let imports =
            ListParams::default().labels(&format!("{ROLE_LABEL}=import,{OWNER_LABEL}={uid}"));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        until(&format!("an import of '{name}' runs"), async || {
            let pods = pods.list(&imports).await.unwrap().items;
            pods.into_iter().find(|pod| pod_phase(pod) == "Running")
        })
        .await
    }

    /// Waits until the transfer of this path is open, with so many bytes of data written at least.
    pub(crate) async fn await_transfer(&self, path: &str, bytes: u64) {
        until(&format!("{bytes} bytes of '{path}' are on their way"), async || {
            let counts = self.server.counts(path);
            (counts.open_data == 1 && counts.bytes - counts.probe_bytes >= bytes).then_some(())
        })
        .await;
    }
}

/// Ends the stage, after a look that the controller was never refused for lack of a right: `is_other` are the refusals
/// that have another cause, such as a quota.
pub(crate) async fn finish_but(mut stage: Stage, is_other: impl Fn(&AuditEntry) -> bool) {
    let requests = stage.requests(Mark::default());
    let refused = requests.iter().filter(|entry| entry.is_forbidden());
    let lacking: Vec<String> = refused.filter(|entry| !is_other(entry)).map(told).collect();
    assert!(lacking.is_empty(), "the account lacks rights:\n{}", lacking.join("\n"));
    stage.end().await;
}

/// A merge patch of an object that was read.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: &Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}
