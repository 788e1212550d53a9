//! What was asked, as data.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::fault::{Call, Fault};

/// One request, or one event that a fault struck.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its line.
    pub call: Call,
    /// How many of this line there were up to it, from 1.
    pub nth: usize,
    /// What came of it.
    pub outcome: Outcome,
    /// The fault that struck it.
    pub fault: Option<String>,
    /// When it arrived here.
    pub arrived: Instant,
    /// When the answer was given, or was known not to come.
    pub ended: Option<Instant>,
}

/// What came of a request, as its sender saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Open,
    /// This code.
    Answered(u16),
    /// The connection broke.
    Broken,
}

/// Everything so far.
#[derive(Debug)]
pub(super) struct Log {
    inner: Mutex<Inner>,
    strikes: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    counts: HashMap<Call, usize>,
}

impl Default for Log {
    fn default() -> Self {
        Self { inner: Mutex::default(), strikes: watch::Sender::new(0) }
    }
}

impl Log {
    /// Enters one; gives its place.
    pub(super) fn enter(&self, call: &Call, fault: Option<&Fault>) -> usize {
        let mut inner = self.lock();
        let count = inner.counts.entry(call.clone()).or_default();
        *count += 1;
        let entry = Entry {
            call: call.clone(),
            nth: *count,
            outcome: Outcome::Open,
            fault: fault.map(ToString::to_string),
            arrived: Instant::now(),
            ended: None,
        };
        inner.entries.push(entry);
        let place = inner.entries.len() - 1;
        drop(inner);
        self.strikes.send_if_modified(|strikes| {
            *strikes += usize::from(fault.is_some());
            fault.is_some()
        });
        place
    }

    /// Says what came of the one at this place.
    pub(super) fn end(&self, place: usize, outcome: Outcome) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(place) {
            entry.outcome = outcome;
            entry.ended = Some(Instant::now());
        }
    }

    pub(super) fn since(&self, from: usize) -> Vec<Entry> {
        self.lock().entries[from..].to_vec()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    pub(super) fn strikes(&self) -> usize {
        *self.strikes.borrow()
    }

    pub(super) async fn struck(&self, times: usize) {
        let waited = self.strikes.subscribe().wait_for(|strikes| *strikes >= times).await.map(drop);
        waited.expect("the sender lives in self");
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
