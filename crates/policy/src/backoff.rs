//! How long to wait before the n-th retry: doubling, capped, with jitter that only lengthens.

use std::time::Duration;

use crate::limits::BackoffRange;

/// Jitter adds at most this many thousandths of the wait.
const MAX_JITTER: u64 = 100;

/// The wait before retry number `attempt`, where 1 is the first retry (and 0 counts as 1).
///
/// Without a seed it is `base` doubled for each further retry. A seed adds up to a tenth, always
/// the same for the same seed and retry. The cap, the larger of `max` and `base`, holds after
/// jitter.
#[must_use]
pub fn delay(attempt: u32, base: Duration, max: Duration, jitter_seed: Option<u64>) -> Duration {
    let cap = BackoffRange::new(base, max).cap();
    let plain = base.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(cap);
    let jitter =
        jitter_seed.map_or(Duration::ZERO, |seed| jitter(plain, seed ^ u64::from(attempt)));
    plain.saturating_add(jitter).min(cap)
}

/// In whole milliseconds, so that a stored time stays readable.
fn jitter(plain: Duration, seed: u64) -> Duration {
    let thousandths = u128::from(scramble(seed) % (MAX_JITTER + 1));
    let extra = plain.as_millis() * thousandths / 1_000;
    Duration::from_millis(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// The output step of SplitMix64: neighbouring seeds give unrelated numbers.
fn scramble(seed: u64) -> u64 {
    let a = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::duration::{format, hours, minutes};

    #[test]
    fn doubles_up_to_the_cap() {
        let waits: Vec<String> =
            (1..=6).map(|n| format(delay(n, minutes(5), hours(1), None))).collect();
        assert_eq!(waits, ["5m", "10m", "20m", "40m", "1h", "1h"]);
    }

    #[test]
    fn a_base_above_the_maximum_is_the_cap() {
        assert_eq!(delay(1, hours(2), hours(1), None), hours(2));
        assert_eq!(delay(9, hours(2), hours(1), Some(7)), hours(2));
    }

    #[test]
    fn jitter_spreads_equal_failures() {
        let mut waits: Vec<_> =
            (0..100).map(|seed| delay(1, minutes(5), hours(1), Some(seed))).collect();
        waits.sort();
        waits.dedup();
        assert!(waits.len() > 40, "only {} different waits of 100", waits.len());
        assert!(waits.iter().all(|wait| (minutes(5)..=Duration::from_secs(330)).contains(wait)));
    }

    fn any_wait() -> impl Strategy<Value = Duration> {
        prop_oneof![(0..=86_400_u64).prop_map(Duration::from_secs), any::<Duration>()]
    }

    proptest! {
        #[test]
        fn monotone_without_jitter(a in any::<u32>(), b in any::<u32>(), base in any_wait(), max in any_wait()) {
            let (first, later) = (a.min(b), a.max(b));
            prop_assert!(delay(first, base, max, None) <= delay(later, base, max, None));
            prop_assert_eq!(delay(1, base, max, None), base);
        }

        #[test]
        fn jitter_only_lengthens_and_the_cap_holds_after_it(
            attempt in prop_oneof![0..40_u32, any::<u32>()], base in any_wait(), max in any_wait(), seed in any::<u64>()
        ) {
            let plain = delay(attempt, base, max, None);
            let jittered = delay(attempt, base, max, Some(seed));
            prop_assert!(plain <= jittered);
            prop_assert!(jittered <= max.max(base));
            prop_assert!(jittered - plain <= plain / 10);
            prop_assert_eq!(jittered, delay(attempt, base, max, Some(seed)));
        }
    }
}
