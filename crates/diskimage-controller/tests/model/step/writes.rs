//! How the API server carries out a write, with its guards; and what the invariants say of the write itself.

use super::Machine;
use crate::mutants::Twist;
use crate::product::{Entry, Facts};
use crate::state::{Image, Import, JobId, JobState, PodState, Seen, State, Uid, Write};

impl Machine {
    /// Carries out a write; false when it is refused, and then the pass ends.
    pub(crate) fn carry_out(&self, state: &mut State, write: Write, seen: Seen) -> bool {
        match write {
            Write::Swap(status) => self.swap(state, status, seen.ledger),
            Write::Patch(uid, patch) => {
                self.patch(state, uid, patch, seen.images[usize::from(uid.name)])
            }
            Write::Create { image, number, is_started } => {
                self.create_job(state, image, number, is_started)
            }
            Write::Start(job) => self.start(state, job),
            Write::Delete { job, only, is_foreground } => {
                delete_job(state, job, only, is_foreground)
            }
        }
    }

    fn swap(&self, state: &mut State, status: u16, seen: u8) -> bool {
        if seen != state.ledger.version && self.twist != Some(Twist::LedgerUnguarded) {
            return false;
        }
        self.judge_swap(state, status);
        self.put_ledger(state, status);
        true
    }

    /// The ledger has a new version with that status.
    pub(crate) fn put_ledger(&self, state: &mut State, status: u16) {
        state.ledger.version = state.next_ledger_version();
        state.ledger.status = status;
        state.policies_since = 1 << state.policy;
    }

    fn judge_swap(&self, state: &mut State, status: u16) {
        let before = self.product.statuses().slots(state.ledger.status);
        let after = self.product.statuses().slots(status);
        let is_new = |entry: &&Entry| !entry.is_found && !before.entries.contains(entry);
        let admitted: Vec<Entry> = after.entries.iter().filter(is_new).copied().collect();
        if admitted.is_empty() {
            return;
        }
        let limit = after.limit.unwrap_or(0);
        if after.entries.len() > limit as usize {
            state.blame("a write admits above its limit");
        }
        let in_force = (0..).zip(self.config.limits);
        let mut in_force = in_force.filter(|(policy, _)| state.policies_since & 1 << policy != 0);
        if !in_force.any(|(_, value)| *value == limit) {
            state.blame(
                "a write admits by a policy that was replaced before the ledger it replaces",
            );
        }
        let overtaken = (0..).zip(state.images).any(|(name, image)| {
            let Some(image) = image else { return false };
            let is_held =
                after.entries.iter().any(|entry| entry.uid == Uid { name, life: image.life });
            !is_held && admitted.iter().any(|entry| self.overtakes(&image, entry))
        });
        if overtaken {
            state.blame("one with a later first ticket is admitted before one that waits");
        }
    }

    fn overtakes(&self, waiting: &Image, admitted: &Entry) -> bool {
        let facts = self.product.statuses().facts(waiting.status);
        let may_wait = !waiting.was_suspended && !waiting.is_deleting && facts.last == 0;
        let lower = facts.first_ticket.zip(admitted.first_ticket);
        may_wait && lower.is_some_and(|(waits, goes)| waits < goes)
    }

    fn patch(&self, state: &mut State, uid: Uid, patch: u16, seen: u8) -> bool {
        let name = usize::from(uid.name);
        let Some(image) = state.images[name] else { return false };
        if image.version != seen && self.twist != Some(Twist::StatusUnguarded) {
            return false;
        }
        let after = self.product.statuses().patched(image.status, patch);
        if after == image.status {
            return true;
        }
        if image.life != uid.life {
            state.blame("the status of the dead lands on the living");
        }
        let version = state.next_version(name);
        state.images[name] = Some(Image { version, status: after, ..image });
        self.judge_patch(state, uid, &image, after);
        true
    }

