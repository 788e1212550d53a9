//! The controller's two loops over a cluster in which anybody may have left anything. The input chooses objects, more or
//! less as they should be, then what happens: passes, late news, other components, people, answers that are lost, a
//! restart, another controller that takes over. Passes are the product's own, from observe to commit, against the
//! in-memory world.

mod controller;
pub(crate) mod objects;
mod people;
mod promises;

use controller::Images;

/// Whatever was there and whatever happens: what `promises` says of every write, and rest in the end.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    crate::controller::check::<Images>(input);
}
