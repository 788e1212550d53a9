//! `AdmissionQueue`: the ledger of slots of one queue, and the policy in effect. Its protocol is in `docs/ledger.md`.

#![expect(
    unreachable_pub,
    reason = "the derive of KubeSchema repeats the types in a private module"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "columns are told apart by their names, not by their types"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::names::LAST_ATTEMPT;

/// A queue with a global limit. Made and kept by the controllers; its status is the ledger of the slots in use. Reading
/// it shows what runs, what waits and which policy is in effect. There is nothing to set here: limits come from the
/// policy ConfigMap.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "pelotech.ot",
    version = "v1alpha1",
    kind = "AdmissionQueue",
    plural = "admissionqueues",
    shortname = "aq",
    category = "otctl",
    status = "AdmissionQueueStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "ACTIVE", type_ = "integer", json_path = ".status.activeCount"),
    printcolumn(name = "LIMIT", type_ = "integer", json_path = ".status.limit"),
    printcolumn(name = "WAITING", type_ = "integer", json_path = ".status.waitingCount"),
    printcolumn(
        name = "POLICY",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"PolicyValid\")].reason"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionQueueSpec {}

/// The ledger of a queue and the policy in effect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionQueueStatus {
    /// How many may be active at once: `concurrency` of the policy that the last admission was decided on, or in the queue
    /// of workspaces its `workspaceConcurrency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub limit: Option<i32>,
    /// The slots in use. An entry is the slot: what is not listed here does not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub active: Vec<ActiveEntry>,
    /// The snapshots that may be taken: an image that is listed here asks for its snapshot, up to `snapshotConcurrency`
    /// at once. Apart from the slots in `active`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub snapshots: Vec<SnapshotEntry>,
    /// Number of entries in `active`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub active_count: Option<i32>,
    /// How many objects wait for a slot, or, of images, for the end of their backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub waiting_count: Option<i32>,
    /// Ticket of the object that has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub oldest_waiting_ticket: Option<String>,
    /// The value in effect of every key of the policy ConfigMap, defaults included. A key that cannot be read keeps the
    /// value that stands here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::texts")]
    pub policy: BTreeMap<String, String>,
    /// `PolicyValid`: whether every key of the policy ConfigMap could be read; the message lists the problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// One slot in use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveEntry {
    /// Namespace of the object that holds the slot; empty when it is cluster-scoped, as a Workspace is.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the object that holds the slot.
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID of the object that holds the slot; another object of the same name does not.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Number of the attempt of an image, or of the turn of a Workspace, that the slot was given for. It pays for this
    /// one only.
    #[schemars(range(min = 1, max = LAST_ATTEMPT))]
    pub attempt: i64,
    /// Ticket with which the slot was won.
    #[schemars(length(max = 64))]
    pub ticket: String,
    /// Host of the source, for `concurrencyPerHost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// When the slot was given.
    pub since: Time,
}

/// One snapshot that may be taken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotEntry {
    /// Namespace of the image.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the image.
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID of the image.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// resourceVersion of the image that this was decided on: an older view of it takes nothing back.
    #[schemars(length(max = 64))]
    pub version: String,
    /// When it was given.
    pub since: Time,
}
