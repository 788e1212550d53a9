//! From the verdict to the plan: which writes, which status, which Events, when to look again.

mod refused;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::plan::{Action, Next, Notice, Plan, Write};
use otctl_types::Workspace;
use otctl_types::condition::{self, CONTAINERS_READY, READY, Reason, VIRTUAL_MACHINES_READY};
use otctl_types::names::WORKSPACE_FINALIZER;
use otctl_types::workspace::{DiskOrigin, OpenTurn, Phase, WorkspaceStatus};
use serde_json::json;

use super::observe::Observed;
use super::status::{Standing, is_news, is_on_its_way, render};
use super::verdict::{self, Start, Verdict, judge};
use super::works::{self, Writes};
use crate::parts;
use crate::queue::LOOK_AGAIN;

pub use self::refused::refused;

/// What to write.
pub fn decide(observed: &Observed, now: Timestamp) -> Plan<WorkspaceStatus> {
    let Some(workspace) = &observed.workspace else {
        return Plan::rest("Gone");
    };
    let pass = Pass { workspace, observed, now };
    let verdict = judge(observed, now);
    if verdict == Verdict::Unticketed {
        return Plan::rest(verdict.name());
    }
    pass.plan(&verdict, works::works(workspace, observed, &verdict))
}

/// One pass over one workspace.
struct Pass<'a> {
    workspace: &'a Workspace,
    observed: &'a Observed,
    now: Timestamp,
}

