//! What comes of a state when nothing goes wrong any more: whoever was in the middle of something is replaced by a
//! process that sees everything, pods succeed, and people let go of what they held. Everything must come to its end.

use std::cell::RefCell;
use std::collections::HashSet;

use testbed::explore::{Model, fingerprint};

use crate::objects::{job_text, uid_text};
use crate::state::{Controller, Import, Key, Pass, PodState, State, Uid};
use crate::step::{Act, MOST_JOBS, MOST_JOBS_IN_A_FAIR_RUN, Machine, Worker};

/// Rounds in which everybody has a turn; every image of the model needs fewer.
const ROUNDS: usize = 60;

/// Remembers which states come to a good end, so that each is followed once.
#[derive(Default)]
pub(crate) struct Fair {
    good: RefCell<HashSet<u64>>,
}

impl Fair {
    /// What is not at its end after a fair run.
    pub(crate) fn end_of(&self, machine: &Machine, state: &State) -> Option<String> {
        machine.most_jobs.set(MOST_JOBS_IN_A_FAIR_RUN);
        let end = self.follow(machine, state);
        machine.most_jobs.set(MOST_JOBS);
        end
    }

    fn follow(&self, machine: &Machine, state: &State) -> Option<String> {
        let mut state = rested(state);
        let mut passed = Vec::new();
        for _ in 0..ROUNDS {
            let print = fingerprint(&state);
            if self.good.borrow().contains(&print) {
                self.good.borrow_mut().extend(passed);
                return None;
            }
            if passed.last() == Some(&print) {
                break;
            }
            passed.push(print);
            round(machine, &mut state);
        }
        let unfinished = unfinished(machine, &state);
        if unfinished.is_none() {
            self.good.borrow_mut().extend(passed);
        }
        unfinished
    }
}

/// The state with nobody in the middle of anything.
fn rested(state: &State) -> State {
    let mut state = state.clone();
    state.controllers = Default::default();
    state.late.clear();
    state.left = crate::config::QUIET;
    state.saved = None;
    state.settle();
    state
}

/// Everybody has a turn.
fn round(machine: &Machine, state: &mut State) {
    for image in state.images.iter_mut().flatten().filter(|image| image.is_suspended) {
        image.is_suspended = false;
        image.version = u8::MAX;
    }
    for image in &mut state.images {
        *image = image.filter(|image| !image.is_deleting);
    }
    state.settle();
    let names = (0..).zip(state.images).filter(|(_, image)| image.is_some());
    let keys: Vec<Key> = names.map(|(name, _)| Key::Image(name)).collect();
    for key in std::iter::once(Key::Queue).chain(keys) {
        pass(machine, state, key);
    }
    for import in state.imports.clone() {
        work(machine, state, &import);
    }
    state.settle();
}

/// One pass, undisturbed.
fn pass(machine: &Machine, state: &mut State, key: Key) {
    state.controllers[0] =
        Controller { pass: machine.pass_of(state, key), ..Controller::default() };
    while state.controllers[0].pass.is_some() {
        machine.go_on(state);
        state.settle();
    }
}

fn work(machine: &Machine, state: &mut State, import: &Import) {
    let Some(at) = state.imports.iter().position(|other| other.id == import.id) else { return };
    let due = crate::step::due(state, import);
    let fair = due.into_iter().filter(|worker| *worker != Worker::Fail);
    // What is being ended is ended, rather than left to succeed.
    if let Some(worker) = fair.max_by_key(|worker| *worker != Worker::Succeed) {
        machine.work(state, at, worker);
    }
}

fn unfinished(machine: &Machine, state: &State) -> Option<String> {
    if let Some(wrong) = machine.broken(state) {
        return Some(format!("in a fair run: {wrong}"));
    }
    let slots = machine.product.statuses().slots(state.ledger.status);
    if let Some(entry) = slots.entries.first() {
        return Some(format!("the slot of {} is never given back", uid_text(entry.uid)));
    }
    let living = (0..).zip(&state.images).filter_map(|(name, image)| Some((name, (*image)?)));
    let stuck = living
        .filter(|(_, image)| !machine.product.statuses().facts(image.status).is_at_its_end)
        .map(|(name, image)| Uid { name, life: image.life })
        .next();
    if let Some(uid) = stuck {
        return Some(format!("{} never comes to its end", uid_text(uid)));
    }
    let runs = |import: &&Import| {
        import.pod == PodState::Running || import.has_job() && !import.has_ended()
    };
    let left = state.imports.iter().find(runs);
    left.map(|import| format!("Job {} is left over", job_text(import.id)))
}

impl Machine {
    /// The pass that a process which sees everything would begin.
    fn pass_of(&self, state: &State, key: Key) -> Option<Pass> {
        let mut found = None;
        self.begin(state, 0, &mut |act, after| {
            if act == Act::Begin(0, key) {
                found = Some(after.controllers[0].pass.clone());
            }
        });
        found.flatten()
    }

    /// The next read or write of the pass of the first controller.
    fn go_on(&self, state: &mut State) {
        let mut after = None;
        self.acts_of_controller(state, 0, &mut |_, next| {
            after.get_or_insert(next);
        });
        *state = after.expect("a pass has a next step");
    }
}
