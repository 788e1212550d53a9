//! From the verdict to the plan: which writes, which status, when to look again.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::cluster::ApiError;
use otctl_kit::plan::{Action, Next, Notice, Plan, Write};
use otctl_kit::reconciler::{Refusal, RefusalCause};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{OpenAttempt, Phase, Progress, VMDiskImageStatus};
use otctl_types::import::{FailureClass, SourceFacts};
use otctl_types::{VMDiskImage, import};

use crate::children;
use crate::children::Facts;
use crate::image::close::{self, Closing, close, to_i64, with_budget};
use crate::image::ending::{Ending, of_probe};
use crate::image::observe::Observed;
use crate::image::status::{Standing, render};
use crate::image::verdict::{Verdict, Wait, judge, keeps_volume};
use crate::record::Record;
use crate::surroundings::{Obstacle, snapshot_class};

/// The most often that progress is written, and the step in percent below which it is not.
const PROGRESS_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
const PROGRESS_STEP: u64 = 10;

/// What to write.
pub fn decide(observed: &Observed, now: Timestamp) -> Plan<VMDiskImageStatus> {
    let Some(image) = &observed.image else {
        return Plan::rest("Gone");
    };
    let pass = Pass { image, observed, now };
    let verdict = judge(observed, now);
    let name = verdict.name();
    let mut plan = pass.plan(verdict);
    plan.verdict = name;
    plan.notices = plan.status.as_ref().map(|status| pass.notices(status)).unwrap_or_default();
    plan
}

/// A write was refused: the number is given back, if one is held, and the reason stands where people look.
pub fn refused(
    observed: &Observed,
    refusal: &Refusal<'_>,
    now: Timestamp,
) -> Option<VMDiskImageStatus> {
    let image = observed.image.as_ref()?;
    let pass = Pass { image, observed, now };
    let obstacle = obstacle_of(refusal);
    let held = observed
        .entry
        .as_ref()
        .map(|entry| entry.attempt)
        .filter(|number| *number > observed.record.last());
    let Some(number) = held.filter(|_| observed.record.status.open_attempt.is_none()) else {
        let standing = pass.standing(pass.phase_seen(), obstacle.reason, obstacle.message);
        return Some(render(
            with_budget(&observed.record),
            &standing,
            image.metadata.generation,
            now,
        ));
    };
    let ending = Ending::failed(obstacle.reason, FailureClass::Waiting, obstacle.message);
    pass.closed(number, &ending).status
}

fn obstacle_of(refusal: &Refusal<'_>) -> Obstacle {
    let target = refusal.target;
    match refusal.cause {
        RefusalCause::Foreign => Obstacle {
            reason: Reason::NameConflict,
            message: format!(
                "{target} exists and belongs to something else; rename or delete it, or use another name for this image"
            ),
        },
        RefusalCause::Api(ApiError::Forbidden { detail, quota: true, .. }) => Obstacle {
            reason: Reason::QuotaExceeded,
            message: format!("{target} was refused by a quota: {detail}"),
        },
        RefusalCause::Api(ApiError::Forbidden { detail, namespace_terminating: true, .. }) => {
            Obstacle {
                reason: Reason::NamespaceTerminating,
                message: format!("{target} was refused: {detail}"),
            }
        }
        RefusalCause::Api(error) => Obstacle {
            reason: Reason::Rejected,
            message: format!("{target} was refused by the API server: {error}"),
        },
    }
}

/// One pass over one image.
struct Pass<'a> {
    image: &'a VMDiskImage,
    observed: &'a Observed,
    now: Timestamp,
}

