//! Sequences: the real observe, decide and commit of both loops in the in-memory world, in fixed and seeded orders, with
//! a crash at every write and with late views. After every turn the ledger's invariants hold.

mod controller;
mod crash_points;
mod life;
mod orders;
