//! What has become of a Workspace from one version to the next that was seen of it. Turns have numbers that only grow, and
//! what was hoped for is fulfilled once, so that each is met once, whatever is seen again or was left out.

mod hope;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use otctl_kit::metrics::Life;
use otctl_types::Workspace;
use otctl_types::condition::{self, Reason};
use otctl_types::workspace::{ContainerReport, ContainerState, OpenTurn, WorkspaceStatus};

use self::hope::Hope;

/// Something that happened to a Workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// A turn began.
    Admitted {
        /// How long the slot was waited for.
        waited: Duration,
    },
    /// A turn ended.
    Ended(End),
    /// It became ready, as was wished.
    Ready {
        /// What was wished.
        wish: Wish,
        /// How long that took.
        took: Duration,
    },
    /// It became ready again, after it was not without anybody's wish.
    Recovered {
        /// How long that took.
        took: Duration,
    },
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every part that it was for was ready.
    Ready,
    /// `provisioningTimeout` of the policy was over before.
    TimedOut,
    /// The API server calls something of it invalid.
    Refused,
    /// Nothing could be done in it: its disk images are waited for, its namespace takes nothing, it cannot be acted on.
    GivenBack,
    /// It was suspended or deleted.
    Stopped,
}

impl End {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::TimedOut, Self::Refused, Self::GivenBack, Self::Stopped];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::GivenBack => "given_back",
            Self::Stopped => "stopped",
        }
    }
}

/// Since when a Workspace is to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Since it was created.
    Creation,
    /// Since it is not suspended any more.
    Resumption,
    /// Since its spec was changed.
    Edit,
}

impl Wish {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Creation, Self::Resumption, Self::Edit];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Creation => "creation",
            Self::Resumption => "resumption",
            Self::Edit => "edit",
        }
    }
}

/// A Workspace as it was seen last, and how far what was told of it goes.
#[derive(Clone, Debug)]
pub struct Seen {
    workspace: Arc<Workspace>,
    /// The highest turn whose beginning was met.
    admitted: i64,
    /// The highest turn whose end was met.
    ended: i64,
    /// Since when it is to be ready.
    hope: Hope,
}

impl Life for Seen {
    type Object = Workspace;
    type Milestone = Milestone;

    fn first(workspace: Arc<Workspace>) -> Self {
        let status = told(&workspace);
        let last = status.last_turn.unwrap_or(0);
        let open = status.open_turn.as_ref().map(|open| open.number);
        Self {
            admitted: open.unwrap_or(0).max(last),
            ended: open.map_or(last, |open| open.saturating_sub(1)),
            hope: Hope::first(&workspace),
            workspace,
        }
    }

    fn uid(&self) -> Option<&str> {
        self.workspace.metadata.uid.as_deref()
    }

    fn next(&mut self, workspace: Arc<Workspace>) -> Vec<Milestone> {
        let before = std::mem::replace(&mut self.workspace, workspace.clone());
        let (before, after) = (told(&before), told(&workspace));
        let mut met: Vec<Milestone> = self.ending(before, after).into_iter().collect();
        met.extend(self.admission(before, after));
        self.hope = self.hope.next(after);
        met.extend(self.readiness(after));
        met
    }

    /// Its turn goes with it.
    fn end(self) -> Vec<Milestone> {
        let open = told(&self.workspace).open_turn.as_ref();
        let is_news = open.is_some_and(|open| open.number > self.ended);
        is_news.then_some(Milestone::Ended(End::Stopped)).into_iter().collect()
    }
}

impl Seen {
    /// A turn that began and ended between two versions is not told: nothing is known of it.
    fn admission(
        &mut self,
        before: &WorkspaceStatus,
        after: &WorkspaceStatus,
    ) -> Option<Milestone> {
        let open = after.open_turn.as_ref().filter(|open| open.number > self.admitted);
        let waited = open.map(|open| self.waited(before, after, open));
        let number = open.map(|open| open.number).max(after.last_turn);
        self.admitted = self.admitted.max(number.unwrap_or(0));
        waited.map(|waited| Milestone::Admitted { waited })
    }

