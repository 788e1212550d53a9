//! What a container needs and may use.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

const REQUESTS_ARE_WITHIN_LIMITS: &str = "!has(self.requests) || !has(self.limits) || self.requests.all(resource, \
!(resource in self.limits) || !isQuantity(self.requests[resource]) || !isQuantity(self.limits[resource]) \
|| quantity(self.requests[resource]).compareTo(quantity(self.limits[resource])) <= 0)";

/// Only of these a node has more to give than it has. `kubernetes.io/` is the API server's own exception.
const OTHERS_ARE_HAD_AS_A_WHOLE: &str = "!has(self.requests) || self.requests.all(resource, \
resource in ['cpu', 'memory', 'ephemeral-storage'] || resource.contains('kubernetes.io/') \
|| (has(self.limits) && resource in self.limits && (!isQuantity(self.requests[resource]) || !isQuantity(self.limits[resource]) \
|| quantity(self.requests[resource]).compareTo(quantity(self.limits[resource])) >= 0)))";

const HUGE_PAGES_ARE_NOT_ALONE: &str = "!has(self.limits) || !self.limits.exists(resource, resource.startsWith('hugepages-')) \
|| 'cpu' in self.limits || 'memory' in self.limits \
|| (has(self.requests) && ('cpu' in self.requests || 'memory' in self.requests))";

/// What a container needs and what it may use at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(REQUESTS_ARE_WITHIN_LIMITS).message(
        "requests ask for more than limits allow: lower the request or raise the limit of the same resource"
    ),
    validation = Rule::new(OTHERS_ARE_HAD_AS_A_WHOLE).message(
        "what is not cpu, memory or ephemeral-storage is had as a whole: give it the same amount in requests and limits, or \
         name it in limits alone"
    ),
    validation = Rule::new(HUGE_PAGES_ARE_NOT_ALONE).message(
        "hugepages are had with cpu or memory beside them: add one of these to requests or limits"
    )
)]
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
