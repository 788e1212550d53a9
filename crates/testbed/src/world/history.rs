//! Every version of every object that was ever committed: what watches deliver and what invariants are checked on.

use serde_json::Value;

use super::Id;

/// One committed version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Which object.
    pub id: Id,
    /// Its resourceVersion; strictly grows along the history.
    pub revision: u64,
    /// What was done to it.
    pub verb: Verb,
    /// Who did it: the name of a controller process, of a component, or `user`.
    pub by: String,
    /// The object as committed; for a removal its last state, with the revision of the removal.
    pub object: Value,
}

impl Version {
    /// Whether the object is gone after it.
    #[must_use]
    pub fn is_removal(&self) -> bool {
        self.verb == Verb::Removed
    }
}

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It is new.
    Created,
    /// Metadata or spec changed, by PUT.
    Update,
    /// Metadata or spec changed, by apply.
    Applied,
    /// Only its status changed.
    Status,
    /// Its deletion was asked for and waits for something.
    Deleting,
    /// It is gone.
    Removed,
}
