//! Every string constant that users, other controllers or the API server see: API group, labels, annotations, field
//! managers, well-known object names.

/// API group of every kind here but Workshop.
pub const GROUP: &str = "pelotech.ot";

/// Namespace of the installation when no flag says otherwise.
pub const DEFAULT_NAMESPACE: &str = "sync-operator";
/// Name of the policy ConfigMap when no flag says otherwise.
pub const DEFAULT_POLICY_NAME: &str = "sync-operator-policy";

/// The AdmissionQueue in which VMDiskImages wait and hold slots.
pub const IMAGE_QUEUE: &str = "vmdiskimages";
/// The AdmissionQueue in which Workspaces wait and hold slots.
pub const WORKSPACE_QUEUE: &str = "workspaces";

/// Annotation on a VMDiskImage: any new value gives a failed or waiting image a new budget of downloads.
pub const RETRY_ANNOTATION: &str = "pelotech.ot/retry";
/// Annotation on a finished claim: sha256 of the raw disk in it, the proof of a finished import without a snapshot.
pub const DISK_CHECKSUM_ANNOTATION: &str = "pelotech.ot/disk-checksum";
/// Annotation on a child: the revision of the spec that it was made for.
pub const REVISION_ANNOTATION: &str = "pelotech.ot/revision";
/// The VMDiskImage that the claim of a Workspace's machine was made from.
pub const IMAGE_ANNOTATION: &str = "pelotech.ot/image";
/// Annotation on a Deployment: the names that its pods were given for the other entries, and where they lead.
pub const HOSTS_ANNOTATION: &str = "pelotech.ot/hosts";
/// Annotation on a Deployment: the restart by hand since which its pods know every name.
pub const RESTART_ANNOTATION: &str = "pelotech.ot/restarted-at";
/// The highest number of an attempt of an image, or of a turn of a Workspace. None counts so far.
pub const LAST_ATTEMPT: i64 = 999_999_999;
/// Annotation on a Job: the number of the attempt, or of the probe, that it carries out.
pub const ATTEMPT_ANNOTATION: &str = "pelotech.ot/attempt";
/// Label on a Job and its pods: `probe` or `import`. For people and for lists; what a Job is, its name says.
pub const ROLE_LABEL: &str = "pelotech.ot/role";
/// Label on every child: the UID of the object it was made for. For people and for watches and lists, which go by it;
/// ownership is the controller owner reference alone.
pub const OWNER_LABEL: &str = "pelotech.ot/owner-uid";

/// `app.kubernetes.io/managed-by` of every object made by otctl.
pub const MANAGED_BY: &str = "otctl";
/// `app.kubernetes.io/part-of` of every object made or installed by otctl.
pub const PART_OF: &str = "otctl";
/// Field manager and account of the disk image controller.
pub const DISKIMAGE_CONTROLLER: &str = "diskimage-controller";
/// Field manager and account of the workspace controller.
pub const WORKSPACE_CONTROLLER: &str = "workspace-controller";

/// Annotation on a snapshot or a finished claim: sha256 of the bytes at the source.
pub const CHECKSUM_ANNOTATION: &str = "pelotech.ot/checksum";

/// Label on every pod of a Workspace, and on the template it is made from: the UID of the Workspace. Its network policy
/// goes by this label alone, so an admission policy lets nobody but the workspace controller set it.
pub const WORKSPACE_LABEL: &str = "pelotech.ot/workspace-uid";
/// Label on a child of a Workspace: the name of the entry that it was made for.
pub const ENTRY_LABEL: &str = "pelotech.ot/entry";
/// Annotation on an object that is otherwise made by people: which controller made it.
pub const MADE_BY_ANNOTATION: &str = "pelotech.ot/made-by";
/// Value of [`MADE_BY_ANNOTATION`] on a VMDiskImage that a Workspace made; only such an image is ever deleted with it.
pub const MADE_BY_WORKSPACE: &str = "workspace";
/// Finalizer on an isolated Workspace while pods of it exist: the network policy outlives them.
pub const WORKSPACE_FINALIZER: &str = "pelotech.ot/workspace";
