//! `VMDiskImage`: one VM disk, synced from a source into the cluster under the policy.

#![expect(
    unreachable_pub,
    reason = "the derive of KubeSchema repeats the types in a private module"
)]

mod status;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::status::{
    Attempt, Budget, Current, Cut, LateSnapshots, OpenAttempt, Phase, Progress, VMDiskImageStatus,
};

/// Share of a file system that is not the file's: CDI's default of 6 %.
const FILESYSTEM_OVERHEAD_PERCENT: u64 = 6;
/// Sizes are rounded up to a whole MiB.
const MIB: u64 = 1 << 20;

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
    printcolumn(name = "ATTEMPT", type_ = "integer", json_path = ".status.lastAttempt"),
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
    /// Where the disk is: the `http` or `https` address, of an object in S3 too, of a qcow2 or raw image, which may be
    /// compressed as a whole with gzip, xz or zstd. Formats are told by the first bytes, not by the name. Credentials go
    /// into the Secret that `secretRef` names, never into the address.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://[^/?#\s]+([/?#]\S*)?$"))]
    #[x_kube(
        validation = Rule::new(r"self.matches('^https?://[^/?#\\s]+([/?#]\\S*)?$')")
            .message("url is an http or https address without spaces; for S3 write https://BUCKET.s3.REGION.amazonaws.com/KEY or https://ENDPOINT/BUCKET/KEY, and sourceType: s3"),
        validation = Rule::new("!self.matches('^https?://[^/?#]*@')")
            .message("url must not hold a user or a password: put them into a Secret with the keys accessKeyId and secretKey, and name it in secretRef")
    )]
    pub url: String,
    /// How the address is read: `http` (any web server) or `s3` (an object store, with the bucket in the path or in the
    /// host; requests are signed with the keys of the Secret, and are as anybody's without one).
    pub source_type: SourceType,
    /// A Secret in the same namespace with the keys `accessKeyId` and `secretKey` (http: user name and password), and
    /// optionally `sessionToken`, `region`, `ca.crt`; the names `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN` and `AWS_REGION` are read too. Without `region` it is that of an `amazonaws.com` host, else
    /// `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("secretRef is the name of a Secret in the namespace of the image: lower-case letters, digits, '-' and '.'"))]
    pub secret_ref: Option<String>,
    /// `sha256:` and 64 hexadecimal digits: what the bytes at `url` must hash to, before decompression. An image that
    /// does not match is never Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("checksum is sha256: and 64 hexadecimal digits in lower case, as sha256sum prints them; no other hash is read"))]
    pub checksum: Option<String>,
    /// Size of the disk that the VM sees, such as `24Gi`. Absent: the virtual size of the image, rounded up to a whole
    /// GiB. An image with a larger virtual size is refused before it is downloaded. Required for a raw image that is
    /// compressed as a whole, since its first bytes do not tell.
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
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("storageClass is the name of a StorageClass, see kubectl get storageclass; leave it out for the default"))]
    pub storage_class: Option<String>,
    /// Class of the snapshot to take when the data is complete. Absent: `defaultSnapshotClass` of the policy, else no
    /// snapshot is taken, whatever the cluster's default is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*$')")
        .message("snapshotClass is the name of a VolumeSnapshotClass, see kubectl get volumesnapshotclass; leave it out for no snapshot, or the policy's default"))]
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
    /// Any new text asks for the same address again, with a new budget of downloads, as long as the image has no data
    /// (`status.current`). Once it has, this cannot change any more, like everything that makes the data: create a new
    /// VMDiskImage. It is part of the spec, so that waiting for Ready waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub refresh: Option<String>,
    /// True: gives its slot and its place in the queue back and keeps the bytes fetched so far. Set back, it queues anew.
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

impl SourceType {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::S3 => "s3",
        }
    }
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

    /// Bytes that a volume must have to hold a disk of `disk` bytes.
    pub fn room_for(self, disk: u64) -> u64 {
        match self {
            Self::Block => disk,
            Self::Filesystem => {
                (disk.saturating_mul(100) / (100 - FILESYSTEM_OVERHEAD_PERCENT)).div_ceil(MIB) * MIB
            }
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
