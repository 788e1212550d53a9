//! The text of a policy: from the ConfigMap to a [`Policy`] with all problems, and to the entries
//! in which the last good one is remembered.

use std::collections::BTreeMap;
use std::fmt;

use crate::Policy;
use crate::keys::{self, KEYS, Key};

/// Characters of a value that a problem repeats; a ConfigMap may hold a megabyte.
const EXCERPT: usize = 80;

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The entry has no effect because the key does not exist.
    Warning,
    /// The value cannot be used, and the last good one stays in force.
    Error,
}

/// Something wrong with one entry of the ConfigMap; displays as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key as written.
    pub key: String,
    /// Its value, or the beginning of it.
    pub found: String,
    /// What is accepted instead: values for a known key, keys for an unknown one.
    pub accepted: String,
    /// The value that is kept; `None` when the key is unset or unknown.
    pub kept: Option<String>,
    /// How much it matters.
    pub severity: Severity,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, found, accepted) = (excerpt(&self.key), &self.found, &self.accepted);
        let key = key.escape_debug();
        match (self.severity, &self.kept) {
            (Severity::Warning, _) => {
                write!(f, "{key}: no such key, {found:?} has no effect; accepted is {accepted}")
            }
            (Severity::Error, Some(kept)) => {
                let kept = excerpt(kept);
                // Nothing is in force of a key that nothing acts on.
                let keeps = if keys::is_acted_on(&self.key) { "stays in force" } else { "is kept" };
                write!(
                    f,
                    "{key}: {found:?} cannot be used, {kept:?} {keeps}; accepted is {accepted}"
                )
            }
            (Severity::Error, None) => {
                write!(f, "{key}: {found:?} cannot be used, it stays unset; accepted is {accepted}")
            }
        }
    }
}

/// Reads the data of the policy ConfigMap and finds every problem at once.
///
/// An absent key has its default. A value that cannot be read or is out of bounds keeps what
/// `last_good` has for its key. Unknown keys are warnings. Problems come in the order of the table
/// of keys, unknown keys last.
#[must_use]
pub fn document(data: &BTreeMap<String, String>, last_good: &Policy) -> (Policy, Vec<Problem>) {
    let mut policy = Policy::default();
    let mut last_good = last_good.clone();
    let mut problems = Vec::new();
    for key in &KEYS {
        let Some(text) = data.get(key.name) else { continue };
        if let Err(accepted) = key.read(text, &mut policy) {
            key.copy(&mut last_good, &mut policy);
            problems.push(unusable(key, text, accepted, &mut last_good));
        }
    }
    let is_unknown = |(key, _): &(&String, &String)| keys::find(key).is_none();
    problems.extend(data.iter().filter(is_unknown).map(|(key, text)| unknown(key, text)));
    (policy, problems)
}

fn unusable(key: &Key, text: &str, accepted: String, last_good: &mut Policy) -> Problem {
    Problem {
        key: key.name.to_owned(),
        found: excerpt(text),
        accepted,
        kept: key.text(last_good),
        severity: Severity::Error,
    }
}

fn unknown(key: &str, text: &str) -> Problem {
    let all = || KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    let accepted = keys::closest(key).map_or_else(|| format!("one of {}", all()), str::to_owned);
    Problem {
        key: key.to_owned(),
        found: excerpt(text),
        accepted,
        kept: None,
        severity: Severity::Warning,
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

impl Policy {
    /// The effective value of every key that is set, as texts that read back the same.
    #[must_use]
    pub fn to_entries(&self) -> BTreeMap<String, String> {
        let mut policy = self.clone();
        KEYS.iter().filter_map(|key| Some((key.name.to_owned(), key.text(&mut policy)?))).collect()
    }

    /// A policy from remembered entries; what cannot be read has its default.
    ///
    /// Entries written by a newer version, or edited by hand, must not stop anything.
    #[must_use]
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Self {
        document(entries, &Self::default()).0
    }
}

#[cfg(test)]
mod tests;
