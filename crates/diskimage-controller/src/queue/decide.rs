//! The queue's choice. Q1 to Q3 of `docs/ledger.md` are named where they are carried out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::cluster::{Target, erase};
use otctl_kit::ledger::{self, Holder, Occupied};
use otctl_kit::plan::{Action, Next, Notice, Plan, Propagation, Write};
use otctl_types::condition::{self, POLICY_VALID};
use otctl_types::names::IMAGE_QUEUE;
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{AdmissionQueue, AdmissionQueueSpec, VMDiskImage};
use policy::admission::{Admission, Eligibility, Holding, Waiting, admit};
use policy::{Policy, Ticket};
use serde_json::json;

use crate::queue::observe::{Document, Observed, Trace};
use crate::queue::status::{self, Reading};
use crate::record::Record;
use crate::source;
use crate::views::effective_policy;
use crate::want::{Place, Want, want};

/// Tickets given in one pass; the rest follows in the next, so that a burst of thousands delays no admission.
const TICKETS_A_PASS: usize = 100;

/// What to write.
pub fn decide(observed: &Observed, now: Timestamp) -> Plan<AdmissionQueueStatus> {
    let Some(queue) = &observed.queue else {
        return make_queue();
    };
    let before = queue.status.clone().unwrap_or_default();
    let turn = Turn::of(observed, &before, now);
    let after = turn.status(&before, now);
    let mut writes = Vec::new();
    if after != before {
        writes.push(Write { action: Action::Swap(json!(after)), because: turn.because(&before) });
    }
    writes.extend(turn.marks(now));
    Plan {
        verdict: turn.verdict(),
        writes,
        status: None,
        clear: turn.leftovers(),
        notices: policy_notice(observed, &turn.reading, &before).into_iter().collect(),
        next: turn.next(now),
    }
}

/// Entries whose holder is not among the images: what became of it must be found out.
pub fn missing_holders(observed: &Observed) -> Vec<ActiveEntry> {
    let seen: BTreeSet<String> = observed.images.iter().filter_map(|image| image.uid()).collect();
    let status = observed.queue.as_ref().and_then(|queue| queue.status.as_ref());
    let active = status.map(|status| status.active.as_slice()).unwrap_or_default();
    active.iter().filter(|entry| !seen.contains(&entry.uid)).cloned().collect()
}

/// Whether the policy as seen differs from the one in effect. It is then read again, so that a view that is behind
/// never brings an older policy back.
pub fn changes_policy(observed: &Observed) -> bool {
    let before = observed.queue.as_ref().and_then(|queue| queue.status.clone()).unwrap_or_default();
    policy_of(observed).to_entries() != before.policy
}

/// Whether unfinished work must be listed: somebody could be admitted, or an attempt runs that the ledger has lost.
pub fn needs_work(observed: &Observed, now: Timestamp) -> bool {
    let Some(queue) = &observed.queue else {
        return false;
    };
    let before = queue.status.clone().unwrap_or_default();
    let turn = Turn::of(observed, &before, now);
    !turn.candidates_for(&turn.kept, 0).admitted.is_empty() || turn.has_lost_an_entry()
}

fn make_queue() -> Plan<AdmissionQueueStatus> {
    let queue = AdmissionQueue::new(IMAGE_QUEUE, AdmissionQueueSpec::default());
    let write = Write { action: Action::Ensure(erase(&queue)), because: "there is no ledger yet" };
    Plan { writes: vec![write], ..Plan::rest("Making") }
}

/// One look at the whole set.
struct Turn<'a> {
    observed: &'a Observed,
    reading: Reading,
    /// Entries that are not released.
    kept: Vec<ActiveEntry>,
    /// Images that want a slot, in the order in which tickets are given.
    wanting: Vec<Candidate<'a>>,
    /// Images that give up their place.
    leaving: Vec<&'a VMDiskImage>,
    /// The highest first ticket seen.
    highest: u64,
    /// Whether a first ticket stands only in an entry: until it stands in status, no later image gets one.
    is_ticket_pending: bool,
    now: Timestamp,
}

/// An image that wants a slot, with the ticket it has or would get.
struct Candidate<'a> {
    image: &'a VMDiskImage,
    uid: String,
    place: Place,
    ticket: Ticket,
    eligibility: Eligibility,
    /// The highest number that a lost status has forgotten.
    used: i64,
}

