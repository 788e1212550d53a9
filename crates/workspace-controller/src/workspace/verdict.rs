//! The state machine of a workspace.
//!
//! ```text
//!              refused ─▶ Invalid
//!
//!   new ─▶ Unticketed ─▶ Waiting ──slot──▶ Opening ─▶ Building ──ready, late, refused──▶ Settling ─▶ Tending
//!                           ▲  ▲                        │                                            │
//!                           │  └── images not there ────┘ Yielding      an entry or a machine is added ─┘
//!                           └──────── resumed ── Suspended ◀── suspended (from anywhere but Invalid)
//!
//!   deleted, from anywhere ─▶ Leaving: workloads ─▶ pods gone ─▶ policy ─▶ finalizer
//! ```
//! What has had its start is tended until it is suspended or goes, in a namespace that the chart lists: a slot pays for a start,
//! not for healing.

use jiff::{SignedDuration, Timestamp};
use otctl_types::Workspace;
use otctl_types::condition::Reason;

use super::observe::Observed;
use crate::images::Lack;
use crate::parts;

/// Where a workspace stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is none.
    Gone,
    /// It is being deleted.
    Leaving,
    /// It cannot be acted on.
    Invalid(Lack),
    /// It is held back by a person.
    Suspended,
    /// It is new and has no ticket. Nothing is written before: the order in which tickets are given goes by versions.
    Unticketed,
    /// It has no slot, and something has not had its start: why it has none.
    Waiting(Wait),
    /// A slot was given: this turn begins.
    Opening(i64),
    /// Its turn is open.
    Building,
    /// Its turn is over, since nothing is left to do in it but to wait.
    Yielding(Lack),
    /// Its turn is over, and with it the first start of everything.
    Settling(Start),
    /// Everything has had its start.
    Tending,
}

/// How a start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Everything that was to start is ready.
    Ready,
    /// It has had the time that a start has.
    Late,
    /// The API server calls something of it invalid.
    Refused,
}

/// Why a workspace has no slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Others are before it, or every slot is taken.
    Line,
    /// Nobody is admitted: `workspaceConcurrency` is 0.
    Paused,
    /// It could not use one.
    Blocked(Lack),
}

impl Verdict {
    /// A short constant for logs, spans and goldens.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::Leaving => "Leaving",
            Self::Invalid(_) => "Invalid",
            Self::Suspended => "Suspended",
            Self::Unticketed => "Unticketed",
            Self::Waiting(_) => "Waiting",
            Self::Opening(_) => "Opening",
            Self::Building => "Building",
            Self::Yielding(_) => "Yielding",
            Self::Settling(Start::Ready) => "Ready",
            Self::Settling(Start::Late) => "Late",
            Self::Settling(Start::Refused) => "Refused",
            Self::Tending => "Tending",
        }
    }

    /// Whether a turn is open after this pass.
    pub fn keeps_turn(&self) -> bool {
        matches!(self, Self::Opening(_) | Self::Building)
    }
}

/// Where `observed` stands.
pub fn judge(observed: &Observed, now: Timestamp) -> Verdict {
    let Some(workspace) = &observed.workspace else {
        return Verdict::Gone;
    };
    if workspace.metadata.deletion_timestamp.is_some() {
        return Verdict::Leaving;
    }
    if let Some(problem) = problem(observed) {
        return Verdict::Invalid(problem);
    }
    if workspace.spec.suspended {
        return Verdict::Suspended;
    }
    let is_open = observed.has_open_turn();
    if parts::unstarted(workspace).next().is_none() {
        return if is_open { Verdict::Settling(Start::Ready) } else { Verdict::Tending };
    }
    match (is_open, observed.held(), obstacle(workspace, observed, is_open)) {
        (true, _, Some(lack)) => Verdict::Yielding(lack),
        (true, _, None) => building(workspace, observed, now),
        (false, Some(number), None) => Verdict::Opening(number),
        (false, None, _) if is_new(workspace) => Verdict::Unticketed,
        (false, _, Some(lack)) => Verdict::Waiting(Wait::Blocked(lack)),
        (false, None, None) if observed.policy.workspace_concurrency == 0 => {
            Verdict::Waiting(Wait::Paused)
        }
        (false, None, None) => Verdict::Waiting(Wait::Line),
    }
}

/// It was never in the line.
fn is_new(workspace: &Workspace) -> bool {
    let status = workspace.status.as_ref();
    status.is_none_or(|status| status.ticket.is_none() && status.last_turn.is_none())
}

fn building(workspace: &Workspace, observed: &Observed, now: Timestamp) -> Verdict {
    if are_starts_over(workspace, observed) {
        return Verdict::Settling(Start::Ready);
    }
    let is_late = deadline(workspace, observed).is_some_and(|at| at <= now);
    if is_late { Verdict::Settling(Start::Late) } else { Verdict::Building }
}

/// Whether every part that this turn is for is ready. What had its start before and is broken now is healed without a slot.
fn are_starts_over(workspace: &Workspace, observed: &Observed) -> bool {
    let (started, reports) = (parts::started(workspace), observed.reports(&[], &[]));
    let mut parts = parts::names(workspace).zip(reports);
    parts.all(|(name, report)| report.is_ready || started.contains(name))
}

/// Until when the open turn may last.
pub fn deadline(workspace: &Workspace, observed: &Observed) -> Option<Timestamp> {
    let since = workspace.status.as_ref()?.open_turn.as_ref()?.since.0;
    let patience = SignedDuration::try_from(observed.policy.provisioning_timeout).ok()?;
    Some(since.checked_add(patience).unwrap_or(Timestamp::MAX))
}

/// Why the workspace cannot be acted on at all.
fn problem(observed: &Observed) -> Option<Lack> {
    let of_namespace = observed.site.problem_of_namespace(&observed.namespace);
    let of_namespace =
        of_namespace.map(|message| Lack { reason: Reason::NamespaceNotAllowed, message });
    of_namespace.or_else(|| observed.needs.conflict(&observed.namespace))
}

/// Why a slot could not be used, or not be used any further. A right that may be away for a moment takes none away.
fn obstacle(workspace: &Workspace, observed: &Observed, is_open: bool) -> Option<Lack> {
    let (ground, namespace) = (observed.ground, observed.namespace.as_str());
    let of_ground = if is_open { ground.lack(namespace) } else { ground.obstacle(namespace) };
    of_ground.or_else(|| observed.needs.obstacle(workspace, namespace))
}

/// Why nothing new can be made.
pub fn ground(observed: &Observed) -> Option<Lack> {
    observed.ground.lack(&observed.namespace)
}

#[cfg(test)]
mod tests;
