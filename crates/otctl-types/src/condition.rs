//! Condition types and reasons, and `condition`, which keeps the transition time while the status stays the same.
//!
//! One enum names the reasons: conditions, events and metric labels all come from it, and `docs/runbook.md` explains each.

mod reason;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use self::reason::Reason;

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
/// Parts of a Workspace are being made; False once all of them have been.
pub const CREATING_WORKS: &str = "CreatingWorks";
/// The network of a Workspace is as its spec asks: isolated, unless `isolate` is false, and by nothing weakened.
pub const NETWORK_READY: &str = "NetworkReady";
/// Every disk image that a Workspace names can be used.
pub const IMAGES_READY: &str = "ImagesReady";
/// Every virtual machine of a Workspace runs as its spec asks.
pub const VIRTUAL_MACHINES_READY: &str = "VirtualMachinesReady";
/// As many pods of each container of a Workspace are ready as its spec asks.
pub const CONTAINERS_READY: &str = "ContainersReady";
/// What the spec asks for is usable: the revision of an image, every part of a Workspace.
pub const READY: &str = "Ready";
/// Work goes on without a person (kstatus); present only while True.
pub const RECONCILING: &str = "Reconciling";
/// Nothing will change until a person acts (kstatus); present only while True.
pub const STALLED: &str = "Stalled";
/// The object is being deleted; the message says what is waited for. Present only while True.
pub const DELETING: &str = "Deleting";
/// Every key of the policy ConfigMap could be read.
pub const POLICY_VALID: &str = "PolicyValid";

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
