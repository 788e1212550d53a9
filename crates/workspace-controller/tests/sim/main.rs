//! Sequences: the controller's own observe, decide and commit of both loops in the in-memory world, in fixed and seeded
//! orders, with crashes, late views and other people's edits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod again;
mod asks;
mod builders;
mod controller;
mod crash_points;
mod deletion;
mod edits;
mod faults;
mod gained;
mod goldens;
mod healing;
mod images;
mod life;
mod measured;
mod orders;
mod queue;
mod refusals;
mod shares;
mod strangers;
mod suspend;
mod writes;
