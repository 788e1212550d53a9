//! What people do, as often as the configuration lets them: to images, Jobs, the policy and the ledger.

use super::{Act, Machine, Person};
use crate::state::{Ghost, Image, Import, JobState, PodState, State, Uid};

impl Machine {
    pub(super) fn acts_of_people(&self, state: &State, give: &mut dyn FnMut(Act, State)) {
        for name in 0..self.config.names {
            self.acts_on_image(state, name, give);
        }
        if state.left.hands > 0 {
            for at in 0..state.imports.len() {
                if state.imports[at].has_job() {
                    let mut after = state.clone();
                    after.left.hands -= 1;
                    after.imports[at].job = JobState::Absent;
                    after.imports[at].is_going = false;
                    let name = usize::from(after.imports[at].id.image.name);
                    after.ghosts[name].has_lost_a_job = true;
                    give(
                        Act::Person(Person::DeleteJob, u8::try_from(at).expect("Jobs are few")),
                        after,
                    );
                }
            }
        }
        if usize::from(state.policy) + 1 < self.config.limits.len() {
            let mut after = state.clone();
            after.policy += 1;
            after.policies_since |= 1 << after.policy;
            give(Act::Person(Person::ChangePolicy, after.policy), after);
        }
        self.acts_on_ledger(state, give);
    }

    fn acts_on_image(&self, state: &State, name: u8, give: &mut dyn FnMut(Act, State)) {
        let at = usize::from(name);
        let mut change = |person, change: &dyn Fn(&mut State)| {
            let mut after = state.clone();
            change(&mut after);
            give(Act::Person(person, name), after);
        };
        let Some(image) = state.images[at] else {
            let is_next = (0..at).all(|earlier| state.ghosts[earlier].lives > 0);
            if state.left.creations > 0 && is_next {
                change(Person::Create, &|after| {
                    after.left.creations -= 1;
                    self.create(after, name);
                });
            }
            return;
        };
        if image.is_deleting {
            change(Person::Vanish, &|after| after.images[at] = None);
        } else if state.left.deletions > 0 {
            change(Person::Delete, &|after| {
                after.left.deletions -= 1;
                if self.config.has_finalizers {
                    edit(after, at, |image| image.is_deleting = true);
                } else {
                    after.images[at] = None;
                }
            });
        }
        if image.is_suspended {
            change(Person::Resume, &|after| edit(after, at, |image| image.is_suspended = false));
        } else if state.left.suspensions > 0 && !image.is_deleting {
            change(Person::Suspend, &|after| {
                after.left.suspensions -= 1;
                edit(after, at, |image| {
                    image.is_suspended = true;
                    image.was_suspended = true;
                });
            });
        }
        if state.left.budgets > 0 && image.asked == 0 && !image.is_deleting {
            change(Person::AskAgain, &|after| {
                after.left.budgets -= 1;
                edit(after, at, |image| image.asked = 1);
            });
        }
    }

    fn acts_on_ledger(&self, state: &State, give: &mut dyn FnMut(Act, State)) {
        if state.left.losses > 0 {
            let mut after = state.clone();
            after.left.losses -= 1;
            self.rob(&mut after, 0);
            give(Act::Person(Person::EmptyLedger, 0), after);
        }
        if state.left.restores == 0 {
            return;
        }
        let mut after = state.clone();
        if let Some(saved) = after.saved.take() {
            after.left.restores -= 1;
            self.rob(&mut after, saved);
            give(Act::Person(Person::RestoreLedger, 0), after);
        } else {
            after.saved = Some(state.ledger.status);
            give(Act::Person(Person::KeepLedger, 0), after);
        }
    }

    /// Puts a ledger in place of the one that is there. What runs without its entry then, or was about to be started, is
    /// nobody's fault.
    fn rob(&self, state: &mut State, status: u16) {
        let before = self.product.statuses().slots(state.ledger.status);
        let slots = self.product.statuses().slots(status);
        let runs =
            |import: &&Import| import.job == JobState::Started || import.pod == PodState::Running;
        let running = state.imports.iter().filter(runs).map(|it| (it.id.image, it.id.number));
        let held = before.entries.iter().map(|entry| (entry.uid, entry.number));
        let mut robbed: Vec<(Uid, u8)> = running.chain(held).collect();
        robbed.retain(|of| !slots.entries.iter().any(|it| (it.uid, it.number) == *of));
        state.robbed.extend(robbed);
        state.robbed.sort_unstable();
        state.robbed.dedup();
        self.put_ledger(state, status);
    }

    pub(super) fn create(&self, state: &mut State, name: u8) {
        let at = usize::from(name);
        let ghost = &mut state.ghosts[at];
        *ghost = Ghost { lives: ghost.lives + 1, ..Ghost::default() };
        let life = ghost.lives;
        let version = state.next_version(at);
        let born = state.next_birth();
        state.images[at] = Some(Image { version, born, ..Image::new(life) });
    }
}

/// An edit of an image gives it a new version.
fn edit(state: &mut State, at: usize, change: impl FnOnce(&mut Image)) {
    let version = state.next_version(at);
    if let Some(image) = &mut state.images[at] {
        image.version = version;
        change(image);
    }
}
