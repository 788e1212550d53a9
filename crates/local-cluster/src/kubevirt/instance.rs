//! Keeps the virt-launcher pod of every VirtualMachineInstance.

use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;

use super::instance_status::{Obstacle, Seen};
use super::launcher::{self, CREATED_BY, Disk};
use super::machine::is_owner;
use super::objects::VirtualMachineInstance;
use super::{Context, KubeVirtError, RETRY, try_again};

/// Keeps an instance until its pod is gone.
pub(super) const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// Serves instances until the task is ended.
pub(super) async fn serve_all(context: Arc<Context>) {
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    let pods: Api<Pod> = Api::all(context.client.clone());
    Controller::new(instances, watcher::Config::default())
        .owns(pods, watcher::Config::default().labels(CREATED_BY))
        .run(serve, |instance, error, _| try_again(&*instance, error), context)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn serve(
    instance: Arc<VirtualMachineInstance>,
    context: Arc<Context>,
) -> Result<Action, KubeVirtError> {
    let pods = pods(&instance, &context).await?;
    let is_deleted = instance.metadata.deletion_timestamp.is_some();
    if is_deleted && pods.is_empty() {
        return release(&instance, &context).await;
    }
    if is_deleted {
        delete(&pods, &context).await?;
    }
    let was_looked_at = !matches!(instance.phase(), "" | "Pending");
    let (pod, obstacle) = match pods.into_iter().next() {
        None if !is_deleted && !was_looked_at => match start(&instance, &context).await? {
            Ok(pod) => (Some(pod), None),
            Err(obstacle) => (None, Some(obstacle)),
        },
        pod => (pod, None),
    };
    let next = if obstacle.is_some() { Action::requeue(RETRY) } else { Action::await_change() };
    let seen = Seen { instance: &instance, pod: pod.as_ref(), obstacle, now: Timestamp::now() };
    write_status(&instance, &seen, &context).await?;
    Ok(next)
}

/// The pods of an instance; the one that is not going first.
async fn pods(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<Vec<Pod>, KubeVirtError> {
    let selector = format!("{CREATED_BY}={}", instance.uid().unwrap_or_default());
    let found =
        pods_beside(instance, context).list(&ListParams::default().labels(&selector)).await?;
    let mut pods: Vec<_> = found.items.into_iter().filter(|pod| is_owner(instance, pod)).collect();
    pods.sort_by_key(|pod| pod.metadata.deletion_timestamp.is_some());
    Ok(pods)
}

fn pods_beside(beside: &impl ResourceExt, context: &Context) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &beside.namespace().unwrap_or_default())
}

/// Makes the pod, or says why it cannot be made.
async fn start(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<Result<Pod, Obstacle>, KubeVirtError> {
    let disks = match disks(instance, context).await? {
        Ok(disks) => disks,
        Err(obstacle) => return Ok(Err(obstacle)),
    };
    let refused = |cause: String| {
        let message = format!("failed to create virtual machine pod: {cause}");
        Ok(Err(Obstacle { reason: "FailedCreate", message }))
    };
    let pod = match launcher::pod(instance, &disks) {
        Ok(pod) => pod,
        Err(error) => return refused(error.to_string()),
    };
    match pods_beside(instance, context).create(&PostParams::default(), &pod).await {
        Ok(pod) => Ok(Ok(pod)),
        Err(kube::Error::Api(refusal)) => refused(refusal.message),
        Err(error) => Err(error.into()),
    }
}

/// The claims of an instance.
async fn disks(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<Result<Vec<Disk>, Obstacle>, KubeVirtError> {
    let namespace = instance.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    let mut disks = Vec::new();
    for volume in &instance.spec.volumes {
        let Some(name) = volume.claim() else { continue };
        let Some(claim) = claims.get_opt(name).await? else {
            let message =
                format!("PVC {namespace}/{name} does not exist, waiting for it to appear");
            return Ok(Err(Obstacle { reason: "FailedPvcNotFound", message }));
        };
        let mode = claim.spec.and_then(|spec| spec.volume_mode);
        disks.push(Disk {
            volume: volume.name.clone(),
            claim: name.to_owned(),
            is_block: mode.as_deref() == Some("Block"),
        });
    }
    Ok(Ok(disks))
}

async fn delete(pods: &[Pod], context: &Context) -> Result<(), KubeVirtError> {
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let preconditions = Preconditions { uid: pod.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match pods_beside(pod, context).delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// Lets an instance go whose pods are gone.
async fn release(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<Action, KubeVirtError> {
    let mut changed = instance.clone();
    changed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
    if changed.finalizers() != instance.finalizers() {
        replace(&changed, context).await?;
    }
    Ok(Action::await_change())
}

/// The kind has no status subresource: the whole object is written.
async fn write_status(
    instance: &VirtualMachineInstance,
    seen: &Seen<'_>,
    context: &Context,
) -> Result<(), KubeVirtError> {
    let status = Some(seen.status());
    if status == instance.status {
        return Ok(());
    }
    replace(&VirtualMachineInstance { status, ..instance.clone() }, context).await
}

async fn replace(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<(), KubeVirtError> {
    let instances = context.instances(instance);
    match instances.replace(&instance.name_any(), &PostParams::default(), instance).await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
