//! `VMDiskImage`: one VM disk, synced from a source into the cluster under the policy.

#![expect(
    unreachable_pub,
    reason = "the derive of KubeSchema repeats the types in a private module"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::import::SourceFacts;

/// Refuses changes of what makes the data, once there is data. (`status` is visible to a rule at the root.)
const FROZEN_ONCE_SYNCED: &str = "!has(oldSelf.status) || !has(oldSelf.status.current) || (\
self.spec.url == oldSelf.spec.url && self.spec.sourceType == oldSelf.spec.sourceType \
&& has(self.spec.checksum) == has(oldSelf.spec.checksum) && (!has(self.spec.checksum) || self.spec.checksum == oldSelf.spec.checksum) \
&& has(self.spec.diskSize) == has(oldSelf.spec.diskSize) && (!has(self.spec.diskSize) || self.spec.diskSize == oldSelf.spec.diskSize) \
&& has(self.spec.storageClass) == has(oldSelf.spec.storageClass) && (!has(self.spec.storageClass) || self.spec.storageClass == oldSelf.spec.storageClass) \
&& has(self.spec.snapshotClass) == has(oldSelf.spec.snapshotClass) && (!has(self.spec.snapshotClass) || self.spec.snapshotClass == oldSelf.spec.snapshotClass) \
&& self.spec.volumeMode == oldSelf.spec.volumeMode && self.spec.accessModes == oldSelf.spec.accessModes \
&& has(self.spec.refresh) == has(oldSelf.spec.refresh) && (!has(self.spec.refresh) || self.spec.refresh == oldSelf.spec.refresh))";

/// A VM disk that is downloaded once, verified, and kept in the cluster as a volume, as a snapshot, or both. It waits
/// for a slot of the policy (`kubectl get aq vmdiskimages`), is probed, imported and snapshotted; `Ready` says that the
/// revision in spec is usable.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "pelotech.ot",
    version = "v1alpha1",
    kind = "VMDiskImage",
    plural = "vmdiskimages",
    namespaced,
    shortname = "vmdi",
    category = "otctl",
    status = "VMDiskImageStatus",
    derive = "PartialEq",
    derive = "Default",
    validation = Rule::new(FROZEN_ONCE_SYNCED).message(
        "this image has data: url, sourceType, checksum, diskSize, storageClass, snapshotClass, volumeMode, accessModes \
         and refresh cannot change any more; create a new VMDiskImage"
    ).reason(Reason::FieldValueForbidden),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "PROGRESS", type_ = "string", json_path = ".status.progress.percent"),
    printcolumn(name = "SIZE", type_ = "string", json_path = ".status.diskSize"),
    printcolumn(name = "ATTEMPT", type_ = "integer", json_path = ".status.attempts[-1:].number"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "MESSAGE", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "QUEUED", type_ = "date", json_path = ".status.queuedAt", priority = 1),
    printcolumn(name = "SNAPSHOT", type_ = "string", json_path = ".status.current.snapshot", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct VMDiskImageSpec {
    /// A display name, and the key by which the newest of several images of one thing is found when pruning. Children
    /// are named after `metadata.name`, never after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Where the disk is: an `http` or `https` address, of an object in S3 too. Credentials go into the Secret that
    /// `secretRef` names, never into the address.
    #[schemars(length(min = 10, max = 2048), regex(pattern = r"^https?://[^/?#@\s]+([/?#]\S*)?$"))]
    pub url: String,
    /// How the address is read: `http` (any web server) or `s3` (requests are signed with the keys of the Secret).
    pub source_type: SourceType,
    /// A Secret in the same namespace with the keys `accessKeyId` and `secretKey` (http: user name and password), and
    /// optionally `sessionToken`, `region`, `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_ref: Option<String>,
    /// `sha256:` and 64 hexadecimal digits: what the bytes at `url` must hash to, before decompression. An image that
    /// does not match is never Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub checksum: Option<String>,
    /// Size of the disk that the VM sees, such as `24Gi`. Absent: the virtual size of the image, rounded up to a whole
    /// GiB. An image with a larger virtual size is refused before it is downloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
    )]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).isGreaterThan(quantity('0')) && quantity(self).isLessThan(quantity('64Ti').add(1))")
        .message("diskSize is a size above 0 and at most 64Ti, such as 24Gi"))]
    pub disk_size: Option<String>,
    /// Storage class of the volume. Absent: `defaultStorageClass` of the policy, else the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub storage_class: Option<String>,
    /// Class of the snapshot to take when the data is complete. Absent: `defaultSnapshotClass` of the policy, else no
    /// snapshot is taken, whatever the cluster's default is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub snapshot_class: Option<String>,
    /// Whether the volume stays when the snapshot is ready. Absent: no with a snapshot, yes without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_volume: Option<bool>,
    /// `Filesystem`: the disk is the file `disk.img` of the volume. `Block`: the disk is the volume.
    #[serde(default)]
    pub volume_mode: VolumeMode,
    /// Access modes of the volume.
    #[serde(default = "default_access_modes")]
    #[schemars(length(min = 1, max = 4))]
    pub access_modes: Vec<AccessMode>,
    /// Any new text asks for the same address again. It is part of the spec, so that waiting for Ready waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub refresh: Option<String>,
    /// True: gives the slot back and stays queued; the bytes fetched so far are kept.
    #[serde(default)]
    pub suspend: bool,
}

fn default_access_modes() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}

/// How a source is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SourceType {
    /// Plain requests, with basic authentication when a Secret is named.
    #[default]
    #[serde(rename = "http")]
    Http,
    /// Signed requests.
    #[serde(rename = "s3")]
    S3,
}

/// How a volume shows the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum VolumeMode {
    /// The file `disk.img` on a file system.
    #[default]
    Filesystem,
    /// The device itself.
    Block,
}

impl VolumeMode {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

/// How many nodes may use the volume, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AccessMode {
    /// One node reads and writes.
    ReadWriteOnce,
    /// Many nodes read.
    ReadOnlyMany,
    /// Many nodes read and write.
    ReadWriteMany,
    /// One pod reads and writes.
    ReadWriteOncePod,
}

impl AccessMode {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

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
/// `nextRetryAt` and `lastLossAt` are memory that decisions rest on; everything else is output.
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
    #[schemars(range(min = 0))]
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
    #[schemars(range(min = 1))]
    pub number: i64,
    /// UID of the one Job that may carry it out.
    #[serde(rename = "jobUID")]
    #[schemars(length(max = 64))]
    pub job_uid: String,
    /// When it was recorded.
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
    #[schemars(range(min = 1))]
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
    /// For people, such as `42%`.
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
