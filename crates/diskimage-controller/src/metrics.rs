//! What this controller measures. Two sorts, which add up over replicas in two ways:
//!
//! - What is the case ([`mod@gauges`]) is read from the watches when it is asked for, so every replica tells the same: take
//!   the highest. Series go with the objects.
//! - What has happened ([`tally`], [`traffic`]) is counted by the leader alone, so that the sum over replicas is what has
//!   happened. It is taken from the difference between two versions of an image that the watch has shown, one after the
//!   other ([`milestones`]): a pass that is repeated makes no second version, and an answer that was lost hides none. An
//!   object that is seen for the first time counts for nothing: what it tells was counted by whoever made it so. What
//!   happens in the moment in which one leader follows another may be counted by none of them.

pub mod gauges;
pub mod milestones;
pub mod tally;
pub mod traffic;

mod families;

use std::sync::Arc;

use otctl_kit::clock::Clock;
use otctl_kit::metrics::{Leads, Metrics};
use otctl_kit::store::Key;

pub use self::families::FAMILIES;
use self::gauges::gauges;
pub use self::tally::CLASSES;
use self::tally::Tally;
use self::traffic::Traffic;
use crate::views::Views;

/// Registers every family, and counts from now on what the views show.
pub fn measure(
    registry: &Metrics,
    views: &Views,
    clock: Arc<dyn Clock>,
    (traffic, leads): (Traffic, Leads),
) {
    registry.register(gauges(views.clone(), clock));
    registry.register(traffic.counter());
    let tally = Tally::new(traffic, leads);
    tally.register(registry);
    let images = views.images.clone();
    views.images.subscribe(move |image| {
        let key = Key::of(image);
        tally.note(&key, images.get(&key));
    });
}

#[cfg(test)]
mod tests;
