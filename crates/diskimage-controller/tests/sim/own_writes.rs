//! Writes are exact: with views that may be late in any way but for the controller's own writes, no child is made,
//! started or deleted twice.

use std::collections::BTreeSet;

use testbed::Sim;
use testbed::builders::{image, policy};
use testbed::effort::seeds;
use testbed::sim::Order;

use crate::controller::world;

fn orders() -> impl Iterator<Item = Order> {
    seeds(6).flat_map(|seed| [Order::Shuffled(seed), Order::Interleaved(seed)])
}

/// Two lives, one after the other, with every kind of child in them.
fn lived(mut sim: Sim) -> Sim {
    policy().concurrency(1).apply(&sim.world);
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.settle();
    sim
}

/// What the controller wrote to children more than once.
fn repeated(sim: &Sim) -> Vec<String> {
    let story = sim.story.lines_with(" because ");
    let writes = story.iter().flat_map(|line| line.split([':', ';'])).map(str::trim);
    let children = writes.filter(|write| {
        ["create ", "apply ", "delete "].iter().any(|verb| write.starts_with(verb))
    });
    let mut seen = BTreeSet::new();
    children.filter(|write| !seen.insert(write.to_owned())).map(str::to_owned).collect()
}

#[test]
fn no_child_is_written_twice_in_any_order() {
    for order in orders() {
        let sim = lived(world(order).reading_own_writes());
        assert_eq!(sim.world.list("VolumeSnapshot").len(), 1, "{order:?}\n{}", sim.story);
        assert_eq!(repeated(&sim), Vec::<String>::new(), "{order:?}\n{}", sim.story);
    }
}

#[test]
fn without_waiting_for_own_writes_some_would_be_repeated() {
    assert!(orders().any(|order| !repeated(&lived(world(order))).is_empty()));
}
