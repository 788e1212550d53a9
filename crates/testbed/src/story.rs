//! What happened, as numbered lines that a person can read: the text of goldens, and of the panic when a run goes wrong.

use std::fmt;

/// The lines so far.
#[derive(Clone, Debug, Default)]
pub struct Story {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    who: String,
    about: String,
    what: String,
}

impl Story {
    /// One more line: who, about which object (may be empty), what.
    pub fn tell(&mut self, who: &str, about: &str, what: &str) {
        self.lines.push(Line {
            who: who.to_owned(),
            about: about.to_owned(),
            what: what.to_owned(),
        });
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines that contain `words`.
    #[must_use]
    pub fn lines_with(&self, words: &str) -> Vec<String> {
        self.lines.iter().map(ToString::to_string).filter(|line| line.contains(words)).collect()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.len().to_string().len();
        for (number, line) in self.lines.iter().enumerate() {
            writeln!(f, "{:>width$} {line}", number + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {:<13} {}", self.who, self.about, self.what)
    }
}
