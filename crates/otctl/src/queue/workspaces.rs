//! The queue of workspaces as rows. Who wants a slot is computed as the controller does it; what holds one back is what
//! its own conditions say, since whoever asks may not be allowed to see images and namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use otctl_types::condition::{self, ACCEPTED, ADMITTED, READY, Reason};
use otctl_types::queue::ActiveEntry;
use otctl_types::workspace::Phase;
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, Workspace, WorkspaceStatus};
use policy::Ticket;
use policy::admission::{Eligibility, Waiting, admit};
use serde::Serialize;
use workspace_controller::parts;

use super::{Counts, Rank, Standing, counts, effective_policy, holding, order_of, places, tickets};
use crate::progress::Progress;

#[cfg(test)]
mod tests;

/// The whole queue of workspaces.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    /// What holds for all of it.
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// Active workspaces, then waiting ones by position, then those that are held back, then the rest by name.
    pub(crate) workspaces: Vec<Row>,
}

/// One workspace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: String,
    /// Where it is made; unknown before a controller has accepted one that does not say it.
    pub(crate) namespace: Option<String>,
    /// Its place among those that start as soon as there is room, from 1; none for what does not wait for a slot, or
    /// waits for something else first.
    pub(crate) position: Option<usize>,
    /// Where it stands; none before a controller has looked at it.
    pub(crate) phase: Option<Phase>,
    /// Why it is not further, in one word.
    pub(crate) reason: String,
    /// The same as a sentence.
    pub(crate) message: String,
    /// Since when it holds a slot.
    pub(crate) active_since: Option<Timestamp>,
    /// Since when it waits for one.
    pub(crate) queued_at: Option<Timestamp>,
    /// How many of its parts are ready, of how many: `3/5`.
    pub(crate) ready_parts: Option<String>,
    /// Whether it neither holds a slot nor wants one.
    #[serde(skip)]
    pub(crate) is_at_rest: bool,
}

impl Table {
    /// Without the workspaces that `keep` refuses; positions and counts stay those of the whole queue.
    pub(crate) fn only(mut self, keep: impl Fn(&Row) -> bool) -> Self {
        self.workspaces.retain(keep);
        self
    }
}

impl Row {
    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        self.ready_parts.as_deref().and_then(Progress::of_told_parts).unwrap_or_default()
    }
}

/// The rows of these objects at this time.
pub(crate) fn table(
    queue: Option<&AdmissionQueue>,
    workspaces: &[Arc<Workspace>],
    now: Timestamp,
) -> Table {
    let nothing = AdmissionQueueStatus::default();
    let status = queue.and_then(|queue| queue.status.as_ref()).unwrap_or(&nothing);
    let waiting = waiting(status, workspaces, now);
    let limits = effective_policy(Some(status)).workspace_limits();
    let admission = admit(&waiting, &holding(status), &limits);
    let places = places(&admission);
    let mut rows: Vec<(Rank, Row)> =
        workspaces.iter().map(|workspace| row(workspace, status, &places)).collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let failed = rows.iter().filter(|(_, row)| row.is_at_rest && row.phase == Some(Phase::Failed));
    Table {
        counts: counts(status, rows.iter().map(|(rank, _)| rank), failed.count()),
        workspaces: rows.into_iter().map(|(_, row)| row).collect(),
    }
}

fn row(
    workspace: &Workspace,
    status: &AdmissionQueueStatus,
    places: &BTreeMap<&str, Standing>,
) -> (Rank, Row) {
    let uid = workspace.uid().unwrap_or_default();
    let entry = status.active.iter().find(|entry| entry.uid == uid);
    let standing = places.get(uid.as_str()).filter(|_| entry.is_none());
    let told = workspace.status.clone().unwrap_or_default();
    // Until a ledger that was lost is made whole again, the turn says what the entry did.
    let since = entry.map(|entry| entry.since.0).or(told.open_turn.as_ref().map(|it| it.since.0));
    let rank = Rank::of(entry, standing, workspace.name_any());
    let row = Row {
        name: workspace.name_any(),
        position: standing.and_then(|standing| standing.position),
        reason: reason(&told, entry, standing),
        active_since: since,
        queued_at: told.queued_at.filter(|_| standing.is_some()).map(|at| at.0),
        is_at_rest: since.is_none() && standing.is_none(),
        namespace: told.namespace.or_else(|| workspace.spec.namespace.clone()),
        phase: told.phase,
        message: told.message.unwrap_or_default(),
        ready_parts: told.ready_parts,
    };
    (rank, row)
}

