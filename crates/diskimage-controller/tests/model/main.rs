//! The ledger and attempt protocol of `docs/ledger.md`, explored exhaustively. What the controller does is the product's
//! own code, whole passes of it: observe, decide, commit. The API server as far as writes and their guards go, the Job
//! controller, the kubelet, people and everything that goes wrong are the model's.
//!
//! - [`state`]: what a state is; [`objects`]: the same as Kubernetes objects; [`product`]: passes of the product.
//! - [`step`]: what may happen next; [`invariants`]: what must never be; [`fair`]: that all comes to its end.
//! - [`config`]: what is explored; [`mutants`]: the protocol with one guard taken out.

#![expect(clippy::print_stdout, reason = "how far the search went is its result")]

mod config;
mod fair;
mod invariants;
mod mutants;
mod objects;
mod product;
mod state;
mod step;

use testbed::explore::{Search, explore};

use crate::config::Config;
use crate::fair::Fair;
use crate::mutants::{MUTANTS, Twist};
use crate::step::Machine;

/// Set to `large`, the long explorations are made too.
const SIZE: &str = "OTCTL_MODEL";
/// A part of the names of the configurations to explore.
const ONLY: &str = "OTCTL_MODEL_ONLY";

/// Whether the end of a fair run is looked at, from every state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Seen,
    Unseen,
}

fn search(config: &Config, twist: Option<Twist>, ends: Ends) -> Search {
    let machine = Machine::new(*config, twist);
    let fair = Fair::default();
    let mut look = |state: &_| match ends {
        Ends::Seen => fair.end_of(&machine, state),
        Ends::Unseen => None,
    };
    let found = explore(&machine, config.most_states, &mut look);
    let (images, ledgers) = machine.product.statuses().counts();
    println!(
        "{:<48} {found}; {} passes of the product, {images} statuses, {ledgers} ledgers",
        config.name,
        machine.product.runs.get(),
    );
    found
}

/// Explores each to its end, or as far as it may go; how many came to their end.
fn explore_all(configs: &[Config]) -> usize {
    let only = std::env::var(ONLY).unwrap_or_default();
    let (mut states, mut complete) = (0, 0);
    for config in configs.iter().filter(|config| config.name.contains(&only)) {
        let found = search(config, None, Ends::Seen);
        if let Some(violation) = &found.violation {
            panic!("{}:\n{violation}", config.name);
        }
        states += found.states;
        complete += usize::from(found.is_complete);
    }
    println!("{states} states, {complete} of {} configurations to the end", configs.len());
    complete
}

#[test]
fn no_order_of_events_breaks_a_promise_and_all_comes_to_its_end() {
    let complete = explore_all(config::SMALL);
    let is_all = std::env::var(ONLY).is_err();
    assert!(!is_all || complete == config::SMALL.len(), "there is more to explore");
    if std::env::var(SIZE).is_ok_and(|size| size == "large") {
        explore_all(config::LARGE);
    }
}

#[test]
fn every_guard_that_is_taken_out_is_missed() {
    let mut unnoticed = Vec::new();
    for (twist, wrong, config) in &MUTANTS {
        let found = [Ends::Unseen, Ends::Seen].into_iter().find_map(|ends| {
            let found = search(config, Some(*twist), ends);
            Some((found.violation?, found.states))
        });
        match found {
            Some((violation, states)) => {
                println!("{twist:?}, after {} acts: {}", violation.story.len(), violation.what);
                assert!(violation.what.starts_with(wrong), "{twist:?}: {violation}");
                // Without the twist nothing is wrong there, or it is not the twist that was found.
                let control = Config { most_states: states, ..*config };
                let found = search(&control, None, Ends::Seen).violation;
                assert!(found.is_none(), "{twist:?} changes nothing: {}", found.unwrap());
            }
            None => unnoticed.push(twist),
        }
    }
    assert!(unnoticed.is_empty(), "nothing goes wrong without these: {unnoticed:?}");
}
