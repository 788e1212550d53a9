//! One look at the whole set: which slots are kept, what each image wants, and whom there is room for. Q2 and Q3 of
//! `docs/ledger.md` are carried out here; what is written because of it is `decide`'s.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::ledger::{self, Holder, Occupied};
use otctl_types::names::LAST_ATTEMPT;
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus, SnapshotEntry};
use policy::Ticket;
use policy::admission::{Admission, Eligibility, Holding, Waiting, admit};

use crate::known::Known;
use crate::queue::lane;
use crate::queue::observe::{Observed, Trace};
use crate::queue::status::{self, Reading};
use crate::queue::work::Work;
use crate::views::effective_policy;
use crate::want::{Place, Want, want_of};

/// A ticket that stands in an entry only is written by its image, with its first attempt. When that cannot be made,
/// because a webhook of its namespace does not answer, say, others wait for it so long at most.
const TICKET_PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// One look at the whole set.
pub(super) struct Turn<'a> {
    pub(super) observed: &'a Observed,
    pub(super) reading: Reading,
    /// Entries that are not released.
    pub(super) kept: Vec<ActiveEntry>,
    /// Images that want a slot, in the order in which tickets are given.
    pub(super) wanting: Vec<Candidate<'a>>,
    /// Images that give up their place.
    pub(super) leaving: Vec<&'a Known>,
    /// Q2: the entries after this turn.
    pub(super) active: Vec<ActiveEntry>,
    /// Who may take a snapshot after this turn.
    pub(super) snapshots: Vec<SnapshotEntry>,
    /// The highest first ticket seen.
    pub(super) highest: u64,
    /// Holders whose first ticket stands only in their entry: until it stands in status, no later image gets one.
    pub(super) pending: Vec<Pending<'a>>,
    /// Images by UID.
    images: Images<'a>,
    pub(super) now: Timestamp,
}

/// A holder whose first ticket stands in its entry only.
pub(super) struct Pending<'a> {
    pub(super) image: &'a Known,
    pub(super) ticket: Ticket,
    pub(super) since: Timestamp,
}

/// An image that wants a slot, with the ticket it has or would get.
pub(super) struct Candidate<'a> {
    pub(super) image: &'a Known,
    pub(super) place: Place,
    pub(super) ticket: Ticket,
    pub(super) eligibility: Eligibility,
    /// The highest number that a lost status has forgotten.
    pub(super) used: i64,
}

impl<'a> Turn<'a> {
    /// With everything that is decided about each image.
    pub(super) fn of(
        observed: &'a Observed,
        before: &'a AdmissionQueueStatus,
        now: Timestamp,
    ) -> Self {
        Self::kept(observed, before, now).with_wants().with_admissions(before)
    }

    /// Only with what is kept.
    pub(super) fn kept(
        observed: &'a Observed,
        before: &'a AdmissionQueueStatus,
        now: Timestamp,
    ) -> Self {
        let images: Images<'_> =
            observed.images.iter().map(|image| (image.uid.as_str(), &**image)).collect();
        let is_kept =
            |entry: &&ActiveEntry| !ledger::is_released(entry, holder(observed, &images, entry));
        let kept: Vec<ActiveEntry> = before.active.iter().filter(is_kept).cloned().collect();
        Self {
            observed,
            reading: status::read(&observed.document, &effective_policy(Some(before))),
            pending: pending(&kept, &images),
            kept,
            wanting: Vec::new(),
            leaving: Vec::new(),
            active: Vec::new(),
            snapshots: Vec::new(),
            highest: Ticket::highest_first(tickets(observed, before)),
            images,
            now,
        }
    }

    /// And what each image wants.
    pub(super) fn with_wants(mut self) -> Self {
        self.sort_images();
        self
    }

