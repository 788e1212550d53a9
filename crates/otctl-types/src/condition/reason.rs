//! The reasons: one closed list for conditions, Events and metrics.
//!
//! Nodes and API servers have words of their own, and new ones with every version. They are never a reason: a reason says
//! which kind of trouble it is, and the message carries the words.

use std::fmt;

use crate::import::ImportReason;

/// Why a condition has its status; also the reason of the Event and the label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    // Progress.
    /// Nothing stands in the way.
    Accepted,
    /// Waits for a ticket or a slot.
    Queued,
    /// Every slot is taken.
    SlotsBusy,
    /// Every slot of its source's host is taken.
    HostBusy,
    /// Waits for the time of its next attempt.
    Backoff,
    /// The policy admits nobody: its `concurrency`, or of workspaces its `workspaceConcurrency`, is 0.
    Paused,
    /// `suspend` of the image, or `suspended` of the Workspace, is true.
    Suspended,
    /// Holds a slot.
    Admitted,
    /// The source is looked at before anything is made.
    Probing,
    /// The data is on its way.
    Importing,
    /// A Job that is being deleted does not go; the slot is kept until nothing of it is left.
    Stopping,
    /// The node of a pod that should have ended does not answer; the slot is kept, since the pod may still run.
    NodeUnreachable,
    /// The snapshot is being taken.
    Snapshotting,
    /// The snapshot waits: as many are being taken as the policy or the driver allows.
    SnapshotThrottled,
    /// Data, and snapshot if asked for, are complete.
    Succeeded,
    /// No snapshot was asked for.
    NotRequested,
    /// A new revision is being made beside the current one.
    Updating,
    /// There is no usable disk yet.
    NoData,
    /// A lost volume or snapshot is being brought back.
    Restoring,
    /// A child of an earlier object of this name is still going.
    OldChildTerminating,
    // Spec problems.
    /// A field cannot be acted on; the message says which and what to write instead.
    InvalidSpec,
    /// Someone else's object has the name of a child.
    NameConflict,
    // Waiting for something outside.
    /// A named storage class does not exist.
    StorageClassNotFound,
    /// A named snapshot class does not exist.
    SnapshotClassNotFound,
    /// The snapshot class belongs to another driver than the volume.
    SnapshotClassMismatch,
    /// A quota of the namespace leaves no room.
    QuotaExceeded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// A claim did not bind within the policy's `bindTimeout`.
    NotBinding,
    /// The snapshot reported an error.
    SnapshotFailed,
    // Final.
    /// The budget of downloads is spent.
    RetriesExhausted,
    /// The last copy of the data is gone; it is fetched once more.
    Lost,
    /// The data was lost twice within a day.
    LostRepeatedly,
    /// The spec was changed while its data was being fetched.
    Superseded,

    /// The pod of a probe or import was not started by its node.
    PodNotStarted,
    /// A write was refused by the API server: as invalid, for want of a right, by a policy of the cluster, or because an
    /// admission webhook could not be asked.
    Rejected,
    /// The controller met a defect of its own when it decided about this object.
    InternalError,
    // Workspaces: progress.
    /// Parts are being made.
    Creating,
    /// Every part has been made.
    AllCreated,
    /// Parts have been made or changed and are on their way to be ready.
    Progressing,
    /// Every part that was asked for is ready.
    AllReady,
    /// The spec asks for nothing of this kind.
    NothingAsked,
    /// The network policy is in place.
    Isolated,
    /// `network.isolate` is false: what the cluster lets through reaches the parts.
    NotIsolated,
    /// The object is being deleted.
    Deleting,
    // Workspaces: waiting for something outside.
    /// Disk images are being synced; no slot is held meanwhile.
    AwaitingImages,
    /// There is no disk image of that name, and the entry has no `image` to make it from.
    ImageNotFound,
    /// A disk image is being deleted; it is made anew when it is gone and the entry has an `image`.
    ImageTerminating,
    /// The disk image is there, but not the revision that `revision` pins, or its machine's disk was made from another one.
    RevisionNotFound,
    /// The namespace does not exist.
    NamespaceNotFound,
    /// The kinds of KubeVirt are not installed.
    KubeVirtNotInstalled,
    /// Another network policy lets through to the workspace's pods what its own does not.
    WeakenedByOtherPolicy,
    /// A virtual machine has a secondary network, which no network policy covers.
    SecondaryNetworkUncovered,
    /// Something runs that is not as it should be, and may heal by itself.
    Degraded,
    /// The first start was not ready within the policy's `provisioningTimeout`. It gave its slot back and goes on healing.
    ProvisioningTimedOut,
    // Workspaces: what is wrong with a pod. The words of the node or of the API server stand in the message.
    /// The image of a container cannot be pulled.
    ImagePullBackOff,
    /// A container ends again and again.
    CrashLoopBackOff,
    /// No node has room for a pod, or none that it may run on.
    Unschedulable,
    /// The API server refused a pod, by Pod Security or another check.
    PodRefused,
    /// A container cannot be started, or ended with an error.
    ContainerFailed,
    /// It runs and is not ready yet; its probe says why.
    NotReady,
    /// Its machine runs as it was before a change, and takes that up when it is restarted, which is left to people.
    RestartRequired,
    // Workspaces: final.
    /// A disk image that is needed has failed.
    ImageFailed,
    /// There is a disk image of that name with another source than `image` of the entry, or its machine's disk was made from
    /// another one.
    ImageDiffers,
    /// The namespace is not one that the controller's chart lists.
    NamespaceNotAllowed,
    // The policy.
    /// Every key could be read.
    Valid,
    /// Every key that exists could be read; others, usually misspelt, have no effect.
    UnknownKeys,
    /// Some keys could not be read and keep their last good value.
    Invalid,
    /// There is no policy ConfigMap: defaults hold.
    DefaultsInEffect,
    /// What the importer reported.
    Import(ImportReason),
}

