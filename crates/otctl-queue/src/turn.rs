//! One look at the whole set: which slots are kept, what each member wants, and whom there is room for. Q2 and Q3 of
//! `docs/ledger.md` are carried out here; what is written because of it is `decide`'s.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_kit::ledger::{self, Holder, Occupied};
use otctl_types::names::LAST_ATTEMPT;
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use policy::Ticket;
use policy::admission::{Admission, Eligibility, Holding, Waiting, admit};

use crate::document::effective_policy;
use crate::line::Line;
use crate::member::{Member, Place, Want};
use crate::observe::{Observed, Trace};
use crate::reading::{self, Reading};
use crate::work::Work;

/// A ticket that stands in an entry only is written by its member, with its first attempt. When that cannot be made,
/// because a webhook of its namespace does not answer, say, others wait for it so long at most.
const TICKET_PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// One look at the whole set.
pub(crate) struct Turn<'a, L: Line> {
    pub(crate) observed: &'a Observed<L>,
    pub(crate) reading: Reading,
    /// Entries that are not released.
    pub(crate) kept: Vec<ActiveEntry>,
    /// Members that want a slot, in the order in which tickets are given.
    pub(crate) wanting: Vec<Candidate<'a, L::Member>>,
    /// Members that give up their place.
    pub(crate) leaving: Vec<&'a L::Member>,
    /// Q2: the entries after this turn.
    pub(crate) active: Vec<ActiveEntry>,
    /// The highest first ticket seen.
    pub(crate) highest: u64,
    /// Holders whose first ticket stands only in their entry: until it stands in status, no later member gets one.
    pub(crate) pending: Vec<Pending<'a, L::Member>>,
    /// Members by UID.
    members: Members<'a, L::Member>,
    pub(crate) now: Timestamp,
}

/// A holder whose first ticket stands in its entry only.
pub(crate) struct Pending<'a, M> {
    pub(crate) member: &'a M,
    pub(crate) ticket: Ticket,
    pub(crate) since: Timestamp,
}

/// A member that wants a slot, with the ticket it has or would get.
pub(crate) struct Candidate<'a, M> {
    pub(crate) member: &'a M,
    pub(crate) place: Place,
    pub(crate) ticket: Ticket,
    pub(crate) eligibility: Eligibility,
    /// The highest number that a lost status has forgotten.
    pub(crate) used: i64,
}

impl<'a, L: Line> Turn<'a, L> {
    /// With everything that is decided about each member.
    pub(crate) fn of(
        observed: &'a Observed<L>,
        before: &'a AdmissionQueueStatus,
        now: Timestamp,
    ) -> Self {
        Self::kept(observed, before, now).with_wants().with_admissions()
    }

    /// Only with what is kept.
    pub(crate) fn kept(
        observed: &'a Observed<L>,
        before: &'a AdmissionQueueStatus,
        now: Timestamp,
    ) -> Self {
        let members: Members<'_, L::Member> =
            observed.members.iter().map(|member| (member.uid(), &**member)).collect();
        let is_kept =
            |entry: &&ActiveEntry| !ledger::is_released(entry, holder(observed, &members, entry));
        let kept: Vec<ActiveEntry> = before.active.iter().filter(is_kept).cloned().collect();
        Self {
            observed,
            reading: reading::read(&observed.document, &effective_policy(Some(before))),
            pending: pending(&kept, &members),
            kept,
            wanting: Vec::new(),
            leaving: Vec::new(),
            active: Vec::new(),
            highest: Ticket::highest_first(tickets(observed, before)),
            members,
            now,
        }
    }

    /// And what each member wants.
    pub(crate) fn with_wants(mut self) -> Self {
        self.sort_members();
        self
    }

    fn with_admissions(mut self) -> Self {
        self.active = self.admitted();
        for entry in &mut self.active {
            let host = self.members.get(entry.uid.as_str()).and_then(|member| member.host());
            entry.host = entry.host.take().or_else(|| host.map(str::to_owned));
        }
        self
    }

