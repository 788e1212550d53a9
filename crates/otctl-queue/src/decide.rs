//! The queue's choice. Q1 to Q3 of `docs/ledger.md` are named where they are carried out.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_kit::cluster::{Target, erase};
use otctl_kit::plan::{Action, Next, Notice, Plan, Propagation, Write};
use otctl_types::condition::{self, POLICY_VALID};
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{AdmissionQueue, AdmissionQueueSpec};
use policy::admission::Eligibility;
use policy::{Policy, Ticket};
use serde_json::json;

use crate::document::{Document, effective_policy};
use crate::line::Line;
use crate::member::{Member, Place};
use crate::observe::{Observed, Trace};
use crate::reading::{self, Reading};
use crate::turn::{Candidate, Pending, Turn};

/// Tickets given in one pass; the rest follows in the next, so that a burst of thousands delays no admission.
const TICKETS_A_PASS: usize = 100;

/// What to write.
pub fn decide<L: Line>(observed: &Observed<L>, now: Timestamp) -> Plan<AdmissionQueueStatus> {
    let Some(queue) = &observed.ledger else {
        return make_queue::<L>();
    };
    let before = queue.status.clone().unwrap_or_default();
    let turn = Turn::of(observed, &before, now);
    let after = turn.status(&before, now);
    let mut writes = Vec::new();
    if after != before {
        writes.push(Write {
            action: Action::Swap(json!(after)),
            because: turn.because(&before, &after),
        });
    }
    writes.extend(turn.marks(now));
    Plan {
        verdict: turn.verdict(),
        writes,
        lanes: Vec::new(),
        status: None,
        clear: turn.leftovers(),
        notices: policy_notice(observed, &turn.reading, &before).into_iter().collect(),
        next: turn.next(now),
    }
}

/// Entries whose holder is not among the images: what became of it must be found out.
pub(crate) fn missing_holders<L: Line>(observed: &Observed<L>) -> Vec<ActiveEntry> {
    let seen: BTreeSet<&str> = observed.members.iter().map(|member| member.uid()).collect();
    let status = observed.ledger.as_ref().and_then(|queue| queue.status.as_ref());
    let active = status.map(|status| status.active.as_slice()).unwrap_or_default();
    active.iter().filter(|entry| !seen.contains(entry.uid.as_str())).cloned().collect()
}

/// Whether the policy as seen differs from the one in effect. It is then read again, so that a view that is behind
/// never brings an older policy back.
pub(crate) fn changes_policy<L: Line>(observed: &Observed<L>) -> bool {
    let before =
        observed.ledger.as_ref().and_then(|queue| queue.status.clone()).unwrap_or_default();
    policy_of(observed).to_entries() != before.policy
}

/// Whether unfinished work must be listed: somebody could be admitted, or an attempt runs that the ledger has lost.
pub fn needs_work<L: Line>(observed: &Observed<L>, now: Timestamp) -> bool {
    let Some(queue) = &observed.ledger else {
        return false;
    };
    let before = queue.status.clone().unwrap_or_default();
    let kept = Turn::kept(observed, &before, now);
    if kept.has_lost_an_entry() {
        return true;
    }
    // While every slot is taken nobody need be asked what it wants.
    let limit = usize::try_from(L::limits(&kept.reading.policy).concurrency).unwrap_or(usize::MAX);
    kept.kept.len() < limit && {
        let turn = kept.with_wants();
        !turn.candidates_for(&turn.kept, 0).admitted.is_empty()
    }
}

fn make_queue<L: Line>() -> Plan<AdmissionQueueStatus> {
    let queue = AdmissionQueue::new(L::QUEUE, AdmissionQueueSpec::default());
    let write = Write { action: Action::Ensure(erase(&queue)), because: "there is no ledger yet" };
    Plan { writes: vec![write], ..Plan::rest("Making") }
}

