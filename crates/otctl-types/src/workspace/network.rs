//! How far a workspace is cut off from everything else, and the doors in its wall.

mod metadata;

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::metadata::metadata_addresses;

use super::Protocol;

/// A door within a metadata address is refused; where one lies inside a wider door it is to be cut out. Addresses are
/// compared, not texts.
fn is_no_metadata_address() -> String {
    let metadata: Vec<_> = metadata_addresses().iter().map(|it| format!("'{it}'")).collect();
    let metadata = metadata.join(", ");
    format!(
        "!isCIDR(self) || ![{metadata}].exists(metadata, cidr(metadata).containsIP(cidr(self).ip()) \
         && cidr(metadata).prefixLength() <= cidr(self).prefixLength())"
    )
}

/// Host bits would be ignored, and a typing error with them.
const HAS_NO_HOST_BITS: &str = "!isCIDR(self) || cidr(self) == cidr(self).masked()";

const ONE_KIND_OF_PEER: &str =
    "has(self.cidr) != (has(self.namespaceSelector) || has(self.podSelector))";

/// How far a workspace is cut off from everything else.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// True: only the workspace's own parts, lookups of names and the doors below. False: everything that the cluster
    /// lets through, and `NetworkReady` says so.
    #[serde(default = "yes")]
    pub isolate: bool,
    /// Whether names can be looked up in spite of isolation. Without it parts still reach each other by their names.
    #[serde(default = "yes")]
    pub dns: bool,
    /// Who else may reach the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ingress: Vec<Ingress>,
    /// Whom else the workspace may reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub egress: Vec<Egress>,
}

impl Default for Network {
    fn default() -> Self {
        Self { isolate: yes(), dns: yes(), ingress: Vec::new(), egress: Vec::new() }
    }
}

fn yes() -> bool {
    true
}

/// A door into a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// Who may come in.
    pub from: Peer,
    /// To which ports of the workspace. Absent: to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".into(), "protocol".into()]))]
    pub ports: Vec<DoorPort>,
}

/// A door out of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// Who may be reached.
    pub to: Peer,
    /// On which of their ports. Absent: on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".into(), "protocol".into()]))]
    pub ports: Vec<DoorPort>,
}

/// Who is at the other side of a door: pods, or addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_KIND_OF_PEER)
    .message("a door leads either to a cidr or to pods, by namespaceSelector, podSelector or both: write one door for each"))]
pub struct Peer {
    /// Namespaces by their labels; `{}` for all. With `podSelector`: those pods in these namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// Pods by their labels; `{}` for all. Without `namespaceSelector`: in the workspace's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<Selector>,
    /// Addresses, such as `10.0.0.0/8` or `2001:db8::/32`; one address is a `/32` or a `/128`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 43), regex(pattern = r"^[0-9a-f.:]+/[0-9]{1,3}$"))]
    #[x_kube(
        validation = Rule::new("isCIDR(self)")
            .message("cidr is an address and the length of its network, such as 10.0.0.0/8, or 10.1.2.3/32 for one address"),
        validation = Rule::new(HAS_NO_HOST_BITS)
            .message("cidr has bits set behind the length of its network: write 10.1.0.0/16 for the network, or 10.1.2.3/32 for one address"),
        validation = Rule::new(is_no_metadata_address())
            .message("cidr is an address at which a cloud hands out its machines' credentials, and no door leads there: give the workload a Secret of its own")
    )]
    pub cidr: Option<String>,
}

/// Objects by their labels; an empty one selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels that they have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::labels")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that they all meet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<Requirement>,
}

/// What the label `key` of an object must be.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)")
    .message("In and NotIn have at least one of values; Exists and DoesNotExist have none"))]
pub struct Requirement {
    /// The label.
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^([a-z0-9]+((-+|[.])[a-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    #[x_kube(validation = Rule::new("self.indexOf('/') <= 253 && self.matches('^([a-z0-9]+((-+|[.])[a-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')")
        .message("key is the key of a label: at most 63 letters, digits, '-', '_' and '.', and before a '/' the name of a domain, such as app or example.com/team"))]
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what it is compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(max = 63), regex(pattern = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"))
    )]
    #[x_kube(validation = Rule::new("self.all(value, value.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))")
        .message("values are values of a label: letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Operator {
    /// It is one of the values.
    In,
    /// It is none of the values, or absent.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// A port, or a range of ports, of a door.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.endPort) || self.endPort >= self.port")
    .message("endPort is the last port of a range that begins at port: it is not below port"))]
pub struct DoorPort {
    /// The port, or the first of a range.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The last of a range of ports. Absent: `port` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub end_port: Option<i32>,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
}
