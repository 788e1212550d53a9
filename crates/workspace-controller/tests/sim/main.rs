//! Sequences: the controller's own observe, decide and commit in the in-memory world.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod controller;
mod life;
