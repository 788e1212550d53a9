//! Which objects of a kind are in a state that cannot be read: told once each, and counted as long as it lasts.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::metrics::Metrics;
use crate::store::Key;

/// The unreadable objects of one kind.
pub(super) struct Unreadable {
    kind: String,
    metrics: Option<Arc<Metrics>>,
    keys: BTreeSet<Key>,
    /// Those of before the list that is under way, as far as it did not come to them.
    earlier: BTreeSet<Key>,
    /// Those whose name cannot be read either, since the last list.
    unnamed: usize,
}

impl Unreadable {
    pub(super) fn new(kind: String, metrics: Option<Arc<Metrics>>) -> Self {
        Self { kind, metrics, keys: BTreeSet::new(), earlier: BTreeSet::new(), unnamed: 0 }
    }

    /// The object of that name, or one without, cannot be read.
    pub(super) fn note(&mut self, key: Option<Key>, error: &str) {
        let object = key.as_ref().map_or_else(|| "unnamed".to_owned(), Key::to_string);
        let is_news = match key {
            Some(key) => !self.earlier.remove(&key) & self.keys.insert(key),
            None => {
                self.unnamed += 1;
                true
            }
        };
        if is_news {
            tracing::warn!(kind = self.kind, object, error, "an object cannot be read");
        }
        self.count();
    }

    /// The object of that name can be read, or is gone.
    pub(super) fn clear(&mut self, key: &Key) {
        if self.keys.remove(key) | self.earlier.remove(key) {
            tracing::info!(kind = self.kind, object = %key, "an object can be read again, or is gone");
            self.count();
        }
    }

    /// All objects are told again from here.
    pub(super) fn begin_list(&mut self) {
        self.earlier.append(&mut self.keys);
        self.unnamed = 0;
    }

    /// All objects were told again.
    pub(super) fn end_list(&mut self) {
        self.earlier.clear();
        self.count();
    }

    fn count(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.unreadable(&self.kind, self.keys.len() + self.earlier.len() + self.unnamed);
        }
    }
}