    fn judge_patch(&self, state: &mut State, uid: Uid, image: &Image, status: u16) {
        let before = self.product.statuses().facts(image.status);
        let after = self.product.statuses().facts(status);
        if after.last < before.last {
            state.blame("lastAttempt falls");
        }
        let is_at_its_end = before.is_done || before.final_in == Some(image.asked);
        if is_at_its_end && after.open.is_some() && before.open.is_none() {
            state.blame("an attempt is opened after the end");
        }
        if after.open.is_some_and(|open| open.image != uid || open.number != after.last) {
            state.blame("the Job on record is not that of this attempt");
        }
        match before.open {
            Some(open) if after.open != Some(open) => self.judge_close(state, image, open, &after),
            _ if after.is_done && !before.is_done => {
                state.blame("there is data without an attempt that brought it");
            }
            _ => {}
        }
    }

    fn judge_close(&self, state: &mut State, image: &Image, open: JobId, after: &Facts) {
        let ghost = &mut state.ghosts[usize::from(open.image.name)];
        let has_run = std::mem::take(&mut ghost.open_ran);
        let budget =
            &mut ghost.pods[usize::from(self.product.statuses().facts(image.status).open_budget)];
        let is_charged = after.ended.is_some_and(|(_, is_charged)| is_charged);
        let is_told_to_stop = image.was_suspended || image.is_deleting;
        if has_run && !is_charged {
            // People may stop as many as they like.
            *budget = budget.saturating_sub(1);
        }
        let (done, has_lost_a_job) = (ghost.done, ghost.has_lost_a_job);
        // Whose start was under way when it was found unstarted, and whose Job then went by hand, is not known to have run.
        if has_run && !is_charged && !is_told_to_stop && !has_lost_a_job {
            state.blame("a download that ran is not charged");
        }
        if after.open.is_some() {
            state.blame("an open attempt is replaced");
        }
        if after.ended.map(|(number, _)| number) != Some(open.number) {
            state.blame("another attempt is closed than was open");
        }
        if after.is_done && done != Some(open) {
            state.blame("an attempt gets the result of another");
        }
    }

    /// A name that is taken by the same image's Job counts as done.
    fn create_job(&self, state: &mut State, image: Uid, number: u8, is_started: bool) -> bool {
        let is_there = |import: &&Import| import.id.image == image && import.id.number == number;
        if state.imports.iter().filter(is_there).any(Import::has_job) {
            return true;
        }
        let ghost = &mut state.ghosts[usize::from(image.name)];
        let serial = if ghost.lives == image.life {
            &mut ghost.made[usize::from(number)]
        } else {
            &mut state.late_births
        };
        if *serial >= self.most_jobs.get() {
            return false;
        }
        *serial += 1;
        let serial = *serial + if ghost.lives == image.life { 0 } else { MOST_JOBS_IN_A_FAIR_RUN };
        state.imports.push(Import {
            id: JobId { image, number, serial },
            job: if is_started { JobState::Started } else { JobState::Suspended },
            is_going: false,
            pod: PodState::None,
        });
        true
    }

    fn start(&self, state: &mut State, job: JobId) -> bool {
        let by_name = self.twist == Some(Twist::JobByName);
        let is_it = |import: &Import| {
            import.has_job()
                && (import.id == job
                    || by_name && (import.id.image, import.id.number) == (job.image, job.number))
        };
        let Some(import) = state.imports.iter_mut().find(|import| is_it(import)) else {
            return false;
        };
        if import.job == JobState::Suspended {
            import.job = JobState::Started;
        }
        true
    }
}

/// Jobs made for one number, at most: a view that stays behind for ever would make them for ever. In a fair run none
/// stays behind.
pub(crate) const MOST_JOBS: u8 = 3;
pub(crate) const MOST_JOBS_IN_A_FAIR_RUN: u8 = 100;

/// What is gone already counts as deleted.
fn delete_job(state: &mut State, job: JobId, only: Option<u8>, is_foreground: bool) -> bool {
    let Some(import) = state.imports.iter_mut().find(|it| it.id == job && it.has_job()) else {
        return true;
    };
    if only.is_some_and(|version| version != import.job_version()) {
        return false;
    }
    if is_foreground {
        import.is_going = true;
    } else {
        import.job = JobState::Absent;
    }
    true
}
