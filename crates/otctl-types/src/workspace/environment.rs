//! Environment variables of a container.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

const ONE_SOURCE_OF_A_VALUE: &str = "[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef)].filter(given, given).size() == 1";

/// A pattern would cost more than an API server allows a rule on so many variables, so that this has less in it than the
/// field's. A domain has at most 253 characters.
const IS_A_KNOWN_FIELD: &str = "self in ['metadata.name', 'metadata.namespace', 'metadata.uid', 'status.podIP', \
'status.podIPs', 'status.hostIP', 'status.hostIPs'] || (self.endsWith(\"']\") \
&& ((self.startsWith(\"metadata.labels['\") && self.indexOf('/') <= 270) \
|| (self.startsWith(\"metadata.annotations['\") && self.indexOf('/') <= 275)))";

/// One environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.value) || !has(self.valueFrom)")
    .message("an environment variable has either value or valueFrom: remove one of them"))]
pub struct Variable {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$')")
        .message("name of an environment variable is of letters, digits, '_', '-' and '.', and does not begin with a digit"))]
    pub name: String,
    /// Its value. `$(NAME)` stands for a variable before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// Where the value of a variable comes from: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_SOURCE_OF_A_VALUE)
    .message("valueFrom has exactly one of configMapKeyRef, secretKeyRef and fieldRef"))]
pub struct ValueFrom {
    /// A key of a ConfigMap in the workspace's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyReference>,
    /// A key of a Secret in the workspace's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyReference>,
    /// A field of the pod itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldReference>,
}

/// A key of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReference {
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("name is the name of a ConfigMap or Secret in the workspace's namespace: lower-case letters, digits, '-' and '.'"))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$')")
        .message("key is a key of the ConfigMap or Secret: letters, digits, '-', '_' and '.', and does not begin with '..'"))]
    pub key: String,
    /// Whether the container starts without the variable when there is no such key. Absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldReference {
    /// `metadata.name`, `metadata.namespace`, `metadata.uid`, `metadata.labels['KEY']`, `metadata.annotations['KEY']`,
    /// `status.podIP`, `status.podIPs`, `status.hostIP` or `status.hostIPs`.
    #[schemars(
        length(min = 1, max = 384),
        regex(
            pattern = r"^(metadata[.](name|namespace|uid|labels\['([a-z0-9]+((-+|[.])[a-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'\]|annotations\['([A-Za-z0-9]+((-+|[.])[A-Za-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'\])|status[.](podIPs?|hostIPs?))$"
        )
    )]
    #[x_kube(validation = Rule::new(IS_A_KNOWN_FIELD)
        .message("fieldPath is metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], status.podIP, status.podIPs, status.hostIP or status.hostIPs"))]
    pub field_path: String,
}

/// A ConfigMap or Secret of which every key becomes a variable: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.configMapRef) != has(self.secretRef)")
    .message("an entry of envFrom has either configMapRef or secretRef: write two entries for both"))]
pub struct VariablesFrom {
    /// A ConfigMap in the workspace's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<NameReference>,
    /// A Secret in the workspace's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
}

/// A ConfigMap or Secret as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("name is the name of a ConfigMap or Secret in the workspace's namespace: lower-case letters, digits, '-' and '.'"))]
    pub name: String,
    /// Whether the container starts when there is none of that name. Absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}
