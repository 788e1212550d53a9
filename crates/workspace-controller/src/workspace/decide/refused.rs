//! What is told where writes were refused, and what it means for the turn.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reconciler::{Refusal, RefusalCause, Told, Undone};
use otctl_types::condition::{self, Finding, READY, Reason};
use otctl_types::workspace::{Phase, WorkspaceStatus};
use otctl_types::{VMDiskImage, Workspace};

use super::Pass;
use crate::family::{Child, ChildKind};
use crate::images::Lack;
use crate::kin::{self, Whose};
use crate::machines::VirtualMachine;
use crate::needs::{name_conflict, of_earlier};
use crate::parts;
use crate::workspace::observe::Observed;
use crate::workspace::status::{Standing, Trouble, render};
use crate::workspace::verdict::{self, Start, Verdict, judge};
use crate::workspace::works::{self, Writes};

const DEFECT: &str = "the controller met a defect of its own when it decided about this workspace: nothing is changed, and it is looked at again at least every 15 min; others go on. Please report it with the controller's log";

/// Writes were refused: the reason stands where people look, and the rest as it is. What was to be made or changed is not
/// as it should be, whatever it says of itself.
pub fn refused(
    observed: &Observed,
    undone: &Undone<'_>,
    now: Timestamp,
) -> Option<Told<WorkspaceStatus>> {
    let workspace = observed.workspace.as_ref()?;
    let pass = Pass { workspace, observed, now };
    if undone.refusals().any(|it| matches!(it.cause, RefusalCause::Panicked { .. })) {
        return Some(Told { status: pass.told_defect(), notices: Vec::new() });
    }
    let judged = judge(observed, now);
    let works = works::works(workspace, observed, &judged);
    let given_up = pass.given_up(undone);
    // The others go on in their turn; without any, a slot pays for nothing any more.
    let is_all = parts::unstarted(workspace).all(|entry| given_up.contains(entry));
    let verdict = match judged {
        Verdict::Opening(_) | Verdict::Building if is_all => Verdict::Settling(Start::Refused),
        judged => judged,
    };
    // What was made all the same is remembered once it is seen.
    let seen = Standing { given_up, ..pass.standing(&verdict, &Writes::default()) };
    let mut memory = pass.memory(&verdict, &seen);
    let planned = pass.standing(&verdict, &works);
    let refused = pass.refused_children(undone);
    // Nobody is to wait for an address that is not to be had.
    let services = refused.iter().filter(|(child, _)| child.kind == ChildKind::Service);
    memory.unreachable_parts.extend(services.filter_map(|(child, _)| child.entry.clone()));
    memory.unreachable_parts.sort();
    memory.unreachable_parts.dedup();
    let standing = Standing {
        trouble: Some(trouble_of(undone, workspace)),
        touched: planned.touched.into_iter().chain(pass.children(undone)).collect(),
        refused,
        ..planned
    };
    let status = render(memory, &standing, observed, now);
    // Told once: the next pass is after that end.
    let is_late = verdict == Verdict::Settling(Start::Late);
    let notices = if is_late { pass.notices(&verdict, &status) } else { Vec::new() };
    Some(Told { status, notices })
}

/// What stands for all of it: of a suspended workspace what keeps it from stopping, else what only a person can help with,
/// else what was refused first. How many others there are is told with it.
fn trouble_of(undone: &Undone<'_>, workspace: &Workspace) -> Trouble {
    let kinds = [Deployment::kind(&()), VirtualMachine::kind(&())];
    let has_pods = |target: &Target| kinds.iter().any(|kind| *kind == target.resource.kind);
    let rank = |(target, trouble): &(&Target, Trouble)| {
        (!(workspace.spec.suspended && has_pods(target)), trouble.stall.is_none())
    };
    let troubles = || undone.refusals().map(|it| (it.target, trouble(it, workspace)));
    let first = troubles().min_by_key(rank).map(|(_, trouble)| trouble);
    let mut first = first.unwrap_or_else(|| trouble(&undone.first, workspace));
    first.stall = troubles().find_map(|(_, trouble)| trouble.stall);
    match undone.others.len() {
        0 => {}
        1 => first.lack.message.push_str("; and 1 other write was refused"),
        more => first.lack.message.push_str(&format!("; and {more} other writes were refused")),
    }
    first
}

