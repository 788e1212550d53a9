//! The controller of VM disk images.
//!
//! It brings every [`VMDiskImage`](otctl_types::VMDiskImage) into the cluster: waits for a slot, looks at the source,
//! downloads and verifies it in a pod, snapshots it, and says at each moment what is the case. Two loops do it:
//!
//! - [`queue`]: one pass over the whole set. Gives tickets and slots, takes slots back, reads the policy. It owns the
//!   ledger (`AdmissionQueue vmdiskimages`), and of an image's status `ticket` and `queuedAt`.
//! - [`image`]: one pass per image. It owns the rest of the image's status and the children: a probe Job, a claim, a
//!   scratch claim, an import Job, a snapshot ([`children`]).
//!
//! They talk through status alone: the ledger tells an image that it holds a slot, the image's status tells the queue
//! that the slot's attempt has ended. The state diagram is in [`image::verdict`]; the protocol in `docs/ledger.md`.
//!
//! What it reads: VMDiskImages, the ledger, the policy ConfigMap, storage and snapshot classes, and its own children.
//! What it may do is listed in `rbac.rs`; it has no right on Secrets.

use otctl_kit::reconciler::Reconciler as _;

pub mod bandwidth;
pub mod children;
pub mod cli;
pub mod config;
pub mod exchange;
pub mod image;
pub mod imports;
pub mod jobs;
pub mod known;
pub mod metrics;
pub mod names;
pub mod progress;
pub mod proof;
pub mod queue;
pub mod rbac;
pub mod record;
pub mod slim;
pub mod snapshots;
pub mod source;
pub mod surroundings;
pub mod views;
pub mod want;
pub mod wiring;

pub use cli::{Args, run};

/// The loops of this controller, as logs and metrics name them.
pub const LOOPS: [&str; 2] = [queue::Queue::NAME, image::Image::NAME];
