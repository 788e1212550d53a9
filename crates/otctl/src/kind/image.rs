//! `VMDiskImage` for commands.

mod observe;
mod retry;
mod tree;

use anyhow::Context as _;
use diskimage_controller::names::budget_key;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use otctl_types::condition::AVAILABLE;
use otctl_types::names::{IMAGE_QUEUE, RETRY_ANNOTATION};
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, VMDiskImage, VMDiskImageStatus};
use serde::Deserialize as _;

use super::{Kind, Retry};
use crate::cli::Goal;
use crate::client::Cluster;
use crate::progress::Progress;
use crate::queue::amounts;
use crate::tree::Node;

/// Disk images.
pub(super) struct Images;

impl Kind for Images {
    fn resource(&self) -> ApiResource {
        ApiResource::erase::<VMDiskImage>(&())
    }

    fn is_namespaced(&self) -> bool {
        true
    }

    fn names(&self) -> &'static [&'static str] {
        &["vmdiskimage", "vmdiskimages", "vmdi", "image", "images"]
    }

    fn suspend_field(&self) -> &'static str {
        "suspend"
    }

    fn available(&self) -> &'static str {
        AVAILABLE
    }

    /// A retry changes no generation. What its controller heard stands in the budget that it keeps.
    fn has_heard(&self, object: &DynamicObject) -> bool {
        let is_asked_again = object
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(RETRY_ANNOTATION));
        // Only then, so that a controller of another version, which may reckon a budget otherwise, is not mistaken for
        // a deaf one.
        let Some(image) = is_asked_again.then(|| read(object).ok()).flatten() else {
            return true;
        };
        let budget = image.status.as_ref().and_then(|status| status.budget.as_ref());
        budget.is_none_or(|budget| budget.key == budget_key(&image))
    }

    fn progress(&self, object: &DynamicObject) -> Progress {
        let told = VMDiskImageStatus::deserialize(&object.data["status"]).unwrap_or_default();
        let (bytes, total) = amounts(&told);
        let running = told.open_attempt.map(|open| open.number);
        Progress::of_bytes(running.or(told.last_attempt), bytes, total)
    }

    fn retry<'a>(
        &'a self,
        cluster: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Retry>> {
        async {
            let image = read(object)?;
            // Without the right to read it, how many there are is not told.
            let ledger = ledger(cluster).await.ok().flatten();
            let standing = (self as &dyn Kind).judge(object, Goal::Ready);
            Ok(retry::retry(&image, &standing, ledger.as_ref()))
        }
        .boxed()
    }

    fn describe<'a>(
        &'a self,
        cluster: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Node>> {
        async {
            let standing = (self as &dyn Kind).judge(object, Goal::Ready);
            let facts = observe::observe(cluster, read(object)?, standing).await;
            Ok(tree::tree(&facts, Timestamp::now()))
        }
        .boxed()
    }
}

fn read(object: &DynamicObject) -> anyhow::Result<VMDiskImage> {
    object
        .clone()
        .try_parse()
        .context("the cluster's VMDiskImage is of another form than this program knows")
}

/// The ledger, if a controller has made one.
async fn ledger(cluster: &Cluster) -> Result<Option<AdmissionQueueStatus>, kube::Error> {
    let queues: Api<AdmissionQueue> = Api::all(cluster.client.clone());
    Ok(queues.get_opt(IMAGE_QUEUE).await?.and_then(|queue| queue.status))
}

/// What the commands about an image are given: `vmdiskimage/web -n lab`.
fn arguments(image: &VMDiskImage) -> String {
    let name = image.metadata.name.as_deref().unwrap_or_default();
    let namespace = image.metadata.namespace.as_deref().unwrap_or_default();
    format!("vmdiskimage/{name} -n {namespace}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(retry: Option<&str>, budget: Option<&str>) -> DynamicObject {
        let annotations = retry.map(|value| json!({RETRY_ANNOTATION: value}));
        let budget = budget.map(|key| json!({"for": key, "charged": 1}));
        let object = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
            "metadata": {"name": "web", "namespace": "lab", "annotations": annotations},
            "spec": {"url": "http://images/a", "sourceType": "http"},
            "status": {"budget": budget, "openAttempt": {"number": 2, "jobUID": "job"}, "lastAttempt": 2,
                "progress": {"bytes": 512, "totalBytes": 1024}},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_retry_is_heard_once_the_budget_is_the_one_it_asks_for() {
        let key = |object: &DynamicObject| budget_key(&read(object).unwrap());
        let (before, after) = (key(&image(None, None)), key(&image(Some("1"), None)));
        let cases = [
            (None, None, true),
            (None, Some("of another version"), true),
            (Some("1"), None, true),
            (Some("1"), Some(before.as_str()), false),
            (Some("1"), Some(after.as_str()), true),
        ];
        for (retry, budget, expected) in cases {
            assert_eq!(Images.has_heard(&image(retry, budget)), expected, "{retry:?} {budget:?}");
        }
    }

    #[test]
    fn progress_is_that_of_the_running_attempt() {
        let progress = Images.progress(&image(None, None));
        assert_eq!((progress.attempt, progress.text.as_str()), (Some(2), "512 B of 1.0 KiB"));
    }
}
