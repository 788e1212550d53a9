//! The state machine of a workspace.
//!
//! ```text
//!              refused ─▶ Invalid                       ┌──────── a part is not ready ────────┐
//!                                                       ▼                                     │
//!   new ─▶ Waiting ──slot──▶ Opening ─▶ Building ──all ready, or provisioningTimeout──▶ Tending
//!             ▲  ▲                        │                                              │
//!             │  └── images not there ────┘ Yielding                     an added entry ─┘
//!             └──────────── resumed ── Suspended ◀── suspended (from anywhere)
//!
//!   deleted, from anywhere ─▶ Leaving: workloads ─▶ pods gone ─▶ policy ─▶ finalizer
//! ```
//! What has had its start is tended in every state but the last two: a slot pays for a start, not for healing.

use jiff::{SignedDuration, Timestamp};
use otctl_types::Workspace;
use otctl_types::condition::Reason;

use super::observe::{Ground, Observed};
use super::works;
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
    /// It has no slot, and something has not had its start: why it has none.
    Waiting(Wait),
    /// A slot was given: this turn begins.
    Opening(i64),
    /// Its turn is open.
    Building,
    /// Its turn is over, since nothing is left to do in it but to wait.
    Yielding(Lack),
    /// Its turn is over: everything is ready, or has had the time that a start has.
    Settling {
        /// Whether it took too long.
        is_late: bool,
    },
    /// Everything has had its start.
    Tending,
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
            Self::Waiting(_) => "Waiting",
            Self::Opening(_) => "Opening",
            Self::Building => "Building",
            Self::Yielding(_) => "Yielding",
            Self::Settling { is_late: false } => "Ready",
            Self::Settling { is_late: true } => "Late",
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
    let is_open = workspace.status.as_ref().is_some_and(|status| status.open_turn.is_some());
    if parts::unstarted(workspace).next().is_none() {
        return if is_open { Verdict::Settling { is_late: false } } else { Verdict::Tending };
    }
    match (is_open, held(observed), obstacle(workspace, observed)) {
        (true, _, Some(lack)) => Verdict::Yielding(lack),
        (true, _, None) => building(workspace, observed, now),
        (false, _, Some(lack)) => Verdict::Waiting(Wait::Blocked(lack)),
        (false, Some(number), None) => Verdict::Opening(number),
        (false, None, None) if observed.policy.workspace_concurrency == 0 => {
            Verdict::Waiting(Wait::Paused)
        }
        (false, None, None) => Verdict::Waiting(Wait::Line),
    }
}

fn building(workspace: &Workspace, observed: &Observed, now: Timestamp) -> Verdict {
    if works::is_all_ready(observed) {
        return Verdict::Settling { is_late: false };
    }
    let is_late = deadline(workspace, observed).is_some_and(|at| at <= now);
    if is_late { Verdict::Settling { is_late: true } } else { Verdict::Building }
}

/// Until when the open turn may last.
pub fn deadline(workspace: &Workspace, observed: &Observed) -> Option<Timestamp> {
    let since = workspace.status.as_ref()?.open_turn.as_ref()?.since.0;
    let patience = SignedDuration::try_from(observed.policy.provisioning_timeout).ok()?;
    Some(since.checked_add(patience).unwrap_or(Timestamp::MAX))
}

/// The number of the slot that is held and was not used yet.
pub fn held(observed: &Observed) -> Option<i64> {
    let status = observed.workspace.as_ref()?.status.as_ref();
    let last = status.and_then(|status| status.last_turn).unwrap_or(0);
    observed.entry.as_ref().map(|entry| entry.attempt).filter(|number| *number > last)
}

/// Why the workspace cannot be acted on at all.
fn problem(observed: &Observed) -> Option<Lack> {
    let of_namespace = observed.site.problem_of_namespace(&observed.namespace);
    let of_namespace =
        of_namespace.map(|message| Lack { reason: Reason::NamespaceNotAllowed, message });
    of_namespace.or_else(|| {
        let first = observed.foreign.first()?;
        Some(Lack {
            reason: Reason::NameConflict,
            message: format!(
                "{first} exists and belongs to something else; rename or delete it, or give this workspace or its entry another name"
            ),
        })
    })
}

/// Why a slot could not be used, or not be used any further.
fn obstacle(workspace: &Workspace, observed: &Observed) -> Option<Lack> {
    ground(observed).or_else(|| {
        let wanted = parts::machines_to_start(workspace);
        let of_disks = || {
            wanted.iter().find_map(|entry| {
                let disk = observed.disks.get(&entry.name)?;
                disk.lack(entry).filter(|_| !disk.is_usable())
            })
        };
        let needs_kubevirt = wanted.iter().any(|entry| entry.spec.instance.is_some());
        let of_kubevirt = || (needs_kubevirt && !observed.has_kubevirt).then(no_kubevirt);
        of_disks().or_else(of_kubevirt)
    })
}

/// Machines are asked for, and nothing is there that runs them.
pub fn no_kubevirt() -> Lack {
    Lack {
        reason: Reason::KubeVirtNotInstalled,
        message: "virtual machines are asked for with `instance`, and KubeVirt is not installed in this cluster: install it, and this goes on by itself".to_owned(),
    }
}

/// Why nothing new can be made.
pub fn ground(observed: &Observed) -> Option<Lack> {
    let namespace = &observed.namespace;
    match observed.ground {
        Ground::Unasked | Ground::Firm => None,
        Ground::Terminating => Some(Lack {
            reason: Reason::NamespaceTerminating,
            message: format!(
                "namespace '{namespace}' is being deleted; this goes on when one of that name is there again"
            ),
        }),
        Ground::Absent => Some(Lack {
            reason: Reason::NamespaceNotFound,
            message: format!("there is no namespace '{namespace}': create it, and this goes on by itself"),
        }),
    }
}