impl<'a> Turn<'a> {
    fn of(observed: &'a Observed, before: &AdmissionQueueStatus, now: Timestamp) -> Self {
        let reading = status::read(&observed.document, &effective_policy(Some(before)));
        let images: BTreeMap<String, &VMDiskImage> =
            observed.images.iter().filter_map(|image| Some((image.uid()?, &**image))).collect();
        let (kept, _): (Vec<_>, Vec<_>) = before
            .active
            .iter()
            .cloned()
            .partition(|entry| !ledger::is_released(entry, holder(observed, &images, entry)));
        let highest = Ticket::highest_first(tickets(observed, before));
        let mut turn = Self {
            observed,
            reading,
            is_ticket_pending: kept.iter().any(|entry| is_pending(entry, &images)),
            kept,
            wanting: Vec::new(),
            leaving: Vec::new(),
            highest,
            now,
        };
        turn.sort_images();
        turn
    }

    /// Fills `wanting` and `leaving`; new first tickets are numbered in the order of creation.
    fn sort_images(&mut self) {
        let mut images: Vec<&VMDiskImage> =
            self.observed.images.iter().map(|image| &**image).collect();
        images.sort_by_cached_key(|image| order_of(image));
        let mut next = self.highest + 1;
        let proven = &self.observed.proven;
        let is_proven = |image: &&VMDiskImage| image.uid().is_some_and(|uid| proven.contains(&uid));
        for image in images.into_iter().filter(|image| !is_proven(image)) {
            match want(image, &self.reading.policy, &self.observed.around, self.now) {
                Want::Nothing => {}
                Want::GiveUpPlace => self.leaving.push(image),
                Want::Slot { place, eligibility } => {
                    let ticket = self.ticket(place, &mut next);
                    let uid = image.uid().unwrap_or_default();
                    let used = self.observed.used.get(&uid).copied().unwrap_or(0);
                    self.wanting.push(Candidate { image, uid, place, ticket, eligibility, used });
                }
            }
        }
    }

    fn ticket(&self, place: Place, next: &mut u64) -> Ticket {
        match place {
            Place::Held(ticket) => ticket,
            Place::Retry(due) => Ticket::retry(self.highest, due),
            Place::First => {
                *next += 1;
                Ticket::first(*next - 1)
            }
        }
    }

    /// Who would be admitted with these slots taken. Images without a first ticket take part only as an unbroken head
    /// of the order of tickets: behind one that is not admitted, none is admitted before its ticket stands in status.
    fn candidates_for(&self, active: &[ActiveEntry], reserved: usize) -> Admission {
        let holding = holding(active, reserved);
        let limits = self.reading.policy.admission_limits();
        let mut admission = admit(&self.waiting(self.wanting.len()), &holding, &limits);
        let head = self.wanting.iter().filter(|candidate| candidate.place == Place::First);
        let is_admitted = |candidate: &&Candidate<'_>| admission.admitted.contains(&candidate.uid);
        let admitted_head =
            if self.is_ticket_pending { 0 } else { head.take_while(is_admitted).count() };
        let total = self.wanting.iter().filter(|candidate| candidate.place == Place::First).count();
        if admitted_head < total {
            admission = admit(&self.waiting(admitted_head), &holding, &limits);
        }
        admission
    }

    /// What waits, with at most `firsts` of those that have no ticket yet.
    fn waiting(&self, firsts: usize) -> Vec<Waiting> {
        let mut left = firsts;
        let mut waiting = Vec::new();
        for candidate in &self.wanting {
            if candidate.place == Place::First {
                if left == 0 {
                    continue;
                }
                left -= 1;
            }
            waiting.push(Waiting {
                id: candidate.uid.clone(),
                ticket: candidate.ticket,
                eligibility: candidate.eligibility.clone(),
                host: source::host(&candidate.image.spec.url),
            });
        }
        waiting
    }

    /// Q2: the entries after this turn.
    fn active(&self) -> Vec<ActiveEntry> {
        let Some(work) = &self.observed.work else {
            return self.kept.clone();
        };
        let Occupied { mut active, reserved } =
            ledger::make_whole(self.kept.clone(), &work.unfinished);
        let admission = self.candidates_for(&active, reserved + work.unaccounted);
        for uid in &admission.admitted {
            active.extend(
                self.wanting
                    .iter()
                    .find(|candidate| candidate.uid == *uid)
                    .map(|c| c.entry(self.now)),
            );
        }
        active
    }

