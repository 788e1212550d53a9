//! An entry of `virtualMachines`: a disk image, and the KubeVirt machine that runs from it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Protocol;
use crate::VMDiskImageSpec;

/// One virtual machine of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachine {
    /// Its name within the workspace. It resolves there to the address of its Service where it serves ports; without any
    /// port, only the name of its Service does.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z](-?[a-z0-9])*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z](-?[a-z0-9])*$')")
        .message("name begins with a lower-case letter, goes on with lower-case letters, digits and single '-', and ends with a letter or digit, such as database-vm"))]
    pub name: String,
    /// Its disk, and how it runs.
    pub spec: VirtualMachineSpec,
}

/// The disk of a virtual machine, and how it runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// The VMDiskImage in the workspace's namespace that is its disk.
    #[serde(rename = "VMDiskImageName")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("VMDiskImageName is the name of a VMDiskImage in the workspace's namespace, see kubectl get vmdi: lower-case letters, digits, '-' and '.'"))]
    pub vm_disk_image_name: String,
    /// The spec of that image: it is made from this when no image of that name exists. Absent: the image must exist, or be
    /// made by somebody else. One that exists is used only when its source is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<VMDiskImageSpec>,
    /// Pins one revision of the image, as its `status.current.revision` names it. Absent: the one that is current when the
    /// machine's disk is made; later revisions never touch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub revision: Option<String>,
    /// Runs a KubeVirt VirtualMachine from a copy of the image. Absent: the workspace has the image, and runs no machine
    /// from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
}

/// How a virtual machine runs: with an `instancetype`, or with `memory` and `cores`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.instancetype) || (!has(self.cores) && !has(self.memory))").message(
        "an instancetype brings cores and memory: remove cores and memory, or remove instancetype"
    ),
    validation = Rule::new("has(self.instancetype) || has(self.memory)").message(
        "a virtual machine needs memory, such as 4Gi, or an instancetype, see kubectl get virtualmachineclusterinstancetype"
    )
)]
pub struct Instance {
    /// When KubeVirt starts and stops it.
    #[serde(default)]
    pub run_strategy: RunStrategy,
    /// A VirtualMachineClusterInstancetype, which says how many cores and how much memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("instancetype is the name of a VirtualMachineClusterInstancetype, see kubectl get virtualmachineclusterinstancetype"))]
    pub instancetype: Option<String>,
    /// A VirtualMachineClusterPreference: what suits the guest, such as its buses and its firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("preference is the name of a VirtualMachineClusterPreference, see kubectl get virtualmachineclusterpreference"))]
    pub preference: Option<String>,
    /// Cores that the guest sees. Absent without an `instancetype`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 512))]
    pub cores: Option<i32>,
    /// Memory that the guest sees, such as `4Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
    )]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('64Ti')) <= 0")
        .message("memory is a size of at least 1Mi and at most 64Ti, such as 4Gi"))]
    pub memory: Option<String>,
    /// Ports that the guest serves. Absent: all of them are reached by the machine's own address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".into(), "protocol".into()]))]
    pub ports: Vec<MachinePort>,
    /// A Secret in the workspace's namespace with the cloud-init data of the guest under the key `userdata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("cloudInitSecretRef is the name of a Secret in the workspace's namespace: lower-case letters, digits, '-' and '.'"))]
    pub cloud_init_secret_ref: Option<String>,
}

/// When KubeVirt starts and stops a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RunStrategy {
    /// It runs, and is started again whenever it ends.
    #[default]
    Always,
    /// It does not run.
    Halted,
    /// It is started and stopped by hand.
    Manual,
    /// It is started again only when it failed.
    RerunOnFailure,
    /// It runs once, and is never started again.
    Once,
}

impl RunStrategy {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Halted => "Halted",
            Self::Manual => "Manual",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Once => "Once",
        }
    }
}

/// A port that a guest serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachinePort {
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Protocol,
}