    /// One that gets ticket and slot at once has waited since its creation; at a later start it has not waited. Time in
    /// which it could not have used a slot is no wait for one.
    fn waited(
        &self,
        before: &WorkspaceStatus,
        after: &WorkspaceStatus,
        open: &OpenTurn,
    ) -> Duration {
        let created = self.hope.creation().filter(|_| self.admitted == 0);
        let queued = after.queued_at.as_ref().map(|at| at.0).or(created);
        let gave_back = since(before, condition::ADMITTED, "False")
            .filter(|_| before.ticket.is_some() && before.last_turn.is_some());
        let had_images =
            since(after, condition::IMAGES_READY, "True").filter(|_| !before.conditions.is_empty());
        let begun = queued.max(gave_back);
        begun.map_or(Duration::ZERO, |begun| {
            let from = had_images.map_or(begun, |at| at.max(begun));
            between(from, open.since.0)
        })
    }

    fn ending(&mut self, before: &WorkspaceStatus, after: &WorkspaceStatus) -> Option<Milestone> {
        let number = before.open_turn.as_ref()?.number;
        let is_open = after.open_turn.as_ref().is_some_and(|open| open.number == number);
        // A status that was wiped tells of no end.
        let is_told = after.last_turn.is_some_and(|last| last >= number);
        if is_open || !is_told || number <= self.ended {
            return None;
        }
        self.ended = number;
        // Of one whose next turn is open already, how this one ended is not told any more.
        after.open_turn.is_none().then(|| Milestone::Ended(end_of_turn(before, after)))
    }

    /// One that was ready already as far as seen is no news.
    fn readiness(&mut self, after: &WorkspaceStatus) -> Option<Milestone> {
        let at = ready_at(after)?;
        match std::mem::replace(&mut self.hope, Hope::fulfilled(after, at)) {
            Hope::Wished(wish, from) => Some(Milestone::Ready { wish, took: between(from, at) }),
            Hope::Broken(from) => Some(Milestone::Recovered { took: between(from, at) }),
            Hope::Fulfilled { .. } | Hope::Resting | Hope::Resuming | Hope::GivenUp => None,
        }
    }
}

/// A ticket is kept until the start that it was given for is over. What had its start before may be broken all the while.
fn end_of_turn(before: &WorkspaceStatus, after: &WorkspaceStatus) -> End {
    let ready = condition::find(&after.conditions, condition::READY);
    let by_people = [Reason::Deleting, Reason::Suspended].map(Reason::as_str);
    let is_stopped = ready.is_some_and(|ready| by_people.contains(&&*ready.reason));
    let is_refused = condition::is_true(&after.conditions, condition::STALLED);
    let parts = after.ready_parts.as_deref().and_then(|parts| parts.split_once('/'));
    let are_all_ready = parts.is_some_and(|(ready, all)| ready == all);
    match after.ticket {
        _ if is_stopped => End::Stopped,
        Some(_) => End::GivenBack,
        None if is_refused => End::Refused,
        None if are_all_ready || starts(before, after).all(|part| is_ready(part, after)) => {
            End::Ready
        }
        None => End::TimedOut,
    }
}

/// The parts whose start is over since.
fn starts<'a>(
    before: &'a WorkspaceStatus,
    after: &'a WorkspaceStatus,
) -> impl Iterator<Item = &'a str> {
    let had_no_machine = |part: &str| {
        let mut disks = before.disks.iter();
        disks.any(|disk| disk.entry == part && !disk.copied)
            && after.disks.iter().any(|disk| disk.entry == part && disk.copied)
    };
    let parts = after.started_parts.iter().map(String::as_str);
    parts.filter(move |part| {
        !before.started_parts.iter().any(|it| it == part) || had_no_machine(part)
    })
}

fn is_ready(part: &str, status: &WorkspaceStatus) -> bool {
    let Some(resources) = &status.resource_status else { return false };
    let mut machines = resources.virtual_machines.iter();
    let mut containers = resources.containers.iter();
    let is_running = |it: &ContainerReport| it.status == ContainerState::Running;
    machines.any(|it| it.name == part && it.message.is_none())
        || containers.any(|it| it.name == part && is_running(it))
}

/// The status, empty where nothing was told.
fn told(workspace: &Workspace) -> &WorkspaceStatus {
    static NOTHING: LazyLock<WorkspaceStatus> = LazyLock::new(WorkspaceStatus::default);
    workspace.status.as_ref().unwrap_or(&NOTHING)
}

/// Since when a condition has this status, if it has.
fn since(status: &WorkspaceStatus, kind: &str, value: &str) -> Option<Timestamp> {
    let found = condition::find(&status.conditions, kind).filter(|it| it.status == value)?;
    Some(found.last_transition_time.0)
}

fn ready_at(status: &WorkspaceStatus) -> Option<Timestamp> {
    since(status, condition::READY, "True")
}

/// Clocks of two machines differ: what ends before it begins took no time.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
