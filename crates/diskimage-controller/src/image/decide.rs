//! From the verdict to the plan: which writes, which status, when to look again. What a slot pays for is in `slot`, what
//! becomes of the data in `data`, the Events in `notices`; here is what they share.

mod data;
mod notices;
mod slot;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_kit::reconciler::{Refusal, RefusalCause};
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::import::{FailureClass, ImportReason, SourceFacts};
use otctl_types::names::RETRY_ANNOTATION;

use self::data::Tidy;
use crate::children;
use crate::children::Facts;
use crate::image::close::with_budget;
use crate::image::ending::{Ending, of_probe};
use crate::image::observe::{Observed, Work};
use crate::image::status::{Standing, render};
use crate::image::verdict::{Verdict, Wait, has_data, judge};
use crate::jobs;
use crate::snapshots::VolumeSnapshot;
use crate::surroundings::Obstacle;

/// A Job goes within seconds; one that takes longer is told of.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(30);

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
    let held = observed
        .entry
        .as_ref()
        .map(|entry| entry.attempt)
        .filter(|number| *number > observed.record.last())
        .filter(|_| observed.record.status.open_attempt.is_none());
    let Some(obstacle) = obstacle_of(refusal) else {
        return pass.told_defect(held);
    };
    let Some(number) = held else {
        let is_snapshot = refusal.target.resource.kind == VolumeSnapshot::kind(&());
        return pass.told_refused(obstacle, is_snapshot);
    };
    let ending = Ending::failed(obstacle.reason, FailureClass::Waiting, obstacle.message);
    pass.closed(number, &ending).status
}