impl Reason {
    /// Every reason but those of the importer, which are [`ImportReason::ALL`].
    pub const OWN: [Self; 68] = [
        Self::Accepted,
        Self::Queued,
        Self::SlotsBusy,
        Self::HostBusy,
        Self::Backoff,
        Self::Paused,
        Self::Suspended,
        Self::Admitted,
        Self::Probing,
        Self::Importing,
        Self::Stopping,
        Self::NodeUnreachable,
        Self::Snapshotting,
        Self::SnapshotThrottled,
        Self::Succeeded,
        Self::NotRequested,
        Self::Updating,
        Self::NoData,
        Self::Restoring,
        Self::OldChildTerminating,
        Self::InvalidSpec,
        Self::NameConflict,
        Self::StorageClassNotFound,
        Self::SnapshotClassNotFound,
        Self::SnapshotClassMismatch,
        Self::QuotaExceeded,
        Self::NamespaceTerminating,
        Self::NotBinding,
        Self::SnapshotFailed,
        Self::RetriesExhausted,
        Self::Lost,
        Self::LostRepeatedly,
        Self::Superseded,
        Self::PodNotStarted,
        Self::Rejected,
        Self::InternalError,
        Self::Creating,
        Self::AllCreated,
        Self::Progressing,
        Self::AllReady,
        Self::NothingAsked,
        Self::Isolated,
        Self::NotIsolated,
        Self::Deleting,
        Self::AwaitingImages,
        Self::ImageNotFound,
        Self::ImageTerminating,
        Self::RevisionNotFound,
        Self::NamespaceNotFound,
        Self::KubeVirtNotInstalled,
        Self::WeakenedByOtherPolicy,
        Self::SecondaryNetworkUncovered,
        Self::Degraded,
        Self::ProvisioningTimedOut,
        Self::ImagePullBackOff,
        Self::CrashLoopBackOff,
        Self::Unschedulable,
        Self::PodRefused,
        Self::ContainerFailed,
        Self::NotReady,
        Self::RestartRequired,
        Self::ImageFailed,
        Self::ImageDiffers,
        Self::NamespaceNotAllowed,
        Self::Valid,
        Self::UnknownKeys,
        Self::Invalid,
        Self::DefaultsInEffect,
    ];

