//! What this controller measures. Two sorts, which add up over replicas in two ways:
//!
//! - What is the case ([`mod@gauges`]) is read from the watches when it is asked for, so every replica tells the same: take
//!   the highest. Series go with the objects.
//! - What has happened ([`tally`]) is counted by the leader alone, so that the sum over replicas is what has happened. It is
//!   taken from the difference between two versions of a Workspace that the watch has shown, one after the other
//!   ([`milestones`]). What happens in the moment in which one leader follows another may be counted by none of them.

pub mod gauges;
pub mod milestones;
pub mod tally;

mod families;

use std::sync::Arc;

use otctl_kit::clock::Clock;
use otctl_kit::metrics::{Leads, Metrics};
use otctl_kit::store::Key;

pub use self::families::FAMILIES;
use self::gauges::gauges;
pub use self::milestones::{End, Wish};
use self::tally::Tally;
use crate::views::Views;

/// Registers every family, and counts from now on what the views show.
pub fn measure(registry: &Metrics, views: &Views, clock: Arc<dyn Clock>, leads: Leads) {
    registry.register(gauges(views.clone(), clock));
    let tally = Tally::new(leads);
    tally.register(registry);
    let workspaces = views.workspaces.clone();
    views.workspaces.subscribe(move |workspace| {
        let key = Key::of(workspace);
        tally.note(&key, workspaces.get(&key));
    });
}

#[cfg(test)]
mod tests;
