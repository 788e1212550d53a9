//! The server over real sockets, seen by a client that does nothing by itself.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;
mod counting;
mod faults;
mod protocol;
