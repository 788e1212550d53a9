//! The Job controller, the kubelet and the garbage collector, each as slow as it likes.

use super::{Act, Machine, Worker};
use crate::state::{Import, JobState, PodState, State};

impl Machine {
    pub(super) fn acts_of_workers(&self, state: &State, give: &mut dyn FnMut(Act, State)) {
        for (at, import) in state.imports.iter().enumerate() {
            for worker in due(state, import) {
                if worker == Worker::Fail && !self.config.pods_fail {
                    continue;
                }
                let mut after = state.clone();
                self.work(&mut after, at, worker);
                give(Act::Worker(worker, *import), after);
            }
        }
    }

    /// Lets a worker do its part with the import at that place.
    pub(crate) fn work(&self, state: &mut State, at: usize, worker: Worker) {
        let import = &mut state.imports[at];
        match worker {
            Worker::StartPod => {
                import.pod = PodState::Running;
                let import = *import;
                self.judge_pod(state, &import);
            }
            Worker::Succeed => import.pod = PodState::Succeeded,
            Worker::Fail => import.pod = PodState::Failed,
            Worker::Notice if import.pod == PodState::Succeeded => {
                import.job = JobState::Complete;
                let id = import.id;
                let ghost = &mut state.ghosts[usize::from(id.image.name)];
                if ghost.lives == id.image.life {
                    ghost.done = Some(id);
                }
            }
            Worker::Notice => import.job = JobState::Failed,
            Worker::EndPod => import.pod = PodState::None,
            Worker::Remove | Worker::Collect => {
                import.job = JobState::Absent;
                import.is_going = false;
            }
        }
    }

    /// A pod has begun: is it one of the open attempt, the only one of its number, and within its budget?
    fn judge_pod(&self, state: &mut State, import: &Import) {
        let id = import.id;
        let Some(image) = state.image(id.image) else { return };
        let facts = self.product.statuses().facts(image.status);
        if facts.open != Some(id) {
            state.blame("a pod starts for an attempt that is not open");
        }
        let ghost = &mut state.ghosts[usize::from(id.image.name)];
        let bit = 1 << id.number;
        let is_second = ghost.numbers & bit != 0;
        ghost.numbers |= bit;
        ghost.open_ran = true;
        let pods = &mut ghost.pods[usize::from(facts.open_budget)];
        *pods += 1;
        let is_above = u32::from(*pods) > self.config.retry_limit + 1;
        if is_second {
            state.blame("an attempt has a second pod");
        }
        if is_above {
            state.blame("a budget has more downloads than it pays for");
        }
    }
}

/// What may be done with an import next.
pub(crate) fn due(state: &State, import: &Import) -> Vec<Worker> {
    use {JobState as Job, PodState as Pod};
    let mut due = Vec::new();
    match (import.job, import.pod) {
        (Job::Started, Pod::None) if !import.is_going => due.push(Worker::StartPod),
        (Job::Started, Pod::Succeeded | Pod::Failed) if !import.is_going => {
            due.push(Worker::Notice)
        }
        _ => {}
    }
    if import.pod == Pod::Running {
        due.extend([Worker::Succeed, Worker::Fail]);
        if import.is_going || !import.has_job() {
            due.push(Worker::EndPod);
        }
    }
    if import.is_going && import.pod != Pod::Running {
        due.push(Worker::Remove);
    }
    if import.has_job() && !import.is_going && state.image(import.id.image).is_none() {
        due.push(Worker::Collect);
    }
    due
}
