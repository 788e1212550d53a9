//! What an image's status remembers, as the decisions ask it: how its last attempt ended, whether the budget is spent,
//! when the next attempt may be. The one place that reads `attempts`, `budget` and `current`.

use jiff::Timestamp;
use otctl_kit::ledger::AttemptRecord;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Attempt, VMDiskImageStatus};

use crate::names;

/// `attempts[].reason` of an attempt that brought the data.
pub const SUCCEEDED: &str = "Succeeded";

/// An image with its computed hashes, and its status (an empty one before the first write).
#[derive(Clone, Debug)]
pub struct Record {
    /// The status as observed.
    pub status: VMDiskImageStatus,
    /// Hash of the spec that makes the data.
    pub revision: String,
    /// Hash of what gives a budget.
    pub budget_key: String,
}

impl Record {
    /// The record of an image.
    pub fn of(image: &VMDiskImage) -> Self {
        Self {
            status: image.status.clone().unwrap_or_default(),
            revision: names::revision(&image.spec),
            budget_key: names::budget_key(image),
        }
    }

    /// The numbers that the ledger's rules look at.
    pub fn numbers(&self) -> AttemptRecord {
        AttemptRecord { last: self.last(), is_open: self.status.open_attempt.is_some() }
    }

    /// The highest number used.
    pub fn last(&self) -> i64 {
        self.status.last_attempt.unwrap_or(0)
    }

    /// The attempt that ended last.
    pub fn last_ended(&self) -> Option<&Attempt> {
        self.status.attempts.last()
    }

    /// Whether the data of the revision in spec was brought by the last attempt.
    pub fn has_fetched(&self) -> bool {
        self.last_ended().is_some_and(|attempt| {
            attempt.reason.as_deref() == Some(SUCCEEDED)
                && attempt.revision.as_deref() == Some(&self.revision)
        })
    }

    /// Whether consumers may use the revision in spec.
    pub fn is_current(&self) -> bool {
        self.status.current.as_ref().is_some_and(|current| current.revision == self.revision)
    }

    /// The class that the snapshot of finished data has, or none for data that has no snapshot; nothing while there is
    /// no data.
    pub fn promised_class(&self) -> Option<Option<&str>> {
        if let Some(current) = self.status.current.as_ref().filter(|_| self.is_current()) {
            return Some(current.snapshot_class.as_deref());
        }
        let last = self.last_ended().filter(|_| self.has_fetched())?;
        Some(last.snapshot_class.as_deref())
    }

    /// Whether the budget on record is the one that the object asks for now.
    pub fn has_its_budget(&self) -> bool {
        self.status.budget.as_ref().is_none_or(|budget| budget.key == self.budget_key)
    }

    /// Downloads charged to the budget that the object asks for now.
    pub fn charged(&self) -> u32 {
        let budget = self.status.budget.as_ref().filter(|budget| budget.key == self.budget_key);
        budget.map_or(0, |budget| u32::try_from(budget.charged).unwrap_or(0))
    }

    /// Whether no further attempt follows by itself, and the attempt that says why.
    pub fn final_attempt(&self) -> Option<&Attempt> {
        let last = self.last_ended().filter(|attempt| attempt.is_final)?;
        let is_for_this = last.budget.as_deref() == Some(&self.budget_key)
            && last.revision.as_deref() == Some(&self.revision);
        is_for_this.then_some(last)
    }

    /// Whether every download of the budget was made.
    pub fn is_spent(&self, retry_limit: u32) -> bool {
        self.charged() > retry_limit
    }

    /// When the next attempt may start, if that is still to come. A new budget does not wait.
    pub fn backoff_until(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.status.next_retry_at.as_ref()?.0;
        (self.has_its_budget() && self.is_for_this_revision() && at > now).then_some(at)
    }

    /// Whether the ticket in status has already bought an attempt.
    pub fn has_used_its_ticket(&self) -> bool {
        let ticket = self.status.ticket.as_deref();
        ticket.is_some()
            && self.last_ended().is_some_and(|attempt| attempt.ticket.as_deref() == ticket)
    }

    /// The reason of the last attempt, if it only waits for something outside.
    pub fn waits_for(&self) -> Option<(&str, &str)> {
        let last = self.last_ended()?;
        self.status.next_retry_at.as_ref()?;
        Some((last.reason.as_deref()?, last.message.as_deref().unwrap_or_default()))
    }

    fn is_for_this_revision(&self) -> bool {
        self.last_ended().is_none_or(|attempt| attempt.revision.as_deref() == Some(&self.revision))
    }
}

/// The reason that stands in a condition for the reason of an attempt.
pub fn reason_of(text: &str) -> Reason {
    let own = [
        Reason::NameConflict,
        Reason::QuotaExceeded,
        Reason::NamespaceTerminating,
        Reason::OldChildTerminating,
        Reason::StorageClassNotFound,
        Reason::SnapshotClassNotFound,
        Reason::SnapshotClassMismatch,
        Reason::Rejected,
        Reason::PodNotStarted,
        Reason::SourceTypeNotYetSupported,
        Reason::Lost,
        Reason::LostRepeatedly,
        Reason::Superseded,
        Reason::RetriesExhausted,
        Reason::Succeeded,
        Reason::InvalidSpec,
    ];
    own.into_iter()
        .chain(otctl_types::import::ImportReason::ALL.into_iter().map(Reason::Import))
        .find(|reason| reason.as_str() == text)
        .unwrap_or(Reason::Import(otctl_types::import::ImportReason::Internal))
}
