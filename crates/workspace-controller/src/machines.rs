//! `VirtualMachine` of `kubevirt.io/v1`, with the fields used here. Hand-written: KubeVirt's kinds have thousands of
//! fields, and it fills most of them in itself.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Resource;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};

/// A virtual machine, running or not.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachine {
    /// Name, owner and labels.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is and whether it runs.
    #[serde(default)]
    pub spec: VirtualMachineSpec,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineStatus>,
}

impl Resource for VirtualMachine {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "VirtualMachine".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "kubevirt.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "virtualmachines".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VirtualMachine {
    /// Whether a claim of that name is one of its disks.
    pub fn uses(&self, claim: &str) -> bool {
        self.claims().any(|name| name == claim)
    }

    /// Name of the claim that is its first disk.
    pub fn claim(&self) -> Option<&str> {
        self.claims().next()
    }

    fn claims(&self) -> impl Iterator<Item = &str> {
        let volumes = self.spec.template.spec.volumes.iter().flatten();
        let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.map(|source| source.claim_name.as_str())
    }
}

/// What a machine is and whether it runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// When KubeVirt starts and stops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// Cores and memory by a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<Matcher>,
    /// What suits the guest, by a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<Matcher>,
    /// What each run of it is made from.
    #[serde(default)]
    pub template: MachineTemplate,
}

/// Names an instance type or a preference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matcher {
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// What each run of a machine is made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplate {
    /// Labels of the instance, and so of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The machine itself.
    #[serde(default)]
    pub spec: InstanceSpec,
}

/// The machine itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// Its hardware.
    #[serde(default)]
    pub domain: Domain,
    /// The networks that its interfaces are connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<MachineNetwork>>,
    /// What its disks are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<MachineVolume>>,
}

/// The hardware of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Its processor; absent with an instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Its memory; absent with an instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Its disks and interfaces.
    #[serde(default)]
    pub devices: Devices,
}

/// The processor of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Cores that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<i32>,
}

/// The memory of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Memory that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
}

/// Disks and interfaces of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Its disks, each a volume of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<Disk>>,
    /// Its interfaces, each on a network of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<Interface>>,
}

/// A disk of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// The name of its volume.
    #[serde(default)]
    pub name: String,
    /// How the guest sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
}

/// How the guest sees a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskTarget {
    /// The bus; absent: what the preference says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
}

/// An interface of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// The name of its network.
    #[serde(default)]
    pub name: String,
    /// Behind the address of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Nothing>,
}

/// A network of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineNetwork {
    /// Its name in this machine.
    #[serde(default)]
    pub name: String,
    /// The network of the cluster's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Nothing>,
    /// A secondary network, which no network policy covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multus: Option<Multus>,
}

/// A secondary network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Multus {
    /// The NetworkAttachmentDefinition.
    #[serde(default)]
    pub network_name: String,
}

/// A field that is there and says nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Nothing {}

/// What a disk is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineVolume {
    /// The name of its disk.
    #[serde(default)]
    pub name: String,
    /// A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimSource>,
    /// What the guest sets itself up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInit>,
}

/// A claim as a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    /// Its name.
    #[serde(default)]
    pub claim_name: String,
}

/// What the guest sets itself up with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInit {
    /// The Secret with the key `userdata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// A Secret in the machine's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// What became of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// `metadata.generation` that this status is about; older KubeVirts do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether an instance exists.
    #[serde(default)]
    pub created: bool,
    /// Whether the guest runs and is ready.
    #[serde(default)]
    pub ready: bool,
    /// KubeVirt's word for its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printable_status: Option<String>,
    /// What is the case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineCondition>,
}

/// A condition of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineCondition {
    /// What it is about.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// Why, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
