//! How fast bytes may be taken: a slice that time fills again. No clock and no socket here; where
//! both meet is `bandwidth`'s matter.
//!
//! What may be taken is never more than a slice, and grows at the rate. So between two moments at
//! most what the rate brings in that time is taken, and one slice.

use std::time::Duration;

use policy::bandwidth::gate::Holding;
use tokio::time::Instant;

/// A slice at most rates, in bytes, and the most that is taken at once.
pub const SLICE: usize = 64 * 1024;

/// A slice at a low rate is this part of a second, so that it is smooth.
const SLICES_PER_SECOND: u64 = 8;

/// A slice at a high rate is this part of a second: timers wake us a millisecond late, and what
/// does not fit into the slice by then is lost.
const WAKES_PER_SECOND: u64 = 250;

/// Bytes are counted in these parts, so that nothing is lost by rounding: a rate in bytes per
/// second is as many parts per nanosecond.
const PARTS_PER_BYTE: u128 = 1_000_000_000;

/// How fast one import may take bytes, and what it has taken.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Bytes per second; none: no limit.
    granted: Option<u64>,
    fallback: Option<u64>,
    /// When the grant ends.
    lapses_at: Option<Instant>,
    /// What may be taken at once, in parts of a byte.
    left: u128,
    settled_at: Instant,
}

/// What may be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Take at most so many bytes.
    Take(usize),
    /// Ask again after this, or when the share changes.
    Wait(Duration),
}

impl Pacer {
    /// At most `fallback` bytes per second until something else is granted.
    #[must_use]
    pub fn new(fallback: Option<u64>, now: Instant) -> Self {
        let left = room(fallback);
        Self { granted: fallback, fallback, lapses_at: None, left, settled_at: now }
    }

    /// From `now` on this holds.
    pub fn grant(&mut self, holding: Holding, now: Instant) {
        self.settle(now);
        self.granted = holding.share;
        self.fallback = holding.fallback;
        self.left = self.left.min(room(self.granted));
        self.lapses_at = holding.lasts.map(|lasts| now + lasts);
    }

    /// Bytes per second that are allowed at `now`; none: no limit.
    #[must_use]
    pub fn rate(&self, now: Instant) -> Option<u64> {
        if self.lapses_at.is_some_and(|end| end <= now) { self.fallback } else { self.granted }
    }

    /// What may be done at `now`.
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.settle(now);
        if self.granted.is_none() {
            return Turn::Take(SLICE);
        }
        let room = room(self.granted);
        // Half a slice at least, so that bytes do not come one by one.
        let enough = (room / 2).max(PARTS_PER_BYTE);
        if self.left >= enough {
            let bytes = usize::try_from(self.left / PARTS_PER_BYTE).unwrap_or(SLICE);
            return Turn::Take(bytes.min(SLICE));
        }
        let nanos = (enough - self.left).div_ceil(per_nanosecond(self.granted));
        Turn::Wait(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// So many bytes were taken at `now`, at most what the turn allowed.
    pub fn took(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        if self.granted.is_some() {
            self.left = self.left.saturating_sub(bytes as u128 * PARTS_PER_BYTE);
        }
    }

    /// Adds what the time up to `now` brought, at the rate that held.
    fn settle(&mut self, now: Instant) {
        if let Some(end) = self.lapses_at.filter(|end| *end <= now) {
            self.fill(end);
            self.granted = self.fallback;
            self.left = self.left.min(room(self.granted));
            self.lapses_at = None;
        }
        self.fill(now);
    }

    fn fill(&mut self, until: Instant) {
        let nanos = until.saturating_duration_since(self.settled_at).as_nanos();
        let brought = nanos.saturating_mul(per_nanosecond(self.granted));
        self.left = self.left.saturating_add(brought).min(room(self.granted));
        self.settled_at = self.settled_at.max(until);
    }
}

/// The most bytes that are taken at once, beyond what a rate in bytes per second brings.
#[must_use]
pub fn slice(rate: u64) -> u64 {
    (rate / SLICES_PER_SECOND).clamp(1, SLICE as u64).max(rate / WAKES_PER_SECOND)
}

fn room(rate: Option<u64>) -> u128 {
    PARTS_PER_BYTE * u128::from(rate.map_or(SLICE as u64, slice))
}

/// Parts of a byte per nanosecond. A rate of nothing would never end, so it is a byte per second;
/// without a limit a slice is always full.
fn per_nanosecond(rate: Option<u64>) -> u128 {
    rate.map_or(u128::MAX, |rate| u128::from(rate.max(1)))
}

#[cfg(test)]
mod tests;
