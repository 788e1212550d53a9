//! What goes: children of entries that were removed, and everything when the workspace is deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Resource, ResourceExt};
use otctl_kit::plan::Write;
use otctl_types::Workspace;

use super::write::{delete, delete_after_pods, finalize};
use super::{Works, Writes};
use crate::family::{ChildKind, Family};
use crate::kin::{self, stays};
use crate::workspace::observe::Observed;

impl Works<'_> {
    /// Children of entries that are not in the spec any more, each on its own. The disk of a machine goes after it: one that
    /// may not be deleted keeps its disk.
    pub(super) fn removals(&self) -> Vec<Vec<Write>> {
        let because = "its entry was removed";
        let keep = &self.observed.needs.family;
        let is_left = |claim: &&PersistentVolumeClaim| {
            stays(*claim) && kin::entry_of_claim(self.workspace, &claim.name_any()).is_none()
        };
        let claims = self.observed.needs.claims.iter().map(|claim| &**claim).filter(is_left);
        let mut claims: Vec<_> = claims.collect();
        let machines = left(&self.observed.machines, ChildKind::VirtualMachine, keep);
        let mut lanes: Vec<Vec<Write>> = machines
            .map(|machine| {
                let disks = claims.extract_if(.., |claim| machine.uses(&claim.name_any()));
                let disks = disks.map(|claim| delete(claim, because));
                std::iter::once(delete(machine, because)).chain(disks).collect()
            })
            .collect();
        let others = others(self.observed, keep, because);
        lanes.extend(others.chain(claims.iter().map(|it| delete(*it, because))).map(|it| vec![it]));
        lanes
    }
}

/// The deletions of Deployments and Services that are not among those to keep.
fn others<'a>(
    observed: &'a Observed,
    keep: &'a Family,
    because: &'static str,
) -> impl Iterator<Item = Write> + 'a {
    let deployments = left(&observed.deployments, ChildKind::Deployment, keep);
    let services = left(&observed.services, ChildKind::Service, keep);
    deployments
        .map(move |it| delete_after_pods(it, because))
        .chain(services.map(move |it| delete(it, because)))
}

fn left<'a, K: Resource>(
    children: &'a [Arc<K>],
    kind: ChildKind,
    keep: &'a Family,
) -> impl Iterator<Item = &'a K> {
    let staying = children.iter().map(|it| &**it).filter(|it| stays(*it));
    staying.filter(move |it| !keep.wants(kind, &it.name_any()))
}

/// The deletions of a workspace that goes: workloads and Services; when no pod is left, the policy, and the finalizer.
///
/// The policy outlives the pods as long as the controller may look into the namespace, and through a time without that right
/// which is shorter than [`LASTS`](crate::grounds::LASTS): one refusal may come of a binding that is being replaced, and
/// nothing is done until the right is back. In a namespace that is gone, or that the chart lists no more, or where the
/// right has been away for longer, the controller can see to nothing, and keeps nobody waiting: owner references do the rest,
/// and do not know of that order.
///
/// Each workload and Service goes on its own: one that may not be deleted holds no other up, but policy and finalizer, which
/// come when all are gone. One that somebody else's finalizer keeps stops all the same.
pub(super) fn departure(workspace: &Workspace, observed: &Observed) -> Writes {
    if observed.is_cut_off() {
        return Writes::default();
    }
    let finalize =
        |because| observed.has_finalizer().then(|| finalize(workspace, false, because)).into_iter();
    if !observed.is_within_reach() {
        let first = finalize("nothing of it can be seen to any more").collect();
        return Writes { first, lanes: Vec::new() };
    }
    let because = "its workspace is being deleted";
    let keep = Family::default();
    let machines = left(&observed.machines, ChildKind::VirtualMachine, &keep);
    let machines = machines.map(|it| delete(it, because));
    let parts = machines.chain(others(observed, &keep, because));
    if !observed.are_pods_gone {
        return Writes { first: Vec::new(), lanes: parts.map(|write| vec![write]).collect() };
    }
    let policy = observed.own_policy().filter(|it| stays(*it));
    let policy = policy.map(|it| delete(it, "the last pod is gone"));
    let last = finalize("nothing is left that must not outlive its policy");
    let last = policy.into_iter().chain(last);
    Writes { first: parts.chain(last).collect(), lanes: Vec::new() }
}
