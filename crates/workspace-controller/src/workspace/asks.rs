//! What is asked of the API server before a decision, since the watches do not tell it, or may tell it late. Both questions
//! are about what is known so far, and neither runs the decision: asked once too often costs a read, not asked makes
//! something in a namespace that is going, or lets a pod outlive its policy.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use otctl_types::Workspace;

use super::observe::Observed;
use crate::grounds::Ground;
use crate::images::Disk;
use crate::parts;

impl Observed {
    /// Whether the namespace is to be asked whether it takes anything new: before something may be made in it, or all of it
    /// goes.
    pub fn asks_for_ground(&self) -> bool {
        let Some(workspace) = &self.workspace else { return false };
        match workspace.metadata.deletion_timestamp {
            Some(_) => self.takes_leave(),
            None => self.may_make(workspace),
        }
    }

    /// Whether nothing is seen of a workspace that goes any more but its policy: then pods are asked for, once it is known
    /// that the namespace is within reach.
    pub fn awaits_last_pod(&self) -> bool {
        self.takes_leave() && self.is_within_reach() && !self.has_workloads()
    }

    /// Whether it is deleted, and its policy is to outlive its pods.
    fn takes_leave(&self) -> bool {
        let mut workspace = self.workspace.iter();
        let is_leaving = workspace.any(|workspace| workspace.metadata.deletion_timestamp.is_some());
        is_leaving && self.has_finalizer() && self.is_served()
    }

    /// Whether something is missing that this pass may make, or that is made of what it keeps. A namespace that takes nothing
    /// new is asked for by a loop of its own, and one that is not to be used by nobody: the answer would be that it may not
    /// be.
    fn may_make(&self, workspace: &Workspace) -> bool {
        let is_allowed = self.site.problem_of_namespace(&self.namespace).is_none();
        let due = self.due(workspace);
        self.ground == Ground::Firm
            && is_allowed
            && (self.lacks_child(&due)
                || self.lacks_image(workspace, &due)
                || self.lacks_pods(workspace, &due))
    }

    /// The entries that are kept as they should be. What waits in line, or is at rest, is left alone.
    fn due<'a>(&self, workspace: &'a Workspace) -> BTreeSet<&'a str> {
        let started = parts::started(workspace);
        let has_turn = self.has_open_turn() || self.held().is_some();
        let is_stopped = |entry: &str| workspace.spec.suspended && self.has_child(entry);
        let is_due = |entry: &&str| {
            (has_turn || started.contains(entry) || is_stopped(entry))
                && !self.needs.family.is_taken(Some(entry))
        };
        parts::names(workspace).filter(is_due).collect()
    }

    /// A name that is somebody else's is waited for.
    fn lacks_child(&self, due: &BTreeSet<&str>) -> bool {
        let runs = !due.is_empty() || self.has_workloads();
        let mut family = self.needs.family.iter().filter(|child| {
            let is_due = child.entry.as_deref().map_or(runs, |entry| due.contains(entry));
            is_due && !child.is_taken && (self.needs.has_kubevirt || !child.kind.needs_kubevirt())
        });
        family.any(|child| !self.has(child))
    }

    /// Made for whoever waits for it.
    fn lacks_image(&self, workspace: &Workspace, due: &BTreeSet<&str>) -> bool {
        let mut machines = workspace.spec.virtual_machines.iter();
        machines.any(|entry| {
            due.contains(&*entry.name) && self.needs.disks.get(&entry.name) == Some(&Disk::ToMake)
        })
    }

    /// Whether pods of what had its start are missing. A namespace that is going lets no new ones in, and says so to those
    /// who ask: what makes them, and is left in it until the last pod is gone, keeps silent. Pods that are there and broken
    /// say nothing of it.
    fn lacks_pods(&self, workspace: &Workspace, due: &BTreeSet<&str>) -> bool {
        let started = parts::started(workspace);
        let mut due = due.intersection(&started);
        due.any(|entry| self.deployment(entry).is_some_and(|it| self.is_short(entry, it)))
    }

    fn is_short(&self, entry: &str, deployment: &Deployment) -> bool {
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.as_ref();
        let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
        let pods = self.pods_of(entry).into_iter();
        let stay = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
        wanted > available && i32::try_from(stay).is_ok_and(|stay| wanted > stay)
    }
}

#[cfg(test)]
mod tests;
