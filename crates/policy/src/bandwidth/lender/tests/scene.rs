//! Imports behind the gate that they have, on clocks of their own, and whoever lends to them.

use super::*;
use crate::bandwidth::gate::Gate;

/// For one exchange, as whoever lends waits for it.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);

/// What keeps a share from being used too long. Each is taken out once, to see that it is missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    /// Imports refuse what is not above what they took.
    pub(super) fence: bool,
    /// Shares end where they say, not some time after they were heard.
    pub(super) until: bool,
    /// Who lends no more sends nothing more.
    pub(super) tenure: bool,
}

pub(super) const ALL: Guards = Guards { fence: true, until: true, tenure: true };

pub(super) fn terms() -> Terms {
    Terms { limit: Some(LIMIT), concurrency: CONCURRENCY }
}

/// An import on the other side of the wire.
#[derive(Clone, Debug)]
pub(super) struct Importer {
    pub(super) gate: Gate,
    pub(super) share: u64,
    pub(super) fallback: u64,
    /// On its own clock.
    pub(super) ends: Option<Duration>,
    /// How many tenths of our second its second takes.
    pub(super) pace: u32,
}

impl Importer {
    pub(super) fn new(fallback: Option<u64>, pace: u32) -> Self {
        let fallback = fallback.unwrap_or(u64::MAX);
        Self { gate: Gate::default(), share: fallback, fallback, ends: None, pace }
    }

    pub(super) fn clock(&self, now: Duration) -> Duration {
        Duration::from_secs(u64::from(self.pace) * 1_000_000) + now * 10 / self.pace
    }

    /// Whether it took it.
    pub(super) fn hear(&mut self, offer: &Offer, guards: Guards, now: Duration) -> bool {
        let (clock, mut told) = (self.clock(now), offer.told());
        if !guards.fence {
            self.gate = Gate::default();
        }
        if !guards.until {
            told.until = Some(clock + VALIDITY);
        }
        let Ok(holding) = self.gate.take(&told, clock) else { return false };
        self.share = holding.share.unwrap_or(u64::MAX);
        self.fallback = holding.fallback.unwrap_or(u64::MAX);
        self.ends = holding.lasts.map(|lasts| clock + lasts);
        true
    }

    pub(super) fn uses(&self, now: Duration) -> u64 {
        let has_ended = self.ends.is_some_and(|end| end <= self.clock(now));
        if has_ended { self.fallback } else { self.share }
    }
}

/// What becomes of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Answered,
    RequestLost,
    /// Heard at once, and the answer is lost.
    AnswerLost,
    /// Heard at the last moment, and the answer comes too late.
    Late,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Wait(u64),
    /// A round of exchanges; each import meets the next fate. Imports ask to start while they are under way.
    Round(Vec<Fate>),
    /// One more import wants to start.
    Start,
    /// The n-th of those that run ends.
    End(usize),
    /// Somebody else lends from now on, and knows nothing. The one before was stopped just as it wanted to send.
    NewLender,
    /// The one before wakes, and goes on as far as it may.
    OldWakes(Vec<Fate>),
    /// What was sent as the n-th from the last arrives, for the first time or once more.
    Stale(usize),
    Policy(u64, u32),
}