    /// Fills `wanting` and `leaving`; new first tickets are numbered in the order of creation.
    fn sort_members(&mut self) {
        let mut members: Vec<&L::Member> =
            self.observed.members.iter().map(|member| &**member).collect();
        members.sort_by(|a, b| (a.order(), a.uid()).cmp(&(b.order(), b.uid())));
        let mut next = self.highest.saturating_add(1);
        for member in members {
            match L::want(self.observed, member, &self.reading.policy, self.now) {
                Want::Nothing => {}
                Want::GiveUpPlace => self.leaving.push(member),
                Want::Slot { place, eligibility } => {
                    let ticket = self.ticket(place, &mut next);
                    let used = L::forgotten(self.observed, member).min(LAST_ATTEMPT - 1);
                    self.wanting.push(Candidate { member, place, ticket, eligibility, used });
                }
            }
        }
    }

    fn ticket(&self, place: Place, next: &mut u64) -> Ticket {
        match place {
            Place::Held(ticket) => ticket,
            Place::Retry(due) => Ticket::retry(self.highest, due),
            Place::First => {
                let given = *next;
                *next = given.saturating_add(1);
                Ticket::first(given)
            }
        }
    }

    /// Who would be admitted with these slots taken. Members without a first ticket take part only as an unbroken head
    /// of the order of tickets: behind one that is not admitted, none is admitted before its ticket stands in status.
    pub(crate) fn candidates_for(&self, active: &[ActiveEntry], reserved: usize) -> Admission {
        let holding = holding(active, reserved);
        let limits = L::limits(&self.reading.policy);
        let mut admission = admit(&self.waiting(self.wanting.len()), &holding, &limits);
        let head = self.wanting.iter().filter(|candidate| candidate.place == Place::First);
        let admitted: BTreeSet<&str> = admission.admitted.iter().map(String::as_str).collect();
        let is_admitted =
            |candidate: &&Candidate<'_, L::Member>| admitted.contains(candidate.member.uid());
        let admitted_head =
            if self.pending.is_empty() { head.take_while(is_admitted).count() } else { 0 };
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
                id: candidate.member.uid().to_owned(),
                ticket: candidate.ticket,
                eligibility: candidate.eligibility.clone(),
                host: candidate.member.host().map(str::to_owned),
            });
        }
        waiting
    }

    /// The entries that are kept or entered again, and those of whom is admitted.
    fn admitted(&self) -> Vec<ActiveEntry> {
        let Some(work) = &self.observed.work else {
            return self.kept.clone();
        };
        let Occupied { mut active, reserved } =
            ledger::make_whole(self.kept.clone(), &work.unfinished);
        let reserved = reserved + self.hidden(&active, work);
        let admission = self.candidates_for(&active, reserved);
        for uid in &admission.admitted {
            active.extend(
                self.wanting
                    .iter()
                    .find(|candidate| candidate.member.uid() == *uid)
                    .map(|c| c.entry(self.now)),
            );
        }
        active
    }

    /// Members that have no entry and of which something runs all the same: a pod whose Job is gone, or an attempt that
    /// only their status tells of (labels, by which the lists go, can be taken off a Job that runs). Each takes a slot
    /// until it has ended.
    fn hidden(&self, active: &[ActiveEntry], work: &Work) -> usize {
        let known = active.iter().chain(work.unfinished.iter().map(|one| &one.entry));
        let known: BTreeSet<&str> = known.map(|entry| entry.uid.as_str()).collect();
        let open = self.observed.members.iter().filter(|member| member.open().is_some());
        let unaccounted = work.unaccounted.iter().map(String::as_str);
        let running = open.map(|member| member.uid()).chain(unaccounted);
        let hidden: BTreeSet<&str> = running.filter(|uid| !known.contains(uid)).collect();
        hidden.len()
    }

    /// Whether slots are taken by what no watch of the queue tells the end of.
    pub(crate) fn has_reserved(&self) -> bool {
        self.observed.work.as_ref().is_some_and(|work| {
            let occupied = ledger::make_whole(self.kept.clone(), &work.unfinished);
            occupied.reserved + self.hidden(&occupied.active, work) > 0
        })
    }

    /// Tickets that others wait for too long.
    pub(crate) fn overdue(&self) -> impl Iterator<Item = &Pending<'a, L::Member>> {
        self.awaited().filter(|pending| pending.patience_ends() <= self.now)
    }

    /// Tickets that others wait for. Of a member that goes, the end of its attempt is waited for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &Pending<'a, L::Member>> {
        let holds = |candidate: &Candidate<'_, L::Member>| {
            self.kept.iter().any(|entry| entry.uid == candidate.member.uid())
        };
        let mut others = self.wanting.iter().filter(|candidate| !holds(candidate));
        let others_wait = !self.pending.is_empty() && others.any(|c| c.place == Place::First);
        let stays = |pending: &&Pending<'a, L::Member>| {
            pending.member.metadata().deletion_timestamp.is_none()
        };
        self.pending.iter().filter(move |_| others_wait).filter(stays)
    }

    /// An attempt runs that has no entry: the ledger was lost, emptied or restored.
    pub(crate) fn has_lost_an_entry(&self) -> bool {
        self.observed.members.iter().any(|member| {
            let held =
                |number| self.kept.iter().any(|e| e.uid == member.uid() && e.attempt == number);
            member.open().is_some_and(|number| !held(number))
        })
    }
}

