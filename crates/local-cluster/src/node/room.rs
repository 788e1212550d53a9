//! What pods of a node may ask for together.

use std::sync::PoisonError;

use super::NodeContext;

/// Allocatable quantities. The processes share the host: nothing is set aside for them, but the scheduler counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// CPUs.
    pub cpu: String,
    /// Memory.
    pub memory: String,
}

/// Enough for any test's pods.
impl Default for Room {
    fn default() -> Self {
        Self { cpu: "32".to_owned(), memory: "64Gi".to_owned() }
    }
}

impl NodeContext {
    pub(super) fn room(&self) -> Room {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_room(&self, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }
}