impl<L: Line> Turn<'_, L> {
    fn status(&self, before: &AdmissionQueueStatus, now: Timestamp) -> AdmissionQueueStatus {
        let active = self.active.clone();
        let holders: BTreeSet<&str> = active.iter().map(|entry| entry.uid.as_str()).collect();
        let waits =
            |candidate: &&Candidate<'_, L::Member>| !holders.contains(candidate.member.uid());
        let oldest = self
            .wanting
            .iter()
            .filter(waits)
            .filter(|c| matches!(c.place, Place::Held(_)))
            .map(|c| c.ticket)
            .min();
        let mut after = AdmissionQueueStatus {
            limit: Some(
                i32::try_from(L::limits(&self.reading.policy).concurrency).unwrap_or(i32::MAX),
            ),
            active_count: Some(i32::try_from(active.len()).unwrap_or(i32::MAX)),
            waiting_count: Some(
                i32::try_from(self.wanting.iter().filter(waits).count()).unwrap_or(i32::MAX),
            ),
            oldest_waiting_ticket: oldest.map(|ticket| ticket.to_string()),
            policy: self.reading.policy.to_entries(),
            conditions: reading::condition(&self.reading.finding, &before.conditions, now),
            snapshots: before.snapshots.clone(),
            active,
        };
        L::extend(self.observed, &self.reading.policy, before, &mut after, now);
        after
    }

    /// Q1 and the tickets of retries. None are given in a turn that admits an image whose ticket is not in status.
    fn marks(&self, now: Timestamp) -> Vec<Write> {
        let leaving =
            self.leaving.iter().map(|member| mark(*member, None, now, "it was suspended"));
        let holders: BTreeSet<&str> = self.active.iter().map(|entry| entry.uid.as_str()).collect();
        let is_admitted =
            |candidate: &Candidate<'_, L::Member>| holders.contains(candidate.member.uid());
        let admits_unticketed =
            self.wanting.iter().any(|c| c.place == Place::First && is_admitted(c));
        let may_number = self.pending.is_empty() && !admits_unticketed;
        let due = self.wanting.iter().filter(|c| !is_admitted(c) && c.is_due_a_ticket(may_number));
        let given = due.map(|c| mark(c.member, Some(c.ticket), now, c.because()));
        let overdue = self.overdue().map(|pending| {
            mark(
                pending.member,
                Some(pending.ticket),
                now,
                "it did not write its ticket, and others wait",
            )
        });
        leaving.chain(given).chain(overdue).take(TICKETS_A_PASS).collect()
    }

    /// What runs for members that are gone and whose slot is still held, and what else is in the way.
    fn leftovers(&self) -> Vec<Write> {
        let jobs = self.observed.missing.values().filter_map(|trace| match trace {
            Trace::Left { target, uid } => Some((target.clone(), uid.clone())),
            Trace::Alive | Trace::Runs | Trace::Nothing => None,
        });
        let jobs = jobs.map(|(target, uid)| delete(target, uid, "its owner is gone"));
        jobs.chain(L::clear(self.observed)).collect()
    }

    fn because(
        &self,
        before: &AdmissionQueueStatus,
        status: &AdmissionQueueStatus,
    ) -> &'static str {
        let after = &self.active;
        let is_new = |entry: &ActiveEntry| !before.active.contains(entry);
        match (after.iter().any(is_new), self.kept.len() < before.active.len()) {
            (true, true) => "slots were released and given",
            (true, false) => "there is room",
            (false, true) => "attempts have ended",
            (false, false) if status.snapshots != before.snapshots => {
                "snapshots may be taken or ended"
            }
            (false, false) => "counts or policy changed",
        }
    }

    fn verdict(&self) -> &'static str {
        match (L::limits(&self.reading.policy).concurrency, self.wanting.is_empty()) {
            (0, _) => "Paused",
            (_, true) => "Idle",
            (_, false) => "Queueing",
        }
    }

    /// The end of the nearest backoff; soon, while slots are taken by what has no watch here.
    fn next(&self, now: Timestamp) -> Next {
        let retries = self.wanting.iter().filter(|c| c.eligibility == Eligibility::Backoff);
        let next = retries.fold(Next::Wait, |next, c| {
            let at = c.member.backoff_until(now).unwrap_or(now);
            next.or(Next::At(at))
        });
        let next = next.or(L::next(self.observed, now));
        // What is overdue already is written in this very turn.
        let patience = self.awaited().map(Pending::patience_ends).filter(|at| *at > now);
        let next = patience.fold(next, |next, at| next.or(Next::At(at)));
        let is_watched = self.observed.missing.values().all(|trace| *trace == Trace::Nothing);
        let soon = now.checked_add(SignedDuration::from_secs(2)).unwrap_or(Timestamp::MAX);
        if is_watched && !self.has_reserved() { next } else { next.or(Next::At(soon)) }
    }
}

/// A deletion after which nothing is left that could still run.
#[must_use]
pub fn delete(target: Target, uid: String, because: &'static str) -> Write {
    let propagation = Propagation::Foreground;
    Write { action: Action::Delete { target, uid, resource_version: None, propagation }, because }
}

/// The one write of another object's status: its ticket, guarded by the version that the order was made from.
fn mark<M: Member>(
    member: &M,
    ticket: Option<Ticket>,
    now: Timestamp,
    because: &'static str,
) -> Write {
    let fields = match ticket {
        Some(ticket) => json!({"ticket": ticket.to_string(), "queuedAt": Time(now)}),
        None => json!({"ticket": null, "queuedAt": null}),
    };
    let action = Action::Mark {
        target: member.target(),
        resource_version: member.metadata().resource_version.clone().unwrap_or_default(),
        fields,
    };
    Write { action, because }
}

/// An Event about the ConfigMap when what is wrong with it changed.
fn policy_notice<L: Line>(
    observed: &Observed<L>,
    reading: &Reading,
    before: &AdmissionQueueStatus,
) -> Option<Notice> {
    let was = condition::find(&before.conditions, POLICY_VALID);
    let finding = &reading.finding;
    let is_news = was
        .is_none_or(|was| was.reason != finding.reason.as_str() || was.message != finding.message);
    let is_trouble = finding.status == condition::Truth::False
        || finding.reason == condition::Reason::UnknownKeys;
    if !is_news || (was.is_none() && !is_trouble) {
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

fn policy_of<L: Line>(observed: &Observed<L>) -> Policy {
    let before =
        observed.ledger.as_ref().and_then(|queue| queue.status.clone()).unwrap_or_default();
    reading::read(&observed.document, &effective_policy(Some(&before))).policy
}

#[cfg(test)]
mod tests;
