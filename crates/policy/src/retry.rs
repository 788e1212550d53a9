//! An attempt failed: is there another one, and when?
//!
//! Which failure is of which class is the importer's to say, and what a budget is the image's.

use std::time::Duration;

use jiff::Timestamp;

use crate::backoff;
use crate::limits::RetryLimits;

/// What a failure says about trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Would fail the same way again; a person must change something.
    Terminal,
    /// May succeed when tried again.
    Transient,
    /// Something that the attempt needs is not there yet; goes on when it appears.
    Waiting,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Another attempt, not before this time.
    At(Timestamp),
    /// It would be tried again, but the budget is spent.
    Exhausted,
    /// No further attempt would help.
    Terminal,
    /// Nothing is charged and no time set: the next attempt waits for the cause to go.
    Waiting,
}

/// Decides what follows an attempt that failed at `now`.
///
/// `charged` counts the downloads of this budget, the failed attempt's own included. `retry_after`
/// is what the server asked for; it lengthens the wait, up to the cap of the backoff. The same
/// `seed` gives the same answer, so give one that differs between images.
#[must_use]
pub fn decide(
    charged: u32,
    class: FailureClass,
    limits: &RetryLimits,
    now: Timestamp,
    seed: u64,
    retry_after: Option<Duration>,
) -> Retry {
    match class {
        FailureClass::Terminal => Retry::Terminal,
        FailureClass::Waiting => Retry::Waiting,
        FailureClass::Transient if !limits.has_room_after(charged) => Retry::Exhausted,
        FailureClass::Transient => {
            let (base, cap) = (limits.backoff.base(), limits.backoff.cap());
            let backoff = backoff::delay(charged, base, cap, Some(seed));
            let asked = retry_after.unwrap_or_default().min(cap);
            Retry::At(later(now, backoff.max(asked)))
        }
    }
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Policy;
    use crate::duration::{hours, minutes};

    fn now() -> Timestamp {
        "2026-05-01T12:00:00Z".parse().unwrap()
    }

    fn transient(charged: u32, retry_after: Option<Duration>) -> Retry {
        decide(
            charged,
            FailureClass::Transient,
            &Policy::default().retry_limits(),
            now(),
            1,
            retry_after,
        )
    }

    fn wait(retry: Retry) -> Duration {
        let Retry::At(at) = retry else { panic!("expected a time, got {retry:?}") };
        at.duration_since(now()).unsigned_abs()
    }

    #[test]
    fn terminal_and_waiting_need_no_budget() {
        for charged in [0, 1, 99] {
            let decide =
                |class| decide(charged, class, &Policy::default().retry_limits(), now(), 1, None);
            assert_eq!(decide(FailureClass::Terminal), Retry::Terminal);
            assert_eq!(decide(FailureClass::Waiting), Retry::Waiting);
        }
    }

    #[test]
    fn two_retries_are_three_downloads() {
        assert!(matches!(transient(1, None), Retry::At(_)));
        assert!(matches!(transient(2, None), Retry::At(_)));
        assert_eq!(transient(3, None), Retry::Exhausted);
        assert_eq!(transient(4, None), Retry::Exhausted);
    }

    #[test]
    fn without_retries_one_download_is_all() {
        let limits = Policy { retry_limit: 0, ..Policy::default() }.retry_limits();
        assert_eq!(decide(1, FailureClass::Transient, &limits, now(), 1, None), Retry::Exhausted);
    }

    #[test]
    fn an_uncharged_failure_waits_like_the_first() {
        let limits = Policy { retry_limit: 0, ..Policy::default() }.retry_limits();
        let wait = wait(decide(0, FailureClass::Transient, &limits, now(), 1, None));
        assert!((minutes(5)..minutes(6)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn waits_double() {
        assert!((minutes(5)..minutes(6)).contains(&wait(transient(1, None))));
        assert!((minutes(10)..minutes(12)).contains(&wait(transient(2, None))));
    }

    #[test]
    fn the_server_may_ask_for_longer_up_to_the_cap() {
        assert_eq!(wait(transient(1, Some(minutes(45)))), minutes(45));
        assert_eq!(wait(transient(1, Some(hours(48)))), hours(1));
        assert_eq!(transient(1, Some(Duration::from_secs(1))), transient(1, None));
        assert_eq!(transient(3, Some(minutes(1))), Retry::Exhausted);
    }

    #[test]
    fn the_end_of_time_is_no_panic() {
        let limits = Policy::default().retry_limits();
        let retry = decide(1, FailureClass::Transient, &limits, Timestamp::MAX, 1, None);
        assert_eq!(retry, Retry::At(Timestamp::MAX));
    }

    proptest! {
        #[test]
        fn a_budget_allows_its_retries_and_no_more(
            retry_limit in 0..=20_u32, charged in 1..50_u32, seed in any::<u64>(), after in any::<Option<Duration>>()
        ) {
            let limits = Policy { retry_limit, ..Policy::default() }.retry_limits();
            let retry = decide(charged, FailureClass::Transient, &limits, now(), seed, after);
            prop_assert_eq!(retry == Retry::Exhausted, charged > retry_limit);
            if let Retry::At(_) = retry {
                prop_assert!((limits.backoff.base()..=limits.backoff.cap()).contains(&wait(retry)));
            }
        }
    }
}
