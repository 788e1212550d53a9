//! The faults of the API server and of the client library: what each does to plain kube-rs, and that it does not do it
//! here. Each scenario is written once, as what a scripted API server answers, and is run by both; the figures of both
//! are printed.

#![expect(clippy::print_stdout, reason = "figures of both sides are for the reader of the log")]
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it says")]

mod api;
mod backoffs;
mod broken;
mod clock;
mod deadlines;
mod kit;
mod leases;
mod lists;
mod logs;
mod loopback;
mod order;
mod panics;
mod plain;
mod retries;
mod server;
mod watches;
