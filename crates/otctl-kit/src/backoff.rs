//! The delay between two tries of the same thing.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest that a server can ask us to wait; some ask for a year.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The delay after so many failures in a row: doubled each time within `range`, the upper half of it random. `jitter` is a
/// random number in 0..1.
pub(crate) fn jittered(failures: u32, range: RangeInclusive<Duration>, jitter: f64) -> Duration {
    let (from, to) = range.into_inner();
    let doublings = failures.saturating_sub(1).min(31);
    let full = from.saturating_mul(1 << doublings).min(to);
    full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}
