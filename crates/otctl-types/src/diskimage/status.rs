//! What is known of an image: its phase, what decisions remember, and what people see.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::import::SourceFacts;
use crate::names::LAST_ATTEMPT;

/// Where an image stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// Waits: for a slot, for its next attempt, or for something that is missing.
    Queued,
    /// Holds a slot.
    Syncing,
    /// The data is complete; its snapshot is being taken.
    Snapshotting,
    /// Usable.
    Succeeded,
    /// No automatic step will help; `message` says what a person must change.
    Failed,
}

/// What is known of an image. `ticket`, `budget`, `attempts`, `lastAttempt`, `openAttempt`, `source`, `revision`, `current`,
/// `nextRetryAt`, `lastLossAt` and `lateSnapshots` are memory that decisions rest on; everything else is output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMDiskImageStatus {
    /// `metadata.generation` that this status was judged on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the image stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// One sentence for a person: the first thing that is not yet true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// `Accepted`, `Admitted`, `Synced`, `Snapshotted`, `Available`, `Ready`; `Reconciling` and `Stalled` only while True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The place in the order of admission; lower goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ticket: Option<String>,
    /// When the ticket was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// What the probe saw of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFacts>,
    /// The highest attempt number used so far. It only grows, across budgets and retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = LAST_ATTEMPT))]
    pub last_attempt: Option<i64>,
    /// The attempt that runs, with the UID of its Job. A Job that is not recorded here is never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_attempt: Option<OpenAttempt>,
    /// The downloads this image may still make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The last ten attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub attempts: Vec<Attempt>,
    /// When the next attempt may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Time>,
    /// When the last copy of the data was found lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_loss_at: Option<Time>,
    /// Snapshots of this data that were not ready in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_snapshots: Option<LateSnapshots>,
    /// How far the running attempt is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Bytes fetched over all attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_transferred: Option<i64>,
    /// Hash of the fields of spec that make the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// Size of the disk that the VM sees, for people: `diskSize`, else what the source holds, rounded up to a whole GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub disk_size: Option<String>,
    /// What consumers may use now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Current>,
}

/// The attempt that runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenAttempt {
    /// Its number.
    #[schemars(range(min = 1, max = LAST_ATTEMPT))]
    pub number: i64,
    /// UID of the one Job that may carry it out.
    #[serde(rename = "jobUID")]
    #[schemars(length(max = 64))]
    pub job_uid: String,
    /// When it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The ticket it was admitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ticket: Option<String>,
    /// The budget it is paid from; equals `budget.for` of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub budget: Option<String>,
    /// The revision it fetches; equals `revision` of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// Its Job is deleted before a pod of it ran, so it is not charged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_ran: bool,
    /// Why it is being ended from outside; its Job is deleted, and what the Job would tell with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

/// Why an attempt is ended that cannot or will not end itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cut {
    /// As it will stand in `attempts`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// A sentence for people.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Whether it is paid from the budget.
    #[serde(default)]
    pub charged: bool,
}

/// Snapshots of complete data that were not ready within the policy's `snapshotTimeout`. Each is replaced by another,
/// without a new download, at most `retryLimit` times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LateSnapshots {
    /// How many were replaced.
    #[schemars(range(min = 0))]
    pub count: i32,
    /// UID of the last of them.
    #[serde(rename = "lastUID")]
    #[schemars(length(max = 64))]
    pub last_uid: String,
}

/// The downloads that one request of a person or pipeline pays for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Hash of url, sourceType, checksum, refresh and the retry annotation; when it differs a new budget begins.
    #[serde(rename = "for")]
    #[schemars(length(max = 64))]
    pub key: String,
    /// Attempts charged to it.
    #[schemars(range(min = 0))]
    pub charged: i32,
}

/// One attempt that has ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Number within this image; it only grows.
    #[schemars(range(min = 1, max = LAST_ATTEMPT))]
    pub number: i64,
    /// The ticket it was admitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ticket: Option<String>,
    /// Whether it was paid from the budget.
    #[serde(default)]
    pub charged: bool,
    /// When it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Bytes it fetched; unknown when it vanished without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes: Option<i64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Size that the source announced, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_bytes: Option<i64>,
    /// Class of the snapshot that is taken of what it brought; absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub snapshot_class: Option<String>,
    /// sha256 of the bytes at the source, if it brought the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub checksum: Option<String>,
    /// sha256 of the raw disk, if it brought the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub disk_checksum: Option<String>,
    /// The budget it was made under; equals `budget.for` of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub budget: Option<String>,
    /// The revision it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// True when no further attempt follows by itself: a person must change something or ask again.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

/// How far an attempt is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Bytes of the source that are in the cluster.
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Size of the source, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_bytes: Option<i64>,
    /// For people, such as `42%`; `unknown` while the import cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub percent: Option<String>,
    /// When this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// A disk that consumers may use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Current {
    /// The revision it was made from.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The claim with the disk; absent when only the snapshot is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume: Option<String>,
    /// The VolumeSnapshot of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub snapshot: Option<String>,
    /// UID of that VolumeSnapshot: another one of its name is waited for before it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[serde(rename = "snapshotUID")]
    pub snapshot_uid: Option<String>,
    /// Class of the snapshot; absent when the volume is the only copy. It stays as it was when the data became complete,
    /// whatever the policy says later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub snapshot_class: Option<String>,
    /// Bytes a claim made from it must have at least: max(diskSize, restoreSize).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub minimum_size: Option<i64>,
    /// sha256 of the bytes at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub checksum: Option<String>,
    /// sha256 of the raw disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub disk_checksum: Option<String>,
    /// When it became usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<Time>,
}
