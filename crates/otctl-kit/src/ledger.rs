//! The ledger: slots as entries of an AdmissionQueue's status. Pure steps of the queue's side of `docs/ledger.md`; the
//! entry *is* the slot, and only one compare-and-swap of the whole status gives or takes it.

use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};

/// What an object's own status says of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The highest number used.
    pub last: i64,
    /// Whether an attempt is on record as running.
    pub is_open: bool,
}

/// What became of the holder of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is there, with this record.
    Present(AttemptRecord),
    /// A consistent read found it gone (or another UID in its place), then neither its Job nor a pod of it.
    Gone,
    /// It cannot be seen, and nothing proves that nothing of it runs.
    Unproven,
}

/// Work that a consistent list found unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The entry that it should have.
    pub entry: ActiveEntry,
    /// Whether it was started: a Job not suspended, or a pod.
    pub is_started: bool,
}

/// Whether the slot of `entry` is given back.
///
/// A number is used up when a higher one was used, or when it is the last and nothing is open. (UID, n) can be opened
/// only once, and only a recorded Job is started, so nothing can run for it any more.
#[must_use]
pub fn is_released(entry: &ActiveEntry, holder: Holder) -> bool {
    match holder {
        Holder::Present(record) => {
            record.last > entry.attempt || (record.last == entry.attempt && !record.is_open)
        }
        Holder::Gone => true,
        Holder::Unproven => false,
    }
}

/// The slots that are taken, after `kept` was made whole from work that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Entries kept and entered again.
    pub active: Vec<ActiveEntry>,
    /// Slots that unstarted work without an entry takes until its object has deleted it.
    pub reserved: usize,
}

/// Makes the ledger whole: started work without an entry is entered, unstarted work counts as occupied.
#[must_use]
pub fn make_whole(kept: Vec<ActiveEntry>, unfinished: &[Unfinished]) -> Occupied {
    let mut occupied = Occupied { active: kept, reserved: 0 };
    for work in unfinished {
        let is_held = |entry: &ActiveEntry| {
            entry.uid == work.entry.uid && entry.attempt == work.entry.attempt
        };
        if occupied.active.iter().any(is_held) {
            continue;
        }
        if work.is_started {
            occupied.active.push(work.entry.clone());
        } else {
            occupied.reserved += 1;
        }
    }
    occupied
}

/// The entry of this UID.
#[must_use]
pub fn entry<'a>(status: Option<&'a AdmissionQueueStatus>, uid: &str) -> Option<&'a ActiveEntry> {
    status?.active.iter().find(|entry| entry.uid == uid)
}

/// Whether the ledger holds this number for this UID.
#[must_use]
pub fn holds(status: Option<&AdmissionQueueStatus>, uid: &str, number: i64) -> bool {
    status.is_some_and(|status| {
        status.active.iter().any(|entry| entry.uid == uid && entry.attempt == number)
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn slot(uid: &str, attempt: i64) -> ActiveEntry {
        ActiveEntry {
            namespace: "lab".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
            attempt,
            ticket: "1".to_owned(),
            host: None,
            since: Time(Timestamp::UNIX_EPOCH),
        }
    }

    fn present(last: i64, is_open: bool) -> Holder {
        Holder::Present(AttemptRecord { last, is_open })
    }

    #[test]
    fn a_slot_is_kept_until_its_number_is_used_up() {
        assert!(!is_released(&slot("a", 2), present(1, false)), "not begun");
        assert!(!is_released(&slot("a", 2), present(2, true)), "running");
        assert!(is_released(&slot("a", 2), present(2, false)), "closed");
        assert!(is_released(&slot("a", 2), present(3, true)), "a later one is open");
    }

    #[test]
    fn a_slot_of_a_missing_object_is_kept_until_that_is_proven() {
        assert!(!is_released(&slot("a", 1), Holder::Unproven));
        assert!(is_released(&slot("a", 1), Holder::Gone));
    }

    #[test]
    fn a_lost_ledger_is_made_whole_from_started_work() {
        let work = [
            Unfinished { entry: slot("a", 1), is_started: true },
            Unfinished { entry: slot("b", 2), is_started: true },
            Unfinished { entry: slot("c", 1), is_started: false },
        ];
        let occupied = make_whole(vec![slot("b", 2)], &work);
        assert_eq!(occupied.active, vec![slot("b", 2), slot("a", 1)]);
        assert_eq!(occupied.reserved, 1);
    }

    #[test]
    fn a_slot_of_another_number_does_not_stand_for_running_work() {
        let work = [Unfinished { entry: slot("a", 1), is_started: true }];
        assert_eq!(make_whole(vec![slot("a", 2)], &work).active.len(), 2);
    }

    #[test]
    fn an_entry_without_work_is_kept() {
        assert_eq!(make_whole(vec![slot("a", 1)], &[]).active, vec![slot("a", 1)]);
    }
}
