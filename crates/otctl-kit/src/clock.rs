//! The one place that reads the time. Decisions get it as an argument; tests set it.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

/// Tells the time of day and waits for it.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits until it is `at` or later; returns at once when it already is.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()>;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// A clock that was set, or a machine that was suspended, is noticed after this time at most.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while let Some(left) = until(self.now(), at) {
                tokio::time::sleep(left.min(LOOK_AGAIN)).await;
            }
        })
    }
}

/// How long it is from `now` to `at`; none when that has passed.
#[must_use]
pub fn until(now: Timestamp, at: Timestamp) -> Option<Duration> {
    Duration::try_from(at.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// The time `delay` after `now`, at most the end of time.
#[must_use]
pub fn after(now: Timestamp, delay: Duration) -> Timestamp {
    now.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// The time `delay` before `at`, at least the beginning of time.
#[must_use]
pub fn before(at: Timestamp, delay: Duration) -> Timestamp {
    at.saturating_sub(delay).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arithmetic_saturates() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(until(now, now), None);
        assert_eq!(until(after(now, Duration::from_secs(5)), now), None);
        assert_eq!(until(now, after(now, Duration::from_secs(5))), Some(Duration::from_secs(5)));
        assert_eq!(after(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(before(now, Duration::MAX), Timestamp::MIN);
    }

    #[tokio::test]
    async fn a_time_that_has_passed_is_not_waited_for() {
        let clock = SystemClock;
        let past = clock.now().saturating_sub(Duration::from_secs(1)).unwrap();
        clock.sleep_until(past).await;
        let soon = after(clock.now(), Duration::from_millis(20));
        clock.sleep_until(soon).await;
        assert!(clock.now() >= soon);
    }
}