/// What its own condition says, as `kubectl get` shows it. The ledger is newer than that only when it has just admitted
/// the workspace, and speaks for one of which nobody has said anything yet.
fn reason(
    told: &WorkspaceStatus,
    entry: Option<&ActiveEntry>,
    standing: Option<&Standing>,
) -> String {
    let admitted = entry.map(|_| Reason::Admitted.to_string());
    if admitted.is_some() && told.open_turn.is_none() {
        return admitted.unwrap_or_default();
    }
    let ready = condition::find(&told.conditions, READY).map(|found| found.reason.clone());
    let computed = || standing.and_then(|standing| standing.why.clone());
    ready.or(admitted).or_else(computed).unwrap_or_else(|| Reason::Queued.to_string())
}

/// Everything that wants a slot. Workspaces without a ticket will get theirs in the order of creation, behind all given.
fn waiting(
    status: &AdmissionQueueStatus,
    workspaces: &[Arc<Workspace>],
    now: Timestamp,
) -> Vec<Waiting> {
    let given = workspaces.iter().filter_map(|it| it.status.as_ref()?.ticket.as_deref());
    let mut highest = Ticket::highest_first(tickets(status, given));
    let mut all: Vec<&Workspace> = workspaces.iter().map(|workspace| &**workspace).collect();
    all.sort_by_cached_key(|workspace| order_of(*workspace));
    let wanting = all.into_iter().filter(|workspace| wants(workspace));
    wanting.map(|workspace| one_waiting(workspace, &mut highest, now)).collect()
}

/// Whether something of it has not had its start, and nobody but the line or what it needs holds it up.
fn wants(workspace: &Workspace) -> bool {
    let told = workspace.status.as_ref();
    let is_open = told.is_some_and(|status| status.open_turn.is_some());
    let is_left = workspace.metadata.deletion_timestamp.is_some();
    let lacks_a_start = parts::unstarted(workspace).next().is_some();
    let is_refused = told_reason(workspace, ACCEPTED) == Some(Reason::NamespaceNotAllowed.as_str());
    lacks_a_start && !is_open && !is_left && !is_refused && !workspace.spec.suspended
}

fn one_waiting(workspace: &Workspace, highest: &mut u64, now: Timestamp) -> Waiting {
    let told = workspace.status.as_ref();
    let held = told.and_then(|status| status.ticket.as_deref()?.parse().ok());
    let has_had_a_turn = told.and_then(|status| status.last_turn).is_some_and(|last| last > 0);
    let ticket = match held {
        Some(ticket) => ticket,
        None if has_had_a_turn => Ticket::retry(*highest, now),
        None => {
            *highest += 1;
            Ticket::first(*highest)
        }
    };
    let id = workspace.uid().unwrap_or_default();
    Waiting { id, ticket, eligibility: eligibility(workspace), host: None }
}

/// Whether the controller said that something else than the line holds it up.
fn eligibility(workspace: &Workspace) -> Eligibility {
    let of_the_line = [Reason::SlotsBusy, Reason::Queued, Reason::Paused, Reason::Suspended];
    match told_reason(workspace, ADMITTED) {
        Some(why) if !of_the_line.iter().any(|reason| reason.as_str() == why) => {
            Eligibility::Blocked { why: why.to_owned() }
        }
        Some(_) | None => Eligibility::Eligible,
    }
}

/// The reason of a condition that is not True.
fn told_reason<'a>(workspace: &'a Workspace, kind: &str) -> Option<&'a str> {
    let conditions = workspace.status.as_ref()?.conditions.as_slice();
    let found = condition::find(conditions, kind).filter(|found| found.status != "True")?;
    Some(found.reason.as_str())
}
