//! Leader election, explored exhaustively: the kit's own `step` and `View`, with the API server, the network, clocks,
//! pauses and people of the model. Time goes on in whole seconds up to a horizon; within one, everything may happen in
//! any order. A lease lasts 5 s here, is renewed every second, and its holder gives up after 4 s without a renewal: the
//! closest to one another that the kit takes.

#![expect(clippy::print_stdout, reason = "how far the search went is its result")]

mod model;
mod mutants;

use testbed::explore::{Search, explore};

use crate::model::{Config, Election, PLAIN};
use crate::mutants::Twist;

/// Set to `large`, the long explorations are made too.
const SIZE: &str = "OTCTL_MODEL";

const SMALL: [Config; 5] = [
    Config { name: "two that start together", horizon: 9, slow: 2, ..PLAIN },
    Config { name: "one is stopped and goes on", horizon: 9, pauses: 1, slow: 0, ..PLAIN },
    Config { name: "clocks of different speed", horizon: 8, speeds: [900, 1110], slow: 3, ..PLAIN },
    Config { name: "deleted by hand", horizon: 8, deletions: 1, slow: 0, ..PLAIN },
    Config { name: "edited by hand", horizon: 9, edits: 1, slow: 1, ..PLAIN },
];

const LARGE: [Config; 5] = [
    Config { name: "large: slow", slow: 9, horizon: 18, ..MANY },
    Config { name: "large: two pauses", pauses: 2, slow: 4, horizon: 18, ..MANY },
    Config { name: "large: clocks and pauses", speeds: [1110, 900], pauses: 1, slow: 4, ..MANY },
    Config { name: "large: by hand", deletions: 1, edits: 1, pauses: 1, slow: 2, ..MANY },
    Config { name: "large: restarts", restarts: 2, pauses: 1, slow: 2, ..MANY },
];

const MANY: Config = Config { most_states: 10_000_000, ..PLAIN };

fn search(config: &Config, twist: Option<Twist>) -> Search {
    let election = Election::new(*config, twist);
    let mut look = |state: &_| if twist.is_none() { election.recovery(state) } else { None };
    let found = explore(&election, config.most_states, &mut look);
    println!("{:<32} {found}, {} s", config.name, config.horizon);
    found
}

/// Explores each to its end, or as far as it may go; how many came to their end.
fn explore_all(configs: &[Config]) -> usize {
    let ends = configs.iter().map(|config| {
        let found = search(config, None);
        if let Some(violation) = found.violation {
            panic!("{}:\n{violation}", config.name);
        }
        usize::from(found.is_complete)
    });
    ends.sum()
}

#[test]
fn never_two_lead_and_there_is_a_leader_again_within_two_durations() {
    assert_eq!(explore_all(&SMALL), SMALL.len(), "there is more to explore");
    if std::env::var(SIZE).is_ok_and(|size| size == "large") {
        explore_all(&LARGE);
    }
}

#[test]
fn every_rule_that_is_taken_out_is_missed() {
    let mut unnoticed = Vec::new();
    for (twist, config) in mutants::MUTANTS {
        let found = search(&config, Some(twist));
        match found.violation {
            Some(violation) => {
                println!("{twist:?}, after {} acts: {}", violation.story.len(), violation.what);
                // Without the twist nothing is wrong there, or it is not the twist that was found.
                let control = Config { most_states: found.states, ..config };
                let found = search(&control, None).violation;
                assert!(found.is_none(), "{twist:?} changes nothing: {}", found.unwrap());
            }
            None => unnoticed.push(twist),
        }
    }
    assert!(unnoticed.is_empty(), "nothing goes wrong without these: {unnoticed:?}");
}
