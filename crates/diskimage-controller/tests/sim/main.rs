//! Sequences: the real observe, decide and commit of both loops in the in-memory world, in fixed and seeded orders, with
//! a crash at every write and with late views. At the end the whole history is
//! searched for a broken invariant.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod conditions;
mod controller;
mod crash_points;
mod edits;
mod faults;
mod lanes;
mod life;
mod loss;
mod measured;
mod orders;
mod own_writes;
mod strangers;
mod timeouts;
