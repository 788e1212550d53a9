//! The controller behind a proxy that does to its requests and watches what networks, servers and kernels do. What each
//! file shows is a promise that holds all the same; `proxied` is the controller, and decides nothing.

pub(crate) mod acting;
mod answers;
mod crash_points;
mod files;
mod lease;
pub(crate) mod lives;
mod logs;
pub(crate) mod proxied;
mod store;
mod streams;
mod watches;

/// More than a first look reads, so that there is a download.
const SIZE: u64 = 80 << 10;
