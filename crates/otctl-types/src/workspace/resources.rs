//! What a container needs and may use.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

const REQUESTS_ARE_WITHIN_LIMITS: &str = "!has(self.requests) || !has(self.limits) || self.requests.all(resource, \
!(resource in self.limits) || !isQuantity(self.requests[resource]) || !isQuantity(self.limits[resource]) \
|| quantity(self.requests[resource]).compareTo(quantity(self.limits[resource])) <= 0)";

/// What a container needs and what it may use at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(REQUESTS_ARE_WITHIN_LIMITS)
    .message("requests ask for more than limits allow: lower the request or raise the limit of the same resource"))]
pub struct ResourceRequirements {
    /// What is set aside for it on a node, such as `cpu: 500m` and `memory: 256Mi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::quantities")]
    pub requests: BTreeMap<String, String>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::quantities")]
    pub limits: BTreeMap<String, String>,
}
