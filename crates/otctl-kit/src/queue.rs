//! Whose turn it is: a pure work queue. A key is in it once, is never in two passes at a time, and has its own backoff.
//! Keys take turns in the order in which they became due, so a busy one waits behind the calm ones.
//!
//! ```text
//!            wake                take                finish: Wait
//!   (absent) ─────▶ Ready ─────────────▶ Running ──────────────────▶ (absent)
//!                     ▲  ▲                │  │ finish: woken meanwhile, conflict
//!                     │  └────────────────┼──┘
//!                     └── wake, due ── Timed ◀── finish: At, failed, put off
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::backoff::jittered;
use crate::clock::{after, before, until};
use crate::plan::Next;
use crate::store::Key;

/// The first delay after a failure.
const BACKOFF_FROM: Duration = Duration::from_millis(5);
/// The longest.
const BACKOFF_TO: Duration = Duration::from_mins(15);
/// A trigger shortens a backoff to this, so that a repair is seen soon and a fight is no faster.
const WOKEN_AFTER: Duration = Duration::from_secs(1);
/// So many passes in a row may lose a race at once; then the backoff applies to them too.
const CONFLICTS_AT_ONCE: u32 = 3;
/// A plan that asks to be looked at in the past is looked at no faster than this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A clock that goes back by more was set; by less, two threads read it one after the other.
const SET_BACK: Duration = Duration::from_secs(1);

/// How a pass ended, as far as its key's next turn depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Done(Next),
    /// What was read was out of date.
    Conflict,
    /// It was not begun: the views were behind our own writes. Not again before this time, unless something happens;
    /// it is no failure and no success.
    PutOff(Timestamp),
    /// It failed; not again before this time has passed.
    Failed {
        /// The least delay; the backoff may be longer.
        at_least: Duration,
        /// When what was decided is to be looked at again whatever became of it: the backoff is no longer than that.
        next: Next,
    },
}

/// The keys that are due, at work or will be due.
#[derive(Debug, Default)]
pub struct Queue {
    turns: HashMap<Key, Turn>,
    ready: VecDeque<Key>,
    timed: BTreeSet<(Timestamp, Key)>,
    /// The latest time that was told.
    latest: Timestamp,
}

#[derive(Debug)]
struct Turn {
    state: State,
    failures: u32,
    conflicts: u32,
    /// Whether it waits for a time to pass, not for a time of day.
    is_delayed: bool,
    /// No trigger makes it due before.
    not_before: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Running { woken: bool },
    Timed(Timestamp),
}

/// A key in the queue, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// `namespace/name`.
    pub object: String,
    /// `ready`, `running` or `waiting`.
    pub state: &'static str,
    /// When a waiting one is due.
    pub due: Option<Timestamp>,
    /// Failed passes in a row.
    pub failures: u32,
}

impl Queue {
    /// Something happened to `key`: it is due now, or when its pass ends, or when its backoff allows.
    pub fn wake(&mut self, key: &Key, now: Timestamp) {
        self.tell_time(now);
        let Some(turn) = self.turns.get_mut(key) else {
            self.turns.insert(key.clone(), Turn::new());
            self.ready.push_back(key.clone());
            return;
        };
        match turn.state {
            State::Ready => {}
            State::Running { .. } => turn.state = State::Running { woken: true },
            State::Timed(due) => {
                let at = due.min(turn.not_before.max(now));
                self.reschedule(key, due, at, now);
            }
        }
    }

    /// The next key that is due; it runs until [`Queue::finish`].
    pub fn take(&mut self, now: Timestamp) -> Option<Key> {
        self.tell_time(now);
        self.mature(now);
        let key = self.ready.pop_front()?;
        self.turn(&key).state = State::Running { woken: false };
        Some(key)
    }

    /// The pass of `key` ended. `jitter` is a random number in 0..1.
    pub fn finish(&mut self, key: &Key, end: End, now: Timestamp, jitter: f64) {
        self.tell_time(now);
        let turn = self.turn(key);
        let woken = turn.state == State::Running { woken: true };
        match turn.due(end, now, jitter) {
            None if woken => self.enqueue(key),
            None => drop(self.turns.remove(key)),
            Some(at) => {
                self.schedule(key, at, now);
                if woken {
                    self.wake(key, now);
                }
            }
        }
    }