impl<'a> Pass<'a> {
    fn plan(&self, verdict: Verdict) -> Plan<VMDiskImageStatus> {
        match verdict {
            Verdict::Gone | Verdict::Unticketed => Plan::rest(""),
            Verdict::Awaiting(_) => self.look_again(Plan::rest("")),
            Verdict::Invalid(problem) => {
                self.tell(Standing { is_refused: true, ..self.failed(problem) })
            }
            Verdict::GivenUp(end) => self.tidy(self.tell(self.failed(end)), Tidy::Everything),
            Verdict::Suspended => self.tell(self.standing(
                Phase::Queued,
                Reason::Suspended,
                "suspended; set suspend to false to go on",
            )),
            Verdict::Queued(wait) => self.queued(wait),
            Verdict::Releasing(number, ending)
            | Verdict::ProbeFailed(number, ending)
            | Verdict::Closing(number, ending) => self.closed(number, &ending),
            Verdict::Probing { is_missing, number } => self.probing(is_missing, number),
            Verdict::Preparing(number) => self.preparing(number),
            Verdict::Recording { number, job } => self.recording(number, job),
            Verdict::Starting(job) => self.starting(&job),
            Verdict::Importing => self.importing(),
            Verdict::Stopping { job, resource_version } => self.stopping(&job, resource_version),
            Verdict::Snapshotting { is_missing, trouble } => self.snapshotting(is_missing, trouble),
            Verdict::Restoring { is_missing } => self.restoring(is_missing),
            Verdict::Lost => self.lost(),
            Verdict::Ready => self.ready(),
        }
    }

    fn queued(&self, wait: Wait) -> Plan<VMDiskImageStatus> {
        let standing = Standing {
            is_refused: wait.reason == Reason::NameConflict,
            ..self.standing(Phase::Queued, wait.reason, self.queue_message(&wait))
        };
        let plan = self.tell(standing);
        let next = wait.until.map_or(Next::Wait, Next::At);
        self.tidy(Plan { next, ..plan }, Tidy::OtherRevisions)
    }

    /// The number ahead is told once, when it is queued: a write per place gained would cost more than it tells.
    fn queue_message(&self, wait: &Wait) -> String {
        let status = &self.observed.record.status;
        let is_told =
            status.phase == Some(Phase::Queued) && self.reason_told() == Some(wait.reason.as_str());
        let kept = status.message.clone().filter(|_| is_told && wait.reason == Reason::SlotsBusy);
        kept.unwrap_or_else(|| wait.message.clone())
    }

    fn reason_told(&self) -> Option<&str> {
        let ready = otctl_types::condition::find(
            &self.observed.record.status.conditions,
            otctl_types::condition::READY,
        );
        ready.map(|ready| ready.reason.as_str())
    }

    fn probing(&self, is_missing: bool, number: i64) -> Plan<VMDiskImageStatus> {
        let standing = self.standing(
            Phase::Syncing,
            Reason::Probing,
            "the first bytes of the source are looked at",
        );
        let mut plan = self.tell(standing);
        if is_missing {
            plan.writes.push(create(&children::probe::job(&self.facts(number)), "it was admitted"));
        }
        plan
    }

    fn preparing(&self, number: i64) -> Plan<VMDiskImageStatus> {
        let facts = self.facts(number);
        let mut plan = self.tell(self.standing(
            Phase::Syncing,
            Reason::Probing,
            "the source was looked at; the import is prepared",
        ));
        // The phase was told with the probe; a retry that needs none tells it here.
        if self.observed.record.status.phase == Some(Phase::Syncing) {
            plan.status = None;
        }
        if self.observed.claim.object().is_none() {
            plan.writes.push(create(&children::claim::claim(&facts), "the source was looked at"));
        }
        if self.observed.scratch.object().is_none() {
            plan.writes
                .push(create(&children::scratch::claim(&facts), "the download needs a place"));
        }
        plan.writes.push(create(
            &children::import::job(&facts),
            "it holds a slot; started when it is on record",
        ));
        plan
    }

