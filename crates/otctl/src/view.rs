//! What moves, as people see it: bars on a terminal, a line per change elsewhere.

mod bars;
mod lines;

use otctl_types::diskimage::Phase;

use self::bars::Bars;
use self::lines::Lines;
use crate::out;
use crate::progress::Progress;
use crate::queue::{Row, Table};

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
    /// How far it is.
    pub(crate) progress: Progress,
}

impl Picture {
    /// The queue.
    pub(crate) fn of(table: &Table) -> Self {
        Self { headline: headline(table), items: table.images.iter().map(Item::of).collect() }
    }
}

impl Item {
    fn of(row: &Row) -> Self {
        let phase = phase(row.phase).to_owned();
        Self {
            name: format!("{}/{}", row.namespace, row.name),
            position: row.position,
            reason: Some(row.reason.clone()).filter(|reason| *reason != phase).unwrap_or_default(),
            phase,
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

/// `2 of 4 active, 3 waiting, 1 failed`
pub(crate) fn headline(table: &Table) -> String {
    let limit = table.limit.map_or_else(|| "?".to_owned(), |limit| limit.to_string());
    let policy = table.policy.as_deref().filter(|policy| *policy == "Invalid");
    let warning =
        policy.map_or("", |_| "; the policy has problems: kubectl describe aq vmdiskimages");
    let failed = match table.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!("{} of {limit} active, {} waiting{failed}{warning}", table.active, table.waiting)
}
