//! What imports receive, counted while they run. An import tells how much it has received since it began, and the status
//! of its attempt how much that was in the end; each byte is counted once by whichever tells it first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntCounter;

use super::families::RECEIVED;

/// The bytes of all imports. Clones share them.
#[derive(Clone, Debug)]
pub struct Traffic {
    bytes: IntCounter,
    /// Of each import on record, by the UID of its Job: how much it is known to have received.
    known: Arc<Mutex<HashMap<String, u64>>>,
}

impl Default for Traffic {
    fn default() -> Self {
        let bytes = RECEIVED.counters().with_label_values::<&str>(&[]);
        Self { bytes, known: Arc::default() }
    }
}

impl Traffic {
    /// What is registered.
    pub fn counter(&self) -> IntCounter {
        self.bytes.clone()
    }

    /// This process leads from now on: what imports have received until now was counted by others.
    pub fn take_over(&self) {
        self.lock().clear();
    }

    /// An import is on record that has received nothing yet.
    pub fn opened(&self, job_uid: &str) {
        self.lock().entry(job_uid.to_owned()).or_insert(0);
    }

    /// A running import has received so much. One that began before this process led is counted from here.
    pub fn heard(&self, job_uid: &str, received: u64) {
        match self.lock().entry(job_uid.to_owned()) {
            Entry::Occupied(mut known) => self.count_up_to(known.get_mut(), received),
            Entry::Vacant(unknown) => {
                unknown.insert(received);
            }
        }
    }

    /// An import has ended, having received so much if that is known.
    pub fn closed(&self, job_uid: &str, received: Option<u64>) {
        let known = self.lock().remove(job_uid);
        if let Some((mut known, received)) = known.zip(received) {
            self.count_up_to(&mut known, received);
        }
    }

    /// An import is of no interest any more.
    pub fn forget(&self, job_uid: &str) {
        self.lock().remove(job_uid);
    }

    fn count_up_to(&self, known: &mut u64, received: u64) {
        self.bytes.inc_by(received.saturating_sub(*known));
        *known = received.max(*known);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: impl FnOnce(&Traffic), bytes: u64) {
        let traffic = Traffic::default();
        what(&traffic);
        assert_eq!(traffic.counter().get(), bytes);
    }

    #[test]
    fn a_byte_is_counted_once_whoever_tells_it() {
        let run = |traffic: &Traffic| {
            traffic.opened("a");
            [10, 30, 30].into_iter().for_each(|received| traffic.heard("a", received));
            traffic.closed("a", Some(50));
            traffic.closed("a", Some(50));
        };
        check(run, 50);
    }

    #[test]
    fn one_that_ends_before_it_is_asked_is_counted_by_its_status() {
        let run = |traffic: &Traffic| {
            traffic.opened("a");
            traffic.closed("a", Some(7));
        };
        check(run, 7);
    }

    #[test]
    fn one_that_vanishes_keeps_what_it_told() {
        let run = |traffic: &Traffic| {
            traffic.opened("a");
            traffic.heard("a", 20);
            traffic.closed("a", None);
        };
        check(run, 20);
    }

    #[test]
    fn what_others_have_counted_is_not_counted_again() {
        let run = |traffic: &Traffic| {
            traffic.opened("a");
            traffic.heard("a", 10);
            traffic.take_over();
            traffic.heard("a", 100);
            traffic.heard("a", 105);
            traffic.closed("a", Some(107));
            traffic.closed("b", Some(1000));
        };
        check(run, 17);
    }

    #[test]
    fn it_never_goes_back() {
        let run = |traffic: &Traffic| {
            traffic.opened("a");
            traffic.heard("a", 30);
            traffic.heard("a", 5);
            traffic.heard("a", 31);
        };
        check(run, 31);
    }
}
