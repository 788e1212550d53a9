//! The attempt protocol, seen from the object that holds the slot: from facts to the one step that is due. Pure; the
//! rows it names are those of `docs/ledger.md`. What makes a job, a claim or a status is the controller's.
//!
//! ```text
//!   entry (UID,n), n > last ──I1──▶ Job n, suspended ──I2──▶ open {n, Job UID} ──I3──▶ running ──I4──▶ closed
//!            │                                                   │                      │
//!            └──I5: may not start ──▶ closed, unused             └───────I8: stop───────┴──▶ gone ──I4──▶ closed
//! ```
//! Two rules carry it: (UID, n) is opened at most once, because opening and closing unused are guarded writes of the
//! same object; and only the recorded Job is ever started, after one more look at the ledger.

use otctl_types::diskimage::OpenAttempt;

/// What a step is chosen from. Everything may be stale but `confirmed`.
#[derive(Clone, Debug)]
pub struct AttemptFacts<'a> {
    /// The highest number used.
    pub last: i64,
    /// The attempt on record as running.
    pub open: Option<&'a OpenAttempt>,
    /// The number of this UID's entry in the ledger.
    pub entry: Option<i64>,
    /// The Jobs of attempts that this UID owns.
    pub jobs: &'a [JobFacts],
    /// Whether a new attempt may start.
    pub may_start: bool,
    /// Whether the open attempt may go on.
    pub may_go_on: bool,
    /// What a consistent read made for this pass found.
    pub confirmed: Confirmed,
}

/// A Job that carries out an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// Number of the attempt.
    pub number: i64,
    /// UID of the Job.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// It was not started yet.
    pub is_suspended: bool,
    /// Complete or Failed, with its pod ended.
    pub has_ended: bool,
    /// It is being deleted.
    pub is_deleting: bool,
}

/// A consistent read that a step rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// None was needed.
    Nothing,
    /// The ledger was read: whether it holds an entry for the number in question.
    Held(bool),
    /// Job, then pods were read: whether there is no Job of the recorded UID and no pod of it.
    Gone(bool),
}

/// The consistent read that the due step rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// None.
    Nothing,
    /// Whether the ledger holds this number.
    Ledger(i64),
    /// Whether the Job of the open attempt and its pods are gone.
    Absence(&'a OpenAttempt),
}

/// The step that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptStep {
    /// No attempt, no slot: nothing to do here.
    Idle,
    /// I1: this number may be prepared, and its Job created suspended.
    Prepare(i64),
    /// I2: the Job of this number is there; put it on record.
    Record {
        /// The number.
        number: i64,
        /// UID of its Job.
        job: String,
    },
    /// I3: start the recorded Job.
    Start {
        /// UID of the Job.
        job: String,
    },
    /// The recorded Job runs.
    Run {
        /// UID of the Job.
        job: String,
    },
    /// I8: delete the recorded Job and wait until it is gone.
    Stop {
        /// UID of the Job.
        job: String,
        /// Only if it is still this version: it was never started.
        resource_version: Option<String>,
    },
    /// I4: the open attempt has ended; close it with its result, or without one when nothing is left of it.
    Close(i64),
    /// I5: use the number up without a Job.
    CloseUnused(i64),
    /// I7: delete a Job that no record speaks for.
    Sweep {
        /// UID of the Job.
        job: String,
        /// Only if it is still this version.
        resource_version: Option<String>,
    },
    /// Something is on its way out, or a view is behind; a watch will tell.
    Await,
}

impl<'a> AttemptFacts<'a> {
    /// The consistent read to make before [`step`](Self::step) is asked.
    #[must_use]
    pub fn need(&self) -> Need<'a> {
        match (self.open, self.recorded()) {
            (Some(open), None) => Need::Absence(open),
            (Some(open), Some(job)) if job.is_suspended && !job.is_deleting => {
                Need::Ledger(open.number)
            }
            (Some(_), Some(_)) => Need::Nothing,
            (None, _) => self.unclaimed().map_or(Need::Nothing, |job| Need::Ledger(job.number)),
        }
    }

    /// The step that is due now.
    #[must_use]
    pub fn step(&self) -> AttemptStep {
        if let Some(open) = self.open {
            return self.step_open(open);
        }
        if let Some(job) = self.left_over() {
            return AttemptStep::Sweep { job: job.uid.clone(), resource_version: None };
        }
        match self.entry {
            Some(number) if number > self.last => self.step_held(number),
            _ => self.step_without_slot(),
        }
    }

    fn step_open(&self, open: &OpenAttempt) -> AttemptStep {
        let Some(job) = self.recorded() else {
            let gone = self.confirmed == Confirmed::Gone(true);
            return if gone { AttemptStep::Close(open.number) } else { AttemptStep::Await };
        };
        if job.has_ended {
            return AttemptStep::Close(open.number);
        }
        if job.is_deleting {
            return AttemptStep::Await;
        }
        let uid = job.uid.clone();
        match (self.may_go_on, job.is_suspended, self.confirmed) {
            (false, _, _) => AttemptStep::Stop { job: uid, resource_version: None },
            (true, false, _) => AttemptStep::Run { job: uid },
            (true, true, Confirmed::Held(true)) => AttemptStep::Start { job: uid },
            (true, true, Confirmed::Held(false)) => {
                AttemptStep::Stop { job: uid, resource_version: Some(job.resource_version.clone()) }
            }
            (true, true, Confirmed::Nothing | Confirmed::Gone(_)) => AttemptStep::Await,
        }
    }

    fn step_held(&self, number: i64) -> AttemptStep {
        match self.jobs.iter().find(|job| job.number == number) {
            // One that was started, by a record that was lost since, is put on record again: then it is stopped or ends.
            Some(job) if !job.is_suspended && !job.is_deleting => {
                AttemptStep::Record { number, job: job.uid.clone() }
            }
            _ if !self.may_start => AttemptStep::CloseUnused(number),
            Some(job) if job.is_deleting => AttemptStep::Await,
            Some(job) => AttemptStep::Record { number, job: job.uid.clone() },
            None => AttemptStep::Prepare(number),
        }
    }

    fn step_without_slot(&self) -> AttemptStep {
        match (self.unclaimed(), self.confirmed) {
            (None, _) => AttemptStep::Idle,
            (Some(job), Confirmed::Held(false)) => AttemptStep::Sweep {
                job: job.uid.clone(),
                resource_version: Some(job.resource_version.clone()),
            },
            (Some(_), _) => AttemptStep::Await,
        }
    }

    /// The Job on record, by UID: another one of the same name does not count.
    fn recorded(&self) -> Option<&'a JobFacts> {
        let open = self.open?;
        self.jobs.iter().find(|job| job.uid == open.job_uid)
    }

    /// A Job of a number that is used up and not open. One that has ended is left for people to look at.
    fn left_over(&self) -> Option<&'a JobFacts> {
        self.jobs.iter().find(|job| job.number <= self.last && !job.has_ended && !job.is_deleting)
    }

    /// A Job of a number not used yet, which the ledger as seen here does not hold.
    fn unclaimed(&self) -> Option<&'a JobFacts> {
        let is_held = |job: &JobFacts| self.entry == Some(job.number);
        self.jobs.iter().find(|job| {
            job.number > self.last && job.is_suspended && !job.is_deleting && !is_held(job)
        })
    }
}

#[cfg(test)]
mod tests;
