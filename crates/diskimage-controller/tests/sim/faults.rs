//! The faults of the files in `crates/testbed/faults`, on the world in memory. The same files strike on a real API server in
//! the tests of `otctl`.

use testbed::builders::{image, key, policy};
use testbed::fault::{self, Fault};
use testbed::mask::difference;
use testbed::sim::Order;
use testbed::{Sim, check};

use crate::controller::world;

fn live(faults: Vec<Fault>) -> Sim {
    let sim = world(Order::Fixed);
    policy().concurrency(1).apply(&sim.world);
    let mut sim = faults.into_iter().fold(sim, Sim::with_fault);
    image("lab/a").snapshot_class("snapshots").create(&sim.world);
    sim.settle();
    check::expect_none(&check::whole_history(&sim.world));
    sim
}

#[test]
fn a_life_ends_the_same_whatever_a_file_does_to_it() {
    let clean = live(Vec::new());
    let (wanted, writes) = (clean.end_state(), clean.faults().writes());
    let files = fault::files().unwrap();
    assert!(files.len() >= 4, "{}", files.len());
    for (name, faults) in files {
        // Each that strikes costs a write or two more: nothing is tried again and again.
        let most = writes + 3 * faults.len();
        let sim = live(faults);
        assert_eq!(sim.faults().unmet(), [] as [String; 0], "{name}\n{}", sim.story);
        assert_eq!(difference(&wanted, &sim.end_state()), "", "{name}\n{}", sim.story);
        assert!(sim.faults().writes() <= most, "{name}: {writes} writes\n{}", sim.story);
        assert_eq!(sim.world.downloads(&key("lab/a")), 1, "{name}\n{}", sim.story);
    }
}