impl Pass<'_> {
    fn plan(&self, verdict: &Verdict, works: Writes) -> Plan<WorkspaceStatus> {
        let status = self.render(verdict, &self.standing(verdict, &works));
        let mut writes = Vec::new();
        if let Verdict::Opening(_) = verdict {
            // On record before anything is made: from here on the slot is used.
            let because = "it was admitted";
            writes.push(Write { action: Action::Remember(json!(status)), because });
        } else if let Some(memory) = self.forgets(verdict, &status) {
            let because = "what comes back under its name takes a slot";
            writes.push(Write { action: Action::Remember(json!(memory)), because });
        }
        writes.extend(works.first);
        Plan {
            verdict: verdict.name(),
            writes,
            lanes: works.lanes,
            notices: self.notices(verdict, &status),
            status: self.tells(verdict, &status).then_some(status),
            clear: Vec::new(),
            next: self.next(verdict),
        }
    }

    /// What is remembered less than before: of what is about to be deleted, that it had its start. Were it told afterwards,
    /// and somebody quick to ask for it again, it would be healed without a slot. What is to stop waits for no word of it.
    fn forgets(&self, verdict: &Verdict, after: &WorkspaceStatus) -> Option<WorkspaceStatus> {
        let before = self.workspace.status.as_ref().filter(|_| !self.forgets_starts(verdict))?;
        let has_machine = |status: &WorkspaceStatus, of: &DiskOrigin| {
            status.disks.iter().any(|it| it.entry == of.entry && it.copied)
        };
        let loses_start = before.started_parts.iter().any(|it| !after.started_parts.contains(it));
        let loses_machine =
            before.disks.iter().any(|it| has_machine(before, it) && !has_machine(after, it));
        let is_less = loses_start || loses_machine;
        is_less.then(|| WorkspaceStatus {
            started_parts: after.started_parts.clone(),
            started_machines: after.started_machines.clone(),
            disks: after.disks.clone(),
            ..before.clone()
        })
    }

    /// With its last finalizer gone nobody is there to be told. While somebody else's keeps it, its turn is to end.
    fn tells(&self, verdict: &Verdict, status: &WorkspaceStatus) -> bool {
        let mut finalizers = self.workspace.finalizers().iter();
        let is_kept = finalizers.any(|it| *it != WORKSPACE_FINALIZER)
            || self.observed.has_finalizer() && !self.observed.are_pods_gone;
        let is_going = *verdict == Verdict::Leaving && !is_kept;
        !is_going && is_news(self.workspace.status.as_ref(), status)
    }

    /// Whether nothing has had its start any more after this pass, since all of it stops: what is resumed takes a slot. One
    /// that nothing may be written for runs on.
    fn forgets_starts(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Suspended => true,
            Verdict::Invalid(lack) => {
                self.workspace.spec.suspended && lack.reason != Reason::NamespaceNotAllowed
            }
            Verdict::Gone
            | Verdict::Leaving
            | Verdict::Unticketed
            | Verdict::Waiting(_)
            | Verdict::Opening(_)
            | Verdict::Building
            | Verdict::Yielding(_)
            | Verdict::Settling(_)
            | Verdict::Tending => false,
        }
    }

    fn standing(&self, verdict: &Verdict, works: &Writes) -> Standing {
        Standing {
            verdict: verdict.clone(),
            makes_anything: works.iter().any(works::is_new),
            touched: match verdict {
                // Nothing is made anew.
                Verdict::Leaving => Vec::new(),
                _ => works::touched(self.observed, works),
            },
            trouble: None,
            refused: Vec::new(),
            given_up: BTreeSet::new(),
        }
    }

    fn render(&self, verdict: &Verdict, standing: &Standing) -> WorkspaceStatus {
        render(self.memory(verdict, standing), standing, self.observed, self.now)
    }

    /// What is remembered after this pass.
    fn memory(&self, verdict: &Verdict, standing: &Standing) -> WorkspaceStatus {
        let mut memory = self.workspace.status.clone().unwrap_or_default();
        let had_start = parts::had_start(self.workspace);
        let is_over = |name: &&str| had_start.contains(name) || standing.given_up.contains(*name);
        let names = parts::names(self.workspace);
        memory.started_parts = names.filter(is_over).map(str::to_owned).collect();
        let is_missing = |name: &String| {
            parts::names(self.workspace).any(|it| it == name) && !self.observed.has_address(name)
        };
        memory.unreachable_parts.retain(is_missing);
        memory.disks = self.observed.disks(standing);
        self.use_up(&mut memory);
        if !verdict.keeps_turn() {
            memory.open_turn = None;
        }
        if let Verdict::Opening(number) = verdict {
            memory.open_turn = Some(OpenTurn { number: *number, since: Time(self.now) });
        }
        if let Verdict::Settling(_) = verdict {
            memory.started_parts = parts::names(self.workspace).map(str::to_owned).collect();
        }
        if self.forgets_starts(verdict) {
            memory.started_parts.clear();
        }
        let waits_for_nothing = parts::unstarted(self.workspace).next().is_none();
        if waits_for_nothing || matches!(verdict, Verdict::Settling(_)) {
            // What is added later comes behind those who wait by then.
            (memory.ticket, memory.queued_at) = (None, None);
        }
        memory.started_machines = parts::machines_among(self.workspace, &memory.started_parts);
        let is_refused =
            matches!(verdict, Verdict::Invalid(lack) if lack.reason == Reason::NamespaceNotAllowed);
        if !is_refused {
            memory.namespace = Some(self.observed.namespace.clone());
        }
        memory
    }

    /// The number of a slot that is held and was not used is used up; the place in the line stays. A first ticket may stand in
    /// the entry alone. One that is to stop gives its place up.
    fn use_up(&self, memory: &mut WorkspaceStatus) {
        let Some(number) = self.observed.held() else { return };
        memory.last_turn = Some(number);
        let entry = self.observed.entry.as_ref().filter(|_| !self.workspace.spec.suspended);
        if memory.ticket.is_none() {
            memory.ticket = entry.map(|entry| entry.ticket.clone());
        }
    }

    fn next(&self, verdict: &Verdict) -> Next {
        let of_turn = match verdict {
            Verdict::Opening(_) => self.now.checked_add(self.patience()).ok(),
            Verdict::Building => verdict::deadline(self.workspace, self.observed),
            Verdict::Leaving => return self.next_of_departure(),
            Verdict::Gone
            | Verdict::Invalid(_)
            | Verdict::Suspended
            | Verdict::Unticketed
            | Verdict::Waiting(_)
            | Verdict::Yielding(_)
            | Verdict::Settling(_)
            | Verdict::Tending => None,
        };
        of_turn.map_or(Next::Wait, Next::At)
    }

    /// The first pod or part to be late; soon, when the last one is gone from the view and not for the API server, or when nothing can
    /// be seen for now.
    fn next_of_departure(&self) -> Next {
        let awaits_last_pod = self.observed.awaits_last_pod() && !self.observed.are_pods_gone;
        if awaits_last_pod || self.observed.is_cut_off() {
            return Next::At(self.now.checked_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX));
        }
        self.observed.late_at(self.now).map_or(Next::Wait, Next::At)
    }

    fn patience(&self) -> SignedDuration {
        SignedDuration::try_from(self.observed.policy.provisioning_timeout)
            .unwrap_or(SignedDuration::MAX)
    }

    /// Events: one when it is queued or admitted, and one whenever it becomes ready, fails, stops, breaks or is changed, also
    /// during a start, or takes too long to start. What somebody changes is not broken.
    fn notices(&self, verdict: &Verdict, after: &WorkspaceStatus) -> Vec<Notice> {
        let status = self.workspace.status.as_ref();
        let before = status.and_then(|status| status.phase);
        let is_late = *verdict == Verdict::Settling(Start::Late);
        let degrades = is_degraded(after) && !status.is_some_and(is_degraded);
        if after.phase == before && !is_late && !degrades {
            return Vec::new();
        }
        let ready = condition::find(&after.conditions, READY);
        let reason = match (verdict, before) {
            (Verdict::Opening(_), None) => Reason::Admitted.to_string(),
            _ if is_late => Reason::ProvisioningTimedOut.to_string(),
            _ => ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
        };
        let broke = before == Some(Phase::Ready)
            && after.phase == Some(Phase::Provisioning)
            && !is_on_its_way(&reason);
        vec![Notice {
            warning: is_late || broke || degrades || after.phase == Some(Phase::Failed),
            reason,
            action: "Provision",
            message: after.message.clone().unwrap_or_default(),
            regarding: None,
        }]
    }
}

/// Whether a part is broken, and not only on its way: one that runs and is not ready may be either.
fn is_degraded(status: &WorkspaceStatus) -> bool {
    let of = |kind: &str| condition::find(&status.conditions, kind);
    let is_open = |reason: &str| is_on_its_way(reason) || reason == Reason::NotReady.as_str();
    let is_broken =
        |kind: &&str| of(kind).is_some_and(|it| it.status == "False" && !is_open(&it.reason));
    of(READY).is_some_and(|ready| ready.reason == Reason::Degraded.as_str())
        && [VIRTUAL_MACHINES_READY, CONTAINERS_READY].iter().any(is_broken)
}

#[cfg(test)]
mod tests;
