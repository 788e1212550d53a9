//! Condition types and reasons, and `condition`, which keeps the transition time while the status stays the same.
//!
//! One enum names the reasons: conditions, events and metric labels all come from it, and `docs/runbook.md` explains each.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::import::ImportReason;

/// The spec can be acted on and everything it names exists.
pub const ACCEPTED: &str = "Accepted";
/// The object holds a slot, or no longer needs one.
pub const ADMITTED: &str = "Admitted";
/// The data of the revision in spec is complete and verified.
pub const SYNCED: &str = "Synced";
/// The snapshot of the revision in spec is ready to use.
pub const SNAPSHOTTED: &str = "Snapshotted";
/// There is a disk that consumers may use now, of this revision or an earlier one.
pub const AVAILABLE: &str = "Available";
/// The revision in spec is usable.
pub const READY: &str = "Ready";
/// Work goes on without a person (kstatus); present only while True.
pub const RECONCILING: &str = "Reconciling";
/// Nothing will change until a person acts (kstatus); present only while True.
pub const STALLED: &str = "Stalled";
/// Every key of the policy ConfigMap could be read.
pub const POLICY_VALID: &str = "PolicyValid";

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
    /// Waits for the time of its next attempt.
    Backoff,
    /// The policy's concurrency is 0.
    Paused,
    /// `spec.suspend` is true.
    Suspended,
    /// Holds a slot.
    Admitted,
    /// The source is looked at before anything is made.
    Probing,
    /// The data is on its way.
    Importing,
    /// A Job that is being deleted does not go; the slot is kept until nothing of it is left.
    Stopping,
    /// The snapshot is being taken.
    Snapshotting,
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
    /// `sourceType: s3` is not acted on by this version.
    SourceTypeNotYetSupported,
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
    /// A write was refused by the API server as invalid.
    Rejected,
    // The policy.
    /// Every key could be read.
    Valid,
    /// Some keys could not be read and keep their last good value.
    Invalid,
    /// There is no policy ConfigMap: defaults hold.
    DefaultsInEffect,
    /// What the importer reported.
    Import(ImportReason),
}

impl Reason {
    /// The CamelCase word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Queued => "Queued",
            Self::SlotsBusy => "SlotsBusy",
            Self::Backoff => "Backoff",
            Self::Paused => "Paused",
            Self::Suspended => "Suspended",
            Self::Admitted => "Admitted",
            Self::Probing => "Probing",
            Self::Importing => "Importing",
            Self::Stopping => "Stopping",
            Self::Snapshotting => "Snapshotting",
            Self::Succeeded => "Succeeded",
            Self::NotRequested => "NotRequested",
            Self::Updating => "Updating",
            Self::NoData => "NoData",
            Self::Restoring => "Restoring",
            Self::OldChildTerminating => "OldChildTerminating",
            Self::InvalidSpec => "InvalidSpec",
            Self::SourceTypeNotYetSupported => "SourceTypeNotYetSupported",
            Self::NameConflict => "NameConflict",
            Self::StorageClassNotFound => "StorageClassNotFound",
            Self::SnapshotClassNotFound => "SnapshotClassNotFound",
            Self::SnapshotClassMismatch => "SnapshotClassMismatch",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::SnapshotFailed => "SnapshotFailed",
            Self::RetriesExhausted => "RetriesExhausted",
            Self::Lost => "Lost",
            Self::LostRepeatedly => "LostRepeatedly",
            Self::Superseded => "Superseded",
            Self::PodNotStarted => "PodNotStarted",
            Self::Rejected => "Rejected",
            Self::Valid => "Valid",
            Self::Invalid => "Invalid",
            Self::DefaultsInEffect => "DefaultsInEffect",
            Self::Import(reason) => reason.as_str(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a condition is to say, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `True`, `False` or `Unknown`.
    pub status: Truth,
    /// Why.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

/// The three values of a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl Truth {
    /// The text of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Finding {
    /// A finding with a message that may be empty.
    pub fn new(status: impl Into<Truth>, reason: Reason, message: impl Into<String>) -> Self {
        Self { status: status.into(), reason, message: message.into() }
    }
}

/// The condition `kind` as found now; keeps the transition time of `before` while the status stays the same.
pub fn condition(
    kind: &str,
    finding: &Finding,
    generation: Option<i64>,
    before: &[Condition],
    now: &Time,
) -> Condition {
    let status = finding.status.as_str();
    let since = before
        .iter()
        .find(|c| c.type_ == kind && c.status == status)
        .map(|c| c.last_transition_time.clone());
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.as_str().to_owned(),
        message: finding.message.clone(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| now.clone()),
    }
}

/// The condition of that type, if present.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// Whether the condition of that type is True.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|c| c.status == "True")
}
