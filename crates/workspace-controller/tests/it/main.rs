//! What only an API server can tell of the objects that are made here: what it takes, what it adds, and what an apply
//! repairs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod accepted;
mod edits;
mod owned;
mod stage;
mod words;
