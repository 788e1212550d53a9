//! The workspace controller's two loops over a cluster in which anybody may have left anything. The input chooses
//! Workspaces, images, children and strangers, then what happens: passes, late news, other components, people, answers
//! that are lost, a restart, another controller that takes over. Passes are the product's own, from observe to commit.

mod controller;
mod objects;
mod people;
mod promises;

use std::time::Duration;

use testbed::World;
use testbed::clock::VirtualClock;

use crate::decide::choices::Choices;
use controller::Controller;
use promises::Promises;

/// Things that happen before everybody comes to rest.
const STEPS: usize = 40;
/// Looks at the same cluster after which nothing is written any more.
const LOOKS: usize = 24;

/// Whatever was there and whatever happens: what `promises` says of every write, and rest in the end.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let mut choices = Choices::new(input);
    let clock = VirtualClock::default();
    let world = World::new(&clock);
    objects::populate(&world, &mut choices);
    let mut pair = [Controller::new(&world, &clock), Controller::new(&world, &clock)];
    let mut promises = Promises::of(&world);
    for _ in 0..STEPS {
        if choices.are_over() {
            break;
        }
        step(&world, &clock, &mut pair, &mut choices);
        promises.check(&world);
    }
    let [controller, _] = &mut pair;
    controller.be_out_of_trouble();
    rest(&world, controller, &mut promises);
}

/// The first of the pair acts. The other one has seen what was there when it started, and acts when they change places.
fn step(
    world: &World,
    clock: &VirtualClock,
    pair: &mut [Controller; 2],
    choices: &mut Choices<'_>,
) {
    match choices.byte() {
        240..=243 => pair[0] = Controller::new(world, clock),
        244..=247 => pair.swap(0, 1),
        what @ 248.. => pair[0].be_in_trouble(usize::from(what % 4), what >= 252),
        what => go_on(world, &mut pair[0], what % 12, choices),
    }
}

fn go_on(world: &World, controller: &mut Controller, what: u8, choices: &mut Choices<'_>) {
    match what {
        0..=2 => controller.pass(choices.below(4)),
        3 => controller.hear_one(choices.below(10)),
        4..=5 => {
            controller.hear_all();
            controller.pass_all();
        }
        6..=8 => {
            for _ in 0..choices.below(8) {
                let acts = world.acts();
                if let Some(act) = acts.get(choices.below(acts.len().max(1))) {
                    world.perform(act);
                }
            }
        }
        9 => {
            let seconds = [1, 40, 700, 4000, 90_000][choices.below(5)];
            world.clock().advance(Duration::from_secs(seconds));
        }
        _ => people::act(world, choices),
    }
}

/// With nothing new to see and the clock standing still, looking again writes nothing.
fn rest(world: &World, controller: &mut Controller, promises: &mut Promises) {
    for _ in 0..LOOKS {
        let before = world.revision();
        controller.hear_all();
        controller.pass_all();
        promises.check(world);
        if world.revision() == before {
            return;
        }
    }
    panic!("it does not come to rest: {}", promises.last_writes(world));
}