    fn recording(&self, number: i64, job: String) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let ticket = self.observed.entry.as_ref().map(|entry| entry.ticket.clone());
        memory.source = self.source(number);
        memory.last_attempt = Some(number);
        memory.ticket = ticket.clone().or(memory.ticket);
        memory.queued_at = memory.queued_at.or_else(|| Some(Time(self.now)));
        memory.next_retry_at = None;
        let since = self.observed.entry.as_ref().map(|entry| entry.since.clone());
        memory.open_attempt = Some(OpenAttempt { number, job_uid: job, started_at: since, ticket });
        let standing =
            self.standing(Phase::Syncing, Reason::Importing, "the data is being fetched");
        self.write(memory, &standing)
    }

    fn starting(&self, job: &str) -> Plan<VMDiskImageStatus> {
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
    fn importing(&self) -> Plan<VMDiskImageStatus> {
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
            ..self.write(memory, &standing)
        }
    }

    fn stopping(&self, job: &str, resource_version: Option<String>) -> Plan<VMDiskImageStatus> {
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
    fn closed(&self, number: i64, ending: &Ending) -> Plan<VMDiskImageStatus> {
        let observed = self.observed;
        let open = observed.record.status.open_attempt.as_ref();
        let entry = observed.entry.as_ref().filter(|entry| entry.attempt == number);
        let closing = Closing {
            number,
            ticket: open
                .and_then(|open| open.ticket.as_deref())
                .or(entry.map(|entry| entry.ticket.as_str())),
            started_at: open
                .and_then(|open| open.started_at.as_ref())
                .or(entry.map(|entry| &entry.since)),
        };
        let memory = close(&observed.record, closing, ending, &observed.policy, self.now);
        match &ending.failure {
            None => self.fetched(memory, ending),
            Some(_) => self.after_failure(memory),
        }
    }

    fn fetched(&self, mut memory: VMDiskImageStatus, ending: &Ending) -> Plan<VMDiskImageStatus> {
        let facts = Facts {
            checksum: ending.checksum.clone(),
            disk_checksum: ending.disk_checksum.clone(),
            ..self.facts_of(&memory)
        };
        if self.wants_snapshot() {
            let write = create(&children::snapshot::snapshot(&facts), "the data is complete");
            let standing = Standing {
                has_data: true,
                ..self.standing(
                    Phase::Snapshotting,
                    Reason::Snapshotting,
                    "the snapshot is being taken",
                )
            };
            let mut plan = self.write(memory, &standing);
            plan.writes.push(write);
            return plan;
        }
        memory.current = Some(children::current(&facts, None, self.now));
        let mut plan = self.write(memory, &self.succeeded());
        plan.writes.extend(self.observed.claim.object().map(|claim| Write {
            action: Action::Apply(children::claim::finished(claim, &facts)),
            because: "the data is complete",
        }));
        self.tidy(plan, Tidy::Leftovers)
    }

    /// Closed without data: one write says so and what follows from it, as the next look would see it.
    fn after_failure(&self, memory: VMDiskImageStatus) -> Plan<VMDiskImageStatus> {
        let mut after = self.observed.clone();
        after.record = Record { status: memory.clone(), ..self.observed.record.clone() };
        after.entry = None;
        after.imports.clear();
        let pass = Pass { observed: &after, ..*self };
        let mut plan = pass.plan(judge(&after, self.now));
        if plan.status.is_none() {
            let standing = pass.standing(
                Phase::Queued,
                Reason::Queued,
                "the attempt ended; the next one is not due yet",
            );
            plan.status = pass.write(memory, &standing).status;
        }
        plan
    }

    fn snapshotting(&self, is_missing: bool, trouble: Option<String>) -> Plan<VMDiskImageStatus> {
        let (reason, message) = match trouble {
            Some(trouble) => (
                Reason::SnapshotFailed,
                format!("the snapshot is not ready yet; its driver says: {trouble}"),
            ),
            None => (Reason::Snapshotting, "the snapshot is being taken".to_owned()),
        };
        let standing =
            Standing { has_data: true, ..self.standing(Phase::Snapshotting, reason, message) };
        let mut plan = self.tell(standing);
        if is_missing {
            plan.writes.push(create(
                &children::snapshot::snapshot(&self.facts_kept()),
                "there is data and no snapshot of it",
            ));
        }
        plan
    }

    fn restoring(&self, is_missing: bool) -> Plan<VMDiskImageStatus> {
        let standing = Standing {
            has_data: true,
            ..self.standing(
                Phase::Snapshotting,
                Reason::Restoring,
                "the volume is brought back from the snapshot",
            )
        };
        let mut plan = self.tell(standing);
        if is_missing {
            plan.writes.push(create(
                &children::claim::restored(&self.facts_kept()),
                "the volume is gone and the snapshot is not",
            ));
        }
        plan
    }

    fn lost(&self) -> Plan<VMDiskImageStatus> {
        self.after_failure(close::lose(&self.observed.record, &self.observed.policy, self.now))
    }

    fn ready(&self) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let facts = self.facts_kept();
        let snapshot = self.observed.snapshot.object().filter(|_| self.wants_snapshot());
        let synced_at = memory.current.as_ref().and_then(|current| current.synced_at.clone());
        let mut current = children::current(&facts, snapshot.map(|snapshot| &**snapshot), self.now);
        current.volume = current.volume.filter(|_| keeps_volume(self.image, self.observed));
        current.synced_at = synced_at.or(current.synced_at);
        memory.current = Some(current);
        memory.next_retry_at = None;
        let mut plan = self.write(memory, &self.succeeded());
        if let Some(claim) = self
            .observed
            .claim
            .object()
            .filter(|claim| !self.wants_snapshot() && !children::claim::is_finished(claim))
        {
            let object = children::claim::finished(claim, &facts);
            plan.writes
                .push(Write { action: Action::Apply(object), because: "the data is complete" });
        }
        self.tidy(plan, Tidy::Leftovers)
    }

    /// Deletes what is no longer needed, after the status says so.
    fn tidy(&self, mut plan: Plan<VMDiskImageStatus>, what: Tidy) -> Plan<VMDiskImageStatus> {
        let observed = self.observed;
        let remove_volume = what == Tidy::Everything
            || what == Tidy::Leftovers && !keeps_volume(self.image, observed);
        let remove_scratch = what != Tidy::OtherRevisions;
        let claims = [
            observed.claim.object().filter(|_| remove_volume),
            observed.scratch.object().filter(|_| remove_scratch),
        ];
        for claim in
            claims.into_iter().flatten().filter(|claim| claim.metadata.deletion_timestamp.is_none())
        {
            let uid = claim.uid().unwrap_or_default();
            plan.writes.push(delete(
                children::target(&**claim),
                &uid,
                None,
                "it is no longer needed",
            ));
        }
        for (target, uid) in &observed.outdated {
            plan.writes.push(delete(target.clone(), uid, None, "it is of another revision"));
        }
        plan
    }

    fn tell(&self, standing: Standing) -> Plan<VMDiskImageStatus> {
        self.write(with_budget(&self.observed.record), &standing)
    }

    fn write(&self, memory: VMDiskImageStatus, standing: &Standing) -> Plan<VMDiskImageStatus> {
        let status = render(memory, standing, self.image.metadata.generation, self.now);
        Plan { status: Some(status), ..Plan::rest("") }
    }

    fn look_again(&self, plan: Plan<VMDiskImageStatus>) -> Plan<VMDiskImageStatus> {
        let soon = self.now.checked_add(SignedDuration::from_secs(2)).unwrap_or(Timestamp::MAX);
        Plan { next: Next::At(soon), ..plan }
    }

    fn standing(&self, phase: Phase, reason: Reason, message: impl Into<String>) -> Standing {
        Standing {
            phase,
            reason,
            message: message.into(),
            is_refused: false,
            wants_snapshot: self.wants_snapshot(),
            has_data: false,
        }
    }

    fn failed(&self, end: Obstacle) -> Standing {
        self.standing(Phase::Failed, end.reason, end.message)
    }

    fn succeeded(&self) -> Standing {
        Standing {
            has_data: true,
            ..self.standing(Phase::Succeeded, Reason::Succeeded, "the disk is ready to use")
        }
    }

    fn phase_seen(&self) -> Phase {
        self.observed.record.status.phase.unwrap_or(Phase::Queued)
    }

    fn wants_snapshot(&self) -> bool {
        snapshot_class(&self.image.spec, &self.observed.policy).is_some()
    }

    fn source(&self, number: i64) -> Option<SourceFacts> {
        let probed = self
            .observed
            .probe(number)
            .filter(|probe| probe.has_ended())
            .and_then(|probe| of_probe(probe).source);
        probed.or_else(|| with_budget(&self.observed.record).source)
    }

    fn facts(&self, number: i64) -> Facts<'a> {
        Facts { number, source: self.source(number), ..self.facts_of(&self.observed.record.status) }
    }

    fn facts_of(&self, memory: &VMDiskImageStatus) -> Facts<'a> {
        Facts {
            image: self.image,
            revision: &self.observed.record.revision,
            settings: &self.observed.settings,
            policy: &self.observed.policy,
            around: &self.observed.around,
            source: memory.source.clone(),
            number: 0,
            progress_key: &self.observed.progress_key,
            checksum: None,
            disk_checksum: None,
            claim: self.observed.claim.object().map(|claim| &**claim),
        }
    }

    /// The facts with the hashes that `current`, the snapshot or the claim remembers.
    fn facts_kept(&self) -> Facts<'a> {
        let (checksum, disk_checksum) = children::kept_hashes(self.observed);
        Facts { checksum, disk_checksum, ..self.facts_of(&self.observed.record.status) }
    }

    /// Events: one when it is queued or admitted, one at the end, and one per attempt that failed.
    fn notices(&self, after: &VMDiskImageStatus) -> Vec<Notice> {
        let before = &self.observed.record.status;
        let message = after.message.clone().unwrap_or_default();
        let mut notices = Vec::new();
        let failed = after.attempts.last().filter(|last| before.attempts.last() != Some(*last));
        if let Some(last) = failed.filter(|last| {
            last.reason.as_deref() != Some(crate::record::SUCCEEDED)
                && after.phase != Some(Phase::Failed)
        }) {
            let text =
                format!("attempt {}: {}", last.number, last.message.clone().unwrap_or_default());
            notices.push(notice(true, last.reason.clone().unwrap_or_default(), text));
        }
        match after.phase {
            phase if phase == before.phase => {}
            Some(Phase::Queued) if before.phase.is_none() => {
                notices.push(notice(false, "Queued".to_owned(), message))
            }
            Some(Phase::Syncing) if before.phase.is_none() => {
                notices.push(notice(false, "Admitted".to_owned(), message))
            }
            Some(Phase::Succeeded) => notices.push(notice(false, "Succeeded".to_owned(), message)),
            Some(Phase::Failed) => {
                let stalled = otctl_types::condition::find(
                    &after.conditions,
                    otctl_types::condition::STALLED,
                );
                notices.push(notice(
                    true,
                    stalled.map(|stalled| stalled.reason.clone()).unwrap_or_default(),
                    message,
                ));
            }
            Some(Phase::Queued | Phase::Syncing | Phase::Snapshotting) | None => {}
        }
        notices
    }
}

/// What is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tidy {
    /// Children of other revisions only.
    OtherRevisions,
    /// The download, and the volume if it is not kept.
    Leftovers,
    /// The download and the unfinished volume.
    Everything,
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

fn create<K: kube::Resource<DynamicType = ()> + serde::Serialize>(
    object: &K,
    because: &'static str,
) -> Write {
    Write { action: Action::Create(otctl_kit::cluster::erase(object)), because }
}

fn delete(
    target: otctl_kit::cluster::Target,
    uid: &str,
    resource_version: Option<String>,
    because: &'static str,
) -> Write {
    let propagation = otctl_kit::plan::Propagation::Foreground;
    Write {
        action: Action::Delete { target, uid: uid.to_owned(), resource_version, propagation },
        because,
    }
}

fn notice(warning: bool, reason: String, message: String) -> Notice {
    Notice { warning, reason, action: "Sync", message, regarding: None }
}

#[cfg(test)]
mod tests;
