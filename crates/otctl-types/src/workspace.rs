//! `Workspace`: virtual machines and containers that belong together, on an isolated network of their own.

#![expect(
    unreachable_pub,
    reason = "the derive of KubeSchema repeats the types in a private module"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "columns are told apart by their names, not by their types"
)]

pub mod container;
pub mod environment;
pub mod network;
pub mod probe;
pub mod resources;
pub mod security;
mod status;
mod virtual_machine;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::container::{Container, ContainerPort};
pub use self::network::Network;
pub use self::status::{
    ContainerReport, ContainerState, DiskOrigin, NetworkReport, OpenTurn, Phase, Resources,
    VirtualMachineReport, WorkspaceStatus,
};
pub use self::virtual_machine::{
    Instance, MachinePort, RunStrategy, VirtualMachine, VirtualMachineSpec,
};

/// Presence counts as well as the value: a rule on the field alone is not asked when it is removed or set anew.
const NAMESPACE_STAYS: &str = "has(self.__namespace__) == has(oldSelf.__namespace__) \
&& (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)";

const HAS_AN_ENTRY: &str = "(has(self.virtualMachines) && self.virtualMachines.size() > 0) \
|| (has(self.containers) && self.containers.size() > 0)";

const NAMES_ARE_SHARED: &str = "!has(self.virtualMachines) || !has(self.containers) \
|| !self.virtualMachines.exists(machine, self.containers.exists(container, container.name == machine.name))";

/// Virtual machines and containers that belong together: made in one namespace, reached by their names, and cut off from
/// everything else unless a door is opened. It waits for a slot of the policy (`kubectl get aq workspaces`) and for its
/// disk images; `Ready` says that every part of the spec runs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "pelotech.ot",
    version = "v1alpha1",
    kind = "Workspace",
    plural = "workspaces",
    shortname = "ws",
    category = "otctl",
    status = "WorkspaceStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.readyParts"),
    printcolumn(name = "NAMESPACE", type_ = "string", json_path = ".status.namespace"),
    printcolumn(name = "MESSAGE", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(NAMESPACE_STAYS).message(
        "namespace cannot change any more, nor be added or removed: create a new Workspace"
    ).reason(Reason::FieldValueForbidden),
    validation = Rule::new(HAS_AN_ENTRY).message(
        "a Workspace has at least one entry in virtualMachines or containers: add one"
    ),
    validation = Rule::new(NAMES_ARE_SHARED).message(
        "virtual machines and containers share one space of names, since each name resolves to one address: give each \
         entry a name of its own"
    )
)]
pub struct WorkspaceSpec {
    /// The namespace in which everything is made. Absent: the controller's `--default-namespace`. It must be one that the
    /// controller's chart lists, and cannot change any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("namespace is the name of a namespace that the controller's chart lists: lower-case letters, digits and '-'; leave it out for the default"))]
    pub namespace: Option<String>,
    /// Disk images that the workspace needs, and the virtual machines that run from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub virtual_machines: Vec<VirtualMachine>,
    /// Containers; each entry is a Deployment of one container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub containers: Vec<Container>,
    /// How far the workspace is cut off from everything else. Absent or null: isolated, with lookups of names.
    #[serde(default, deserialize_with = "or_default")]
    pub network: Network,
    /// True: pods and virtual machines stop, and a slot is given back; disks, claims, Services and addresses stay. Set
    /// back, it waits for a slot and starts again.
    #[serde(default)]
    pub suspended: bool,
    /// What becomes of disk images that Workspaces made from `image`, once the last Workspace that uses one is gone.
    #[serde(default)]
    pub image_retention: ImageRetention,
}

/// People write `network:` and nothing behind it. An API server has filled in the default before anybody reads it; a file
/// has not been there.
fn or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Network, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// What becomes of images that Workspaces made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ImageRetention {
    /// They stay.
    #[default]
    Retain,
    /// They go with the last Workspace that uses them. Images made by others are never deleted.
    Delete,
}

/// The protocol of a port.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    Serialize,
    JsonSchema,
)]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}
