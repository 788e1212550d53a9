//! What no plan and no history may ever contain. A check lists what it found, in words; an empty list is the good news.

pub mod ledger;
pub mod owners;
pub mod parts;
mod plan;
mod replay;
pub mod steps;
pub mod turns;

#[cfg(test)]
mod tests;

pub use plan::{Linted, lint_plan};

use crate::world::World;

/// Everything that must hold in every history whose ledger nobody else wrote to.
#[must_use]
pub fn whole_history(world: &World) -> Vec<String> {
    world.history(|history| {
        let mut found = ledger::intact(history);
        found.extend(owners::adopted(history));
        found.extend(owners::orphans(history));
        found
    })
}

/// Everything that must hold in every history of workspaces whose ledger and statuses nobody else wrote to.
#[must_use]
pub fn whole_history_of_workspaces(world: &World) -> Vec<String> {
    world.history(|history| {
        let mut found = turns::intact(history);
        found.extend(parts::intact(history));
        found.extend(owners::adopted(history));
        found.extend(owners::orphans(history));
        found
    })
}

/// Ends the test if something was found.
///
/// # Panics
/// When `found` is not empty.
pub fn expect_none(found: &[String]) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}
