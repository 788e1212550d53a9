//! Keeps the instance of every VirtualMachine as its run strategy asks for it.

use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::machine_status::{GENERATION_ANNOTATION, Seen};
use super::objects::{VirtualMachine, VirtualMachineInstance};
use super::run_strategy::{self, Act};
use super::{Context, KubeVirtError, RETRY, instance, try_again};

/// Keeps a machine until its instance is gone.
const FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";

/// Serves machines until the task is ended.
pub(super) async fn serve_all(context: Arc<Context>) {
    let machines: Api<VirtualMachine> = Api::all(context.client.clone());
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    Controller::new(machines, watcher::Config::default())
        .owns(instances, watcher::Config::default())
        .run(serve, |machine, error, _| try_again(&*machine, error), context)
        .for_each(|_| std::future::ready(()))
        .await;
}

/// What a pass has done.
struct Done {
    instance: Option<VirtualMachineInstance>,
    failure: Option<String>,
    next: Action,
}

impl Done {
    fn with(instance: Option<VirtualMachineInstance>) -> Self {
        Self { instance, failure: None, next: Action::await_change() }
    }
}

async fn serve(
    machine: Arc<VirtualMachine>,
    context: Arc<Context>,
) -> Result<Action, KubeVirtError> {
    let found = context.instances(&*machine).get_opt(&machine.name_any()).await?;
    let found = found.filter(|instance| is_owner(&*machine, instance));
    if machine.metadata.deletion_timestamp.is_some() {
        return end(&machine, found, &context).await;
    }
    if !machine.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        write_finalizers(&machine, &[FINALIZER], &context).await?;
        return Ok(Action::await_change());
    }
    let act = run_strategy::act(&machine, found.as_ref(), Timestamp::now());
    let is_replaced = act == Act::Replace;
    let done = carry_out(act, &machine, found, &context).await?;
    write_status(&machine, &done, is_replaced, &context).await?;
    Ok(done.next)
}

async fn carry_out(
    act: Act,
    machine: &VirtualMachine,
    found: Option<VirtualMachineInstance>,
    context: &Context,
) -> Result<Done, KubeVirtError> {
    match (act, found) {
        (Act::Start, _) => start(machine, context).await,
        (Act::Stop | Act::Replace, Some(instance)) => {
            Ok(Done::with(stop(&instance, context).await?))
        }
        (Act::Wait(until), found) => {
            let wait = Timestamp::now().duration_until(until).unsigned_abs();
            Ok(Done { next: Action::requeue(wait), ..Done::with(found) })
        }
        (Act::Nothing | Act::Stop | Act::Replace, found) => Ok(Done::with(found)),
    }
}

/// Makes the instance. What refuses it is told by the machine, and it is tried again.
async fn start(machine: &VirtualMachine, context: &Context) -> Result<Done, KubeVirtError> {
    let instance = instance_of(machine);
    match context.instances(machine).create(&PostParams::default(), &instance).await {
        Ok(instance) => Ok(Done::with(Some(instance))),
        Err(kube::Error::Api(refusal)) => Ok(Done {
            failure: Some(format!("Failure while starting VMI: {}", refusal.message)),
            next: Action::requeue(RETRY),
            ..Done::with(None)
        }),
        Err(error) => Err(error.into()),
    }
}

fn instance_of(machine: &VirtualMachine) -> VirtualMachineInstance {
    let template = &machine.spec.template;
    let mut instance = VirtualMachineInstance::new(&machine.name_any(), template.spec.clone());
    let metadata = template.metadata.clone().unwrap_or_default();
    instance.metadata.labels = metadata.labels;
    let mut annotations = metadata.annotations.unwrap_or_default();
    let generation = machine.metadata.generation.unwrap_or_default();
    annotations.insert(GENERATION_ANNOTATION.to_owned(), generation.to_string());
    instance.metadata.annotations = Some(annotations);
    instance.metadata.owner_references = machine.controller_owner_ref(&()).map(|owner| vec![owner]);
    instance.metadata.finalizers = Some(vec![instance::FINALIZER.to_owned()]);
    instance
}

/// Deletes an instance; what is left of it.
async fn stop(
    instance: &VirtualMachineInstance,
    context: &Context,
) -> Result<Option<VirtualMachineInstance>, KubeVirtError> {
    let instances = context.instances(instance);
    let preconditions = Preconditions { uid: instance.uid(), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match instances.delete(&instance.name_any(), &params).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets a machine go that is being deleted, once its instance is gone.
async fn end(
    machine: &VirtualMachine,
    found: Option<VirtualMachineInstance>,
    context: &Context,
) -> Result<Action, KubeVirtError> {
    let Some(instance) = found else {
        write_finalizers(machine, &[], context).await?;
        return Ok(Action::await_change());
    };
    if instance.metadata.deletion_timestamp.is_none() {
        stop(&instance, context).await?;
    }
    write_status(machine, &Done::with(Some(instance)), false, context).await?;
    Ok(Action::await_change())
}

/// Writes our finalizer beside those of others, or takes it away.
async fn write_finalizers(
    machine: &VirtualMachine,
    ours: &[&str],
    context: &Context,
) -> Result<(), KubeVirtError> {
    let others = machine.finalizers().iter().map(String::as_str).filter(|it| *it != FINALIZER);
    let patch = Patch::Merge(json!({"metadata": {
        "resourceVersion": machine.resource_version(),
        "finalizers": others.chain(ours.iter().copied()).collect::<Vec<_>>(),
    }}));
    let machines = context.machines(machine);
    match machines.patch(&machine.name_any(), &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn write_status(
    machine: &VirtualMachine,
    done: &Done,
    is_replaced: bool,
    context: &Context,
) -> Result<(), KubeVirtError> {
    let seen = Seen {
        machine,
        instance: done.instance.as_ref(),
        waits_for_claim: waits_for_claim(machine, done, context).await?,
        failure: done.failure.clone(),
        is_replaced,
        backoff: context.backoff,
        now: Timestamp::now(),
    };
    let status = Some(seen.status());
    if status == machine.status {
        return Ok(());
    }
    let changed = VirtualMachine { status, ..machine.clone() };
    let machines = context.machines(machine);
    machines.replace_status(&machine.name_any(), &PostParams::default(), &changed).await?;
    Ok(())
}

/// Whether a claim of an instance that starts is there and not bound.
async fn waits_for_claim(
    machine: &VirtualMachine,
    done: &Done,
    context: &Context,
) -> Result<bool, KubeVirtError> {
    let starts = done.instance.as_ref().is_some_and(|it| !it.is_final() && it.phase() != "Running");
    if !starts {
        return Ok(false);
    }
    let namespace = machine.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    for claim in machine.spec.template.spec.volumes.iter().filter_map(|volume| volume.claim()) {
        let phase = claims.get_opt(claim).await?.and_then(|claim| claim.status?.phase);
        if phase.is_some_and(|phase| phase != "Bound") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if `owner` is the controlling owner of `object`.
pub(super) fn is_owner(owner: &impl ResourceExt, object: &impl ResourceExt) -> bool {
    let mut owners = object.owner_references().iter();
    owners.any(|it| it.controller == Some(true) && Some(&it.uid) == owner.uid().as_ref())
}
