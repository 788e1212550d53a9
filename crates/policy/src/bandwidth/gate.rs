//! Which shares an import takes, and for how long: the borrower's side of [`lender`](super::lender).
//!
//! What was told may arrive late, twice, in another order, or from one who lends no more. So a share carries a [`Fence`],
//! and none is taken that is not above the highest taken before; and it ends at a reading of the import's own clock, so
//! that no delay makes it last longer. What is left to the import in any case is its fallback.

use std::time::Duration;

/// How long a share above the fallback lasts from the reading of the import's clock that it is counted from.
pub const VALIDITY: Duration = Duration::from_secs(5);

/// Orders all that an import is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// Who tells: higher for each who lends after another.
    pub term: u64,
    /// Grows with whatever one lender tells.
    pub serial: u64,
}

/// What an import is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes per second; `None` is no limit.
    pub share: Option<u64>,
    /// Bytes per second once the share has ended; `None` is no limit.
    pub fallback: Option<u64>,
    /// Absent from one who knows of no fences.
    pub fence: Option<Fence>,
    /// When the share ends if it is above the fallback, on the import's clock. A fenced share without it is not lent.
    pub until: Option<Duration>,
}

/// What an import may use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Bytes per second; `None` is no limit.
    pub share: Option<u64>,
    /// Bytes per second once the share has ended; `None` is no limit.
    pub fallback: Option<u64>,
    /// For how long from now the share holds; `None` is until something else is told.
    pub lasts: Option<Duration>,
}

/// What was told is not above what was taken before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a later share was taken before")]
pub struct Stale;

/// What one import has taken.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    taken: Option<Fence>,
}

impl Gate {
    /// Takes what was told when the import's clock is at `clock`. Without a fence it is taken as long as none was ever
    /// seen, and lasts [`VALIDITY`] from now.
    ///
    /// # Errors
    /// When it is not above what was taken before; nothing changes then.
    pub fn take(&mut self, told: &Told, clock: Duration) -> Result<Holding, Stale> {
        if self.taken.is_some() && told.fence <= self.taken {
            return Err(Stale);
        }
        self.taken = told.fence;
        let exceeds = told.share.unwrap_or(u64::MAX) > told.fallback.unwrap_or(u64::MAX);
        let lasts = exceeds.then(|| told.lasts(clock));
        Ok(Holding { share: told.share, fallback: told.fallback, lasts })
    }

    /// The highest fence that was taken.
    #[must_use]
    pub fn taken(&self) -> Option<Fence> {
        self.taken
    }
}

impl Told {
    fn lasts(&self, clock: Duration) -> Duration {
        if self.fence.is_none() {
            return VALIDITY;
        }
        // An end further away was counted from a reading that this clock has not reached: from another process's.
        let until = self.until.filter(|until| *until <= clock + VALIDITY);
        until.map_or(Duration::ZERO, |until| until.saturating_sub(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Duration = Duration::from_secs(1000);

    fn told(term: u64, serial: u64) -> Told {
        let fence = Some(Fence { term, serial });
        Told { share: Some(100), fallback: Some(10), fence, until: Some(CLOCK + VALIDITY) }
    }

    #[test]
    fn only_what_is_above_the_highest_is_taken() {
        let mut gate = Gate::default();
        assert!(gate.take(&told(2, 5), CLOCK).is_ok());
        for stale in [told(2, 5), told(2, 4), told(1, 9), Told { fence: None, ..told(9, 9) }] {
            assert_eq!(gate.take(&stale, CLOCK), Err(Stale), "{stale:?}");
        }
        assert_eq!(gate.taken(), Some(Fence { term: 2, serial: 5 }));
        assert!(gate.take(&told(2, 6), CLOCK).is_ok());
        assert!(gate.take(&told(3, 1), CLOCK).is_ok());
    }

    #[test]
    fn a_share_ends_where_it_says_however_late_it_comes() {
        let lasts = |until, clock| {
            Gate::default().take(&Told { until, ..told(1, 1) }, clock).unwrap().lasts.unwrap()
        };
        let end = CLOCK + VALIDITY;
        assert_eq!(lasts(Some(end), CLOCK), VALIDITY);
        assert_eq!(lasts(Some(end), CLOCK + Duration::from_secs(4)), Duration::from_secs(1));
        assert_eq!(lasts(Some(end), end), Duration::ZERO);
        assert_eq!(lasts(Some(end), end * 2), Duration::ZERO);
        assert_eq!(lasts(None, CLOCK), Duration::ZERO, "nothing is lent at first contact");
        let ahead = Duration::from_millis(1);
        assert_eq!(lasts(Some(end), CLOCK - ahead), Duration::ZERO, "another process's clock");
    }

    #[test]
    fn a_share_up_to_the_fallback_does_not_end() {
        let told = Told { share: Some(10), ..told(1, 1) };
        assert_eq!(Gate::default().take(&told, CLOCK * 9).unwrap().lasts, None);
        let free = Told { share: None, fallback: None, ..told };
        assert_eq!(Gate::default().take(&free, CLOCK).unwrap().lasts, None);
    }

    #[test]
    fn one_who_knows_of_no_fences_is_heard_as_ever_until_a_fence_was_seen() {
        let (mut gate, plain) = (Gate::default(), Told { fence: None, until: None, ..told(0, 0) });
        for _ in 0..2 {
            assert_eq!(gate.take(&plain, CLOCK).unwrap().lasts, Some(VALIDITY));
        }
        gate.take(&told(1, 1), CLOCK).unwrap();
        assert_eq!(gate.take(&plain, CLOCK), Err(Stale));
    }
}
