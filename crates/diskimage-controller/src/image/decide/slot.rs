//! What a slot pays for, step by step: the look at the source, the claims and the Job, and the end of the attempt.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Cut, OpenAttempt, Phase, Progress, VMDiskImageStatus};
use otctl_types::import;
use serde_json::json;

use super::{Pass, create, delete};
use crate::children;
use crate::image::close::{Closing, close, to_i64, with_budget};
use crate::image::ending::Ending;
use crate::image::observe::Work;
use crate::jobs;

/// The most often that progress is written, and the step in percent below which it is not.
const PROGRESS_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
const PROGRESS_STEP: u64 = 10;
/// In place of the percentage, while the import cannot be asked.
const UNKNOWN: &str = "unknown";

impl Pass<'_> {
    pub(super) fn probing(&self, is_missing: bool, number: i64) -> Plan<VMDiskImageStatus> {
        let standing = self.standing(
            Phase::Syncing,
            Reason::Probing,
            "the first bytes of the source are looked at",
        );
        // The ticket of an image that was admitted at once stands in its entry alone, and until it stands here nobody
        // else gets one: a source that does not answer must not hold up those behind it.
        let mut plan = self.write(self.ticketed(with_budget(&self.observed.record)), &standing);
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
        let record = &self.observed.record;
        let mut memory = self.ticketed(with_budget(record));
        memory.source = self.source(number);
        memory.last_attempt = Some(number);
        memory.next_retry_at = None;
        let entry = self.observed.entry.as_ref();
        memory.open_attempt = Some(OpenAttempt {
            number,
            job_uid: job,
            started_at: entry.map(|entry| entry.since.clone()),
            ticket: entry.map(|entry| entry.ticket.clone()),
            budget: Some(record.budget_key.clone()),
            revision: Some(record.revision.clone()),
            never_ran: false,
            cut: None,
        });
        let standing =
            self.standing(Phase::Syncing, Reason::Importing, "the data is being fetched");
        let mut plan = self.write(memory, &standing);
        plan.clear.extend(self.earlier_imports());
        plan
    }

    /// Import Jobs of attempts that are closed. The last one is kept for people until the next attempt begins.
    fn earlier_imports(&self) -> Vec<Write> {
        let last = self.observed.record.last();
        let is_over = |work: &&Work| {
            work.number <= last
                && work.has_ended()
                && work.job.metadata.deletion_timestamp.is_none()
        };
        let delete = |work: &Work| {
            let uid = work.job.uid().unwrap_or_default();
            delete(children::target(&*work.job), &uid, None, "a later attempt has begun")
        };
        self.observed.imports.iter().filter(is_over).map(delete).collect()
    }

    /// The memory with the ticket of the slot that is held.
    fn ticketed(&self, memory: VMDiskImageStatus) -> VMDiskImageStatus {
        let ticket = self.observed.entry.as_ref().map(|entry| entry.ticket.clone());
        VMDiskImageStatus {
            ticket: ticket.or(memory.ticket),
            queued_at: memory.queued_at.or(Some(Time(self.now))),
            ..memory
        }
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
        if let Some(open) = &mut memory.open_attempt {
            open.never_ran = false;
        }
        let due = self.progress_due(&memory);
        if self.now >= due {
            memory.progress = self.progress_now(&memory).or(memory.progress);
        }
        let standing = self.standing(Phase::Syncing, Reason::Importing, doing(&memory));
        Plan {
            next: Next::At(if due > self.now { due } else { self.next_look() }),
            writes: self.missing_claims(),
            ..self.write(memory, &standing)
        }
    }

    /// Progress is told no sooner.
    fn progress_due(&self, memory: &VMDiskImageStatus) -> Timestamp {
        let started = memory.open_attempt.as_ref().and_then(|open| open.started_at.as_ref());
        let told = memory.progress.as_ref().and_then(|told| told.at.as_ref());
        let since = told.or(started).map_or(self.now, |at| at.0);
        since.checked_add(PROGRESS_INTERVAL).unwrap_or(Timestamp::MAX)
    }

    /// Timers are looked at as often as the shortest of them asks for.
    fn next_look(&self) -> Timestamp {
        let policy = &self.observed.policy;
        let shortest = policy.stall_timeout.min(policy.bind_timeout);
        let wait = shortest.min(PROGRESS_INTERVAL.unsigned_abs());
        self.now.checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    /// Progress that is worth telling: what was fetched since, or that nobody knows how much it is.
    fn progress_now(&self, memory: &VMDiskImageStatus) -> Option<Progress> {
        let talk = self.observed.talk.as_ref()?;
        let told = memory.progress.as_ref();
        let was_unknown = told.is_some_and(|told| told.percent.as_deref() == Some(UNKNOWN));
        if talk.unknown_for.is_some_and(|unknown| unknown >= PROGRESS_INTERVAL.unsigned_abs()) {
            let unknown = Progress {
                percent: Some(UNKNOWN.to_owned()),
                at: Some(Time(self.now)),
                ..told.cloned().unwrap_or_default()
            };
            return (!was_unknown).then_some(unknown);
        }
        let seen = talk.progress.as_ref().filter(|_| talk.unknown_for.is_none())?;
        let is_news = was_unknown || is_worth_telling(seen, told.map_or(0, |told| told.bytes));
        is_news.then(|| progress(seen, self.now))
    }

    /// On record before the Job is deleted, since nothing tells it afterwards.
    pub(super) fn cutting(&self, cut: Cut) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let message = format!("the attempt is ended: {}", cut.message);
        let open = memory.open_attempt.as_mut();
        let job = open.map(|open| {
            open.cut = Some(cut);
            open.job_uid.clone()
        });
        let standing = self.standing(Phase::Syncing, Reason::Stopping, message);
        let mut plan = self.write(memory, &standing);
        if let Some(work) = job.as_deref().and_then(|job| self.observed.import(job)) {
            let uid = work.job.uid().unwrap_or_default();
            let target = children::target(&*work.job);
            plan.clear.push(delete(target, &uid, None, "it does not come to an end by itself"));
        }
        plan
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
            plan.writes.extend(self.never_ran(job));
            plan.writes.push(delete(target, job, resource_version, "it may not go on"));
        }
        self.look_again(plan)
    }

    /// Once its Job is gone nothing tells any more that the open attempt never ran, and it would be charged.
    fn never_ran(&self, job: &str) -> Option<Write> {
        let mut memory = (*self.observed.record.status).clone();
        let open = memory.open_attempt.as_mut().filter(|open| open.job_uid == job)?;
        let work = self.observed.import(job)?;
        let has_run = work.pods.iter().any(|pod| jobs::pod_has_run(pod));
        let is_unstarted = jobs::was_never_started(&work.job) || self.observed.leaving.is_some();
        if has_run || !is_unstarted || open.never_ran {
            return None;
        }
        open.never_ran = true;
        Some(Write { action: Action::Remember(json!(memory)), because: "no pod of its Job ran" })
    }

    /// The attempt is closed; if it brought the data, what is made of it goes first, since it carries the hashes that
    /// only the ended pod still knows.
    pub(super) fn closed(&self, number: i64, ending: &Ending) -> Plan<VMDiskImageStatus> {
        let ending = &self.with_names(ending.clone());
        let memory = self.memory_after(number, ending);
        match &ending.failure {
            None if self.has_volume() => self.fetched(memory, ending),
            // Success without the volume it was written to is none: the next look finds the data lost.
            None | Some(_) => self.after_failure(memory),
        }
    }

    /// The importer knows neither the policy nor the name of its Secret: both are told where a person must change them.
    fn with_names(&self, mut ending: Ending) -> Ending {
        use import::ImportReason::{AddressRefused, Forbidden, SecretKeyMissing, SecretNotFound};
        let Some(failure) = &mut ending.failure else { return ending };
        let Reason::Import(reason) = failure.reason else { return ending };
        match (reason, self.secret()) {
            (AddressRefused, _) => failure.message.push_str(&self.hosts_in_effect()),
            (SecretNotFound, Some(secret)) => {
                failure.message = format!("Secret {secret} does not exist, or is empty");
            }
            (SecretKeyMissing, Some(secret)) => {
                failure.message = format!("Secret {secret}: {}", failure.message);
            }
            (Forbidden, Some(secret)) => {
                failure.message.push_str(&format!("; asked with Secret {secret}"));
            }
            (Forbidden, None) => {
                failure.message.push_str("; asked without a Secret: secretRef is not set");
            }
            _ => {}
        }
        ending
    }

    /// `namespace/name` of the Secret.
    fn secret(&self) -> Option<String> {
        let name = self.image.spec.secret_ref.as_deref()?;
        Some(format!("{}/{name}", self.image.namespace().unwrap_or_default()))
    }

    /// The list that refused an address, and that it may not be the one that was written last.
    fn hosts_in_effect(&self) -> String {
        let list = &self.observed.policy.allowed_source_hosts;
        let kept = if self.observed.hall.is_policy_valid {
            ""
        } else {
            ", and the policy has values that cannot be read, whose last good ones stay in effect: see PolicyValid of \
             AdmissionQueue vmdiskimages"
        };
        format!("; allowedSourceHosts in effect is '{list}'{kept}")
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

/// What an import is doing, as far as the progress on record tells: said with it, so that it costs no write of its own.
fn doing(memory: &VMDiskImageStatus) -> &'static str {
    let told = memory.progress.as_ref();
    if told.is_some_and(|told| told.total_bytes == Some(told.bytes)) {
        return "all of the data is fetched; the disk is being verified and written";
    }
    "the data is being fetched"
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
        .map(|total| format!("{}%", (seen.bytes.saturating_mul(100) / total).min(100)));
    Progress {
        bytes: to_i64(seen.bytes),
        total_bytes: seen.total_bytes.map(to_i64),
        percent,
        at: Some(Time(now)),
    }
}
