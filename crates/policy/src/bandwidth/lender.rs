//! The memory behind shares: what each running import was told, and what it may use because of that.
//!
//! Every import may always use its *fallback*: the fallbacks of all together are within the limit. What a share is above
//! that is lent: it is given to another only when its holder has heard of less, or when it has lapsed. An exchange that
//! failed may have been heard all the same, at any later time, so it counts both ways.
//!
//! A share ends [`VALIDITY`] after a reading of the import's own clock, which the import told in its last answer. That
//! reading was taken before the answer came, so the share has ended [`VALIDITY`] after that, whatever was delayed. To one
//! whose clock is not known nothing is lent.
//!
//! One lender is meant to give at a time. One that takes over knows nothing of what was lent before it: it takes every
//! import it finds for one that has borrowed everything, until that has lapsed or the import has heard otherwise. Once an
//! import has heard it, whatever its predecessor sent is refused: see [`Fence`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::gate::{Fence, Told, VALIDITY};
use super::{Running, fallback, share};

/// An import's clock may be slower than ours: its [`VALIDITY`] takes at most this longer by our clock.
const SLOWNESS: Duration = Duration::from_secs(1);

/// How long a share is taken to be in use after the answer with the reading that it is counted from.
pub const LAPSE: Duration = VALIDITY.saturating_add(SLOWNESS);

/// The limits that shares are cut by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes per second of all imports together; `None` is no limit.
    pub limit: Option<u64>,
    /// Imports at once.
    pub concurrency: u32,
}

/// What one import is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The import's id.
    pub id: String,
    /// Bytes per second from now on; `None` is no limit.
    pub share: Option<u64>,
    /// Bytes per second once the share has ended; `None` is no limit.
    pub fallback: Option<u64>,
    /// Above that of every earlier offer to this import.
    pub fence: Fence,
    /// When the share ends, on the import's clock; none as long as that is not known, and nothing is lent.
    pub until: Option<Duration>,
}

/// An import as it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// Tells it from the others.
    pub id: &'a str,
    /// The fallback it was made with, in bytes per second; `None` is no limit.
    pub fallback: Option<u64>,
    /// Whether it may run already, and may have borrowed what nobody here knows of.
    pub is_started: bool,
}

/// What an import's clock showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// On the import's clock.
    clock: Duration,
    /// On ours, when the answer had come: not before the reading was taken.
    at: Duration,
}

/// What is known of an import: no limit is `u64::MAX` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    share: u64,
    /// When the share has lapsed, if nothing more is heard.
    until: Duration,
    /// The highest it may believe to be its fallback.
    fallback: u64,
    /// Of the last exchange; none when that was not answered, or told no clock.
    reading: Option<Reading>,
    /// Since when no exchange was answered; none while nobody has tried in vain.
    silent_since: Option<Duration>,
}

/// Lends bandwidth. Times are counted from any one moment.
#[derive(Clone, Debug, Default)]
pub struct Lender {
    accounts: BTreeMap<String, Account>,
    /// Whether it was told once what runs.
    has_looked: bool,
    last: Fence,
}

impl Lender {
    /// Lends from now on as the one of this term, and forgets what runs: another may have lent since.
    pub fn take_over(&mut self, term: u64) {
        // The serial goes on: the same term may be held twice by one process.
        *self = Self { last: Fence { term, ..self.last }, ..Self::default() };
    }

    /// An import has taken this fence. If it is not below ours it was told by one who lends no more, and whose terms were
    /// counted otherwise; ours begin above it.
    pub fn outbid(&mut self, taken: Fence) {
        if taken >= self.last {
            self.last.term = taken.term.saturating_add(1);
        }
    }

