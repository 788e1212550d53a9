//! Queues as rows: what runs, what waits and in which order, and what has ended; here that of images, in
//! [`workspaces`] that of workspaces. Pure; positions are computed from the objects, since nobody writes them: a write per
//! waiting image would cost more than the waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use diskimage_controller::source;
use diskimage_controller::surroundings::Surroundings;
use diskimage_controller::want::{Place, Want, want};
use jiff::Timestamp;
use kube::ResourceExt as _;
use otctl_queue::effective_policy;
use otctl_types::condition::{self, POLICY_VALID, READY, Reason};
use otctl_types::diskimage::Phase;
use otctl_types::queue::ActiveEntry;
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, VMDiskImage, VMDiskImageStatus};
use policy::admission::{Admission, Eligibility, Holding, WaitReason, Waiting, admit};
use policy::{Policy, Ticket};
use serde::Serialize;

use crate::progress::Progress;

#[cfg(test)]
mod tests;
pub(crate) mod workspaces;

/// Every queue that is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Queues {
    /// That of images. Its fields stand at the top, where they stood when it was the only one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) images: Option<Table>,
    /// That of workspaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspaces: Option<workspaces::Table>,
}

impl Queues {
    /// Without what `image` and `workspace` refuse; positions and counts stay those of the whole queues.
    pub(crate) fn only(
        self,
        image: impl Fn(&Row) -> bool,
        workspace: impl Fn(&workspaces::Row) -> bool,
    ) -> Self {
        Self {
            images: self.images.map(|table| table.only(image)),
            workspaces: self.workspaces.map(|table| table.only(workspace)),
        }
    }
}

/// What holds for a whole queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// How many may be active at once; unknown before a controller has run.
    pub(crate) limit: Option<i32>,
    /// How many slots are taken.
    pub(crate) active: usize,
    /// How many wait for one.
    pub(crate) waiting: usize,
    /// How many have failed for good.
    pub(crate) failed: usize,
    /// Whether every key of the policy could be read, in one word.
    pub(crate) policy: Option<String>,
}

/// The whole queue of images.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    /// What holds for all of it.
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// Active images, then waiting ones by position, then those that are held back, then the rest by name.
    pub(crate) images: Vec<Row>,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its place among those that start as soon as there is room, from 1; none for what does not wait for a slot, or
    /// waits for something else first.
    pub(crate) position: Option<usize>,
    /// Where it stands.
    pub(crate) phase: Phase,
    /// Why it is not further, in one word.
    pub(crate) reason: String,
    /// The same as a sentence.
    pub(crate) message: String,
    /// Number of the running attempt, else of the last one.
    pub(crate) attempt: Option<i64>,
    /// Bytes of the source that are in the cluster.
    pub(crate) bytes: Option<u64>,
    /// Size of the source in bytes.
    pub(crate) total_bytes: Option<u64>,
    /// When a failed attempt is followed by the next.
    pub(crate) next_retry_at: Option<Timestamp>,
}

impl Table {
    /// Without the images that `keep` refuses; positions and counts stay those of the whole queue.
    pub(crate) fn only(mut self, keep: impl Fn(&Row) -> bool) -> Self {
        self.images.retain(keep);
        self
    }
}

impl Row {
    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress::of_bytes(self.attempt, self.bytes, self.total_bytes)
    }

    /// Whether nothing will happen to it by itself any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// The rows of these objects at this time.
pub(crate) fn table(
    queue: Option<&AdmissionQueue>,
    images: &[Arc<VMDiskImage>],
    now: Timestamp,
) -> Table {
    let nothing = AdmissionQueueStatus::default();
    let status = queue.and_then(|queue| queue.status.as_ref()).unwrap_or(&nothing);
    let waiting = waiting(status, images, now);
    let admission =
        admit(&waiting, &holding(status), &effective_policy(Some(status)).admission_limits());
    let places = places(&admission);
    let mut rows: Vec<(Rank, Row)> =
        images.iter().map(|image| row(image, status, &places)).collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let failed = rows.iter().filter(|(_, row)| row.phase == Phase::Failed).count();
    Table {
        counts: counts(status, rows.iter().map(|(rank, _)| rank), failed),
        images: rows.into_iter().map(|(_, row)| row).collect(),
    }
}

