//! What consistent lists tell to be unfinished: what a ledger is made whole from.

use std::collections::BTreeSet;

use otctl_kit::ledger::Unfinished;
use otctl_types::queue::ActiveEntry;

/// Unfinished work, from consistent lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// What should have an entry.
    pub unfinished: Vec<Unfinished>,
    /// UIDs of members of which something runs that does not tell its number.
    pub unaccounted: BTreeSet<String>,
}

impl Work {
    /// Enters what has started.
    pub fn started(&mut self, entries: impl IntoIterator<Item = ActiveEntry>) {
        let found = entries.into_iter().map(|entry| Unfinished { entry, is_started: true });
        self.unfinished.extend(found);
    }

    /// Enters what was made and not started.
    pub fn unstarted(&mut self, entries: impl IntoIterator<Item = ActiveEntry>) {
        let found = entries.into_iter().map(|entry| Unfinished { entry, is_started: false });
        self.unfinished.extend(found);
    }
}
