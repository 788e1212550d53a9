//! Condition types and reasons, and `condition`, which keeps the transition time while the status stays the same.
//!
//! One enum names the reasons: conditions, events and metric labels all come from it, and `docs/runbook.md` explains each.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::import::ImportReason;

/// The spec can be acted on. What it names may still be missing, such as a class or a Secret: `Admitted` and `Ready` say
/// so, and it goes on by itself when that appears.
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
    /// Every slot of its source's host is taken.
    HostBusy,
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
    /// A write was refused by the API server as invalid.
    Rejected,
    /// The controller met a defect of its own when it decided about this object.
    InternalError,
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
            Self::Valid => "Valid",
            Self::UnknownKeys => "UnknownKeys",
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

/// The longest message of a condition or status, in characters. Every schema takes it, and people read no more.
pub const MESSAGE_LIMIT: usize = 2048;

/// `text`, cut to [`MESSAGE_LIMIT`]: a message that the API server refuses would take the whole status with it.
#[must_use]
pub fn message(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_LIMIT - 1) {
        Some((end, last)) if end + last.len_utf8() < text.len() => format!("{}…", &text[..end]),
        Some(_) | None => text.to_owned(),
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
        message: message(&finding.message),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_length_fits() {
        for (count, cut) in [(0, false), (MESSAGE_LIMIT, false), (MESSAGE_LIMIT + 1, true)] {
            let told = message(&"ä".repeat(count));
            assert_eq!(told.chars().count(), count.min(MESSAGE_LIMIT), "{count}");
            assert_eq!(told.ends_with('…'), cut, "{count}");
        }
    }
}
