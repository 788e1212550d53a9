//! The API of otctl: every kind, its status and conditions, and the names that others see.
//!
//! | kind | scope | who writes its status |
//! |---|---|---|
//! | [`VMDiskImage`] | namespaced | the image reconciler of `diskimage-controller`, but `ticket` and `queuedAt`: its queue reconciler |
//! | [`AdmissionQueue`] | cluster | the queue reconciler of the controller that owns the queue |
//! | [`Workspace`] | cluster | the workspace reconciler of `workspace-controller`, but `ticket` and `queuedAt`: its queue reconciler |
//!
//! This crate depends on no other crate of otctl. `crds/` is generated from it.

pub mod condition;
pub mod crds;
pub mod diskimage;
pub mod import;
pub mod names;
pub mod queue;
pub mod schema;
pub mod workspace;

pub use crds::crds;
pub use diskimage::{VMDiskImage, VMDiskImageSpec, VMDiskImageStatus};
pub use queue::{AdmissionQueue, AdmissionQueueSpec, AdmissionQueueStatus};
pub use workspace::{Workspace, WorkspaceSpec, WorkspaceStatus};
