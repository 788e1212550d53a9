//! Since when a Workspace is to be ready. It is taken from one version after the other; the status alone does not tell
//! when somebody has edited or resumed it.
//!
//! ```text
//!   created ─▶ Wished ──ready──▶ Fulfilled ──not ready──▶ Wished (another generation) or Broken ──ready──▶ Fulfilled
//!   suspended, from anywhere ─▶ Resting ─▶ Resuming ──ticket or slot──▶ Wished
//!   Failed, from anywhere ─▶ GivenUp ──ready──▶ Fulfilled
//! ```

use jiff::Timestamp;
use kube::ResourceExt;
use otctl_types::Workspace;
use otctl_types::condition;
use otctl_types::workspace::{Phase, WorkspaceStatus};

use super::{Wish, ready_at, since, told};

/// Since when a Workspace is to be ready, and whether that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    /// Somebody has wished it then.
    Wished(Wish, Timestamp),
    /// It was ready until then, and nobody has wished anything.
    Broken(Timestamp),
    /// It is ready.
    Fulfilled {
        /// Since then.
        since: Timestamp,
        /// At this generation of its spec.
        generation: Option<i64>,
    },
    /// It is suspended.
    Resting,
    /// It is not suspended any more, and neither ticket nor slot tells since when.
    Resuming,
    /// Somebody had to see to it: how long that took says nothing.
    GivenUp,
}

impl Hope {
    /// Of one that is seen for the first time.
    pub(super) fn first(workspace: &Workspace) -> Self {
        let status = told(workspace);
        match status.phase {
            Some(Phase::Suspended) => return Self::Resting,
            Some(Phase::Failed) => return Self::GivenUp,
            Some(Phase::Provisioning | Phase::Ready) | None => {}
        }
        if let Some(at) = ready_at(status) {
            return Self::fulfilled(status, at);
        }
        match (unready_at(status), workspace.creation_timestamp()) {
            (Some(at), _) if was_ready(status, at) => Self::later(status, at),
            (_, Some(created)) => Self::Wished(Wish::Creation, created.0),
            (_, None) => Self::GivenUp,
        }
    }

    /// Of one that was ready before. A suspension forgets what has had its start. One that has had a turn since it was not
    /// ready was resumed or edited, and nothing tells which any more.
    fn later(status: &WorkspaceStatus, unready: Timestamp) -> Self {
        let admitted = since(status, condition::ADMITTED, "True");
        match started_at(status) {
            Some(at) if status.started_parts.is_empty() => Self::Wished(Wish::Resumption, at),
            Some(_) => Self::Wished(Wish::Edit, unready),
            None if admitted.is_some_and(|at| at <= unready) => Self::Broken(unready),
            None => Self::GivenUp,
        }
    }

    /// Of one that is ready since then.
    pub(super) fn fulfilled(status: &WorkspaceStatus, since: Timestamp) -> Self {
        Self::Fulfilled { since, generation: status.observed_generation }
    }

    /// After another version was seen.
    pub(super) fn next(self, after: &WorkspaceStatus) -> Self {
        match (self, after.phase) {
            (_, Some(Phase::Failed)) => Self::GivenUp,
            (_, Some(Phase::Suspended)) => Self::Resting,
            (Self::Resting | Self::Resuming, _) => Self::resumed(after),
            (Self::Fulfilled { since, generation }, _) => match unready_at(after) {
                // A status of earlier, which somebody has put back.
                Some(at) if at < since => Self::GivenUp,
                Some(at) if after.observed_generation != generation => Self::Wished(Wish::Edit, at),
                Some(at) => Self::Broken(at),
                None => self,
            },
            (Self::Wished(..) | Self::Broken(_) | Self::GivenUp, _) => self,
        }
    }

    fn resumed(after: &WorkspaceStatus) -> Self {
        started_at(after).map_or(Self::Resuming, |at| Self::Wished(Wish::Resumption, at))
    }

    /// When it was created, if it was never ready, suspended or Failed.
    pub(super) fn creation(self) -> Option<Timestamp> {
        match self {
            Self::Wished(Wish::Creation, at) => Some(at),
            Self::Wished(Wish::Resumption | Wish::Edit, _)
            | Self::Broken(_)
            | Self::Fulfilled { .. }
            | Self::Resting
            | Self::Resuming
            | Self::GivenUp => None,
        }
    }
}

/// When it got the ticket of a start, or the slot if it got both at once.
fn started_at(status: &WorkspaceStatus) -> Option<Timestamp> {
    let open = status.open_turn.as_ref().map(|open| &open.since);
    status.queued_at.as_ref().or(open).map(|at| at.0)
}

fn unready_at(status: &WorkspaceStatus) -> Option<Timestamp> {
    since(status, condition::READY, "False")
}

/// One that was never ready has been unready since its first status: no other condition is older.
fn was_ready(status: &WorkspaceStatus, unready: Timestamp) -> bool {
    status.conditions.iter().any(|condition| condition.last_transition_time.0 < unready)
}
