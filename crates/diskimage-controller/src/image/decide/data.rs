//! What becomes of the data: the snapshot, the volume, the loss of both, and what is tidied away.

use kube::ResourceExt;
use otctl_kit::plan::{Action, Plan, Write};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};

use super::{Pass, create, delete};
use crate::children;
use crate::children::Facts;
use crate::image::close::{self, with_budget};
use crate::image::ending::Ending;
use crate::image::observe::Work;
use crate::image::status::Standing;
use crate::image::verdict::{Verdict, judge, keeps_volume};
use crate::names::{JobRole, job_name};
use crate::record::Record;

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
    pub(super) fn after_failure(&self, memory: VMDiskImageStatus) -> Plan<VMDiskImageStatus> {
        let mut after = self.observed.clone();
        after.record = Record { status: memory.clone(), ..self.observed.record.clone() };
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
        trouble: Option<String>,
    ) -> Plan<VMDiskImageStatus> {
        let (reason, message) = match trouble {
            Some(trouble) => (
                Reason::SnapshotFailed,
                format!("the snapshot is not ready yet; its driver says: {trouble}"),
            ),
            None => (Reason::Snapshotting, "the snapshot is being taken".to_owned()),
        };
        let standing =
            Standing { has_data: true, ..self.standing(Phase::Snapshotting, reason, message) };
        let mut memory = with_budget(&self.observed.record);
        // One that is cut again is not ready because the last one was.
        if let Some(current) = memory.current.as_mut().filter(|_| is_missing) {
            current.snapshot = None;
        }
        let mut plan = self.write(memory, &standing);
        if is_missing {
            plan.writes.push(create(
                &children::snapshot::snapshot(&self.facts_kept()),
                "there is data and no snapshot of it",
            ));
        }
        plan
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

    /// A snapshot that proves no data must be gone before there is a new volume: it would be cut half full.
    fn worthless_snapshot(&self) -> Option<Write> {
        let snapshot = self.observed.snapshot.object()?;
        let is_going = snapshot.metadata.deletion_timestamp.is_some();
        let uid = snapshot.metadata.uid.clone().unwrap_or_default();
        let target = children::target(&**snapshot);
        (!is_going).then(|| delete(target, &uid, None, "its volume went before it was taken"))
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
