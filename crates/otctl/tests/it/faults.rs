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

use std::env;
use std::fmt::Display;
use std::str::FromStr;

/// More than a first look reads, so that there is a download.
const SIZE: u64 = 80 << 10;

/// What the environment says, or else this.
pub(crate) fn setting<T: FromStr>(name: &str, default: T) -> T
where
    T::Err: Display,
{
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}
