//! The queue that every controller with slots has: one reconciler over one ledger (an AdmissionQueue). It alone parses
//! the policy ConfigMap, gives tickets and slots, and takes slots back. Admission needs the whole set and one
//! compare-and-swap, so a loop per object would not do: it could only ask, and two that ask at once could both be told
//! yes.
//!
//! ```text
//!   members, ledger, policy ──▶ drop what is used up ──▶ make whole ──▶ admit while there is room ──▶ one PUT ──▶ tickets
//! ```
//!
//! A controller says by its [`Line`] who waits there, what each one wants, and what of them still runs; the order, the
//! limit and the protocol (`docs/ledger.md`) are here, and are the same for all.

mod decide;
mod line;
mod member;
mod observe;
mod turn;

pub mod document;
pub mod metrics;
pub mod reading;
pub mod work;

pub use decide::{decide, delete, needs_work};
pub use document::{Document, PolicySource, effective_policy};
pub use line::{Line, Queue};
pub use member::{Member, Place, Want};
pub use observe::{Observed, Trace};
pub use work::Work;
