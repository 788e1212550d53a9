//! A controller under fuzz: two processes of it over one cluster, of which one acts at a time, and what becomes of them as
//! an input has it.

use std::sync::Arc;

use otctl_kit::reconciler::Reconciler;
use otctl_kit::store::Key;
use serde_json::Value;
use testbed::clock::VirtualClock;
use testbed::{Feed, World};

use crate::choices::Choices;
use crate::cluster::{Direct, Mishap, make};
use crate::promises::{Promises, last_writes};

/// Looks at the same cluster after which nothing is written any more.
const LOOKS: usize = 24;

/// A controller: its views and its loops, with passes that are made when they are asked for.
pub(crate) trait Controller: Sized {
    /// Things that happen before everybody comes to rest.
    const STEPS: usize;
    /// What must hold of its writes.
    type Promises: Promises;

    /// What is there before it starts.
    fn populate(world: &World, choices: &mut Choices<'_>);

    /// Started just now: it has seen what is there.
    fn new(world: &World, clock: &VirtualClock) -> Self;

    fn process(&mut self) -> &mut Process;

    /// Of everything that there is.
    fn pass_all(&self);

    /// Something happens: to it, or around it. `what` says which, of a number of things that is the controller's own.
    fn go_on(&mut self, what: u8, choices: &mut Choices<'_>);
}

/// What every process has.
pub(crate) struct Process {
    pub(crate) world: World,
    pub(crate) clock: VirtualClock,
    direct: Arc<Direct>,
    feeds: Vec<Feed>,
}

impl Process {
    /// One that asks the world by `direct` and hears of it by `feeds`, which have told what is there.
    pub(crate) fn new(clock: &VirtualClock, direct: Arc<Direct>, mut feeds: Vec<Feed>) -> Self {
        let world = direct.world().clone();
        feeds.iter_mut().for_each(|feed| feed.relist(&world));
        Self { world, clock: clock.clone(), direct, feeds }
    }

    pub(crate) fn pass<R: Reconciler>(&self, reconciler: &R, key: &Key) {
        make(reconciler, &*self.direct, key, &self.clock);
    }

    pub(crate) fn hear_one(&mut self, which: usize) {
        self.feeds[which].deliver(&self.world);
    }

    pub(crate) fn hear_all(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.deliver_all(&self.world));
    }

    /// Where there are objects of a kind.
    pub(crate) fn keys(&self, kind: &str) -> Vec<Key> {
        self.world.list(kind).iter().map(key).collect()
    }
}

/// Where an object is.
pub(crate) fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    Key::new(&text(&metadata["namespace"]), &text(&metadata["name"]))
}

/// Whatever was there and whatever happens: what its promises say of every write, and rest in the end.
///
/// # Panics
/// When it is not so.
pub(crate) fn check<C: Controller>(input: &[u8]) {
    let mut choices = Choices::new(input);
    let clock = VirtualClock::default();
    let world = World::new(&clock);
    C::populate(&world, &mut choices);
    let mut pair = [C::new(&world, &clock), C::new(&world, &clock)];
    let mut promises = C::Promises::default();
    promises.check(&world);
    for _ in 0..C::STEPS {
        if choices.are_over() {
            break;
        }
        step(&world, &clock, &mut pair, &mut choices);
        promises.check(&world);
    }
    let [controller, _] = &mut pair;
    controller.process().direct.be_out_of_trouble();
    rest(&world, controller, &mut promises);
}

/// The first of the pair acts. The other one has seen what was there when it started, and acts when they change places.
fn step<C: Controller>(
    world: &World,
    clock: &VirtualClock,
    pair: &mut [C; 2],
    choices: &mut Choices<'_>,
) {
    match choices.byte() {
        240..=243 => pair[0] = C::new(world, clock),
        244..=247 => pair.swap(0, 1),
        what @ 236..=239 => {
            let mishap = Mishap::REFUSALS[usize::from(what - 236)];
            pair[0].process().direct.be_in_trouble(choices.below(8), mishap);
        }
        what @ 248.. => {
            let mishap = if what >= 252 { Mishap::Unanswered } else { Mishap::Lost };
            pair[0].process().direct.be_in_trouble(usize::from(what % 4), mishap);
        }
        what => pair[0].go_on(what, choices),
    }
}

/// With nothing new to see and the clock standing still, looking again writes nothing.
fn rest<C: Controller>(world: &World, controller: &mut C, promises: &mut C::Promises) {
    for _ in 0..LOOKS {
        let before = world.revision();
        controller.process().hear_all();
        controller.pass_all();
        promises.check(world);
        if world.revision() == before {
            return;
        }
    }
    panic!("it does not come to rest: {}", last_writes(world));
}
