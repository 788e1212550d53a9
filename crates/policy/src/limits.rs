//! Limits that belong together, built so that they cannot contradict each other.
//!
//! The bounds of each policy key are in `keys.rs`.

use std::time::Duration;

/// From the first wait to the longest one; the longest is never below the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffRange {
    base: Duration,
    cap: Duration,
}

impl BackoffRange {
    /// A `max` below `base` counts as equal to it: whoever raises the first wait alone means it.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, cap: max.max(base) }
    }

    /// The wait before the first retry.
    #[must_use]
    pub const fn base(self) -> Duration {
        self.base
    }

    /// The longest wait, with jitter.
    #[must_use]
    pub const fn cap(self) -> Duration {
        self.cap
    }
}

/// How often, and how soon, a failed attempt is followed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Retries after a failed first attempt.
    pub retry_limit: u32,
    /// The waits before them.
    pub backoff: BackoffRange,
}

impl RetryLimits {
    /// Whether a budget with `charged` downloads has room for one more.
    #[must_use]
    pub const fn has_room_after(&self, charged: u32) -> bool {
        charged <= self.retry_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::{hours, minutes};

    #[test]
    fn the_cap_is_never_below_the_base() {
        assert_eq!(BackoffRange::new(minutes(5), hours(1)).cap(), hours(1));
        assert_eq!(BackoffRange::new(hours(2), hours(1)).cap(), hours(2));
    }

    #[test]
    fn a_budget_is_the_retries_and_one() {
        let backoff = BackoffRange::new(minutes(5), hours(1));
        let fits = |retry_limit| {
            let limits = RetryLimits { retry_limit, backoff };
            (0..10).take_while(|charged| limits.has_room_after(*charged)).count()
        };
        assert_eq!((fits(0), fits(2)), (1, 3));
    }
}