impl<M> Pending<'_, M> {
    pub(crate) fn patience_ends(&self) -> Timestamp {
        self.since.checked_add(TICKET_PATIENCE).unwrap_or(Timestamp::MAX)
    }
}

impl<M: Member> Candidate<'_, M> {
    fn entry(&self, now: Timestamp) -> ActiveEntry {
        let metadata = self.member.metadata();
        ActiveEntry {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: self.member.uid().to_owned(),
            attempt: self.used.max(self.member.last()).saturating_add(1),
            ticket: self.ticket.to_string(),
            host: self.member.host().map(str::to_owned),
            since: Time(now),
        }
    }

    pub(crate) fn is_due_a_ticket(&self, may_number: bool) -> bool {
        match self.place {
            Place::Held(_) => false,
            Place::First => may_number,
            Place::Retry(_) => self.eligibility != Eligibility::Backoff,
        }
    }

    pub(crate) fn because(&self) -> &'static str {
        match self.place {
            Place::Retry(_) => "its backoff ended",
            Place::First | Place::Held(_) => "it waits",
        }
    }
}

/// Members by UID.
type Members<'a, M> = HashMap<&'a str, &'a M>;

fn holder<L: Line>(
    observed: &Observed<L>,
    members: &Members<'_, L::Member>,
    entry: &ActiveEntry,
) -> Holder {
    match (members.get(entry.uid.as_str()), observed.missing.get(&entry.uid)) {
        (Some(member), _) => Holder::Present(member.numbers()),
        (None, Some(Trace::Nothing)) => Holder::Gone,
        (None, _) => Holder::Unproven,
    }
}

/// One for each image, though a ledger that somebody wrote may list one twice. One that is suspended gives up its place.
fn pending<'a, M: Member>(kept: &[ActiveEntry], members: &Members<'a, M>) -> Vec<Pending<'a, M>> {
    let of_entry = |entry: &ActiveEntry| {
        let ticket = entry.ticket.parse::<Ticket>().ok()?;
        let member = *members.get(entry.uid.as_str())?;
        let stands = member.ticket_text().is_some() || ticket.retry_at().is_some();
        (!stands && !member.is_suspended()).then_some(Pending {
            member,
            ticket,
            since: entry.since.0,
        })
    };
    let mut seen = BTreeSet::new();
    let pending = kept.iter().filter_map(of_entry);
    pending.filter(|pending| seen.insert(pending.member.uid())).collect()
}

fn tickets<L: Line>(observed: &Observed<L>, before: &AdmissionQueueStatus) -> Vec<Ticket> {
    let of_members =
        observed.members.iter().flat_map(|member| [member.ticket(), member.spent()]).flatten();
    let of_entries = before.active.iter().filter_map(|entry| entry.ticket.parse().ok());
    of_members.chain(of_entries).collect()
}

fn holding(active: &[ActiveEntry], reserved: usize) -> Vec<Holding> {
    let held =
        active.iter().map(|entry| Holding { id: entry.uid.clone(), host: entry.host.clone() });
    let reserved = (0..reserved).map(|n| Holding { id: format!("reserved {n}"), host: None });
    held.chain(reserved).collect()
}
