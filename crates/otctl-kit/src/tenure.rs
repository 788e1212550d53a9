//! Until when this process may write. The election says when that ends; every write asks the boot-time clock before it is
//! sent, so that a process that was stopped, or whose machine slept, begins none after it, whatever its timers say.
//!
//! It saves useless work and is no fence: a write that was sent in time may arrive late, and what it is guarded by is in
//! it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, SystemClock};
use crate::leader::{BootClock, Moment, boot_clock};

/// Until when this process may write; cheap to clone.
#[derive(Clone)]
pub struct Tenure {
    ends_nanos: Arc<AtomicU64>,
    term: Arc<AtomicU64>,
    boot: BootClock,
}

impl Tenure {
    /// Of a process that stands for no lease. Its term is when it began, in milliseconds, so that the next has a higher
    /// one.
    #[must_use]
    pub fn without_end() -> Self {
        let began = u64::try_from(SystemClock.now().as_millisecond()).unwrap_or(0);
        let (ends_nanos, term) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(began.into()));
        Self { ends_nanos, term, boot: boot_clock() }
    }

    /// Of a candidate by that clock, which has not won yet.
    #[must_use]
    pub fn not_begun(boot: BootClock) -> Self {
        Self { ends_nanos: Arc::default(), term: Arc::default(), boot }
    }

    /// The lease was won for this term.
    pub fn set_term(&self, term: u64) {
        self.term.store(term, Ordering::SeqCst);
    }

    /// Which term this is, among those of all holders of the lease: higher than any before, as long as nobody deletes the
    /// lease. For what is guarded where it arrives, and is no write to the API server.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::SeqCst)
    }

    /// It ends at that moment, or has ended.
    pub fn set_end(&self, ends: Option<Moment>) {
        let nanos = ends.map_or(0, |ends| u64::try_from(ends.as_nanos()).unwrap_or(u64::MAX));
        self.ends_nanos.store(nanos, Ordering::SeqCst);
    }

    /// Whether a write may be sent now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        (self.boot)() < Moment::from_nanos(self.ends_nanos.load(Ordering::SeqCst))
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
