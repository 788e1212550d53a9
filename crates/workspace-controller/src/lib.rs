//! The controller of workspaces.
//!
//! It stands up every [`Workspace`](otctl_types::Workspace): waits for a slot and for disk images, isolates it, makes its
//! Services, Deployments and virtual machines, and keeps them as the spec says. Two loops do it:
//!
//! - [`queue`]: one pass over the whole set. Gives tickets and slots, takes slots back, reads the policy. It owns the
//!   ledger (`AdmissionQueue workspaces`), and of a workspace's status `ticket` and `queuedAt`.
//! - [`workspace`]: one pass per workspace. It owns the rest of its status and its children ([`children`]): a network
//!   policy, Services, Deployments, claims and machines; images that an entry brings along it makes and shares.
//!
//! They talk through status alone: the ledger tells a workspace that it holds a slot, the workspace's status tells the
//! queue that its turn is over. The state diagram is in [`workspace::verdict`]; the protocol in `docs/ledger.md`.
//!
//! Pure are which children there are to be ([`family`]), what a child looks like ([`children`], [`names`]), whether it is still as it was applied ([`owned`]), what its
//! parts say of themselves ([`aggregate`]), and whether its isolation holds ([`isolation`]).
//!
//! What it reads: Workspaces, the ledger, the policy ConfigMap, and in the namespaces that it serves images, network
//! policies and its own children. What it may do is listed in `rbac.rs`; it has no right on Secrets.

use otctl_kit::reconciler::Reconciler as _;

pub mod aggregate;
pub mod children;
pub mod cli;
pub mod config;
pub mod family;
pub mod grounds;
pub mod images;
pub mod isolation;
pub mod kin;
pub mod machines;
pub mod metrics;
pub mod names;
pub mod needs;
pub mod owned;
pub mod parts;
pub mod queue;
pub mod rbac;
pub mod release;
pub mod reports;
pub mod slim;
pub mod views;
pub mod wiring;
pub mod workspace;

pub use cli::{Args, run};

/// The loops of this controller, as logs and metrics name them.
pub const LOOPS: [&str; 2] = [queue::Queue::NAME, workspace::Reconciler::NAME];