fn counts<'a>(
    status: &AdmissionQueueStatus,
    ranks: impl Iterator<Item = &'a Rank>,
    failed: usize,
) -> Counts {
    Counts {
        limit: status.limit,
        active: status.active.len(),
        waiting: ranks.filter(|rank| rank.is_waiting()).count(),
        failed,
        policy: condition::find(&status.conditions, POLICY_VALID).map(|found| found.reason.clone()),
    }
}

/// The order of rows.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Holds a slot, by the ticket that won it.
    Active(Option<Ticket>, String),
    /// Starts when there is room, by position.
    Waiting(usize),
    /// Wants a slot and cannot start, in the order of tickets.
    HeldBack(usize),
    /// Neither.
    Rest(String),
}

impl Rank {
    fn of(entry: Option<&ActiveEntry>, standing: Option<&Standing>, name: String) -> Self {
        match (entry, standing) {
            (Some(entry), _) => Self::Active(entry.ticket.parse().ok(), name),
            (None, Some(Standing { position: Some(position), .. })) => Self::Waiting(*position),
            (None, Some(standing)) => Self::HeldBack(standing.order),
            (None, None) => Self::Rest(name),
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::HeldBack(_))
    }
}

fn row(
    image: &VMDiskImage,
    status: &AdmissionQueueStatus,
    places: &BTreeMap<&str, Standing>,
) -> (Rank, Row) {
    let uid = image.uid().unwrap_or_default();
    let entry = status.active.iter().find(|entry| entry.uid == uid);
    let standing = places.get(uid.as_str()).filter(|_| entry.is_none());
    let told = image.status.clone().unwrap_or_default();
    let (bytes, total_bytes) = amounts(&told);
    let row = Row {
        namespace: image.namespace().unwrap_or_default(),
        name: image.name_any(),
        position: standing.and_then(|standing| standing.position),
        phase: told.phase.unwrap_or(Phase::Queued),
        reason: reason_of(&told, entry.is_some(), standing),
        attempt: told
            .open_attempt
            .map(|open| open.number)
            .or(told.last_attempt)
            .or(entry.map(|entry| entry.attempt)),
        bytes,
        total_bytes,
        next_retry_at: told.next_retry_at.map(|at| at.0),
        message: told.message.unwrap_or_default(),
    };
    let name = format!("{}/{}", row.namespace, row.name);
    (Rank::of(entry, standing, name), row)
}

/// Bytes of the source that are in the cluster, of all.
pub(crate) fn amounts(told: &VMDiskImageStatus) -> (Option<u64>, Option<u64>) {
    let count = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let progress = told.progress.as_ref();
    let announced = progress.and_then(|progress| progress.total_bytes).map(count);
    let total = announced.or(told.source.as_ref().and_then(|source| source.size));
    let has_all = matches!(told.phase, Some(Phase::Snapshotting | Phase::Succeeded));
    (if has_all { total } else { progress.map(|progress| count(progress.bytes)) }, total)
}

/// Why it is not further: what its own condition says, as `kubectl get` shows it. The ledger is newer than that only when
/// it has just admitted the image, and speaks for one of which nobody has said anything yet.
fn reason_of(told: &VMDiskImageStatus, is_active: bool, standing: Option<&Standing>) -> String {
    if is_active && matches!(told.phase, None | Some(Phase::Queued)) {
        return Reason::Admitted.to_string();
    }
    let ready = condition::find(&told.conditions, READY).map(|found| found.reason.clone());
    let computed = || standing.and_then(|standing| standing.why.clone());
    ready.or_else(computed).unwrap_or_else(|| Reason::Queued.to_string())
}

/// Where something that wants a slot stands.
struct Standing {
    /// Its place in the order of tickets.
    order: usize,
    /// Its place among those that start when there is room.
    position: Option<usize>,
    /// Why it waits, unless it is about to start.
    why: Option<String>,
}

