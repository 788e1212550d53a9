//! Who may start now? First come, first served over a snapshot of everything that waits.
//!
//! The order is by ticket among those that could start at all: one that cannot start, at the head
//! or elsewhere, holds nobody up. The caller commits the answer by one compare-and-swap of the
//! ledger, so that a snapshot that was out of date admits nobody.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::Ticket;

/// Something that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The object's UID; it also breaks ties between equal tickets.
    pub id: String,
    /// Its place in the order.
    pub ticket: Ticket,
    /// Whether it could start if there were room.
    pub eligibility: Eligibility,
    /// The lane it runs in: its source host, if it has one. Compared as written.
    pub host: Option<String>,
}

/// Whether something that waits could start if there were room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// It could.
    Eligible,
    /// Not before its next retry is due.
    Backoff,
    /// Not before something else changes.
    Blocked {
        /// What must change, as a condition reason.
        why: String,
    },
}

/// Something that holds a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The object's UID.
    pub id: String,
    /// The lane it runs in.
    pub host: Option<String>,
}

/// How many may hold a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At once; 0 pauses admission.
    pub concurrency: u32,
    /// At once in one lane.
    pub per_host: Option<u32>,
}

/// The answer: who starts, and why each of the others does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Ids in the order of admission.
    pub admitted: Vec<String>,
    /// Everyone else, in the order of tickets.
    pub waiting: Vec<Position>,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The object's UID.
    pub id: String,
    /// From 1, without gaps, over all that still wait.
    pub position: usize,
    /// Why it waits.
    pub reason: WaitReason,
}

/// Why something that waits was not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Every slot is held.
    SlotsBusy,
    /// Slots are free, but every one of its lane is held.
    HostBusy,
    /// Its next retry is not due.
    Backoff,
    /// The limit is 0.
    Paused,
    /// Something else must change first.
    Blocked {
        /// What, as a condition reason.
        why: String,
    },
}

impl WaitReason {
    /// The reason as a word for conditions and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::SlotsBusy => "SlotsBusy",
            Self::HostBusy => "HostBusy",
            Self::Backoff => "Backoff",
            Self::Paused => "Paused",
            Self::Blocked { .. } => "Blocked",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { why } => write!(f, "Blocked: {why}"),
            Self::SlotsBusy | Self::HostBusy | Self::Backoff | Self::Paused => {
                f.write_str(self.as_str())
            }
        }
    }
}

/// Admits the eligible in the order of (ticket, id) while there is room.
///
/// More holders than `concurrency`, after the limit was lowered, admit nobody and end nobody. What
/// holds a slot already is not waiting, whatever `waiting` says.
#[must_use]
pub fn admit(waiting: &[Waiting], holding: &[Holding], limits: &Limits) -> Admission {
    let mut order: Vec<&Waiting> = waiting.iter().collect();
    order.sort_by(|a, b| (a.ticket, &a.id).cmp(&(b.ticket, &b.id)));
    let mut slots = Slots::new(holding, limits);
    let mut admission = Admission::default();
    for candidate in order {
        if slots.is_held_by(&candidate.id) {
            continue;
        }
        match slots.reason_to_wait(candidate) {
            None => {
                slots.take(&candidate.id, candidate.host.as_deref());
                admission.admitted.push(candidate.id.clone());
            }
            Some(reason) => {
                let position = admission.waiting.len() + 1;
                admission.waiting.push(Position { id: candidate.id.clone(), position, reason });
            }
        }
    }
    admission
}

/// The slots as they fill up during one admission.
struct Slots<'a> {
    limits: &'a Limits,
    // Apart from `holders`, because an id that stands twice in the ledger holds two slots.
    taken: usize,
    holders: HashSet<&'a str>,
    lanes: HashMap<&'a str, usize>,
}

impl<'a> Slots<'a> {
    fn new(holding: &'a [Holding], limits: &'a Limits) -> Self {
        let mut slots = Self { limits, taken: 0, holders: HashSet::new(), lanes: HashMap::new() };
        for holder in holding {
            slots.take(&holder.id, holder.host.as_deref());
        }
        slots
    }

    fn take(&mut self, id: &'a str, host: Option<&'a str>) {
        self.taken += 1;
        self.holders.insert(id);
        if let Some(host) = host {
            *self.lanes.entry(host).or_default() += 1;
        }
    }

    fn is_held_by(&self, id: &str) -> bool {
        self.holders.contains(id)
    }

    fn reason_to_wait(&self, candidate: &Waiting) -> Option<WaitReason> {
        match &candidate.eligibility {
            Eligibility::Backoff => Some(WaitReason::Backoff),
            Eligibility::Blocked { why } => Some(WaitReason::Blocked { why: why.clone() }),
            Eligibility::Eligible if self.limits.concurrency == 0 => Some(WaitReason::Paused),
            Eligibility::Eligible if is_full(self.taken, self.limits.concurrency) => {
                Some(WaitReason::SlotsBusy)
            }
            Eligibility::Eligible if self.is_lane_full(candidate) => Some(WaitReason::HostBusy),
            Eligibility::Eligible => None,
        }
    }

    fn is_lane_full(&self, candidate: &Waiting) -> bool {
        let (Some(host), Some(limit)) = (candidate.host.as_deref(), self.limits.per_host) else {
            return false;
        };
        is_full(self.lanes.get(host).copied().unwrap_or(0), limit)
    }
}

fn is_full(taken: usize, limit: u32) -> bool {
    usize::try_from(limit).is_ok_and(|limit| taken >= limit)
}

#[cfg(test)]
mod tests;
