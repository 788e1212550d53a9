//! What a virtual machine says of itself.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use otctl_types::condition::Reason;
use otctl_types::workspace::{Instance, RunStrategy};

use super::{NOT_TAKEN_UP, Part, pods};
use crate::machines::{MachineCondition, VirtualMachine, VirtualMachineStatus};

/// The container in which KubeVirt runs a guest.
const LAUNCHER: &str = "compute";

/// What a virtual machine says of itself: `pods` are those of its entry.
pub fn machine(instance: &Instance, machine: Option<&VirtualMachine>, pods: &[Arc<Pod>]) -> Part {
    let Some(machine) = machine else { return Part::not_made() };
    let Some(status) = machine.status.as_ref() else {
        return Part::progressing("KubeVirt has not taken it up yet");
    };
    let strategy = machine.spec.run_strategy.as_deref();
    if strategy == Some(RunStrategy::Halted.as_str()) {
        return halted(instance, status);
    }
    // KubeVirt tells it of a guest that is there.
    let is_behind =
        status.observed_generation.is_some_and(|it| Some(it) < machine.metadata.generation);
    if status.created && is_behind {
        return behind(machine, status);
    }
    if strategy != Some(instance.run_strategy.as_str()) {
        return Part::changing(NOT_TAKEN_UP);
    }
    if status.ready || may_rest(instance.run_strategy, status) {
        return Part::running();
    }
    pods::trouble(LAUNCHER, pods).or_else(|| trouble(status)).unwrap_or_else(|| under_way(status))
}

/// The last change has not reached the guest. Some changes do only when it is started anew: that stops it for a moment, and
/// is left to people.
fn behind(machine: &VirtualMachine, status: &VirtualMachineStatus) -> Part {
    let Some(words) = told(status, "RestartRequired", "True") else {
        return Part::changing(NOT_TAKEN_UP);
    };
    let metadata = &machine.metadata;
    let (name, namespace) = (metadata.name.as_deref(), metadata.namespace.as_deref());
    let message = format!(
        "the last change takes effect when the machine is restarted: virtctl restart {} -n {}; KubeVirt says: {words}",
        name.unwrap_or_default(),
        namespace.unwrap_or_default()
    );
    Part { reason: Reason::RestartRequired, ..Part::changing(message) }
}

/// As its entry says, or because the workspace is suspended.
fn halted(instance: &Instance, status: &VirtualMachineStatus) -> Part {
    if status.created {
        return Part::changing("it is being stopped");
    }
    if instance.run_strategy == RunStrategy::Halted { Part::running() } else { Part::stopped() }
}

/// Whether it is as it should be without running: its entry lets people stop it, or lets it end.
fn may_rest(strategy: RunStrategy, status: &VirtualMachineStatus) -> bool {
    let is_stopped = word(status) == "Stopped";
    match strategy {
        RunStrategy::Manual => is_stopped,
        // Before its first run it is stopped too.
        RunStrategy::RerunOnFailure | RunStrategy::Once => is_stopped && status.created,
        RunStrategy::Always | RunStrategy::Halted => false,
    }
}

/// KubeVirt's word for its state.
fn word(status: &VirtualMachineStatus) -> &str {
    status.printable_status.as_deref().unwrap_or_default()
}

/// What is wrong, in KubeVirt's words.
fn trouble(status: &VirtualMachineStatus) -> Option<Part> {
    let reason = match word(status) {
        "ErrorUnschedulable" => Reason::Unschedulable,
        "ErrImagePull" | "ImagePullBackOff" => Reason::ImagePullBackOff,
        "CrashLoopBackOff" => Reason::CrashLoopBackOff,
        "ErrorPvcNotFound" | "ErrorDataVolumeNotFound" | "DataVolumeError" => {
            Reason::ContainerFailed
        }
        "Running" | "Paused" | "Unknown" => Reason::NotReady,
        _ if told(status, "Failure", "True").is_some() => Reason::ContainerFailed,
        _ => return None,
    };
    let words = told(status, "Failure", "True")
        .or_else(|| told(status, "PodScheduled", "False"))
        .or_else(|| told(status, "Ready", "False"));
    let said = words.map_or_else(String::new, |words| format!(": {words}"));
    let message = format!("KubeVirt says {}{said}", word(status));
    let awaits_disk = words.is_some_and(|words| words.contains(pods::UNBOUND));
    Some(if awaits_disk { Part::progressing(message) } else { Part::degraded(reason, message) })
}

/// The sentence of a condition that has this status.
fn told<'a>(status: &'a VirtualMachineStatus, kind: &str, value: &str) -> Option<&'a str> {
    let is_it = |it: &&MachineCondition| it.kind == kind && it.status == value;
    let condition = status.conditions.iter().find(is_it)?;
    condition.message.as_deref().or(condition.reason.as_deref()).filter(|text| !text.is_empty())
}

fn under_way(status: &VirtualMachineStatus) -> Part {
    match word(status) {
        "" => Part::progressing("KubeVirt has not taken it up yet"),
        word => Part::progressing(format!("KubeVirt says {word}")),
    }
}
