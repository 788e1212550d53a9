//! What all controllers of otctl share. A controller says what it reads and what it decides; everything else is here.
//!
//! ```text
//!         ┌──────────────────── driver: one pass ─────────────────────┐
//! watch ─▶ observe(key) ─▶ decide(&observed, now) ─▶ commit(plan) ─▶ report ─▶ next
//! store    reads, may fail  pure, cannot fail         writes, in order   always
//! ```
//!
//! - [`reconciler`]: the contract; [`plan`]: what a decision may hold.
//! - [`watch`] feeds a [`store`] per kind; a change wakes a key of the [`driver`], whose [`queue`] gives every key a
//!   turn, one pass at a time, with a backoff of its own; no pass begins before the views show what the key's last one
//!   wrote, as [`expectations`] tells.
//! - [`commit`] carries a plan out and stops at the first failure; the next pass observes and decides again, so a crash
//!   between any two writes is an ordinary event.
//! - [`cluster`] is the API server as one function; [`kube_cluster`] is the real one, [`reader`] its consistent reads.
//! - [`ledger`] and [`attempt`] are the protocol of slots, as pure steps; [`leader`], which decides who may work at all,
//!   is the only other writer; [`tenure`] is until when its winner may write.
//!
//! Only [`clock`] reads the time of day. Nothing here knows a kind of otctl but the ledger's.

mod backoff;
mod notice;
mod page;
mod pass;

pub mod args;
pub mod attempt;
pub mod clock;
pub mod cluster;
pub mod commit;
pub mod driver;
pub mod error;
pub mod expectations;
pub mod health;
pub mod kube_cluster;
pub mod leader;
pub mod ledger;
pub mod merge;
pub mod metrics;
pub mod plan;
pub mod queue;
pub mod rbac;
pub mod reader;
pub mod reconciler;
pub mod report;
pub mod runtime;
pub mod server;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod tenure;
pub mod watch;
