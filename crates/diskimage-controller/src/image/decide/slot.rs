//! What a slot pays for, step by step: the look at the source, the claims and the Job, and the end of the attempt.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{OpenAttempt, Phase, Progress, VMDiskImageStatus};
use otctl_types::import;

use super::{Pass, create, delete};
use crate::children;
use crate::image::close::{Closing, close, to_i64, with_budget};
use crate::image::ending::Ending;

/// The most often that progress is written, and the step in percent below which it is not.
const PROGRESS_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
const PROGRESS_STEP: u64 = 10;

impl Pass<'_> {
    pub(super) fn probing(&self, is_missing: bool, number: i64) -> Plan<VMDiskImageStatus> {
        let standing = self.standing(
            Phase::Syncing,
            Reason::Probing,
            "the first bytes of the source are looked at",
        );
        let mut plan = self.tell(&standing);
        if is_missing {
            plan.writes.push(create(&children::probe::job(&self.facts(number)), "it was admitted"));
        }
        plan
    }

    pub(super) fn preparing(&self, number: i64) -> Plan<VMDiskImageStatus> {
        let facts = self.facts(number);
        let mut plan = self.tell(&self.standing(
            Phase::Syncing,
            Reason::Probing,
            "the source was looked at; the import is prepared",
        ));
        // The phase was told with the probe; a retry that needs none tells it here.
        if self.observed.record.status.phase == Some(Phase::Syncing) {
            plan.status = None;
        }
        plan.writes.extend(self.claims(number, "the source was looked at"));
        plan.writes.push(create(
            &children::import::job(&facts),
            "it holds a slot; started when it is on record",
        ));
        plan
    }

    pub(super) fn recording(&self, number: i64, job: String) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let ticket = self.observed.entry.as_ref().map(|entry| entry.ticket.clone());
        memory.source = self.source(number);
        memory.last_attempt = Some(number);
        memory.ticket = ticket.clone().or(memory.ticket);
        memory.queued_at = memory.queued_at.or(Some(Time(self.now)));
        memory.next_retry_at = None;
        let since = self.observed.entry.as_ref().map(|entry| entry.since.clone());
        let budget = Some(self.observed.record.budget_key.clone());
        let open = OpenAttempt { number, job_uid: job, started_at: since, ticket, budget };
        memory.open_attempt = Some(open);
        let standing =
            self.standing(Phase::Syncing, Reason::Importing, "the data is being fetched");
        self.write(memory, &standing)
    }

    pub(super) fn starting(&self, job: &str) -> Plan<VMDiskImageStatus> {
        let mut plan = Plan::rest("");
        if let Some(work) = self.observed.import(job) {
            let object = children::import::started(&work.job);
            plan.writes.push(Write {
                action: Action::Apply(object),
                because: "it is on record and the ledger holds its slot",
            });
        }
        plan
    }

    /// Progress is written at most every 30 s and in steps of 10 %, whichever is rarer.
    pub(super) fn importing(&self) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let started = memory.open_attempt.as_ref().and_then(|open| open.started_at.as_ref());
        let since = memory
            .progress
            .as_ref()
            .and_then(|told| told.at.as_ref())
            .or(started)
            .map_or(self.now, |at| at.0);
        let due = since.checked_add(PROGRESS_INTERVAL).unwrap_or(Timestamp::MAX);
        let told = memory.progress.as_ref().map_or(0, |told| told.bytes);
        if let Some(seen) = self
            .observed
            .progress
            .as_ref()
            .filter(|seen| self.now >= due && is_worth_telling(seen, told))
        {
            memory.progress = Some(progress(seen, self.now));
        }
        let standing =
            self.standing(Phase::Syncing, Reason::Importing, "the data is being fetched");
        let later = self.now.checked_add(PROGRESS_INTERVAL).unwrap_or(Timestamp::MAX);
        Plan {
            next: Next::At(if due > self.now { due } else { later }),
            writes: self.missing_claims(),
            ..self.write(memory, &standing)
        }
    }

    /// Claims that were deleted before the pod could use them. A view that is behind is given time first.
    fn missing_claims(&self) -> Vec<Write> {
        let Some(open) = &self.observed.record.status.open_attempt else {
            return Vec::new();
        };
        let since = open.started_at.as_ref().map_or(self.now, |at| at.0);
        if self.now.duration_since(since) < PROGRESS_INTERVAL {
            return Vec::new();
        }
        self.claims(open.number, "it was deleted before its pod ran")
    }

    /// The claims that are not there.
    fn claims(&self, number: i64, because: &'static str) -> Vec<Write> {
        let facts = self.facts(number);
        let claim = self.observed.claim.object().is_none();
        let scratch = self.observed.scratch.object().is_none();
        let claim = claim.then(|| create(&children::claim::claim(&facts), because));
        let scratch = scratch.then(|| create(&children::scratch::claim(&facts), because));
        claim.into_iter().chain(scratch).collect()
    }

    pub(super) fn stopping(
        &self,
        job: &str,
        resource_version: Option<String>,
    ) -> Plan<VMDiskImageStatus> {
        let works = self.observed.imports.iter().chain(&self.observed.probes);
        let target = works
            .filter(|work| work.job.uid().as_deref() == Some(job))
            .map(|work| children::target(&*work.job))
            .next();
        let mut plan = Plan::rest("");
        if let Some(target) = target {
            plan.writes.push(delete(target, job, resource_version, "it may not go on"));
        }
        self.look_again(plan)
    }

    /// The attempt is closed; if it brought the data, what is made of it goes first, since it carries the hashes that
    /// only the ended pod still knows.
    pub(super) fn closed(&self, number: i64, ending: &Ending) -> Plan<VMDiskImageStatus> {
        let memory = self.memory_after(number, ending);
        match &ending.failure {
            None if self.has_volume() => self.fetched(memory, ending),
            // Success without the volume it was written to is none: the next look finds the data lost.
            None | Some(_) => self.after_failure(memory),
        }
    }

    fn has_volume(&self) -> bool {
        let claim = self.observed.claim.object();
        claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
    }

    /// What the status remembers once the attempt is closed.
    pub(super) fn memory_after(&self, number: i64, ending: &Ending) -> VMDiskImageStatus {
        let observed = self.observed;
        let open = observed.record.status.open_attempt.as_ref();
        let entry = observed.entry.as_ref().filter(|entry| entry.attempt == number);
        let snapshot_class = observed.snapshot_class();
        let closing = Closing {
            number,
            snapshot_class: snapshot_class.as_deref(),
            ticket: open
                .and_then(|open| open.ticket.as_deref())
                .or(entry.map(|entry| entry.ticket.as_str())),
            started_at: open
                .and_then(|open| open.started_at.as_ref())
                .or(entry.map(|entry| &entry.since)),
        };
        close(&observed.record, closing, ending, &observed.policy, self.now)
    }
}

fn is_worth_telling(seen: &import::Progress, told: i64) -> bool {
    let moved = seen.bytes.saturating_sub(u64::try_from(told).unwrap_or(0));
    seen.total_bytes
        .is_none_or(|total| moved.saturating_mul(100) >= total.saturating_mul(PROGRESS_STEP))
}

fn progress(seen: &import::Progress, now: Timestamp) -> Progress {
    let percent = seen
        .total_bytes
        .filter(|total| *total > 0)
        .map(|total| format!("{}%", seen.bytes.saturating_mul(100) / total));
    Progress {
        bytes: to_i64(seen.bytes),
        total_bytes: seen.total_bytes.map(to_i64),
        percent,
        at: Some(Time(now)),
    }
}
