//! What moves, as people see it: bars on a terminal, a line per change elsewhere.

mod bars;
mod lines;

use otctl_types::diskimage::Phase;
use otctl_types::names::{IMAGE_QUEUE, WORKSPACE_QUEUE};
use otctl_types::workspace::Phase as WorkspacePhase;

use self::bars::Bars;
use self::lines::Lines;
use crate::out;
use crate::progress::Progress;
use crate::queue::workspaces::Row as WorkspaceRow;
use crate::queue::{Counts, Queues, Row, Table};

/// What is to be seen at one moment.
pub(crate) struct Picture {
    /// What holds for all of it; may be empty.
    pub(crate) headline: String,
    /// What moves, in the order in which it is shown.
    pub(crate) items: Vec<Item>,
}

/// One thing that moves.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its name, with its namespace if it has one.
    pub(crate) name: String,
    /// Its place in a queue.
    pub(crate) position: Option<usize>,
    /// Where it stands.
    pub(crate) phase: String,
    /// Why it is not further; empty when the phase says it.
    pub(crate) reason: String,
    /// The same as a sentence; empty when there is none, or none is wanted.
    pub(crate) message: String,
    /// How far it is.
    pub(crate) progress: Progress,
}

impl Picture {
    /// The queue of images.
    pub(crate) fn of(table: &Table) -> Self {
        let headline = headline(&table.counts, IMAGE_QUEUE);
        Self { headline, items: table.images.iter().map(Item::of).collect() }
    }

    /// Every queue that is shown, one below the other.
    pub(crate) fn of_all(queues: &Queues) -> Self {
        let images = queues.images.iter().flat_map(|table| &table.images).map(Item::of);
        let workspaces = queues.workspaces.iter().flat_map(|table| &table.workspaces);
        let items = images.chain(workspaces.map(Item::of_workspace)).collect();
        Self { headline: headlines(queues).join("; "), items }
    }
}

impl Item {
    fn of_workspace(row: &WorkspaceRow) -> Self {
        let phase = row.phase.map_or("Unseen", WorkspacePhase::as_str).to_owned();
        Self {
            name: format!("workspace/{}", row.name),
            position: row.position,
            reason: Some(row.reason.clone()).filter(|reason| *reason != phase).unwrap_or_default(),
            phase,
            message: out::one_line(&row.message),
            progress: row.progress(),
        }
    }

    fn of(row: &Row) -> Self {
        let phase = phase(row.phase).to_owned();
        Self {
            name: format!("{}/{}", row.namespace, row.name),
            position: row.position,
            reason: Some(row.reason.clone()).filter(|reason| *reason != phase).unwrap_or_default(),
            phase,
            message: out::one_line(&row.message),
            progress: row.progress(),
        }
    }

    /// `attempt 2`
    fn attempt(&self) -> String {
        self.progress.attempt.map(|number| format!("attempt {number}")).unwrap_or_default()
    }
}

/// Shows pictures one after the other.
pub(crate) enum View {
    /// Drawn over the last one.
    Bars(Bars),
    /// What is new, below the last one.
    Lines(Lines),
}

impl View {
    /// Whatever standard output can show.
    pub(crate) fn for_output() -> Self {
        if out::is_terminal() { Self::Bars(Bars::new()) } else { Self::Lines(Lines::new()) }
    }

    /// Says what holds for all that is shown, until it is told otherwise.
    pub(crate) fn tell(&mut self, warning: Option<String>) {
        match self {
            Self::Bars(bars) => bars.tell(warning),
            Self::Lines(lines) => lines.tell(warning).iter().for_each(|line| out::line(line)),
        }
    }

    /// Shows this one now.
    pub(crate) fn show(&mut self, picture: &Picture) {
        match self {
            Self::Bars(bars) => bars.show(picture),
            Self::Lines(lines) => lines.show(picture).iter().for_each(|line| out::line(line)),
        }
    }
}

/// The word of the API.
pub(crate) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "Queued",
        Phase::Syncing => "Syncing",
        Phase::Snapshotting => "Snapshotting",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

/// What holds for each queue that is shown; more than one are told apart by name.
pub(crate) fn headlines(queues: &Queues) -> Vec<String> {
    let images = queues.images.as_ref().map(|table| (IMAGE_QUEUE, &table.counts));
    let workspaces = queues.workspaces.as_ref().map(|table| (WORKSPACE_QUEUE, &table.counts));
    let all: Vec<_> = images.into_iter().chain(workspaces).collect();
    let is_alone = all.len() == 1;
    let told = all.into_iter().map(|(name, counts)| {
        let headline = headline(counts, name);
        if is_alone { headline } else { format!("{name}: {headline}") }
    });
    told.collect()
}

/// `2 of 4 active, 3 waiting, 1 failed`
fn headline(counts: &Counts, queue: &str) -> String {
    let limit = counts.limit.map_or_else(|| "?".to_owned(), |limit| limit.to_string());
    let policy = counts.policy.as_deref().filter(|policy| *policy == "Invalid");
    let warning = policy.map(|_| format!("; the policy has problems: kubectl describe aq {queue}"));
    let warning = warning.unwrap_or_default();
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!("{} of {limit} active, {} waiting{failed}{warning}", counts.active, counts.waiting)
}
