//! The control plane with its real programs; they are built once if they are not there.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod building;
mod control_plane;
mod deployments;
mod ending;
mod guarded;
mod kubevirt;
mod node;
mod parts;
mod programs;
mod rights;
mod storage;
mod support;