    fn with_admissions(mut self, before: &AdmissionQueueStatus) -> Self {
        self.active = self.admitted();
        for entry in &mut self.active {
            let host = self.images.get(entry.uid.as_str()).and_then(|image| image.host.clone());
            entry.host = entry.host.take().or(host);
        }
        let policy = &self.reading.policy;
        self.snapshots = lane::snapshots(self.observed, policy, &before.snapshots, self.now);
        self
    }

    /// Fills `wanting` and `leaving`; new first tickets are numbered in the order of creation.
    fn sort_images(&mut self) {
        let mut images: Vec<&Known> = self.observed.images.iter().map(|image| &**image).collect();
        images.sort_by(|a, b| (&a.order, &a.uid).cmp(&(&b.order, &b.uid)));
        let mut next = self.highest.saturating_add(1);
        let proven = &self.observed.proven;
        for image in images.into_iter().filter(|image| !proven.contains(&image.uid)) {
            let rules = (&self.reading.policy, &self.observed.around);
            match want_of(image, &image.record, rules, self.now) {
                Want::Nothing => {}
                Want::GiveUpPlace => self.leaving.push(image),
                Want::Slot { place, eligibility } => {
                    let ticket = self.ticket(place, &mut next);
                    let used = self.observed.used.get(&image.uid).copied().unwrap_or(0);
                    let used = used.min(LAST_ATTEMPT - 1);
                    self.wanting.push(Candidate { image, place, ticket, eligibility, used });
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

    /// Who would be admitted with these slots taken. Images without a first ticket take part only as an unbroken head
    /// of the order of tickets: behind one that is not admitted, none is admitted before its ticket stands in status.
    pub(super) fn candidates_for(&self, active: &[ActiveEntry], reserved: usize) -> Admission {
        let holding = holding(active, reserved);
        let limits = self.reading.policy.admission_limits();
        let mut admission = admit(&self.waiting(self.wanting.len()), &holding, &limits);
        let head = self.wanting.iter().filter(|candidate| candidate.place == Place::First);
        let admitted: BTreeSet<&String> = admission.admitted.iter().collect();
        let is_admitted = |candidate: &&Candidate<'_>| admitted.contains(&candidate.image.uid);
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
                id: candidate.image.uid.clone(),
                ticket: candidate.ticket,
                eligibility: candidate.eligibility.clone(),
                host: candidate.image.host.clone(),
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
                    .find(|candidate| candidate.image.uid == *uid)
                    .map(|c| c.entry(self.now)),
            );
        }
        active
    }

    /// Images that have no entry and of which something runs all the same: a pod whose Job is gone, or an attempt that
    /// only their status tells of (labels, by which the lists go, can be taken off a Job that runs). Each takes a slot
    /// until it has ended.
    fn hidden(&self, active: &[ActiveEntry], work: &Work) -> usize {
        let known = active.iter().chain(work.unfinished.iter().map(|one| &one.entry));
        let known: BTreeSet<&str> = known.map(|entry| entry.uid.as_str()).collect();
        let open =
            self.observed.images.iter().filter(|image| image.record.status.open_attempt.is_some());
        let running = open.map(|image| &image.uid).chain(&work.unaccounted);
        let hidden: BTreeSet<&str> =
            running.map(String::as_str).filter(|uid| !known.contains(uid)).collect();
        hidden.len()
    }

    /// Whether slots are taken by what no watch of the queue tells the end of.
    pub(super) fn has_reserved(&self) -> bool {
        self.observed.work.as_ref().is_some_and(|work| {
            let occupied = ledger::make_whole(self.kept.clone(), &work.unfinished);
            occupied.reserved + self.hidden(&occupied.active, work) > 0
        })
    }

    /// Tickets that others wait for too long.
    pub(super) fn overdue(&self) -> impl Iterator<Item = &Pending<'a>> {
        self.awaited().filter(|pending| pending.patience_ends() <= self.now)
    }

    /// Tickets that others wait for. Of an image that goes, the end of its attempt is waited for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Pending<'a>> {
        let holds = |candidate: &Candidate<'_>| {
            self.kept.iter().any(|entry| entry.uid == candidate.image.uid)
        };
        let mut others = self.wanting.iter().filter(|candidate| !holds(candidate));
        let others_wait = !self.pending.is_empty() && others.any(|c| c.place == Place::First);
        let stays = |pending: &&Pending<'a>| pending.image.metadata.deletion_timestamp.is_none();
        self.pending.iter().filter(move |_| others_wait).filter(stays)
    }

    /// An attempt runs that has no entry: the ledger was lost, emptied or restored.
    pub(super) fn has_lost_an_entry(&self) -> bool {
        self.observed.images.iter().any(|image| {
            let held = |number| self.kept.iter().any(|e| e.uid == image.uid && e.attempt == number);
            let open = image.record.status.open_attempt.as_ref();
            open.is_some_and(|open| !held(open.number))
        })
    }
}

