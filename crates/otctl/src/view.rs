//! Rows as people see them: bars that move on a terminal, a line per change elsewhere.

mod bars;
mod lines;

use otctl_types::diskimage::Phase;

use self::bars::Bars;
use self::lines::Lines;
use crate::out;
use crate::queue::{Row, Table};

/// Shows tables one after the other.
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
    pub(crate) fn show(&mut self, table: &Table) {
        match self {
            Self::Bars(bars) => bars.show(table),
            Self::Lines(lines) => lines.show(table).iter().for_each(|line| out::line(line)),
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

/// `8.0 MiB of 24.0 MiB`
fn amount(row: &Row) -> String {
    match (row.bytes, row.total_bytes) {
        (Some(bytes), Some(total)) => format!("{} of {}", out::size(bytes), out::size(total)),
        (Some(bytes), None) => out::size(bytes),
        (None, Some(total)) => format!("of {}", out::size(total)),
        (None, None) => String::new(),
    }
}

/// `attempt 2`
fn attempt(row: &Row) -> String {
    row.attempt.map(|number| format!("attempt {number}")).unwrap_or_default()
}

/// The reason, unless it only says the phase again.
fn reason(row: &Row) -> &str {
    if row.reason == phase(row.phase) { "" } else { &row.reason }
}
