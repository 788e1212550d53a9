//! The workspace controller's two loops over a cluster in which anybody may have left anything. The input chooses
//! Workspaces, images, children and strangers, then what happens: passes, late news, other components, people, answers
//! that are lost, a restart, another controller that takes over. Passes are the product's own, from observe to commit.

mod controller;
mod objects;
mod people;
mod promises;

use controller::Workspaces;

/// Whatever was there and whatever happens: what `promises` says of every write, and rest in the end.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    crate::controller::check::<Workspaces>(input);
}
