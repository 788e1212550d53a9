//! An entry of `containers`: what of a Kubernetes container may be said here. The fields have the names and the JSON of
//! Kubernetes; what reaches the node or another account is not among them.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::Protocol;
use super::environment::{Variable, VariablesFrom};
use super::probe::Probe;
use super::resources::ResourceRequirements;
use super::security::SecurityContext;

const PORT_NAMES_DIFFER: &str = "!has(self.ports) || self.ports.all(port, !has(port.name) \
|| self.ports.exists_one(other, has(other.name) && other.name == port.name))";

const LIVENESS_SUCCEEDS_ONCE: &str = "!has(self.livenessProbe) || !has(self.livenessProbe.successThreshold) || self.livenessProbe.successThreshold == 1";

const STARTUP_SUCCEEDS_ONCE: &str = "!has(self.startupProbe) || !has(self.startupProbe.successThreshold) || self.startupProbe.successThreshold == 1";

/// One container of a workspace, and how many of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(PORT_NAMES_DIFFER).message(
        "two ports have one name: give each port a name of its own, or none"
    ),
    validation = Rule::new(LIVENESS_SUCCEEDS_ONCE).message(
        "successThreshold of livenessProbe can only be 1: leave it out"
    ),
    validation = Rule::new(STARTUP_SUCCEEDS_ONCE).message(
        "successThreshold of startupProbe can only be 1: leave it out"
    )
)]
pub struct Container {
    /// Its name within the workspace. It resolves there to the address of its Service where it serves ports; without any
    /// port, only the name of its Service does.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z](-?[a-z0-9])*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z](-?[a-z0-9])*$')")
        .message("name begins with a lower-case letter, goes on with lower-case letters, digits and single '-', and ends with a letter or digit, such as api-server"))]
    pub name: String,
    /// The container image, such as `registry.example.com/api-server:3.1.0`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^\S+$"))]
    #[x_kube(validation = Rule::new("self.matches('^\\\\S+$')")
        .message("image is the address of a container image without spaces, such as registry.example.com/api-server:3.1.0"))]
    pub image: String,
    /// Ports that it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["containerPort".into(), "protocol".into()]))]
    pub ports: Vec<ContainerPort>,
    /// How many pods of it run.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<Variable>,
    /// ConfigMaps and Secrets of which every key becomes an environment variable. Where two have one key the later wins,
    /// and `env` wins over both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub env_from: Vec<VariablesFrom>,
    /// What is run instead of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 32768)))]
    pub command: Vec<String>,
    /// Arguments, instead of those of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 32768)))]
    pub args: Vec<String>,
    /// What it needs and what it may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Whether it is alive; when not, it is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// Whether it is ready; only then it is reached by its name and counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// Whether it has started; until then the other probes wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Probe>,
    /// Secrets in the workspace's namespace with which its image is pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub image_pull_secrets: Vec<PullSecret>,
    /// With which rights it runs, within the Pod Security level `baseline`. Whatever is said here or not,
    /// `allowPrivilegeEscalation` is false and `seccompProfile` is `RuntimeDefault` where it does not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

impl Default for Container {
    fn default() -> Self {
        Self {
            name: String::new(),
            image: String::new(),
            ports: Vec::new(),
            replicas: one(),
            env: Vec::new(),
            env_from: Vec::new(),
            command: Vec::new(),
            args: Vec::new(),
            resources: None,
            liveness_probe: None,
            readiness_probe: None,
            startup_probe: None,
            image_pull_secrets: Vec::new(),
            security_context: None,
        }
    }
}

fn one() -> i32 {
    1
}

/// A port that a container serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    /// Its name, by which probes may call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^([a-z0-9]-?)*[a-z](-?[a-z0-9])*$"))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]-?)*[a-z](-?[a-z0-9])*$')")
        .message("name of a port is at most 15 lower-case letters, digits and single '-', with a letter among them, such as http"))]
    pub name: Option<String>,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// A Secret with which an image is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullSecret {
    /// Its name, in the workspace's namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("name is the name of a Secret in the workspace's namespace: lower-case letters, digits, '-' and '.'"))]
    pub name: String,
}
