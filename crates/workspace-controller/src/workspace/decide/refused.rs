//! What is told where writes were refused, and what it means for the turn.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Resource;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reconciler::{Refusal, RefusalCause, Told, Undone};
use otctl_types::condition::Reason;
use otctl_types::workspace::WorkspaceStatus;
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
use crate::workspace::verdict::{Start, Verdict, judge};
use crate::workspace::works::{self, Writes};

/// Writes were refused: the reason stands where people look, and the rest as it is. What was to be made or changed is not
/// as it should be, whatever it says of itself.
pub fn refused(
    observed: &Observed,
    undone: &Undone<'_>,
    now: Timestamp,
) -> Option<Told<WorkspaceStatus>> {
    let workspace = observed.workspace.as_ref()?;
    let pass = Pass { workspace, observed, now };
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
    let memory = pass.memory(&verdict, &seen);
    let planned = pass.standing(&verdict, &works);
    let standing = Standing {
        trouble: Some(trouble_of(undone, workspace)),
        touched: planned.touched.into_iter().chain(pass.children(undone)).collect(),
        refused: pass.refused_children(undone),
        ..planned
    };
    let status = render(memory, &standing, observed, now);
    // Told once: the next pass is after that end.
    let is_late = verdict == Verdict::Settling(Start::Late);
    let notices = if is_late { pass.notices(&verdict, &status) } else { Vec::new() };
    Some(Told { status, notices })
}

/// What stands for all of it: what only a person can help with; of those, what keeps a suspended workspace from stopping, and
/// else what was refused first. How many others there are is told with it.
fn trouble_of(undone: &Undone<'_>, workspace: &Workspace) -> Trouble {
    let has_pods = |target: &Target| {
        [Deployment::kind(&()), VirtualMachine::kind(&())]
            .contains(&target.resource.kind.as_str().into())
    };
    let rank = |(target, trouble): &(&Target, Trouble)| {
        (!trouble.is_final, !(workspace.spec.suspended && has_pods(target)))
    };
    let troubles = undone.refusals().map(|it| (it.target, trouble(it, workspace)));
    let first = troubles.min_by_key(rank).map(|(_, trouble)| trouble);
    let mut first = first.unwrap_or_else(|| trouble(&undone.first, workspace));
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
        RefusalCause::Panicked { .. } => (
            Reason::InternalError,
            "the controller met a defect of its own when it decided about this workspace: nothing is changed, and it is looked at again at least every 15 min; others go on. Please report it with the controller's log".to_owned(),
            false,
        ),
    };
    Trouble { lack: Lack { reason, message }, is_final }
}

/// What the watches have not told yet: there is an object of that name.
fn in_the_way(target: &Target, whose: Whose) -> Trouble {
    match whose {
        Whose::Left => Trouble { lack: of_earlier(target), is_final: false },
        Whose::Ours | Whose::Orphaned | Whose::Foreign => {
            Trouble { lack: name_conflict(target), is_final: true }
        }
    }
}

impl Pass<'_> {
    /// Entries that have not had their start, and whose start is over: something of theirs is called invalid, and is refused
    /// again until somebody changes something; or nothing of theirs runs, and what they wait for is.
    fn given_up(&self, undone: &Undone<'_>) -> BTreeSet<String> {
        let is_invalid =
            |it: &&Refusal<'_>| matches!(it.cause, RefusalCause::Api(ApiError::Invalid { .. }));
        let refused: Vec<&Target> =
            undone.refusals().filter(is_invalid).map(|it| it.target).collect();
        let of_family = || {
            let family = self.observed.needs.family.iter();
            family.filter(|child| refused.contains(&&child.target(&self.observed.namespace)))
        };
        let holds_others = of_family().any(|child| self.holds_others(child));
        let is_given_up = |entry: &&str| {
            of_family().any(|child| child.is_of(entry))
                || self.is_image_among(entry, &refused)
                || holds_others && !self.observed.has_workload(entry)
        };
        parts::unstarted(self.workspace).filter(is_given_up).map(str::to_owned).collect()
    }

    /// Whether workloads of other entries are made only after a child: the policy, and an address that all are told.
    fn holds_others(&self, child: &Child) -> bool {
        match child.kind {
            ChildKind::NetworkPolicy => true,
            ChildKind::Service => {
                child.entry.as_deref().is_some_and(|entry| !self.observed.has_address(entry))
            }
            ChildKind::Deployment | ChildKind::Claim | ChildKind::VirtualMachine => false,
        }
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

    /// Those of them that were refused, with what was said of each.
    fn refused_children(&self, undone: &Undone<'_>) -> Vec<(Child, Lack)> {
        let family = self.observed.needs.family.iter();
        let refused = family.filter_map(|child| {
            let target = child.target(&self.observed.namespace);
            let refusal = undone.refusals().find(|refusal| *refusal.target == target)?;
            Some((child.clone(), trouble(refusal, self.workspace).lack))
        });
        refused.collect()
    }
}