    fn status(&self, before: &AdmissionQueueStatus, now: Timestamp) -> AdmissionQueueStatus {
        let active = self.active();
        let waits =
            |candidate: &&Candidate<'_>| !active.iter().any(|entry| entry.uid == candidate.uid);
        let oldest = self
            .wanting
            .iter()
            .filter(waits)
            .filter(|c| matches!(c.place, Place::Held(_)))
            .map(|c| c.ticket)
            .min();
        AdmissionQueueStatus {
            limit: Some(i32::try_from(self.reading.policy.concurrency).unwrap_or(i32::MAX)),
            active_count: Some(i32::try_from(active.len()).unwrap_or(i32::MAX)),
            waiting_count: Some(
                i32::try_from(self.wanting.iter().filter(waits).count()).unwrap_or(i32::MAX),
            ),
            oldest_waiting_ticket: oldest.map(|ticket| ticket.to_string()),
            policy: self.reading.policy.to_entries(),
            conditions: status::condition(&self.reading.finding, &before.conditions, now),
            active,
        }
    }

    /// Q1 and the tickets of retries. None are given in a turn that admits an image whose ticket is not in status.
    fn marks(&self, now: Timestamp) -> Vec<Write> {
        let leaving = self.leaving.iter().map(|image| mark(image, None, now, "it was suspended"));
        let active = self.active();
        let is_admitted =
            |candidate: &Candidate<'_>| active.iter().any(|entry| entry.uid == candidate.uid);
        let admits_unticketed =
            self.wanting.iter().any(|c| c.place == Place::First && is_admitted(c));
        let may_number = !self.is_ticket_pending && !admits_unticketed;
        let due = self.wanting.iter().filter(|c| !is_admitted(c) && c.is_due_a_ticket(may_number));
        let given = due.map(|c| mark(c.image, Some(c.ticket), now, c.because()));
        leaving.chain(given).take(TICKETS_A_PASS).collect()
    }

    /// Jobs of images that are gone and whose slot is still held.
    fn leftovers(&self) -> Vec<Write> {
        let jobs = self.observed.missing.values().filter_map(|trace| match trace {
            Trace::Job { target, uid } => Some((target.clone(), uid.clone())),
            Trace::Alive | Trace::Pod | Trace::Nothing => None,
        });
        jobs.map(|(target, uid)| Write {
            action: Action::Delete {
                target,
                uid,
                resource_version: None,
                propagation: Propagation::Foreground,
            },
            because: "its image is gone",
        })
        .collect()
    }

    /// An attempt runs that has no entry: the ledger was lost, emptied or restored.
    fn has_lost_an_entry(&self) -> bool {
        self.observed.images.iter().any(|image| {
            let record = Record::of(image);
            let held = |number| {
                self.kept
                    .iter()
                    .any(|e| Some(&e.uid) == image.uid().as_ref() && e.attempt == number)
            };
            record.status.open_attempt.is_some_and(|open| !held(open.number))
        })
    }

    fn because(&self, before: &AdmissionQueueStatus) -> &'static str {
        let after = self.active();
        let is_new = |entry: &ActiveEntry| !before.active.contains(entry);
        match (after.iter().any(is_new), self.kept.len() < before.active.len()) {
            (true, true) => "slots were released and given",
            (true, false) => "there is room",
            (false, true) => "attempts have ended",
            (false, false) => "counts or policy changed",
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.reading.policy.concurrency, self.wanting.is_empty()) {
            (0, _) => "Paused",
            (_, true) => "Idle",
            (_, false) => "Queueing",
        }
    }

    /// The end of the nearest backoff; a look at what has no watch; the next batch of tickets.
    fn next(&self, now: Timestamp) -> Next {
        let retries = self.wanting.iter().filter(|c| c.eligibility == Eligibility::Backoff);
        let next = retries.fold(Next::Wait, |next, c| {
            let at = Record::of(c.image).backoff_until(now).unwrap_or(now);
            next.or(Next::At(at))
        });
        let is_watched = self.observed.missing.values().all(|trace| *trace == Trace::Nothing);
        let soon = now.checked_add(jiff::SignedDuration::from_secs(2)).unwrap_or(Timestamp::MAX);
        if is_watched { next } else { next.or(Next::At(soon)) }
    }
}

