//! What becomes of the data: the snapshot, the volume, the loss of both, and what is tidied away.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Current, LateSnapshots, Phase, VMDiskImageStatus};

use super::{Pass, create, delete};
use crate::children;
use crate::children::Facts;
use crate::image::close::{self, with_budget};
use crate::image::ending::Ending;
use crate::image::observe::{Lane, Work};
use crate::image::status::Standing;
use crate::image::verdict::{Verdict, judge, keeps_volume};
use crate::names::{JobRole, job_name};
use crate::proof::{is_hollow, is_ready};

/// How often the content of a ready snapshot is looked at until both name each other.
const CONTENT_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// What is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tidy {
    /// Children of other revisions only.
    OtherRevisions,
    /// The download, and the volume if it is not kept.
    Leftovers,
    /// The download and the unfinished volume.
    Everything,
}

impl Pass<'_> {
    pub(super) fn fetched(
        &self,
        mut memory: VMDiskImageStatus,
        ending: &Ending,
    ) -> Plan<VMDiskImageStatus> {
        if self.wants_snapshot() {
            return self.snapshot_awaited(memory, self.observed.hall.lane == Lane::Full);
        }
        let facts = Facts {
            checksum: ending.checksum.clone(),
            disk_checksum: ending.disk_checksum.clone(),
            ..self.facts_of(&memory)
        };
        memory.current = Some(children::current(&facts, None, self.now));
        let mut plan = self.write(memory, &self.succeeded());
        plan.writes.extend(self.observed.claim.object().map(|claim| Write {
            action: Action::Apply(children::claim::finished(claim, &facts)),
            because: "the data is complete",
        }));
        self.tidy(plan, Tidy::Leftovers)
    }

    /// Closed without data: one write says so and what follows from it, as the next look would see it.
    pub(super) fn after_failure(&self, memory: VMDiskImageStatus) -> Plan<VMDiskImageStatus> {
        let mut after = self.observed.clone();
        after.record = self.observed.record.with(memory.clone());
        after.entry = None;
        after.imports.clear();
        let pass = Pass { observed: &after, ..*self };
        let mut plan = match judge(&after, self.now) {
            // What was just written down as lost is not lost again.
            Verdict::Lost => Plan::rest(""),
            verdict @ Verdict::GivenUp(_) => {
                let mut plan = pass.plan(verdict);
                plan.clear.extend(self.spent_imports(Tidy::Everything));
                plan
            }
            verdict => pass.plan(verdict),
        };
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

    pub(super) fn snapshotting(
        &self,
        is_missing: bool,
        trouble: Option<&str>,
        late_at: Option<Timestamp>,
    ) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        // One that is cut again is not ready because the last one was.
        if let Some(current) = &mut memory.current {
            forget_snapshot(current);
        }
        memory.next_retry_at = None;
        let mut plan = self.write(memory, &self.being_snapshotted(trouble));
        plan.next = late_at.map_or(Next::Wait, Next::At);
        // Nobody watches contents: one that is bound late, or anew, is found by looking.
        if self.observed.snapshot.object().is_some_and(|snapshot| is_ready(snapshot)) {
            let soon = self.now.checked_add(CONTENT_INTERVAL).unwrap_or(Timestamp::MAX);
            plan.next = plan.next.or(Next::At(soon));
        }
        if is_missing {
            plan.writes.push(create(
                &children::snapshot::snapshot(&self.facts_kept()),
                "the data is complete and the queue lists it",
            ));
        }
        plan
    }

    fn being_snapshotted(&self, trouble: Option<&str>) -> Standing {
        let (reason, message) = match trouble {
            // Only what is shown depends on this word of gRPC, which drivers hand through.
            Some(trouble) if trouble.contains("code = ResourceExhausted") => (
                Reason::SnapshotThrottled,
                format!(
                    "the snapshot waits for the storage's own limits; its driver says: {trouble}"
                ),
            ),
            Some(trouble) => (
                Reason::SnapshotFailed,
                format!("the snapshot is not ready yet; its driver says: {trouble}"),
            ),
            None => (Reason::Snapshotting, "the snapshot is being taken".to_owned()),
        };
        Standing { has_data: true, ..self.standing(Phase::Snapshotting, reason, message) }
    }

    /// The data is complete and its snapshot was not asked for yet.
    pub(super) fn snapshot_queued(&self, is_full: bool) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        if let Some(current) = &mut memory.current {
            forget_snapshot(current);
        }
        memory.next_retry_at = None;
        self.snapshot_awaited(memory, is_full)
    }

    /// While there is room the next look asks for it, so no more is said than that it is being taken.
    fn snapshot_awaited(
        &self,
        memory: VMDiskImageStatus,
        is_full: bool,
    ) -> Plan<VMDiskImageStatus> {
        let throttled = || {
            let limit = self.observed.policy.snapshot_concurrency;
            let message = format!(
                "the data is complete; its snapshot waits, since {limit} are being taken, as many as snapshotConcurrency of \
                 the policy allows"
            );
            let standing = self.standing(Phase::Snapshotting, Reason::SnapshotThrottled, message);
            Standing { has_data: true, ..standing }
        };
        let standing = if is_full { throttled() } else { self.being_snapshotted(None) };
        self.write(memory, &standing)
    }

    /// Replaced without a new download: on record first, so that none is counted twice.
    pub(super) fn snapshot_late(
        &self,
        trouble: Option<&str>,
        is_noted: bool,
    ) -> Plan<VMDiskImageStatus> {
        let mut memory = with_budget(&self.observed.record);
        let (replaced, _) = self.observed.record.late_snapshots();
        let snapshot = self.observed.snapshot.object();
        let uid = snapshot.and_then(|snapshot| snapshot.uid()).unwrap_or_default();
        let count = if is_noted { replaced } else { replaced.saturating_add(1) };
        memory.late_snapshots = Some(LateSnapshots {
            count: i32::try_from(count).unwrap_or(i32::MAX),
            last_uid: uid.clone(),
        });
        let message = format!(
            "{}; it is replaced, {count} of {} times",
            self.lateness(trouble),
            self.observed.policy.retry_limit
        );
        let standing = Standing {
            has_data: true,
            ..self.standing(Phase::Snapshotting, Reason::SnapshotFailed, message)
        };
        let mut plan = self.write(memory, &standing);
        let is_going =
            snapshot.is_none_or(|snapshot| snapshot.metadata.deletion_timestamp.is_some());
        if let Some(snapshot) = snapshot.filter(|_| !is_going) {
            let target = children::target(&**snapshot);
            // One that has become ready since it was seen may be the only copy by now.
            let version = snapshot.metadata.resource_version.clone();
            plan.clear.push(delete(target, &uid, version, "it was not ready in time"));
        }
        plan
    }

    pub(super) fn snapshot_given_up(
        &self,
        trouble: Option<&str>,
        replaced: u32,
    ) -> Plan<VMDiskImageStatus> {
        let late = self.lateness(trouble);
        let message = self
            .with_way_out(&format!("{late}, and {replaced} before it neither; the data is kept"));
        let standing = Standing {
            has_data: true,
            ..self.standing(Phase::Failed, Reason::SnapshotFailed, message)
        };
        self.tell(&standing)
    }

    fn lateness(&self, trouble: Option<&str>) -> String {
        let limit = policy::duration::format(self.observed.policy.snapshot_timeout);
        let said = trouble.map_or("its driver says nothing".to_owned(), |trouble| {
            format!("its driver says: {trouble}")
        });
        format!("the snapshot was not ready within {limit}; {said}")
    }

    /// When a snapshot that was refused is asked for again: after half of the time that the data has waited for it, and
    /// within the bounds of everything that waits.
    pub(super) fn snapshot_again_at(&self) -> Option<Timestamp> {
        let ended = self.observed.record.last_ended().and_then(|last| last.ended_at.as_ref());
        let waited = ended.map_or(SignedDuration::ZERO, |at| self.now.duration_since(at.0));
        let (least, most) = (close::WAITING_BASE, close::WAITING_MAX);
        let wait = waited.unsigned_abs().div_f64(2.0).clamp(least, most);
        self.now.checked_add(wait).ok()
    }

    pub(super) fn restoring(&self, is_missing: bool) -> Plan<VMDiskImageStatus> {
        let standing = Standing {
            has_data: true,
            ..self.standing(
                Phase::Snapshotting,
                Reason::Restoring,
                "the volume is brought back from the snapshot",
            )
        };
        let mut plan = self.tell(&standing);
        plan.clear.extend(self.hollow_claim());
        if is_missing {
            plan.writes.push(create(
                &children::claim::restored(&self.facts_kept()),
                "the volume is gone and the snapshot is not",
            ));
        }
        plan
    }

    pub(super) fn lost(&self) -> Plan<VMDiskImageStatus> {
        self.after_failure(close::lose(&self.observed.record, &self.observed.policy, self.now))
    }

    /// A claim with nothing behind it must be gone before there is a new one of its name.
    fn hollow_claim(&self) -> Option<Write> {
        let claim = self.observed.claim.object().filter(|claim| is_hollow(claim))?;
        let is_going = claim.metadata.deletion_timestamp.is_some();
        let uid = claim.uid().unwrap_or_default();
        let version = claim.metadata.resource_version.clone();
        let target = children::target(&**claim);
        (!is_going).then(|| delete(target, &uid, version, "there is no data behind it"))
    }

    /// A snapshot that proves no data must be gone before there is a new volume: it would be cut half full. One that has
    /// become ready since it was seen proves it.
    fn worthless_snapshot(&self) -> Option<Write> {
        let snapshot = self.observed.snapshot.object()?;
        let is_going = snapshot.metadata.deletion_timestamp.is_some();
        let uid = snapshot.metadata.uid.clone().unwrap_or_default();
        let target = children::target(&**snapshot);
        let version = snapshot.metadata.resource_version.clone();
        (!is_going).then(|| delete(target, &uid, version, "its volume went before it was taken"))
    }

    pub(super) fn ready(&self) -> Plan<VMDiskImageStatus> {
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
    pub(super) fn tidy(
        &self,
        mut plan: Plan<VMDiskImageStatus>,
        what: Tidy,
    ) -> Plan<VMDiskImageStatus> {
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
            plan.clear.push(delete(
                children::target(&**claim),
                &uid,
                None,
                "it is no longer needed",
            ));
        }
        plan.clear.extend(self.spent_imports(what));
        // Where nothing is kept and where the image waits, there is no data.
        if what != Tidy::Leftovers {
            plan.writes.extend(self.worthless_snapshot());
        }
        if what == Tidy::OtherRevisions {
            plan.clear.extend(self.hollow_claim());
        }
        for (target, uid) in &observed.outdated {
            plan.clear.push(delete(target.clone(), uid, None, "it is of another revision"));
        }
        plan
    }

    /// Import Jobs that are over, where claims that their pods mount go or are going: a claim stays as long as a pod that
    /// mounts it is there, be it one that has ended, and until then its name cannot be used again. The open attempt's
    /// still has something to tell, unless this very plan closes it.
    pub(super) fn spent_imports(&self, what: Tidy) -> Vec<Write> {
        let open = self.observed.record.status.open_attempt.as_ref();
        let is_open = |work: &Work| {
            open.is_some_and(|open| work.job.uid().as_deref() == Some(open.job_uid.as_str()))
        };
        let is_in_the_way = |work: &Work| {
            what != Tidy::OtherRevisions
                || self.observed.leaving.is_some()
                || !self.is_of_this_revision(work)
        };
        let is_going = |work: &Work| work.job.metadata.deletion_timestamp.is_some();
        let spent = self.observed.imports.iter().filter(|work| {
            let may_tell = what == Tidy::OtherRevisions && is_open(work);
            work.has_ended() && !is_going(work) && !may_tell && is_in_the_way(work)
        });
        let delete = |work: &Work| {
            let uid = work.job.uid().unwrap_or_default();
            delete(children::target(&*work.job), &uid, None, "its pod keeps the claims")
        };
        spent.map(delete).collect()
    }

    fn is_of_this_revision(&self, work: &Work) -> bool {
        let (uid, revision) =
            (self.image.uid().unwrap_or_default(), &self.observed.record.revision);
        let name = job_name(&self.image.name_any(), &uid, revision, JobRole::Import, work.number);
        work.job.name_any() == name
    }
}

/// No snapshot is ready for consumers any more.
fn forget_snapshot(current: &mut Current) {
    (current.snapshot, current.snapshot_uid) = (None, None);
}