/// Everything on both sides.
pub(super) struct Scene {
    pub(super) now: Duration,
    pub(super) terms: Terms,
    pub(super) guards: Guards,
    pub(super) lender: Lender,
    /// Who lent before.
    pub(super) old: Lender,
    /// What ran then: it hears of nothing since.
    pub(super) old_sees: BTreeSet<String>,
    pub(super) terms_held: u64,
    /// All that was ever sent.
    pub(super) wire: Vec<Offer>,
    pub(super) running: BTreeMap<String, Importer>,
    pub(super) asking: BTreeMap<String, Option<u64>>,
    pub(super) made: usize,
    /// The highest limit in force since a time.
    pub(super) limits: Vec<(Duration, u64)>,
    /// The first time that too much was in use.
    pub(super) excess: Option<String>,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(ALL)
    }

    pub(super) fn with(guards: Guards) -> Self {
        Self {
            now: Duration::from_secs(1),
            terms: terms(),
            guards,
            lender: Lender::default(),
            old: Lender::default(),
            old_sees: BTreeSet::new(),
            terms_held: 0,
            wire: Vec::new(),
            running: BTreeMap::new(),
            asking: BTreeMap::new(),
            made: 0,
            limits: vec![(Duration::ZERO, LIMIT)],
            excess: None,
        }
    }

    pub(super) fn uses(&self) -> u64 {
        self.running.values().fold(0, |sum: u64, it| sum.saturating_add(it.uses(self.now)))
    }

    /// The highest limit in force now or within what it takes to hear of a lower one.
    pub(super) fn allowed(&self) -> u64 {
        let since = self.now.saturating_sub(Duration::from_secs(20));
        let last_before = self.limits.iter().rev().find(|(at, _)| *at <= since);
        let later = self.limits.iter().filter(|(at, _)| *at > since);
        later.chain(last_before).map(|(_, limit)| *limit).max().unwrap_or(0)
    }

    pub(super) fn check(&mut self) {
        let (uses, allowed) = (self.uses(), self.allowed());
        if uses > allowed && self.excess.is_none() {
            let at = self.now;
            self.excess = Some(format!("{uses} of {allowed} at {at:?}: {:?}", self.running));
        }
    }

    pub(super) fn run(&mut self, id: &str, fallback: Option<u64>) {
        // Some clocks are slower than ours by a tenth, and some faster.
        let pace = [10, 11, 9][self.made % 3];
        self.running.insert(id.to_owned(), Importer::new(fallback, pace));
        self.check();
    }

    pub(super) fn observe(&mut self) {
        let arguments = Some(fallback(self.terms.limit.unwrap(), self.terms.concurrency));
        let started =
            self.running.keys().map(|id| Import { id, fallback: arguments, is_started: true });
        let asking = self.asking.iter().map(|(id, fallback)| Import {
            id,
            fallback: *fallback,
            is_started: false,
        });
        self.lender.observe(started.chain(asking), self.now);
    }

    pub(super) fn ask_to_start(&mut self) {
        let has_slot =
            self.running.len() + self.asking.len() < self.terms.concurrency.try_into().unwrap();
        if has_slot {
            self.made += 1;
            let arguments = fallback(self.terms.limit.unwrap(), self.terms.concurrency);
            self.asking.insert(format!("import-{:03}", self.made), Some(arguments));
        }
        self.start_who_may();
    }

    pub(super) fn start_who_may(&mut self) {
        for (id, fallback) in self.asking.clone() {
            let import = Import { id: &id, fallback, is_started: false };
            if self.lender.reserve(import, &self.terms, self.now) {
                self.asking.remove(&id);
                self.run(&id, fallback);
            }
        }
    }

    pub(super) fn round(&mut self, fates: &[Fate]) {
        self.observe();
        self.talk(fates);
        self.start_who_may();
    }

    pub(super) fn talk(&mut self, fates: &[Fate]) {
        let mut fates = fates.iter().copied().cycle();
        let offers = self.lender.offers(&self.terms, self.now);
        let (lower, rest): (Vec<_>, Vec<_>) =
            offers.into_iter().partition(|offer| self.lender.lowers(offer, self.now));
        self.exchange(&lower, &mut fates);
        let rest: BTreeSet<String> = rest.into_iter().map(|offer| offer.id).collect();
        let mut raise = self.lender.offers(&self.terms, self.now);
        raise.retain(|offer| rest.contains(&offer.id));
        self.exchange(&raise, &mut fates);
    }

    pub(super) fn exchange(&mut self, offers: &[Offer], fates: &mut impl Iterator<Item = Fate>) {
        self.send(offers);
        let met: Vec<(&Offer, Fate)> =
            offers.iter().map(|offer| (offer, fates.next().unwrap())).collect();
        for (offer, fate) in &met {
            let is_taken = matches!(fate, Fate::Answered | Fate::AnswerLost) && self.arrive(offer);
            if matches!(fate, Fate::Answered) {
                let answering = self.running.get(&offer.id).filter(|_| is_taken);
                match answering.map(|importer| importer.clock(self.now)) {
                    Some(clock) => self.lender.heard(offer, Some(clock), self.now),
                    None => self.lender.unheard(offer, self.now),
                }
            }
        }
        if met.iter().all(|(_, fate)| matches!(fate, Fate::Answered)) {
            return;
        }
        self.now += DEADLINE;
        for (offer, fate) in &met {
            if matches!(fate, Fate::Late) {
                self.arrive(offer);
            }
            if !matches!(fate, Fate::Answered) {
                self.lender.unheard(offer, self.now);
            }
            self.check();
        }
    }

    /// Puts offers on the wire. In between others ask to start.
    pub(super) fn send(&mut self, offers: &[Offer]) {
        offers.iter().for_each(|offer| self.lender.put(offer, self.now));
        let running = offers.iter().filter(|offer| self.running.contains_key(&offer.id));
        self.wire.extend(running.cloned());
        self.start_who_may();
    }

    /// Whether its import took it.
    pub(super) fn arrive(&mut self, offer: &Offer) -> bool {
        let (guards, now) = (self.guards, self.now);
        let is_taken =
            self.running.get_mut(&offer.id).is_some_and(|it| it.hear(offer, guards, now));
        self.check();
        is_taken
    }

    /// Sends what is due; nothing arrives.
    pub(super) fn send_in_vain(&mut self) {
        let offers = self.lender.offers(&self.terms, self.now);
        self.exchange(&offers, &mut std::iter::repeat(Fate::RequestLost));
    }

    /// The most that was ever lent on the wire arrives again.
    pub(super) fn largest_arrives(&mut self) {
        let largest = self.wire.iter().max_by_key(|offer| (offer.share, offer.fence)).cloned();
        assert!(largest.is_some_and(|offer| {
            self.arrive(&offer);
            offer.share == Some(LIMIT)
        }));
    }

    pub(super) fn change_lender(&mut self) {
        self.terms_held += 1;
        // Stopped after it had asked whether it still lends, and before it sent.
        let last = self.lender.offers(&self.terms, self.now);
        self.send(&last);
        self.old = std::mem::take(&mut self.lender);
        self.old_sees = self.running.keys().cloned().collect();
        self.lender.take_over(self.terms_held);
    }

    /// One round of the old lender, which starts nobody: to start is a write that is refused.
    pub(super) fn old_wakes(&mut self, fates: &[Fate]) {
        if self.guards.tenure {
            return;
        }
        let asking = std::mem::take(&mut self.asking);
        std::mem::swap(&mut self.old, &mut self.lender);
        let seen = self.old_sees.iter().map(|id| Import { id, fallback: None, is_started: true });
        self.lender.observe(seen, self.now);
        self.talk(fates);
        std::mem::swap(&mut self.old, &mut self.lender);
        self.asking = asking;
    }

    pub(super) fn meet(&mut self, event: &Event) {
        match event {
            Event::Wait(milliseconds) => self.now += Duration::from_millis(*milliseconds),
            Event::Round(fates) => self.round(fates),
            Event::Start => self.ask_to_start(),
            Event::End(n) => {
                let id = self.running.keys().nth(n % self.running.len().max(1)).cloned();
                id.map(|id| self.running.remove(&id));
            }
            Event::NewLender => self.change_lender(),
            Event::OldWakes(fates) => self.old_wakes(fates),
            Event::Stale(n) => {
                let sent = self.wire.len().checked_sub(1 + n).map(|at| self.wire[at].clone());
                sent.map(|offer| self.arrive(&offer));
            }
            Event::Policy(limit, concurrency) => {
                self.terms = Terms { limit: Some(*limit), concurrency: *concurrency };
                self.limits.push((self.now, *limit));
                // A Job is made moments before it asks: with the fallback of the terms that hold.
                self.asking.clear();
            }
        }
        self.check();
    }

    /// Rounds without a loss until nothing changes any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..12 {
            self.round(&[Fate::Answered]);
            self.meet(&Event::Wait(1000));
        }
    }
}
