//! What running imports may use of the policy's `bandwidthLimit`: the one lender of this process, shared by who tells
//! imports their shares and by who starts them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use otctl_types::import::{Share, Standing};
use policy::Policy;
use policy::bandwidth::gate::Fence;
use policy::bandwidth::lender::{Lender, Offer, Terms};

use crate::imports::Import;
use crate::progress::Elapsed;

/// The lender and the time it counts.
#[derive(Clone, Debug, Default)]
pub struct Bandwidth {
    lender: Arc<Mutex<Lender>>,
    elapsed: Elapsed,
}

/// The limits of this policy.
pub fn terms(policy: &Policy) -> Terms {
    Terms { limit: policy.bandwidth_limit, concurrency: policy.concurrency }
}

/// What an import uses that nobody tells its share, in bytes per second; none is no limit.
pub fn fallback(policy: &Policy) -> Option<u64> {
    let share = |limit| policy::bandwidth::fallback(limit, policy.concurrency);
    policy.bandwidth_limit.map(share)
}

/// What an import is told, as it is sent.
pub fn share(offer: &Offer) -> Share {
    let Fence { term, serial } = offer.fence;
    Share {
        bytes_per_second: offer.share,
        fallback_bytes_per_second: offer.fallback,
        fence: Some(otctl_types::import::Fence { term, serial }),
        until_ms: offer.until.and_then(|until| until.as_millis().try_into().ok()),
    }
}

impl Bandwidth {
    /// A lender whose time is `elapsed`.
    pub fn new(elapsed: Elapsed) -> Self {
        Self { lender: Arc::default(), elapsed }
    }

    /// Lends from now on as the one of this term, and forgets everything: another process may have lent since.
    pub fn take_over(&self, term: u64) {
        self.lock().take_over(term);
    }

    /// These imports are on record, and no others.
    pub fn observe(&self, imports: &[Import]) {
        let now = self.elapsed.now();
        self.lock().observe(imports.iter().map(Import::borrower), now);
    }

    /// Reserves its fallback for this import, and says whether there is room for it to start.
    pub fn reserve(&self, import: &Import, policy: &Policy) -> bool {
        let now = self.elapsed.now();
        self.lock().reserve(import.borrower(), &terms(policy), now)
    }

    /// What to tell those that `is_chosen`, given whether it lowers what they may use. They may hear it from now on: in
    /// between nobody is lent or started with the same bytes.
    pub fn offers(&self, policy: &Policy, is_chosen: impl Fn(&Offer, bool) -> bool) -> Vec<Offer> {
        let (now, mut lender) = (self.elapsed.now(), self.lock());
        let mut offers = lender.offers(&terms(policy), now);
        offers.retain(|offer| is_chosen(offer, lender.lowers(offer, now)));
        offers.iter().for_each(|offer| lender.put(offer, now));
        offers
    }

    /// The import has taken it, and answered so.
    pub fn heard(&self, offer: &Offer, standing: &Standing) {
        let now = self.elapsed.now();
        self.lock().heard(offer, standing.clock_ms.map(Duration::from_millis), now);
    }

    /// Nobody knows whether the import has heard it, or will.
    pub fn unheard(&self, offer: &Offer) {
        let now = self.elapsed.now();
        self.lock().unheard(offer, now);
    }

    /// The import has refused it for one that it had taken; only for who still lends.
    pub fn refused(&self, offer: &Offer, standing: &Standing) {
        self.unheard(offer);
        if let Some(otctl_types::import::Fence { term, serial }) = standing.fence {
            self.lock().outbid(Fence { term, serial });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lender> {
        self.lender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
