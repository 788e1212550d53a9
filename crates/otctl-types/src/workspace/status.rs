//! What is known of a workspace: its phase, what decisions remember, and what people see.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::LAST_ATTEMPT;

/// Where a workspace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// Not everything runs yet, or not any more: it waits, is made, or heals.
    Provisioning,
    /// Every part of the spec runs.
    Ready,
    /// Stopped, because `suspended` is true.
    Suspended,
    /// No automatic step will help; `message` says what a person must change.
    Failed,
}

impl Phase {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::Ready => "Ready",
            Self::Suspended => "Suspended",
            Self::Failed => "Failed",
        }
    }
}

/// What is known of a workspace. `namespace`, `ticket`, `lastTurn`, `openTurn`, `startedParts`, `startedMachines`, `unreachableParts`
/// and `disks` are memory that decisions rest on; everything else is output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// `metadata.generation` that this status was judged on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the workspace stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The namespace in which everything is made. Set when the workspace is accepted, and what counts from then on,
    /// whatever the controller's default is later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// One sentence for a person: the first thing that is not yet true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// How many parts are as they should be, of how many: `3/5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub ready_parts: Option<String>,
    /// `Accepted`, `Admitted`, `CreatingWorks`, `NetworkReady`, `ImagesReady`, `VirtualMachinesReady`, `ContainersReady`,
    /// `Ready`; `Reconciling`, `Stalled` and `Deleting` only while True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The place in the order of admission; lower goes first. None of one that waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ticket: Option<String>,
    /// When the ticket was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// The highest turn number used so far. It only grows, so that a slot given for an earlier turn pays for no later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = LAST_ATTEMPT))]
    pub last_turn: Option<i64>,
    /// The turn that a slot was given for and that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_turn: Option<OpenTurn>,
    /// Names of the entries whose first start is over, because they were ready, because the policy's
    /// `provisioningTimeout` has passed, or because the API server calls something of them, or their network policy,
    /// invalid. They heal without a slot, as what they had their start as. A suspension empties it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub started_parts: Vec<String>,
    /// Those of `startedParts` that had their start as virtual machines. An entry that is moved from `containers` to
    /// `virtualMachines` under its name, or back, takes a slot to start as what it is now. Absent where nothing has had its
    /// start, and where an older version wrote the status: then `startedParts` counts for either kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub started_machines: Option<Vec<String>>,
    /// Names of the entries whose Service was refused when it was asked for last. The others wait for its address as long as
    /// the entry is being started, and are made without it then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub unreachable_parts: Vec<String>,
    /// What the disks of `virtualMachines` were made from, by the names of their entries; gone with its entry. An entry that
    /// is in `startedParts`, and is not `copied` though it has an `instance` by now, takes a slot to start its machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["entry".into()]))]
    pub disks: Vec<DiskOrigin>,
    /// What is known of each part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_status: Option<Resources>,
}

/// A turn: the work that one slot pays for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTurn {
    /// Its number; equals `attempt` of the slot in the AdmissionQueue.
    #[schemars(range(min = 1, max = LAST_ATTEMPT))]
    pub number: i64,
    /// When it began; `provisioningTimeout` counts from here.
    pub since: Time,
}

/// What the disk of an entry was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskOrigin {
    /// Name of the entry.
    #[schemars(length(max = 40))]
    pub entry: String,
    /// Name of the VMDiskImage. The entry may name another one since.
    #[schemars(length(max = 253))]
    pub image: String,
    /// The revision of that image.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// Whether the disk is its machine's own. False of an entry that runs no machine and only uses the image; if it gains an
    /// `instance`, until the start of that machine is over.
    pub copied: bool,
}

/// What is known of each part of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The disk images and virtual machines, by the names of their entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub virtual_machines: Vec<VirtualMachineReport>,
    /// The containers, by the names of their entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub containers: Vec<ContainerReport>,
    /// The network policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkReport>,
}

/// What is known of a virtual machine and its disk image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineReport {
    /// Name of the entry.
    #[schemars(length(max = 40))]
    pub name: String,
    /// Phase of the VMDiskImage that the entry names: `Queued`, `Syncing`, `Snapshotting`, `Succeeded` or `Failed`; `NotFound` when there is
    /// none of that name, and absent while the image has not been looked at by its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub phase: Option<String>,
    /// A sentence for people, of the image or of the machine: the first thing that is not yet true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// Name of the VMDiskImage that the entry names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub image: Option<String>,
    /// The revision of that image that its disk was made from; absent while there is none, or when it was made from another
    /// image: see `disks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// What KubeVirt says of the machine, such as `Running`; only with `instance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub machine: Option<String>,
    /// The Service by which it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub service: Option<String>,
}

/// What is known of a container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Name of the entry.
    #[schemars(length(max = 40))]
    pub name: String,
    /// Where it stands.
    pub status: ContainerState,
    /// A sentence for people, with the words of the node or of the API server where something is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// The Service by which it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub service: Option<String>,
}

/// Where a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ContainerState {
    /// Nothing of it has been made yet.
    Pending,
    /// Its pods are starting or being replaced.
    Progressing,
    /// As many pods as asked for are ready, of this spec.
    Running,
    /// Something is wrong that may pass by itself; the message says what.
    Degraded,
    /// A person must change something; the message says what.
    Failed,
}

impl ContainerState {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Progressing => "Progressing",
            Self::Running => "Running",
            Self::Degraded => "Degraded",
            Self::Failed => "Failed",
        }
    }
}

/// What is known of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkReport {
    /// Name of the NetworkPolicy; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub policy: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}