/// By UID. Who could start now comes first, even behind others by ticket: who cannot start holds nobody up, so that a
/// position of its own would be one that nobody waits for.
fn places(admission: &Admission) -> BTreeMap<&str, Standing> {
    let starts = admission.admitted.iter().map(|id| (id.as_str(), None));
    let waits = admission.waiting.iter().map(|place| (place.id.as_str(), Some(&place.reason)));
    let mut positions = 1..;
    let standing = |(order, (id, why)): (usize, (_, Option<&WaitReason>))| {
        let position = if why.is_some_and(is_held_back) { None } else { positions.next() };
        (id, Standing { order, position, why: why.map(reason) })
    };
    starts.chain(waits).enumerate().map(standing).collect()
}

/// Whether more room would not help.
fn is_held_back(reason: &WaitReason) -> bool {
    match reason {
        WaitReason::Backoff | WaitReason::Blocked { .. } => true,
        WaitReason::SlotsBusy | WaitReason::HostBusy | WaitReason::Paused => false,
    }
}

fn reason(reason: &WaitReason) -> String {
    match reason {
        WaitReason::Blocked { why } => why.clone(),
        WaitReason::SlotsBusy | WaitReason::HostBusy | WaitReason::Backoff | WaitReason::Paused => {
            reason.as_str().to_owned()
        }
    }
}

fn holding(status: &AdmissionQueueStatus) -> Vec<Holding> {
    status
        .active
        .iter()
        .map(|entry| Holding { id: entry.uid.clone(), host: entry.host.clone() })
        .collect()
}

/// Everything that wants a slot. Images without a ticket will get theirs in the order of creation, behind all given.
fn waiting(
    status: &AdmissionQueueStatus,
    images: &[Arc<VMDiskImage>],
    now: Timestamp,
) -> Vec<Waiting> {
    let policy = effective_policy(Some(status));
    let given = images.iter().filter_map(|image| image.status.as_ref()?.ticket.as_deref());
    let mut highest = Ticket::highest_first(tickets(status, given));
    let mut images: Vec<&VMDiskImage> = images.iter().map(|image| &**image).collect();
    images.sort_by_cached_key(|image| order_of(*image));
    images.into_iter().filter_map(|image| wants(image, &policy, &mut highest, now)).collect()
}

fn wants(
    image: &VMDiskImage,
    policy: &Policy,
    highest: &mut u64,
    now: Timestamp,
) -> Option<Waiting> {
    // Classes are not read here: a user of one namespace may not list them. What the controller found wrong stands in
    // the image's own condition.
    let Want::Slot { place, eligibility } = want(image, policy, &Surroundings::default(), now)
    else {
        return None;
    };
    let ticket = match place {
        Place::Held(ticket) => ticket,
        Place::Retry(due) => Ticket::retry(*highest, due),
        Place::First => {
            *highest += 1;
            Ticket::first(*highest)
        }
    };
    let eligibility = match eligibility {
        Eligibility::Backoff => Eligibility::Backoff,
        Eligibility::Eligible | Eligibility::Blocked { .. } => told_eligibility(image),
    };
    Some(Waiting {
        id: image.uid().unwrap_or_default(),
        ticket,
        eligibility,
        host: source::host(&image.spec.url),
    })
}

/// Whether the controller said that a class is missing; nothing else keeps an image from being admitted.
fn told_eligibility(image: &VMDiskImage) -> Eligibility {
    let missing = [
        Reason::StorageClassNotFound,
        Reason::SnapshotClassNotFound,
        Reason::SnapshotClassMismatch,
    ];
    let conditions =
        image.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told = condition::find(conditions, READY).map(|found| found.reason.as_str());
    match missing.into_iter().find(|reason| told == Some(reason.as_str())) {
        Some(reason) => Eligibility::Blocked { why: reason.to_string() },
        None => Eligibility::Eligible,
    }
}

/// The order in which first tickets are given.
fn order_of(object: &impl kube::Resource) -> (Option<Timestamp>, u128, String) {
    let version = object.resource_version().and_then(|text| text.parse().ok()).unwrap_or(u128::MAX);
    (object.creation_timestamp().map(|at| at.0), version, object.uid().unwrap_or_default())
}

/// Every ticket that is known: those that objects were `given`, and those in the ledger.
fn tickets<'a>(
    status: &'a AdmissionQueueStatus,
    given: impl Iterator<Item = &'a str>,
) -> Vec<Ticket> {
    let active = status.active.iter().map(|entry| entry.ticket.as_str());
    given.chain(active).filter_map(|ticket| ticket.parse().ok()).collect()
}
