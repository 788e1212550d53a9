//! Makes a volume for each claim that asks for one, and deletes it when it is released.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};

use super::classes::DRIVER;
use super::copy::remove_tree;
use super::origin::{Origin, restores};
use super::snapshotter::try_again;
use super::{StorageContext, StorageError, VolumeSnapshot, quantity};

/// Set by the controller-manager on a claim that waits for this provisioner; for a class that waits
/// for the first consumer only once the scheduler has chosen a node.
const ASKED_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Serves claims until the task is ended.
pub(super) async fn provision(context: Arc<StorageContext>) {
    let claims: Api<PersistentVolumeClaim> = Api::all(context.client.clone());
    let snapshots: Api<VolumeSnapshot> = Api::all(context.client.clone());
    let controller = Controller::new(claims, watcher::Config::default());
    let known = controller.store();
    let restored_from = move |snapshot: VolumeSnapshot| {
        let waiting = known.state().into_iter().filter(move |claim| restores(claim, &snapshot));
        waiting.map(|claim| ObjectRef::from(&*claim)).collect::<Vec<_>>()
    };
    controller
        .watches(snapshots, watcher::Config::default(), restored_from)
        .run(
            serve_claim,
            |object, error, context| try_again(&*object, error, context.retry),
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Deletes released volumes until the task is ended.
pub(super) async fn reclaim(context: Arc<StorageContext>) {
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    Controller::new(volumes, watcher::Config::default())
        .run(
            serve_volume,
            |object, error, context| try_again(&*object, error, context.retry),
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn serve_claim(
    claim: Arc<PersistentVolumeClaim>,
    context: Arc<StorageContext>,
) -> Result<Action, StorageError> {
    let is_free = context.free_source(&claim).await?;
    let Some(spec) = claim.spec.as_ref().filter(|spec| is_asked(&claim, spec)) else {
        return Ok(if is_free { Action::await_change() } else { Action::requeue(context.retry) });
    };
    let classes: Api<StorageClass> = Api::all(context.client.clone());
    let Some(class) =
        classes.get_opt(spec.storage_class_name.as_deref().unwrap_or_default()).await?
    else {
        return Ok(Action::requeue(context.retry));
    };
    if waits_for_consumer(&class) && !claim.annotations().contains_key(SELECTED_NODE) {
        return Ok(Action::await_change());
    }
    let size = requested(spec)?;
    let origin = match context.origin_of(&claim, size).await? {
        Origin::NotYet(cause) => {
            tracing::debug!(claim = claim.name_any(), cause, "a claim has to wait");
            return Ok(Action::requeue(context.retry));
        }
        Origin::Nothing => None,
        Origin::Copy(from) => Some(from),
    };
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let path = context.volume_path(&name);
    make_bytes(&path, spec, size, origin, &context).await?;
    create(&new_volume(name, &path, &claim, &class), &context).await?;
    Ok(Action::await_change())
}

/// True for a claim that has no volume and is waiting for this provisioner.
fn is_asked(claim: &PersistentVolumeClaim, spec: &PersistentVolumeClaimSpec) -> bool {
    let named = claim.annotations().get(ASKED_PROVISIONER).is_some_and(|name| name == DRIVER);
    named && spec.volume_name.is_none() && claim.metadata.deletion_timestamp.is_none()
}

fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Bytes asked for.
fn requested(spec: &PersistentVolumeClaimSpec) -> Result<u64, StorageError> {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get("storage")).map_or(Ok(0), quantity::bytes)
}

/// Makes the directory or the device, filled from `origin`, unless it is there already.
async fn make_bytes(
    path: &Path,
    spec: &PersistentVolumeClaimSpec,
    size: u64,
    origin: Option<PathBuf>,
    context: &StorageContext,
) -> Result<(), StorageError> {
    let failed = |source| StorageError::PrepareDirectory { path: path.to_owned(), source };
    if fs::exists(path).map_err(failed)? {
        return Ok(());
    }
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    match origin {
        Some(from) => context.copier.copy(from, path.to_owned()).await?,
        None if is_block => drop(File::create(path).map_err(failed)?),
        None => fs::create_dir(path).map_err(failed)?,
    }
    if is_block {
        let device = File::options().write(true).open(path).map_err(failed)?;
        device.set_len(size).map_err(failed)?;
    }
    Ok(())
}

fn new_volume(
    name: String,
    path: &Path,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let mut reference = claim.object_ref(&());
    reference.resource_version = claim.resource_version();
    let source = HostPathVolumeSource { path: path.display().to_string(), type_: None };
    let mut volume = PersistentVolume {
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(reference),
            host_path: Some(source),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone(),
            storage_class_name: spec.storage_class_name,
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        ..PersistentVolume::default()
    };
    volume.metadata.name = Some(name);
    let by = (PROVISIONED_BY.to_owned(), DRIVER.to_owned());
    volume.metadata.annotations = Some(BTreeMap::from([by]));
    volume
}

async fn create(volume: &PersistentVolume, context: &StorageContext) -> Result<(), StorageError> {
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    match volumes.create(&PostParams::default(), volume).await {
        Err(kube::Error::Api(answer)) if answer.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn serve_volume(
    volume: Arc<PersistentVolume>,
    context: Arc<StorageContext>,
) -> Result<Action, StorageError> {
    if !is_to_be_deleted(&volume) {
        return Ok(Action::await_change());
    }
    let name = volume.name_any();
    let path = context.volume_path(&name);
    remove_tree(&path).map_err(|source| StorageError::RemoveBytes { path, source })?;
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    match volumes.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
        other => drop(other?),
    }
    Ok(Action::await_change())
}

fn is_to_be_deleted(volume: &PersistentVolume) -> bool {
    let released =
        volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    let policy = volume.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == DRIVER);
    released && policy == Some("Delete") && ours && volume.metadata.deletion_timestamp.is_none()
}
