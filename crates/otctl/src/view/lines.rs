//! Rows as lines for logs and pipes: one for each change that is worth one, never more than a few an image.

use std::collections::BTreeMap;
use std::time::Instant;

use otctl_types::diskimage::Phase;

use super::{amount, attempt, phase, reason};
use crate::queue::{Row, Table};

/// Remembers what was said.
pub(crate) struct Lines {
    since: Instant,
    said: BTreeMap<(String, String), Said>,
    warned: Option<String>,
}

/// What makes a new line: everything but the bytes, of which each quarter does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    phase: Phase,
    reason: String,
    attempt: Option<i64>,
    quarter: u64,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), said: BTreeMap::new(), warned: None }
    }

    /// A line when the warning is new, and one when it is over. Another wording is no news.
    pub(super) fn tell(&mut self, warning: Option<String>) -> Option<String> {
        let elapsed = self.since.elapsed().as_secs_f32();
        let is_news = warning.is_some() != self.warned.is_some();
        self.warned = warning;
        let text = self.warned.as_deref().unwrap_or("up to date again");
        is_news.then(|| format!("[{elapsed:6.1}s] {text}"))
    }

    /// The lines that are new with this table.
    pub(super) fn show(&mut self, table: &Table) -> Vec<String> {
        let elapsed = self.since.elapsed().as_secs_f32();
        let new = table
            .images
            .iter()
            .filter(|row| self.is_new(row))
            .map(|row| line(row, elapsed))
            .collect();
        for row in &table.images {
            self.said.insert(key(row), Said::of(row));
        }
        new
    }

    fn is_new(&self, row: &Row) -> bool {
        self.said.get(&key(row)) != Some(&Said::of(row))
    }
}

impl Said {
    fn of(row: &Row) -> Self {
        let total = row.total_bytes.unwrap_or(0).max(1);
        let quarter = (row.bytes.unwrap_or(0).min(total)).saturating_mul(4) / total;
        Self { phase: row.phase, reason: row.reason.clone(), attempt: row.attempt, quarter }
    }
}

fn key(row: &Row) -> (String, String) {
    (row.namespace.clone(), row.name.clone())
}

fn line(row: &Row, elapsed: f32) -> String {
    let place = row.position.map(|position| format!("position {position}")).unwrap_or_default();
    let words = [place, reason(row).to_owned(), attempt(row), amount(row)];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    format!("[{elapsed:6.1}s] {}/{}: {}{words}", row.namespace, row.name, phase(row.phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64) -> Row {
        Row {
            namespace: "labs".to_owned(),
            name: "a".to_owned(),
            position: None,
            phase: Phase::Syncing,
            reason: "Importing".to_owned(),
            message: String::new(),
            attempt: Some(1),
            bytes: Some(bytes),
            total_bytes: Some(100),
            next_retry_at: None,
        }
    }

    fn shown(lines: &mut Lines, row: Row) -> usize {
        let table = Table {
            limit: Some(1),
            active: 1,
            waiting: 0,
            failed: 0,
            policy: None,
            images: vec![row],
        };
        lines.show(&table).len()
    }

    #[test]
    fn a_quarter_more_is_worth_a_line_and_a_byte_is_not() {
        let mut lines = Lines::new();
        assert_eq!(shown(&mut lines, row(0)), 1);
        assert_eq!(shown(&mut lines, row(24)), 0);
        assert_eq!(shown(&mut lines, row(25)), 1);
        assert_eq!(shown(&mut lines, row(25)), 0);
        assert_eq!(shown(&mut lines, Row { attempt: Some(2), ..row(25) }), 1);
        assert_eq!(shown(&mut lines, Row { reason: "Stopping".to_owned(), ..row(25) }), 1);
    }

    #[test]
    fn a_warning_is_told_when_it_comes_and_when_it_goes() {
        let mut lines = Lines::new();
        assert_eq!(lines.tell(None), None);
        assert!(lines.tell(Some("cannot be asked: a".to_owned())).unwrap().ends_with("asked: a"));
        assert_eq!(lines.tell(Some("cannot be asked: b".to_owned())), None);
        assert!(lines.tell(None).unwrap().ends_with("up to date again"));
        assert_eq!(lines.tell(None), None);
    }

    #[test]
    fn a_line_says_where_it_stands_and_why() {
        let line = line(&row(50), 3.25);
        assert_eq!(line, "[   3.2s] labs/a: Syncing (Importing, attempt 1, 50 B of 100 B)");
    }
}