/// None for a defect of ours: the Event and the log tell it.
fn obstacle_of(refusal: &Refusal<'_>) -> Option<Obstacle> {
    let target = refusal.target;
    let (reason, message) = match refusal.cause {
        RefusalCause::Foreign(_) => (
            Reason::NameConflict,
            format!(
                "{target} exists and belongs to something else; rename or delete it, or use another name for this image"
            ),
        ),
        RefusalCause::Api(ApiError::Forbidden { detail, quota: true, .. }) => {
            (Reason::QuotaExceeded, format!("{target} was refused by a quota: {detail}"))
        }
        RefusalCause::Api(ApiError::Forbidden { detail, namespace_terminating: true, .. }) => {
            (Reason::NamespaceTerminating, format!("{target} was refused: {detail}"))
        }
        RefusalCause::Api(error) => {
            (Reason::Rejected, format!("{target} was refused by the API server: {error}"))
        }
        RefusalCause::Panicked { .. } => return None,
    };
    Some(Obstacle { reason, message })
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
            Verdict::Awaiting(_) => self.awaiting(),
            Verdict::Invalid(problem) => {
                self.tell(&Standing { is_refused: true, ..self.failed(problem) })
            }
            Verdict::GivenUp(end) => self.tidy(self.tell(&self.given_up(&end)), Tidy::Everything),
            Verdict::Suspended => self.tell(&self.standing(
                Phase::Queued,
                Reason::Suspended,
                "suspended; set suspend to false to go on",
            )),
            Verdict::Queued(wait) => self.queued(&wait),
            Verdict::Releasing(number, ending)
            | Verdict::ProbeFailed(number, ending)
            | Verdict::Closing(number, ending) => self.closed(number, &ending),
            Verdict::Probing { is_missing, number } => self.probing(is_missing, number),
            Verdict::Preparing(number) => self.preparing(number),
            Verdict::Recording { number, job } => self.recording(number, job),
            Verdict::Starting(job) => self.starting(&job),
            Verdict::Importing => self.importing(),
            Verdict::Stopping { job, resource_version } => self.stopping(&job, resource_version),
            Verdict::Cutting(cut) => self.cutting(cut),
            Verdict::Snapshotting { is_missing, trouble, late_at } => {
                self.snapshotting(is_missing, trouble.as_deref(), late_at)
            }
            Verdict::SnapshotQueued { is_full } => self.snapshot_queued(is_full),
            Verdict::SnapshotRefused(until) => Plan { next: Next::At(until), ..Plan::rest("") },
            Verdict::SnapshotLate { trouble, is_noted } => {
                self.snapshot_late(trouble.as_deref(), is_noted)
            }
            Verdict::SnapshotGivenUp { trouble, replaced } => {
                self.snapshot_given_up(trouble.as_deref(), replaced)
            }
            Verdict::Restoring { is_missing } => self.restoring(is_missing),
            Verdict::Lost => self.lost(),
            Verdict::Ready => self.ready(),
        }
    }

    /// Nothing is held that could be given back: the obstacle stands beside what is the case. An attempt that brought the
    /// data is closed all the same, since its slot must not wait for what is made of it. A snapshot that is refused is
    /// asked for again after a while, and holds up no other until then.
    fn told_refused(&self, obstacle: Obstacle, is_snapshot: bool) -> Option<VMDiskImageStatus> {
        let is_refused = obstacle.reason == Reason::NameConflict;
        let (mut memory, phase, has_data) = match judge(self.observed, self.now) {
            Verdict::Closing(number, ending) if ending.failure.is_none() => {
                (self.memory_after(number, &ending), Phase::Snapshotting, true)
            }
            _ => (with_budget(&self.observed.record), self.phase_seen(), has_data(self.observed)),
        };
        if is_snapshot {
            memory.next_retry_at = self.snapshot_again_at().map(Time);
        }
        let standing = self.standing(phase, obstacle.reason, obstacle.message);
        self.write(memory, &Standing { is_refused, has_data, ..standing }).status
    }

    /// A defect of ours kept it from being decided about. Only what cannot fail is looked at: no state is judged, and a
    /// slot that was not used yet is given back, so that others go on.
    fn told_defect(&self, held: Option<i64>) -> Option<VMDiskImageStatus> {
        let message = "the controller met a defect of its own when it decided about this image: nothing is changed, and it \
                       is looked at again at least every 15 min; other images go on. Please report it with the \
                       controller's log";
        let memory = match held {
            Some(number) => {
                let (reason, class) = (Reason::InternalError, FailureClass::Waiting);
                self.memory_after(number, &Ending::failed(reason, class, message))
            }
            None => with_budget(&self.observed.record),
        };
        let phase = if held.is_some() { Phase::Queued } else { self.phase_seen() };
        let standing = self.standing(phase, Reason::InternalError, message);
        Some(render(memory, &standing, self.image.metadata.generation, self.now))
    }

    /// A watch will tell, most likely; a person is told what has been on its way out for long.
    fn awaiting(&self) -> Plan<VMDiskImageStatus> {
        let plan = self.stuck_job().map_or_else(
            || Plan::rest(""),
            |stuck| self.tell(&self.standing(self.phase_seen(), stuck.reason, stuck.message)),
        );
        self.look_again(plan)
    }

    /// Says what keeps a Job that is being deleted, once that takes long.
    fn stuck_job(&self) -> Option<Obstacle> {
        let mut works = self.observed.imports.iter().chain(&self.observed.probes);
        works.find_map(|work| {
            let since = work.job.metadata.deletion_timestamp.as_ref()?.0;
            let is_long = self.now.duration_since(since) > STUCK_AFTER;
            is_long.then(|| self.silent_node(work).unwrap_or_else(|| held_job(work, since)))
        })
    }

    /// A pod that should be gone by now, the time to end that it was given included, and whose node has not said so.
    fn silent_node(&self, work: &Work) -> Option<Obstacle> {
        work.pods.iter().find_map(|pod| {
            let since = pod.metadata.deletion_timestamp.as_ref()?.0;
            let node = pod.spec.as_ref()?.node_name.as_ref()?;
            let is_silent =
                !jobs::pod_has_ended(pod) && self.now.duration_since(since) > STUCK_AFTER;
            is_silent.then(|| Obstacle {
                reason: Reason::NodeUnreachable,
                message: format!(
                    "node {node} has not said that {} has ended, which should have by {since:.0}; its slot is kept, since it \
                     may still run. If the machine is off: kubectl delete node {node}, or kubectl taint node {node} \
                     node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
                    children::target(&**pod)
                ),
            })
        })
    }

    fn queued(&self, wait: &Wait) -> Plan<VMDiskImageStatus> {
        let (reason, message) = self.waiting_for(wait);
        let standing = Standing {
            is_refused: wait.reason == Reason::NameConflict,
            ..self.standing(Phase::Queued, reason, message)
        };
        let plan = self.tell(&standing);
        let next = wait.until.map_or(Next::Wait, Next::At);
        self.tidy(Plan { next, ..plan }, Tidy::OtherRevisions)
    }

    /// The number ahead is told once, when it is queued: a write per place gained would cost more than it tells. So is
    /// the host: whether slots are free beside it changes with every admission, and both mean the same wait.
    fn waiting_for(&self, wait: &Wait) -> (Reason, String) {
        let status = &self.observed.record.status;
        let told = self.reason_told().filter(|_| status.phase == Some(Phase::Queued));
        let is_host_told = told == Some(Reason::HostBusy.as_str());
        let has_lanes = self.observed.policy.concurrency_per_host.is_some();
        let reason = match wait.reason {
            Reason::SlotsBusy if is_host_told && has_lanes => Reason::HostBusy,
            reason => reason,
        };
        let is_told = told == Some(reason.as_str());
        let is_kept = is_told && matches!(reason, Reason::SlotsBusy | Reason::HostBusy);
        (reason, status.message.clone().filter(|_| is_kept).unwrap_or_else(|| wait.message.clone()))
    }

    fn reason_told(&self) -> Option<&str> {
        let ready = otctl_types::condition::find(
            &self.observed.record.status.conditions,
            otctl_types::condition::READY,
        );
        ready.map(|ready| ready.reason.as_str())
    }

    fn tell(&self, standing: &Standing) -> Plan<VMDiskImageStatus> {
        self.write(with_budget(&self.observed.record), standing)
    }

    fn write(&self, mut memory: VMDiskImageStatus, standing: &Standing) -> Plan<VMDiskImageStatus> {
        let disk_size = self.facts_of(&memory).disk_size().map(policy::quantity::format);
        memory.disk_size = disk_size.or(memory.disk_size);
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
            retaining: self.retaining(),
            has_data: false,
        }
    }

    /// A disk whose size nothing tells is a spec that cannot be acted on.
    fn given_up(&self, end: &Obstacle) -> Standing {
        let is_refused = end.reason == Reason::Import(ImportReason::SizeUnknown);
        let message = self.with_way_out(&end.message);
        Standing { is_refused, ..self.failed(Obstacle { message, ..end.clone() }) }
    }

    /// What stopped it for good, and what a person types once that is mended.
    fn with_way_out(&self, cause: &str) -> String {
        let (name, namespace) = (self.image.name_any(), self.image.namespace());
        format!(
            "{}; once that is mended, if not by an edit of the spec: kubectl annotate vmdi {name} -n {} {RETRY_ANNOTATION}=$(date +%s) --overwrite",
            cause.trim_end_matches('.'),
            namespace.unwrap_or_default()
        )
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

    fn retaining(&self) -> Option<String> {
        let retaining = &self.observed.around.retaining;
        self.observed.snapshot_class().filter(|class| retaining.contains(class))
    }

    fn wants_snapshot(&self) -> bool {
        self.observed.snapshot_class().is_some()
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
            snapshot_class: self.observed.snapshot_class(),
            restore_size: self.restore_size(),
        }
    }

    /// The smallest claim that can be made from the snapshot.
    fn restore_size(&self) -> Option<u64> {
        let known =
            self.observed.record.status.current.as_ref().and_then(|current| current.minimum_size);
        let known = known.and_then(|bytes| u64::try_from(bytes).ok());
        let snapshot = self.observed.snapshot.object().map(|snapshot| &**snapshot);
        snapshot.and_then(children::restore_size).max(known)
    }

    /// The facts with the hashes that `current`, the snapshot or the claim remembers.
    fn facts_kept(&self) -> Facts<'a> {
        let (checksum, disk_checksum) = children::kept_hashes(self.observed);
        Facts { checksum, disk_checksum, ..self.facts_of(&self.observed.record.status) }
    }
}

/// A Job that is on its way out since then, and what keeps it.
fn held_job(work: &Work, since: Timestamp) -> Obstacle {
    let job = held(&children::target(&*work.job), &work.job.metadata);
    let pods = work.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    let pods = pods.map(|pod| held(&children::target(&**pod), &pod.metadata));
    let held: Vec<String> = std::iter::once(job).chain(pods).collect();
    Obstacle {
        reason: Reason::Stopping,
        message: format!(
            "{}, deleted since {since:.0}; its slot is kept until that is gone",
            held.join(", and ")
        ),
    }
}

/// An object that is on its way out, and the finalizers that keep it.
fn held(target: &Target, metadata: &ObjectMeta) -> String {
    let held_by = metadata.finalizers.clone().unwrap_or_default().join(", ");
    format!("{target} is held by the finalizers {held_by}")
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

#[cfg(test)]
mod tests;
