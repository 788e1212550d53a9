//! The faults of one run, and which of them were met.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Call, Fault};

/// Faults that wait to be met. Clones are the same faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    faults: Vec<Counted>,
    writes: usize,
}

/// A fault, how many of those that are like its pattern were seen, and how many of them it struck.
#[derive(Debug)]
struct Counted {
    fault: Fault,
    seen: usize,
    struck: usize,
}

impl Counted {
    /// Whether it struck as often as it was meant to; one that always strikes, once.
    fn is_met(&self) -> bool {
        self.struck >= self.fault.when.strikes()
    }
}

impl Faults {
    /// One more. It counts from now on.
    pub fn add(&self, fault: Fault) {
        self.lock().faults.push(Counted { fault, seen: 0, struck: 0 });
    }

    /// Takes all of them back; how often they struck.
    pub fn clear(&self) -> usize {
        self.lock().faults.drain(..).map(|counted| counted.struck).sum()
    }

    /// How many writes were sent by all controllers, struck ones included.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// The faults that did not strike as often as they should, because what is meant did not come or another fault struck
    /// first: a test that relies on one should find none.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        let inner = self.lock();
        let unmet = inner.faults.iter().filter(|counted| !counted.is_met());
        let told = unmet.map(|Counted { fault, seen, struck }| {
            format!("{fault} (seen {seen}, struck {struck})")
        });
        told.collect()
    }

    /// Counts `call`; says what happens to it: the first fault that is meant for it.
    pub(crate) fn strike(&self, call: &Call) -> Option<Fault> {
        let mut inner = self.lock();
        inner.writes += usize::from(call.verb.is_write());
        let mut struck = None;
        for counted in &mut inner.faults {
            if counted.fault.when.pattern.matches(call) {
                counted.seen += 1;
                if struck.is_none() && counted.fault.when.is_struck(counted.seen) {
                    counted.struck += 1;
                    struck = Some(counted.fault.clone());
                }
            }
        }
        struck
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
