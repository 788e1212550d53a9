//! What an image's status remembers, as the decisions ask it: how its last attempt ended, whether the budget is spent,
//! when the next attempt may be. The one place that reads `attempts`, `budget` and `current`.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use otctl_kit::ledger::AttemptRecord;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Attempt, VMDiskImageStatus};
use otctl_types::import::ImportReason;

use crate::names;
use otctl_types::names::LAST_ATTEMPT;

/// `attempts[].reason` of an attempt that brought the data.
pub const SUCCEEDED: &str = "Succeeded";

/// A status as it is read: that of an object, or one that is about to be written.
#[derive(Clone, Debug)]
pub enum Told {
    /// Of this object; an empty one before the first write.
    Of(Arc<VMDiskImage>),
    /// On its own.
    Own(Box<VMDiskImageStatus>),
}

impl Deref for Told {
    type Target = VMDiskImageStatus;

    fn deref(&self) -> &VMDiskImageStatus {
        static NOTHING: LazyLock<VMDiskImageStatus> = LazyLock::new(VMDiskImageStatus::default);
        match self {
            Self::Of(image) => image.status.as_ref().unwrap_or(&NOTHING),
            Self::Own(status) => status,
        }
    }
}

/// An image with its computed hashes, and its status.
#[derive(Clone, Debug)]
pub struct Record {
    /// The status as observed.
    pub status: Told,
    /// Hash of the spec that makes the data.
    pub revision: String,
    /// Hash of what gives a budget.
    pub budget_key: String,
}

impl Record {
    /// The record of an image.
    pub fn of(image: &VMDiskImage) -> Self {
        let status = Box::new(image.status.clone().unwrap_or_default());
        Self {
            status: Told::Own(status),
            revision: names::revision(&image.spec),
            budget_key: names::budget_key(image),
        }
    }

    /// The same without a copy of the status.
    pub fn of_shared(image: &Arc<VMDiskImage>) -> Self {
        Self {
            status: Told::Of(image.clone()),
            revision: names::revision(&image.spec),
            budget_key: names::budget_key(image),
        }
    }

    /// This record with another status.
    #[must_use]
    pub fn with(&self, status: VMDiskImageStatus) -> Self {
        Self { status: Told::Own(Box::new(status)), ..self.clone() }
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

    /// Whether this very snapshot was ready for consumers, whatever it says now.
    pub fn was_ready(&self, snapshot: &ObjectMeta) -> bool {
        let current = self.status.current.as_ref().filter(|_| self.is_current());
        let known = current.and_then(|current| current.snapshot_uid.as_ref());
        known.is_some() && known == snapshot.uid.as_ref()
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

    /// Whether there is a number for another attempt.
    pub fn can_count_on(&self) -> bool {
        self.last() < LAST_ATTEMPT
    }

    /// When the next attempt may start, if that is still to come. A new budget does not wait.
    pub fn backoff_until(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.status.next_retry_at.as_ref()?.0;
        (self.has_its_budget() && self.is_for_this_revision() && at > now).then_some(at)
    }

    /// How many snapshots were replaced because they were late, and the UID of the last of them. A new budget begins
    /// anew.
    pub fn late_snapshots(&self) -> (u32, Option<&str>) {
        let late = self.status.late_snapshots.as_ref().filter(|_| self.has_its_budget());
        let count = late.map_or(0, |late| u32::try_from(late.count).unwrap_or(0));
        (count, late.map(|late| late.last_uid.as_str()))
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

/// Reasons that an attempt may have in status, beside those of the importer.
const ENDINGS: [Reason; 17] = [
    Reason::NameConflict,
    Reason::QuotaExceeded,
    Reason::NamespaceTerminating,
    Reason::NotBinding,
    Reason::InternalError,
    Reason::OldChildTerminating,
    Reason::StorageClassNotFound,
    Reason::SnapshotClassNotFound,
    Reason::SnapshotClassMismatch,
    Reason::Rejected,
    Reason::PodNotStarted,
    Reason::Lost,
    Reason::LostRepeatedly,
    Reason::Superseded,
    Reason::RetriesExhausted,
    Reason::Succeeded,
    Reason::InvalidSpec,
];

/// Every reason that an attempt may have in status.
pub fn endings() -> impl Iterator<Item = Reason> {
    ENDINGS.into_iter().chain(ImportReason::ALL.into_iter().map(Reason::Import))
}

/// The reason that stands in a condition for the reason of an attempt.
pub fn reason_of(text: &str) -> Reason {
    endings()
        .find(|reason| reason.as_str() == text)
        .unwrap_or(Reason::Import(ImportReason::Internal))
}
