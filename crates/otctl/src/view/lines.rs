//! Items as lines for logs and pipes: one for each change that is worth one, never more than a few an item.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Item, Picture};

/// After these words a number is a name, as in `exit code 137`.
const NUMBERED: [&str; 4] = ["code", "status", "HTTP", "port"];

/// Remembers what was said.
pub(crate) struct Lines {
    since: Instant,
    said: BTreeMap<String, Said>,
    warned: Option<String>,
}

/// What makes a new line: everything but the amount that is done, of which each quarter does, and but numbers and times
/// in the message, which move all the time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    phase: String,
    reason: String,
    message: Vec<String>,
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

    /// The lines that are new with this picture.
    pub(super) fn show(&mut self, picture: &Picture) -> Vec<String> {
        let elapsed = self.since.elapsed().as_secs_f32();
        let new = picture.items.iter().filter(|item| self.is_new(item));
        let lines = new.map(|item| line(item, elapsed)).collect();
        for item in &picture.items {
            self.said.insert(item.name.clone(), Said::of(item));
        }
        lines
    }

    fn is_new(&self, item: &Item) -> bool {
        self.said.get(&item.name) != Some(&Said::of(item))
    }
}

impl Said {
    fn of(item: &Item) -> Self {
        let progress = &item.progress;
        let total = progress.total.unwrap_or(0).max(1);
        let quarter = (progress.done.unwrap_or(0).min(total)).saturating_mul(4) / total;
        let (phase, reason) = (item.phase.clone(), item.reason.clone());
        Self { phase, reason, message: gist(&item.message), attempt: progress.attempt, quarter }
    }
}

/// The words of a message but for amounts: `42`, `3.5`, `1m20s`, `(12%)`, `2026-05-01T12:00:00Z`.
fn gist(message: &str) -> Vec<String> {
    let words: Vec<&str> = message.split_whitespace().collect();
    let is_amount = |index: usize| {
        let bare = words[index].trim_start_matches(|c: char| c.is_ascii_punctuation());
        let is_name = index > 0 && NUMBERED.contains(&words[index - 1]);
        bare.starts_with(|c: char| c.is_ascii_digit()) && !is_name
    };
    (0..words.len())
        .filter(|index| !is_amount(*index))
        .map(|index| words[index].to_owned())
        .collect()
}

fn line(item: &Item, elapsed: f32) -> String {
    let place = item.position.map(|position| format!("position {position}")).unwrap_or_default();
    let words = [place, item.reason.clone(), item.attempt(), item.progress.text.clone()];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    let why = if item.message.is_empty() { String::new() } else { format!(": {}", item.message) };
    format!("[{elapsed:6.1}s] {}: {}{words}{why}", item.name, item.phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    fn item(bytes: u64) -> Item {
        Item {
            name: "labs/a".to_owned(),
            position: None,
            phase: "Syncing".to_owned(),
            reason: "Importing".to_owned(),
            message: String::new(),
            progress: Progress::of_bytes(Some(1), Some(bytes), Some(100)),
        }
    }

    fn shown(lines: &mut Lines, item: Item) -> usize {
        lines.show(&Picture { headline: String::new(), items: vec![item] }).len()
    }

    #[test]
    fn a_quarter_more_is_worth_a_line_and_a_byte_is_not() {
        let mut lines = Lines::new();
        let second = Progress { attempt: Some(2), ..item(25).progress };
        let second = Item { progress: second, ..item(25) };
        assert_eq!(shown(&mut lines, item(0)), 1);
        assert_eq!(shown(&mut lines, item(24)), 0);
        assert_eq!(shown(&mut lines, item(25)), 1);
        assert_eq!(shown(&mut lines, item(25)), 0);
        assert_eq!(shown(&mut lines, second), 1);
        assert_eq!(shown(&mut lines, Item { reason: "Stopping".to_owned(), ..item(25) }), 1);
    }

    #[test]
    fn another_message_is_worth_a_line_and_another_number_in_it_is_not() {
        let mut lines = Lines::new();
        let mut told = |message: &str| {
            let item = Item { message: message.to_owned(), ..item(0) };
            shown(&mut lines, item)
        };
        let cases = [
            ("waits for its image: 42 of 100 MiB (42%)", 1),
            ("waits for its image: 57 of 100 MiB (57%)", 0),
            ("waits for its image: 57 of 100 MiB", 0),
            ("container 'api': back-off 40s", 1),
            ("container 'api': back-off 1m20s", 0),
            ("container 'web': back-off 1m20s", 1),
            ("container 'web': exit code 3", 1),
            ("container 'web': exit code 137", 1),
            ("the next starts at 2026-05-01T12:00:00Z or later", 1),
            ("the next starts at 2026-05-01T12:09:00Z or later", 0),
            ("", 1),
        ];
        for (message, expected) in cases {
            assert_eq!(told(message), expected, "{message}");
        }
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
        let line = line(&item(50), 3.25);
        assert_eq!(line, "[   3.2s] labs/a: Syncing (Importing, attempt 1, 50 B of 100 B)");
        let told = Item { message: "from 'images'".to_owned(), ..item(50) };
        assert!(super::line(&told, 3.25).ends_with("50 B of 100 B): from 'images'"));
    }
}
