//! What goes: children of entries that were removed, and everything when the workspace is deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Resource, ResourceExt};
use otctl_kit::plan::Write;
use otctl_types::Workspace;

use super::Works;
use super::write::{delete, delete_after_pods, finalize, stays};
use crate::family::{ChildKind, Family};
use crate::kin;
use crate::workspace::observe::Observed;

impl Works<'_> {
    /// Children of entries that are not in the spec any more.
    pub(super) fn removals(&self) -> Vec<Write> {
        let because = "its entry was removed";
        let mut writes = of_workloads(self.observed, &self.observed.needs.family, because);
        let is_left = |claim: &&PersistentVolumeClaim| {
            stays(*claim) && kin::entry_of_claim(self.workspace, &claim.name_any()).is_none()
        };
        let claims = self.observed.needs.claims.iter().map(|claim| &**claim).filter(is_left);
        writes.extend(claims.map(|claim| delete(claim, because)));
        writes
    }
}

/// The deletions of machines, Deployments and Services that are not among those to keep.
fn of_workloads(observed: &Observed, keep: &Family, because: &'static str) -> Vec<Write> {
    let machines = left(&observed.machines, ChildKind::VirtualMachine, keep);
    let deployments = left(&observed.deployments, ChildKind::Deployment, keep);
    let services = left(&observed.services, ChildKind::Service, keep);
    machines
        .map(|it| delete(it, because))
        .chain(deployments.map(|it| delete_after_pods(it, because)))
        .chain(services.map(|it| delete(it, because)))
        .collect()
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
pub(super) fn departure(workspace: &Workspace, observed: &Observed) -> Vec<Write> {
    if !observed.has_finalizer() {
        return Vec::new();
    }
    if observed.is_cut_off() {
        return Vec::new();
    }
    if !observed.is_within_reach() {
        return vec![finalize(workspace, false, "nothing of it can be seen to any more")];
    }
    let because = "its workspace is being deleted";
    let mut writes = of_workloads(observed, &Family::default(), because);
    if observed.are_pods_gone {
        let policy = observed.own_policy().filter(|it| stays(*it));
        writes.extend(policy.map(|it| delete(it, "the last pod is gone")));
        writes.push(finalize(workspace, false, "nothing is left that must not outlive its policy"));
    }
    writes
}
