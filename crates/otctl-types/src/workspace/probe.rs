//! Probes of a container. None names another host: a probe asks its own pod.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const ONE_QUESTION: &str = "[has(self.httpGet), has(self.tcpSocket), has(self.exec), has(self.grpc)].filter(given, given).size() == 1";

/// A question that the node asks a container again and again: exactly one of `httpGet`, `tcpSocket`, `exec` and `grpc`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_QUESTION)
    .message("a probe has exactly one of httpGet, tcpSocket, exec and grpc"))]
pub struct Probe {
    /// A request that is answered with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// A connection that is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// A command in the container that ends with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Exec>,
    /// The health service of gRPC, which answers that it is serving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,
    /// Seconds after the start until it is first asked. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds from one question to the next. Absent: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub period_seconds: Option<i32>,
    /// Seconds in which it must be answered. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: Option<i32>,
    /// Successes in a row after which it counts as succeeded. Absent: 1, and never more but for `readinessProbe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub success_threshold: Option<i32>,
    /// Failures in a row after which it counts as failed. Absent: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub failure_threshold: Option<i32>,
}

/// A request of a probe.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The path. Absent: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub path: Option<String>,
    /// The port, by its number or by its name in `ports`.
    #[schemars(schema_with = "crate::schema::port")]
    pub port: IntOrString,
    /// How it is asked. Absent: `HTTP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub http_headers: Vec<Header>,
}

/// How a request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Scheme {
    /// Plain.
    #[default]
    #[serde(rename = "HTTP")]
    Http,
    /// With TLS; the certificate is not checked.
    #[serde(rename = "HTTPS")]
    Https,
}

/// A header of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-A-Za-z0-9]+$"))]
    #[x_kube(validation = Rule::new("self.matches('^[-A-Za-z0-9]+$')")
        .message("name of a header is of letters, digits and '-', such as X-Probe"))]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// A connection of a probe.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpSocket {
    /// The port, by its number or by its name in `ports`.
    #[schemars(schema_with = "crate::schema::port")]
    pub port: IntOrString,
}

/// A command of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exec {
    /// The command and its arguments; no shell reads it.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
}

/// A question to the health service of gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grpc {
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The service that is asked about. Absent: the server as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service: Option<String>,
}