impl Pending<'_> {
    pub(super) fn patience_ends(&self) -> Timestamp {
        self.since.checked_add(TICKET_PATIENCE).unwrap_or(Timestamp::MAX)
    }
}

impl Candidate<'_> {
    fn entry(&self, now: Timestamp) -> ActiveEntry {
        ActiveEntry {
            namespace: self.image.namespace().unwrap_or_default(),
            name: self.image.name_any(),
            uid: self.image.uid.clone(),
            attempt: self.used.max(self.image.record.last()).saturating_add(1),
            ticket: self.ticket.to_string(),
            host: self.image.host.clone(),
            since: Time(now),
        }
    }

    pub(super) fn is_due_a_ticket(&self, may_number: bool) -> bool {
        match self.place {
            Place::Held(_) => false,
            Place::First => may_number,
            Place::Retry(_) => self.eligibility != Eligibility::Backoff,
        }
    }

    pub(super) fn because(&self) -> &'static str {
        match self.place {
            Place::Retry(_) => "its backoff ended",
            Place::First | Place::Held(_) => "it waits",
        }
    }
}

/// Images by UID.
type Images<'a> = HashMap<&'a str, &'a Known>;

fn holder(observed: &Observed, images: &Images<'_>, entry: &ActiveEntry) -> Holder {
    match (images.get(entry.uid.as_str()), observed.missing.get(&entry.uid)) {
        (Some(image), _) => Holder::Present(image.record.numbers()),
        (None, Some(Trace::Nothing)) => Holder::Gone,
        (None, _) => Holder::Unproven,
    }
}

/// One for each image, though a ledger that somebody wrote may list one twice. One that is suspended gives up its place.
fn pending<'a>(kept: &[ActiveEntry], images: &Images<'a>) -> Vec<Pending<'a>> {
    let of_entry = |entry: &ActiveEntry| {
        let ticket = entry.ticket.parse::<Ticket>().ok()?;
        let image = *images.get(entry.uid.as_str())?;
        let stands = image.record.status.ticket.is_some() || ticket.retry_at().is_some();
        (!stands && !image.spec.suspend).then_some(Pending { image, ticket, since: entry.since.0 })
    };
    let mut seen = BTreeSet::new();
    let pending = kept.iter().filter_map(of_entry);
    pending.filter(|pending| seen.insert(&pending.image.uid)).collect()
}

fn tickets(observed: &Observed, before: &AdmissionQueueStatus) -> Vec<Ticket> {
    let of_images = observed.images.iter().flat_map(|image| [image.ticket, image.spent]).flatten();
    let of_entries = before.active.iter().filter_map(|entry| entry.ticket.parse().ok());
    of_images.chain(of_entries).collect()
}

fn holding(active: &[ActiveEntry], reserved: usize) -> Vec<Holding> {
    let held =
        active.iter().map(|entry| Holding { id: entry.uid.clone(), host: entry.host.clone() });
    let reserved = (0..reserved).map(|n| Holding { id: format!("reserved {n}"), host: None });
    held.chain(reserved).collect()
}
