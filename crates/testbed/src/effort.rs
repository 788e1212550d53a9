//! How long a test is: as long as every change can wait for, or as long as variables of the environment say.

use std::env;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

/// Says how many seeds a test draws orders from.
const SEEDS: &str = "OTCTL_SEEDS";

/// What the environment says, or else this.
///
/// # Panics
/// When it says something else than a `T`.
#[must_use]
pub fn setting<T: FromStr<Err: Display>>(name: &str, otherwise: T) -> T {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => otherwise,
    }
}

/// Seeds of orders: so few, or as many as `OTCTL_SEEDS` says.
///
/// # Panics
/// When that is no number.
#[must_use]
pub fn seeds(few: u64) -> Range<u64> {
    0..setting(SEEDS, few)
}

/// Whether there is time for more than every change can wait for.
#[must_use]
pub fn is_long() -> bool {
    env::var_os(SEEDS).is_some()
}