    /// These imports run or are about to, and no others.
    pub fn observe<'a>(&mut self, imports: impl IntoIterator<Item = Import<'a>>, now: Duration) {
        self.has_looked = true;
        let mut seen = BTreeSet::new();
        for import in imports {
            seen.insert(import.id.to_owned());
            let account = || import.account(now);
            self.accounts.entry(import.id.to_owned()).or_insert_with(account);
        }
        self.accounts.retain(|id, _| seen.contains(id));
    }

    /// Reserves its fallback for one more import, and says whether there is room for it to start; not before it is known
    /// what runs. It counts as running from now on: without room the others are offered less, so that there is room soon.
    pub fn reserve(&mut self, import: Import<'_>, terms: &Terms, now: Duration) -> bool {
        self.accounts.entry(import.id.to_owned()).or_insert_with(|| import.account(now));
        let Some(limit) = terms.limit else { return true };
        let fallback = self.fallback(limit, terms);
        let in_use = self
            .accounts
            .values()
            .fold(0_u64, |sum, it| sum.saturating_add(it.may_use(fallback, now)));
        self.has_looked && in_use <= limit
    }

    /// What to tell each import now, in the order of their ids.
    #[must_use]
    pub fn offers(&mut self, terms: &Terms, now: Duration) -> Vec<Offer> {
        self.last.serial += 1;
        let fence = self.last;
        let Some(limit) = terms.limit else {
            let free = |id: &String| Offer {
                id: id.clone(),
                share: None,
                fallback: None,
                fence,
                until: None,
            };
            return self.accounts.keys().map(free).collect();
        };
        let fallback = self.fallback(limit, terms);
        let running: Vec<Running> = self
            .accounts
            .iter()
            .map(|(id, it)| Running { id: id.clone(), may_use: it.may_use(fallback, now) })
            .collect();
        let shares = share(Some(limit), &running).into_iter();
        shares
            .zip(self.accounts.values())
            .map(|(cut, account)| {
                let cut_share = cut.bytes_per_second.unwrap_or(u64::MAX);
                // Nothing is lent to one that does not answer: a failed exchange would keep it lent.
                let until = account.reading.map(|reading| reading.clock + VALIDITY);
                let fits = if until.is_some() { cut_share } else { cut_share.min(fallback) };
                // A fallback is never taken away below the one of now, and one that rises waits until there is room.
                let share = fits.max(fallback.min(account.fallback));
                let fallback = Some(fallback.min(share));
                Offer { id: cut.id, share: Some(share), fallback, fence, until }
            })
            .collect()
    }

    /// Whether hearing this offer would leave its import with no more than it may use now.
    #[must_use]
    pub fn lowers(&self, offer: &Offer, now: Duration) -> bool {
        let told = offer.share.unwrap_or(u64::MAX);
        self.accounts.get(&offer.id).is_none_or(|account| told <= account.in_use(now))
    }

    /// The import is told this offer from now on: it may hear it at any moment.
    pub fn put(&mut self, offer: &Offer, now: Duration) {
        if let Some(account) = self.accounts.get_mut(&offer.id) {
            let told = offer.share.unwrap_or(u64::MAX);
            let fallback = offer.fallback.unwrap_or(u64::MAX);
            if told > fallback {
                account.share = account.in_use(now).max(told);
                account.until = account.until.max(account.lapses());
            }
            account.fallback = account.fallback.max(fallback);
        }
    }

    /// The import has heard this offer, and `clock` is what its clock showed between then and now.
    pub fn heard(&mut self, offer: &Offer, clock: Option<Duration>, now: Duration) {
        if let Some(account) = self.accounts.get_mut(&offer.id) {
            // Whatever it was told before this it has heard already, or refuses.
            account.share = offer.share.unwrap_or(u64::MAX);
            account.fallback = offer.fallback.unwrap_or(u64::MAX);
            account.until = account.lapses();
            account.reading = clock.map(|clock| Reading { clock, at: now });
            account.silent_since = None;
        }
    }

    /// Nothing was heard of the import when it was told this offer: it may have heard it or not.
    pub fn unheard(&mut self, offer: &Offer, now: Duration) {
        self.put(offer, now);
        if let Some(account) = self.accounts.get_mut(&offer.id) {
            account.reading = None;
            account.silent_since = account.silent_since.or(Some(now));
        }
    }

    /// What every import may use without being told: an equal part, were every slot in use.
    fn fallback(&self, limit: u64, terms: &Terms) -> u64 {
        let running = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
        fallback(limit, terms.concurrency.max(running))
    }
}

impl Offer {
    /// As the import is told it.
    #[must_use]
    pub fn told(&self) -> Told {
        let Self { share, fallback, fence, until, .. } = *self;
        Told { share, fallback, fence: Some(fence), until }
    }
}

impl Import<'_> {
    fn account(self, now: Duration) -> Account {
        let fallback = self.fallback.unwrap_or(u64::MAX);
        // Whoever lent to it before us had its last answer before now.
        let (share, until) =
            if self.is_started { (u64::MAX, now + LAPSE) } else { (fallback, Duration::ZERO) };
        Account { share, until, fallback, reading: None, silent_since: None }
    }
}

impl Account {
    /// When a share that is counted from the last reading has lapsed.
    fn lapses(&self) -> Duration {
        self.reading.map_or(Duration::ZERO, |reading| reading.at + LAPSE)
    }

    /// The most it uses now.
    fn in_use(&self, now: Duration) -> u64 {
        if now < self.until { self.share.max(self.fallback) } else { self.fallback }
    }

    /// The most that is kept for it, and at least `fallback`. Of one that has been out of reach for long no more than
    /// that is kept, whatever fallback it believes in: it cannot be lowered, and to keep others from working would help
    /// nobody.
    fn may_use(&self, fallback: u64, now: Duration) -> u64 {
        let is_lost = self.silent_since.is_some_and(|since| now >= since + LAPSE);
        if is_lost && now >= self.until { fallback } else { self.in_use(now).max(fallback) }
    }
}

#[cfg(test)]
mod tests;