impl Candidate<'_> {
    fn entry(&self, now: Timestamp) -> ActiveEntry {
        ActiveEntry {
            namespace: self.image.namespace().unwrap_or_default(),
            name: self.image.name_any(),
            uid: self.uid.clone(),
            attempt: self.used.max(Record::of(self.image).last()) + 1,
            ticket: self.ticket.to_string(),
            host: source::host(&self.image.spec.url),
            since: Time(now),
        }
    }

    fn is_due_a_ticket(&self, may_number: bool) -> bool {
        match self.place {
            Place::Held(_) => false,
            Place::First => may_number,
            Place::Retry(_) => self.eligibility != Eligibility::Backoff,
        }
    }

    fn because(&self) -> &'static str {
        match self.place {
            Place::Retry(_) => "its backoff ended",
            Place::First | Place::Held(_) => "it waits",
        }
    }
}

/// Order of first tickets: creation, then version, then UID.
fn order_of(image: &VMDiskImage) -> (Option<Time>, u128, String) {
    let version = image.resource_version().and_then(|text| text.parse().ok()).unwrap_or(u128::MAX);
    (image.creation_timestamp(), version, image.uid().unwrap_or_default())
}

fn holder(
    observed: &Observed,
    images: &BTreeMap<String, &VMDiskImage>,
    entry: &ActiveEntry,
) -> Holder {
    match (images.get(&entry.uid), observed.missing.get(&entry.uid)) {
        (Some(image), _) => Holder::Present(Record::of(image).numbers()),
        (None, Some(Trace::Nothing)) => Holder::Gone,
        (None, _) => Holder::Unproven,
    }
}

/// Its first ticket stands in the entry only.
fn is_pending(entry: &ActiveEntry, images: &BTreeMap<String, &VMDiskImage>) -> bool {
    let is_first = entry.ticket.parse::<Ticket>().is_ok_and(|ticket| ticket.retry_at().is_none());
    let stands = |image: &&VMDiskImage| Record::of(image).status.ticket.is_some();
    is_first && images.get(&entry.uid).is_some_and(|image| !stands(image))
}

fn tickets(observed: &Observed, before: &AdmissionQueueStatus) -> Vec<Ticket> {
    let of_images = observed
        .images
        .iter()
        .filter_map(|image| image.status.as_ref()?.ticket.as_deref()?.parse().ok());
    let of_entries = before.active.iter().filter_map(|entry| entry.ticket.parse().ok());
    of_images.chain(of_entries).collect()
}

fn holding(active: &[ActiveEntry], reserved: usize) -> Vec<Holding> {
    let held =
        active.iter().map(|entry| Holding { id: entry.uid.clone(), host: entry.host.clone() });
    let reserved = (0..reserved).map(|n| Holding { id: format!("reserved {n}"), host: None });
    held.chain(reserved).collect()
}

/// The one write of another object's status: its ticket, guarded by the version that the order was made from.
fn mark(
    image: &VMDiskImage,
    ticket: Option<Ticket>,
    now: Timestamp,
    because: &'static str,
) -> Write {
    let fields = match ticket {
        Some(ticket) => json!({"ticket": ticket.to_string(), "queuedAt": Time(now)}),
        None => json!({"ticket": null, "queuedAt": null}),
    };
    let action = Action::Mark {
        target: Target::new::<VMDiskImage>(image.namespace().as_deref(), &image.name_any()),
        resource_version: image.resource_version().unwrap_or_default(),
        fields,
    };
    Write { action, because }
}

/// An Event about the ConfigMap when what is wrong with it changed.
fn policy_notice(
    observed: &Observed,
    reading: &Reading,
    before: &AdmissionQueueStatus,
) -> Option<Notice> {
    let was = condition::find(&before.conditions, POLICY_VALID);
    let finding = &reading.finding;
    let is_news = was
        .is_none_or(|was| was.reason != finding.reason.as_str() || was.message != finding.message);
    let was_seen = was.is_some() || matches!(finding.status, condition::Truth::False);
    if !is_news || !was_seen {
        return None;
    }
    let regarding = match &observed.document {
        Document::Present { reference, .. } => Some((**reference).clone()),
        Document::Absent | Document::Unreadable(_) => None,
    };
    let is_good = matches!(finding.reason, condition::Reason::Valid);
    let message = if finding.message.is_empty() {
        "every key was read".to_owned()
    } else {
        finding.message.clone()
    };
    Some(Notice {
        warning: !is_good,
        reason: finding.reason.to_string(),
        action: "ReadPolicy",
        message,
        regarding,
    })
}

fn policy_of(observed: &Observed) -> Policy {
    let before = observed.queue.as_ref().and_then(|queue| queue.status.clone()).unwrap_or_default();
    status::read(&observed.document, &effective_policy(Some(&before))).policy
}

#[cfg(test)]
mod tests;
