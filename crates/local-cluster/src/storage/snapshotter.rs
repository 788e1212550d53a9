//! Takes snapshots and lets them go.
//!
//! ```text
//! asked ─▶ class, claim, volume found ─▶ content made, bound ─▶ bytes copied ─▶ ready
//!              │ what is wrong: status.error, tried again          │ faults of a test
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::classes::DRIVER;
use super::copy::remove_tree;
use super::faults::Readiness;
use super::snapshot_problem::SnapshotProblem;
use super::snapshot_records::{Setback, content_name};
use super::{
    StorageContext, StorageError, VolumePlace, VolumeSnapshot, VolumeSnapshotContent,
    VolumeSnapshotContentStatus, finalizers,
};

/// How soon a write that came too late is tried again.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);

/// Serves VolumeSnapshots until the task is ended.
pub(super) async fn take_snapshots(context: Arc<StorageContext>) {
    let snapshots: Api<VolumeSnapshot> = Api::all(context.client.clone());
    Controller::new(snapshots, watcher::Config::default())
        .watches(context.contents(), watcher::Config::default(), |content| snapshot_of(&content))
        .reconcile_all_on(context.faults.changes())
        .run(
            serve_snapshot,
            |object, error, context| try_again(&*object, error, context.retry),
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Lets contents go whose snapshot is gone, until the task is ended.
pub(super) async fn release_contents(context: Arc<StorageContext>) {
    Controller::new(context.contents(), watcher::Config::default())
        .run(
            release_orphan,
            |object, error, context| try_again(&*object, error, context.retry),
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// When an object whose service failed is served again.
pub(super) fn try_again<K>(object: &K, error: &StorageError, retry: Duration) -> Action
where
    K: Resource<DynamicType = ()>,
{
    if error.is_conflict() {
        return Action::requeue(AFTER_CONFLICT);
    }
    tracing::warn!(%error, kind = %K::kind(&()), name = object.name_any(), "will try storage again");
    Action::requeue(retry)
}

fn snapshot_of(content: &VolumeSnapshotContent) -> Option<ObjectRef<VolumeSnapshot>> {
    let reference = &content.spec.volume_snapshot_ref;
    Some(ObjectRef::new(reference.name.as_deref()?).within(reference.namespace.as_deref()?))
}

/// How far a snapshot has come.
enum Progress {
    Ready,
    ReadyIn(Duration),
    ReadyOnRelease,
}

async fn serve_snapshot(
    snapshot: Arc<VolumeSnapshot>,
    context: Arc<StorageContext>,
) -> Result<Action, StorageError> {
    if snapshot.metadata.deletion_timestamp.is_some() {
        return release_snapshot(&snapshot, &context).await;
    }
    // The change of the content that comes before the snapshot's own wakes us when our view of the snapshot may still be
    // the old one; judged by that, a snapshot whose claim is gone by now would turn from ready to failed.
    let Some(snapshot) = context.snapshots(&snapshot).get_opt(&snapshot.name_any()).await? else {
        return Ok(Action::await_change());
    };
    if snapshot.is_ready() {
        context.free_claim(&snapshot).await?;
        return Ok(Action::await_change());
    }
    finalizers::add(&context.snapshots(&snapshot), &snapshot, finalizers::SNAPSHOT_BOUND).await?;
    match take(&snapshot, &context).await {
        Ok(Progress::Ready | Progress::ReadyOnRelease) => Ok(Action::await_change()),
        Ok(Progress::ReadyIn(rest)) => Ok(Action::requeue(rest)),
        Err(Setback::Refused(problem)) => {
            context.show_problem(&snapshot, &problem).await?;
            Ok(Action::requeue(context.retry))
        }
        Err(Setback::Failed(error)) => Err(error),
    }
}

async fn take(snapshot: &VolumeSnapshot, context: &StorageContext) -> Result<Progress, Setback> {
    let class = context.class_of(snapshot).await?;
    let source = context.source_of(snapshot).await?;
    let content = context.content_of(snapshot, &class, &source).await?;
    bind(snapshot, &content, context).await?;
    if content.spec.driver != DRIVER {
        return Err(SnapshotProblem::foreign_driver(&source.volume, &content.spec.driver).into());
    }
    let (name, namespace) = (content.name_any(), snapshot.namespace().unwrap_or_default());
    let copied = match content.status.filter(|status| status.snapshot_handle.is_some()) {
        Some(copied) => copied,
        None => {
            if let Some(message) = context.faults.due_failure(&namespace) {
                return Err(SnapshotProblem::refused(&source.volume, &message).into());
            }
            copy_bytes(&name, source, context).await?
        }
    };
    match context.faults.readiness(&namespace, age(&copied)) {
        Readiness::OnRelease => Ok(Progress::ReadyOnRelease),
        Readiness::In(rest) => Ok(Progress::ReadyIn(rest)),
        Readiness::Now => {
            show_ready(snapshot, &name, &copied, context).await?;
            Ok(Progress::Ready)
        }
    }
}

/// The second half of the binding: the content names its snapshot from the start.
async fn bind(
    snapshot: &VolumeSnapshot,
    content: &VolumeSnapshotContent,
    context: &StorageContext,
) -> Result<(), StorageError> {
    let bound =
        snapshot.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.as_ref());
    if bound.is_some() {
        return Ok(());
    }
    let status = json!({"boundVolumeSnapshotContentName": content.name_any(), "readyToUse": false});
    context.write_snapshot(snapshot, status).await
}

/// Copies what the volume holds now, and records it on the content.
async fn copy_bytes(
    content: &str,
    source: VolumePlace,
    context: &StorageContext,
) -> Result<VolumeSnapshotContentStatus, StorageError> {
    let status = VolumeSnapshotContentStatus {
        creation_time: i64::try_from(Timestamp::now().as_nanosecond()).ok(),
        ready_to_use: Some(false),
        restore_size: i64::try_from(source.capacity).ok(),
        snapshot_handle: Some(content.to_owned()),
        error: None,
    };
    let target = context.snapshot_path(content);
    // A copy that was not recorded is of another moment.
    remove(&target)?;
    context.copier.copy(source.below(&context.root)?, target).await?;
    context.write_content(content, json!(status)).await?;
    Ok(status)
}

fn age(copied: &VolumeSnapshotContentStatus) -> Duration {
    let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let nanoseconds = now.saturating_sub(copied.creation_time.unwrap_or_default());
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

async fn show_ready(
    snapshot: &VolumeSnapshot,
    content: &str,
    copied: &VolumeSnapshotContentStatus,
    context: &StorageContext,
) -> Result<(), StorageError> {
    context.write_content(content, json!({"readyToUse": true, "error": null})).await?;
    let created = Timestamp::from_nanosecond(copied.creation_time.unwrap_or_default().into());
    let status = json!({
        "readyToUse": true,
        "creationTime": created.ok().map(Time),
        "restoreSize": copied.restore_size.map(|bytes| bytes.to_string()),
        "error": null,
    });
    context.write_snapshot(snapshot, status).await
}

/// Ends a snapshot that is being deleted; a class that retains keeps content and bytes.
async fn release_snapshot(
    snapshot: &VolumeSnapshot,
    context: &StorageContext,
) -> Result<Action, StorageError> {
    context.free_claim(snapshot).await?;
    let contents = context.contents();
    if let Some(content) = contents.get_opt(&content_name(snapshot)).await? {
        let dying = content.metadata.deletion_timestamp.is_some();
        if !dying && content.spec.deletion_policy == "Delete" {
            contents.delete(&content.name_any(), &DeleteParams::default()).await?;
        }
        if dying || content.spec.deletion_policy == "Delete" {
            drop_content(&content, context).await?;
        }
    }
    finalizers::remove(&context.snapshots(snapshot), snapshot, finalizers::SNAPSHOT_BOUND).await?;
    Ok(Action::await_change())
}

/// Ends a content that is being deleted and has outlived its snapshot.
async fn release_orphan(
    content: Arc<VolumeSnapshotContent>,
    context: Arc<StorageContext>,
) -> Result<Action, StorageError> {
    if content.metadata.deletion_timestamp.is_none() {
        return Ok(Action::await_change());
    }
    let reference = &content.spec.volume_snapshot_ref;
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    let snapshots: Api<VolumeSnapshot> = Api::namespaced(context.client.clone(), namespace);
    let snapshot = snapshots.get_opt(reference.name.as_deref().unwrap_or_default()).await?;
    if snapshot.is_some_and(|snapshot| snapshot.uid() == reference.uid) {
        // Deleted under a living snapshot, it waits for it, as the real one does.
        return Ok(Action::await_change());
    }
    drop_content(&content, &context).await?;
    Ok(Action::await_change())
}

/// Removes the bytes unless they are retained, then the last thing that keeps the object.
async fn drop_content(
    content: &VolumeSnapshotContent,
    context: &StorageContext,
) -> Result<(), StorageError> {
    if content.spec.deletion_policy == "Delete" {
        remove(&context.snapshot_path(&content.name_any()))?;
    }
    // Read again: the delete above has changed the version.
    let contents = context.contents();
    match contents.get_opt(&content.name_any()).await? {
        Some(newest) => finalizers::remove(&contents, &newest, finalizers::CONTENT_BOUND).await,
        None => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), StorageError> {
    remove_tree(path).map_err(|source| StorageError::RemoveBytes { path: path.to_owned(), source })
}