fn trouble(refusal: &Refusal<'_>, workspace: &Workspace) -> Trouble {
    let target = refusal.target;
    let (reason, message, is_final) = match refusal.cause {
        RefusalCause::Foreign(found) => return in_the_way(target, kin::whose(found, workspace)),
        RefusalCause::Api(ApiError::Forbidden { detail, quota: true, .. }) => {
            (Reason::QuotaExceeded, format!("{target} was refused by a quota: {detail}"), false)
        }
        RefusalCause::Api(ApiError::Forbidden { detail, namespace_terminating: true, .. }) => {
            (Reason::NamespaceTerminating, format!("{target} was refused: {detail}"), false)
        }
        RefusalCause::Api(error @ ApiError::Invalid { .. }) => {
            (Reason::Rejected, format!("{target} was refused by the API server: {error}"), true)
        }
        RefusalCause::Api(error) => {
            (Reason::Rejected, format!("{target} was refused by the API server: {error}"), false)
        }
        // Told by itself.
        RefusalCause::Panicked { .. } => (Reason::InternalError, DEFECT.to_owned(), false),
    };
    Trouble::new(Lack { reason, message }, is_final)
}

/// What the watches have not told yet: there is an object of that name.
fn in_the_way(target: &Target, whose: Whose) -> Trouble {
    match whose {
        Whose::Left => Trouble::new(of_earlier(target), false),
        Whose::Ours | Whose::Orphaned | Whose::Foreign => Trouble::new(name_conflict(target), true),
    }
}

impl Pass<'_> {
    /// A defect of ours kept it from being decided about. Only what cannot fail is looked at: no state is judged and nothing
    /// is aggregated. A slot that was not used yet is given back, and one in use when its time is over.
    fn told_defect(&self) -> WorkspaceStatus {
        let mut told = self.workspace.status.clone().unwrap_or_default();
        self.use_up(&mut told);
        if verdict::deadline(self.workspace, self.observed).is_some_and(|at| at <= self.now) {
            told.open_turn = None;
        }
        let generation = self.workspace.metadata.generation;
        let finding = Finding::new(false, Reason::InternalError, DEFECT);
        let at = Time(self.now);
        let ready = condition::condition(READY, &finding, generation, &told.conditions, &at);
        match told.conditions.iter_mut().find(|it| it.type_ == READY) {
            Some(found) => *found = ready,
            None => told.conditions.push(ready),
        }
        told.message = Some(DEFECT.to_owned());
        told.phase = told.phase.or(Some(Phase::Provisioning));
        told
    }

    /// Entries that have not had their start, and whose start is over: something of theirs is called invalid, and is refused
    /// again until somebody changes something; or the policy is, without which nothing of theirs is made.
    fn given_up(&self, undone: &Undone<'_>) -> BTreeSet<String> {
        let is_invalid =
            |it: &&Refusal<'_>| matches!(it.cause, RefusalCause::Api(ApiError::Invalid { .. }));
        let refused: Vec<&Target> =
            undone.refusals().filter(is_invalid).map(|it| it.target).collect();
        let of_family = || {
            let family = self.observed.needs.family.iter();
            family.filter(|child| refused.contains(&&child.target(&self.observed.namespace)))
        };
        let is_policy_refused = of_family().any(|child| child.kind == ChildKind::NetworkPolicy);
        let is_given_up = |entry: &&str| {
            of_family().any(|child| child.is_of(entry))
                || self.is_image_among(entry, &refused)
                || is_policy_refused && !self.observed.has_workload(entry)
        };
        parts::unstarted(self.workspace).filter(is_given_up).map(str::to_owned).collect()
    }

    fn is_image_among(&self, entry: &str, targets: &[&Target]) -> bool {
        let mut machines = self.workspace.spec.virtual_machines.iter();
        let machine = machines.find(|machine| machine.name == entry);
        machine.is_some_and(|machine| {
            let (namespace, name) =
                (Some(self.observed.namespace.as_str()), &machine.spec.vm_disk_image_name);
            targets.contains(&&Target::new::<VMDiskImage>(namespace, name))
        })
    }

    /// The children that were not made or changed.
    fn children(&self, undone: &Undone<'_>) -> Vec<Child> {
        let is_undone = |child: &&Child| {
            let target = child.target(&self.observed.namespace);
            undone.children.contains(&&target)
        };
        self.observed.needs.family.iter().filter(is_undone).cloned().collect()
    }

    /// What was refused of children, with what was said of each. What is to go is a child as well: the policy of one that is
    /// not isolated any more, and what ran an entry that is there no more.
    fn refused_children(&self, undone: &Undone<'_>) -> Vec<(Child, Lack)> {
        let refused = undone.refusals().filter_map(|refusal| {
            let is_it = |child: &Child| child.target(&self.observed.namespace) == *refusal.target;
            let wanted = self.observed.needs.family.iter().find(|child| is_it(child)).cloned();
            let leaving = |kind| Some(Child::new(kind, refusal.target.name.clone(), None));
            let left = [ChildKind::NetworkPolicy, ChildKind::Deployment, ChildKind::VirtualMachine];
            let left = || left.into_iter().filter_map(leaving).find(|child| is_it(child));
            Some((wanted.or_else(left)?, trouble(refusal, self.workspace).lack))
        });
        refused.collect()
    }
}
