//! KubeVirt's kinds, typed as far as they are looked into. Their schemas are the files in `crds/`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a machine is, and whether it is to run.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(group = "kubevirt.io", version = "v1", kind = "VirtualMachine", namespaced)]
#[kube(status = "MachineStatus", schema = "disabled", derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// `Always`, `RerunOnFailure`, `Once`, `Manual` or `Halted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// The older form: true is `Always`, false is `Halted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// What its instances are made from.
    pub template: InstanceTemplate,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Labels, annotations and specification of the instances of a machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InstanceTemplate {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The specification.
    pub spec: InstanceSpec,
}

/// A run of a machine.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(group = "kubevirt.io", version = "v1", kind = "VirtualMachineInstance", namespaced)]
#[kube(status = "InstanceStatus", schema = "disabled", derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// The virtual hardware.
    pub domain: Value,
    /// Disks and other volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<MachineVolume>,
    /// When the guest is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Value>,
    /// How long the guest may take to shut down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A volume of a machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineVolume {
    /// The name by which disks refer to it.
    pub name: String,
    /// A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A claim as a volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// The claim's name.
    pub claim_name: String,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl MachineVolume {
    /// The claim that holds it, if any: its own, or that of its data volume, which has the same name.
    pub(super) fn claim(&self) -> Option<&str> {
        match &self.persistent_volume_claim {
            Some(claim) => Some(&claim.claim_name),
            None => self.rest.get("dataVolume")?.get("name")?.as_str(),
        }
    }

    /// The Secret with the data of cloud-init, if any.
    pub(super) fn secret(&self) -> Option<&str> {
        let sources = ["cloudInitNoCloud", "cloudInitConfigDrive"];
        let mut sources = sources.iter().filter_map(|source| self.rest.get(*source));
        sources.find_map(|source| source.get("secretRef")?.get("name")?.as_str())
    }
}

/// What has become of a machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Whether it has an instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// Whether that is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
    /// What `kubectl get vm` shows.
    #[serde(default)]
    pub printable_status: String,
    /// `Ready`, and those of the instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The run strategy that was acted on last; none before the first instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// The generation that the instance was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation that instances are to be made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
    /// Instances in a row that failed before they ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<StartFailure>,
    /// What is still to be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_change_requests: Vec<StateChangeRequest>,
}

/// Instances in a row that failed before they ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartFailure {
    /// How many.
    #[serde(default)]
    pub consecutive_fail_count: u32,
    /// The last one.
    #[serde(default, rename = "lastFailedVMIUID")]
    pub last_failed_vmi_uid: Option<String>,
    /// When the next one is made.
    #[serde(default)]
    pub retry_after_timestamp: Option<Time>,
}

/// Something that is to be done with the instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StateChangeRequest {
    /// `Start` or `Stop`.
    pub action: String,
}

/// What has become of an instance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `Ready`, and what keeps it from starting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Its pods by UID, with their nodes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub active_pods: Map<String, Value>,
    /// When it came into each phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<PhaseTransition>,
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its first address.
    pub ip_address: String,
    /// All addresses.
    pub ip_addresses: Vec<String>,
}

/// When an instance came into a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// The phase.
    pub phase: String,
    /// When.
    pub phase_transition_timestamp: Time,
}

/// A condition of a machine or an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True` or `False`.
    pub status: String,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was looked at last.
    #[serde(default)]
    pub last_probe_time: Option<Time>,
    /// Since when it is what it is.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
}

impl Condition {
    pub(super) fn new(type_: &str, is_true: bool, (reason, message): (&str, &str)) -> Self {
        Self {
            type_: type_.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_probe_time: None,
            last_transition_time: None,
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of this type.
pub(super) fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Gives each condition the time since when it has its status.
pub(super) fn timed(
    mut now: Vec<Condition>,
    before: &[Condition],
    at: Timestamp,
) -> Vec<Condition> {
    for condition in &mut now {
        let was = find(before, &condition.type_).filter(|was| was.status == condition.status);
        let since = was.and_then(|was| was.last_transition_time.clone());
        condition.last_transition_time = since.or(Some(Time(at)));
    }
    now
}

impl VirtualMachineInstance {
    /// Its phase; empty before it was looked at.
    pub(super) fn phase(&self) -> &str {
        self.status.as_ref().map_or("", |status| status.phase.as_str())
    }

    /// True once it has ended.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// True if it has ever run.
    pub(super) fn has_run(&self) -> bool {
        let status = self.status.iter();
        let mut transitions = status.flat_map(|status| &status.phase_transition_timestamps);
        transitions.any(|transition| transition.phase == "Running")
    }

    /// The condition of this type.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        find(&self.status.as_ref()?.conditions, type_)
    }

    /// True if that condition is False for this reason.
    pub(super) fn fails(&self, type_: &str, reason: &str) -> bool {
        self.condition(type_).is_some_and(|it| !it.is_true() && it.reason == reason)
    }
}
