//! What goes: children of entries that were removed, and everything when the workspace is deleted.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use otctl_kit::plan::Write;
use otctl_types::Workspace;

use super::Works;
use super::write::{delete, delete_after_pods, finalize, stays};
use crate::kin::{self, Wanted};
use crate::workspace::observe::Observed;

impl Works<'_> {
    /// Children of entries that are not in the spec any more.
    pub(super) fn removals(&self) -> Vec<Write> {
        let because = "its entry was removed";
        let mut writes = of_workloads(self.observed, &kin::of_children(self.workspace), because);
        let is_left = |claim: &&PersistentVolumeClaim| {
            stays(*claim) && kin::entry_of_claim(self.workspace, &claim.name_any()).is_none()
        };
        let claims = self.observed.needs.claims.iter().map(|claim| &**claim).filter(is_left);
        writes.extend(claims.map(|claim| delete(claim, because)));
        writes
    }
}

/// The deletions of machines, Deployments and Services that are not among those to keep.
fn of_workloads(observed: &Observed, keep: &Wanted, because: &'static str) -> Vec<Write> {
    let machines = observed.machines.iter().map(|it| &**it).filter(|it| stays(*it));
    let machines = machines.filter(|it| !keep.machines.contains(&it.name_any()));
    let mut writes: Vec<Write> = machines.map(|it| delete(it, because)).collect();
    let deployments = observed.deployments.iter().map(|it| &**it).filter(|it| stays(*it));
    let deployments = deployments.filter(|it| !keep.deployments.contains(&it.name_any()));
    writes.extend(deployments.map(|it| delete_after_pods(it, because)));
    let services = observed.services.iter().map(|it| &**it).filter(|it| stays(*it));
    let services = services.filter(|it| !keep.services.contains(&it.name_any()));
    writes.extend(services.map(|it| delete(it, because)));
    writes
}

/// The deletions of a workspace that goes: workloads and Services; when no pod is left, the policy, and the finalizer. In a
/// namespace that is gone, or where the controller has no rights any more, it can see to nothing, and keeps nobody waiting.
pub(super) fn departure(workspace: &Workspace, observed: &Observed) -> Vec<Write> {
    if !observed.has_finalizer() {
        return Vec::new();
    }
    if !observed.is_within_reach() {
        return vec![finalize(workspace, false, "nothing of it can be seen to any more")];
    }
    let because = "its workspace is being deleted";
    let mut writes = of_workloads(observed, &Wanted::default(), because);
    if observed.are_pods_gone {
        let policy = observed.own_policy().filter(|it| stays(*it));
        writes.extend(policy.map(|it| delete(it, "the last pod is gone")));
        writes.push(finalize(workspace, false, "nothing is left that must not outlive its policy"));
    }
    writes
}