    /// The reason of that word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        let imports = ImportReason::ALL.into_iter().map(Self::Import);
        Self::OWN.into_iter().chain(imports).find(|reason| reason.as_str() == word)
    }

    /// The CamelCase word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Queued => "Queued",
            Self::SlotsBusy => "SlotsBusy",
            Self::HostBusy => "HostBusy",
            Self::Backoff => "Backoff",
            Self::Paused => "Paused",
            Self::Suspended => "Suspended",
            Self::Admitted => "Admitted",
            Self::Probing => "Probing",
            Self::Importing => "Importing",
            Self::Stopping => "Stopping",
            Self::NodeUnreachable => "NodeUnreachable",
            Self::Snapshotting => "Snapshotting",
            Self::SnapshotThrottled => "SnapshotThrottled",
            Self::Succeeded => "Succeeded",
            Self::NotRequested => "NotRequested",
            Self::Updating => "Updating",
            Self::NoData => "NoData",
            Self::Restoring => "Restoring",
            Self::OldChildTerminating => "OldChildTerminating",
            Self::InvalidSpec => "InvalidSpec",
            Self::NameConflict => "NameConflict",
            Self::StorageClassNotFound => "StorageClassNotFound",
            Self::SnapshotClassNotFound => "SnapshotClassNotFound",
            Self::SnapshotClassMismatch => "SnapshotClassMismatch",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::NotBinding => "NotBinding",
            Self::SnapshotFailed => "SnapshotFailed",
            Self::RetriesExhausted => "RetriesExhausted",
            Self::Lost => "Lost",
            Self::LostRepeatedly => "LostRepeatedly",
            Self::Superseded => "Superseded",
            Self::PodNotStarted => "PodNotStarted",
            Self::Rejected => "Rejected",
            Self::InternalError => "InternalError",
            Self::Creating => "Creating",
            Self::AllCreated => "AllCreated",
            Self::Progressing => "Progressing",
            Self::AllReady => "AllReady",
            Self::NothingAsked => "NothingAsked",
            Self::Isolated => "Isolated",
            Self::NotIsolated => "NotIsolated",
            Self::Deleting => "Deleting",
            Self::AwaitingImages => "AwaitingImages",
            Self::ImageNotFound => "ImageNotFound",
            Self::ImageTerminating => "ImageTerminating",
            Self::RevisionNotFound => "RevisionNotFound",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::KubeVirtNotInstalled => "KubeVirtNotInstalled",
            Self::WeakenedByOtherPolicy => "WeakenedByOtherPolicy",
            Self::SecondaryNetworkUncovered => "SecondaryNetworkUncovered",
            Self::Degraded => "Degraded",
            Self::ProvisioningTimedOut => "ProvisioningTimedOut",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::Unschedulable => "Unschedulable",
            Self::PodRefused => "PodRefused",
            Self::ContainerFailed => "ContainerFailed",
            Self::NotReady => "NotReady",
            Self::RestartRequired => "RestartRequired",
            Self::ImageFailed => "ImageFailed",
            Self::ImageDiffers => "ImageDiffers",
            Self::NamespaceNotAllowed => "NamespaceNotAllowed",
            Self::Valid => "Valid",
            Self::UnknownKeys => "UnknownKeys",
            Self::Invalid => "Invalid",
            Self::DefaultsInEffect => "DefaultsInEffect",
            Self::Import(reason) => reason.as_str(),
        }
    }
}

impl Reason {
    /// Which kind of trouble a node means by its own word for why a container waits. Nodes find new words with every
    /// version: what is not known is `NotReady`, and the message carries the word.
    #[must_use]
    pub fn of_waiting(word: &str) -> Self {
        match word {
            "ContainerCreating" | "PodInitializing" => Self::Progressing,
            "ImagePullBackOff"
            | "ErrImagePull"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "InvalidImageName"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => Self::ImagePullBackOff,
            "CrashLoopBackOff" => Self::CrashLoopBackOff,
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "PreCreateHookError"
            | "PreStartHookError"
            | "PostStartHookError" => Self::ContainerFailed,
            _ => Self::NotReady,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_node_is_one_of_our_reasons() {
        for (word, reason) in [
            ("ContainerCreating", Reason::Progressing),
            ("ErrImagePull", Reason::ImagePullBackOff),
            ("ImagePullBackOff", Reason::ImagePullBackOff),
            ("InvalidImageName", Reason::ImagePullBackOff),
            ("CrashLoopBackOff", Reason::CrashLoopBackOff),
            ("CreateContainerConfigError", Reason::ContainerFailed),
            ("RunContainerError", Reason::ContainerFailed),
            ("SomethingNew", Reason::NotReady),
            ("", Reason::NotReady),
        ] {
            assert_eq!(Reason::of_waiting(word), reason, "{word}");
        }
    }

    #[test]
    fn a_reason_is_found_by_its_word() {
        for reason in Reason::OWN.into_iter().chain(ImportReason::ALL.map(Reason::Import)) {
            assert_eq!(Reason::named(reason.as_str()).map(Reason::as_str), Some(reason.as_str()));
        }
        assert_eq!(Reason::named("succeeded"), None);
    }
}
