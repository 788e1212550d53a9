//! How much of the bandwidth limit each running import may use.
//!
//! An import is told its share over a connection that may be down; until it hears the new one it
//! may use what it was told last. So a share is given out again only when its holder has heard of
//! less, or its time has lapsed: the shares in use never add up to more than the limit.

pub mod gate;
pub mod lender;

/// A running import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Tells it from the others.
    pub id: String,
    /// The most it uses, in bytes per second, should it not be reached now: the share it was told
    /// last; the [`fallback`] once that has lapsed; 0 when it waits for its first share.
    pub may_use: u64,
}

/// What one import may use from when it hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The import's id.
    pub id: String,
    /// Bytes per second; `None` is no limit, 0 is a pause until others have heard of less.
    pub bytes_per_second: Option<u64>,
}

/// What an import uses when nobody has told it a share for a while, in bytes per second.
///
/// With no more imports than slots the fallbacks together are within the limit.
#[must_use]
pub fn fallback(limit: u64, concurrency: u32) -> u64 {
    limit / u64::from(concurrency.max(1))
}

/// Each running import's share, in the order given: an equal part of the limit, or what is left of
/// it while others may still use more.
#[must_use]
pub fn share(limit: Option<u64>, running: &[Running]) -> Vec<Share> {
    let Some(limit) = limit else {
        let free = |import: &Running| Share { id: import.id.clone(), bytes_per_second: None };
        return running.iter().map(free).collect();
    };
    let equal = limit / u64::try_from(running.len().max(1)).expect("a length fits 64 bits");
    let mut in_use = running.iter().fold(0, |sum: u64, import| sum.saturating_add(import.may_use));
    let mut shares = Vec::with_capacity(running.len());
    for import in running {
        let others = in_use.saturating_sub(import.may_use);
        let share = equal.min(limit.saturating_sub(others));
        // Reached or not, it now uses at most the larger of the two.
        in_use = others.saturating_add(share.max(import.may_use));
        shares.push(Share { id: import.id.clone(), bytes_per_second: Some(share) });
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running(uses: &[u64]) -> Vec<Running> {
        let import = |(n, may_use): (usize, &u64)| Running { id: n.to_string(), may_use: *may_use };
        uses.iter().enumerate().map(import).collect()
    }

    fn shares(limit: u64, uses: &[u64]) -> Vec<u64> {
        share(Some(limit), &running(uses)).iter().map(|s| s.bytes_per_second.unwrap()).collect()
    }

    #[test]
    fn no_limit_is_no_share() {
        let shares = share(None, &running(&[5, 0]));
        assert!(shares.iter().all(|share| share.bytes_per_second.is_none()));
        assert_eq!(shares.len(), 2);
    }

    #[test]
    fn one_import_has_all() {
        assert_eq!(shares(100, &[0]), [100]);
        assert_eq!(shares(100, &[]), [0_u64; 0]);
    }

    #[test]
    fn a_newcomer_waits_until_the_others_have_heard() {
        assert_eq!(shares(100, &[100, 0]), [50, 0]);
        assert_eq!(shares(100, &[50, 0]), [50, 50]);
    }

    #[test]
    fn what_an_unreachable_import_may_use_is_kept_for_it() {
        assert_eq!(shares(90, &[60, 30, 0]), [30, 30, 0]);
        assert_eq!(shares(90, &[60, 15, 15]), [30, 15, 15]);
    }

    #[test]
    fn a_lowered_limit_shrinks_every_share() {
        assert_eq!(shares(40, &[50, 50]), [0, 0]);
        assert_eq!(shares(40, &[0, 0]), [20, 20]);
    }

    #[test]
    fn fallbacks_of_all_slots_are_within_the_limit() {
        assert_eq!(fallback(100, 3), 33);
        assert_eq!(fallback(100, 0), 100);
    }

    proptest! {
        #[test]
        fn never_more_in_use_than_the_limit_or_before(
            limit in any::<u64>(), uses in proptest::collection::vec(prop_oneof![0..1_000_u64, any::<u64>()], 0..20)
        ) {
            let before: u128 = uses.iter().map(|u| u128::from(*u)).sum();
            let given = shares(limit, &uses);
            let after: u128 = given.iter().zip(&uses).map(|(share, used)| u128::from(*share.max(used))).sum();
            // A saturated sum of uses is above any limit, and then nothing is given.
            prop_assert!(after <= before.max(u128::from(limit)));
        }

        #[test]
        fn all_reached_twice_are_equal(limit in 65_536_u64.., uses in proptest::collection::vec(0..1_000_000_u64, 1..20)) {
            let mut held = uses;
            for _ in 0..3 {
                held = shares(limit, &held);
            }
            let equal = limit / u64::try_from(held.len()).unwrap();
            prop_assert!(held.iter().all(|share| *share == equal), "{:?}", held);
        }
    }
}