    /// The passes at work were given up: their keys are due again.
    pub fn recall(&mut self) {
        let running =
            self.turns.iter().filter(|(_, turn)| matches!(turn.state, State::Running { .. }));
        let mut keys: Vec<Key> = running.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys.iter().for_each(|key| self.enqueue(key));
    }

    /// When the next waiting key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// How many are due.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Everything in the queue, by key.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let mut turns: Vec<(&Key, &Turn)> = self.turns.iter().collect();
        turns.sort_by_key(|(key, _)| *key);
        turns.into_iter().map(|(key, turn)| turn.place(key)).collect()
    }

    /// A clock that was set back must not prolong a delay. What waits for a time of day waits for it as the clock has it.
    fn tell_time(&mut self, now: Timestamp) {
        let back = until(now, self.latest).filter(|back| *back > SET_BACK);
        self.latest = if back.is_some() { now } else { self.latest.max(now) };
        let Some(back) = back else { return };
        self.turns.values_mut().for_each(|turn| turn.set_back(back));
        let timed = self.turns.iter().filter_map(|(key, turn)| match turn.state {
            State::Timed(at) => Some((at, key.clone())),
            State::Ready | State::Running { .. } => None,
        });
        self.timed = timed.collect();
    }

    fn mature(&mut self, now: Timestamp) {
        while self.next_due().is_some_and(|at| at <= now) {
            let (_, key) = self.timed.pop_first().expect("there is a first one");
            self.enqueue(&key);
        }
    }

    fn enqueue(&mut self, key: &Key) {
        self.turn(key).state = State::Ready;
        self.ready.push_back(key.clone());
    }

    fn schedule(&mut self, key: &Key, at: Timestamp, now: Timestamp) {
        if at <= now {
            self.enqueue(key);
        } else {
            self.turn(key).state = State::Timed(at);
            self.timed.insert((at, key.clone()));
        }
    }

    fn reschedule(&mut self, key: &Key, due: Timestamp, at: Timestamp, now: Timestamp) {
        self.timed.remove(&(due, key.clone()));
        self.schedule(key, at, now);
    }

    fn turn(&mut self, key: &Key) -> &mut Turn {
        self.turns.get_mut(key).expect("a key that is ready, timed or running has a turn")
    }
}

impl Turn {
    fn new() -> Self {
        Self {
            state: State::Ready,
            failures: 0,
            conflicts: 0,
            is_delayed: false,
            not_before: Timestamp::MIN,
        }
    }

    fn set_back(&mut self, back: Duration) {
        self.not_before = before(self.not_before, back);
        if let State::Timed(at) = self.state
            && self.is_delayed
        {
            self.state = State::Timed(before(at, back));
        }
    }

    /// When this key is due after its pass ended so; none when only a trigger makes it due.
    fn due(&mut self, end: End, now: Timestamp, jitter: f64) -> Option<Timestamp> {
        self.is_delayed = !matches!(end, End::Done(_));
        match end {
            End::Done(next) => {
                (self.failures, self.conflicts, self.not_before) = (0, 0, Timestamp::MIN);
                match next {
                    Next::Wait => None,
                    Next::At(at) => Some(at.max(after(now, AGAIN_AFTER))),
                }
            }
            End::Conflict => {
                self.conflicts = self.conflicts.saturating_add(1);
                if self.conflicts < CONFLICTS_AT_ONCE {
                    Some(now)
                } else {
                    Some(self.back_off(Duration::ZERO, now, jitter))
                }
            }
            End::PutOff(until) => Some(until),
            End::Failed { at_least, next } => {
                self.conflicts = 0;
                let again = self.back_off(at_least, now, jitter);
                match next {
                    Next::Wait => Some(again),
                    Next::At(at) => Some(again.min(at.max(after(now, at_least.max(AGAIN_AFTER))))),
                }
            }
        }
    }

    fn back_off(&mut self, at_least: Duration, now: Timestamp, jitter: f64) -> Timestamp {
        self.failures = self.failures.saturating_add(1);
        let delay = jittered(self.failures, BACKOFF_FROM..=BACKOFF_TO, jitter).max(at_least);
        self.not_before = after(now, delay.min(WOKEN_AFTER.max(at_least)));
        after(now, delay)
    }

    fn place(&self, key: &Key) -> Place {
        let (state, due) = match self.state {
            State::Ready => ("ready", None),
            State::Running { .. } => ("running", None),
            State::Timed(at) => ("waiting", Some(at)),
        };
        Place { object: key.to_string(), state, due, failures: self.failures }
    }
}

#[cfg(test)]
mod tests;
