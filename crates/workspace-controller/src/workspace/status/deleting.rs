//! `Deleting`: what a workspace that goes still waits for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use otctl_types::condition::{Finding, Reason};
use otctl_types::names::WORKSPACE_FINALIZER;

use super::Sight;
use crate::workspace::observe::Observed;
use crate::workspace::verdict::Verdict;

/// What was to have ended so long ago is held up by something.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// When an object that is being deleted is late.
fn overdue_at(object: &ObjectMeta) -> Option<Timestamp> {
    let due = object.deletion_timestamp.as_ref()?.0;
    Some(due.checked_add(GRACE).unwrap_or(Timestamp::MAX))
}

fn is_overdue(object: &ObjectMeta, now: Timestamp) -> bool {
    overdue_at(object).is_some_and(|at| at <= now)
}

impl Observed {
    /// When the next pod or part that is on its way out is late.
    pub fn late_at(&self, now: Timestamp) -> Option<Timestamp> {
        let pods = self.pods.iter().map(|pod| &pod.metadata);
        let all = pods.chain(self.parts_left().map(|(_, part)| part));
        all.filter_map(overdue_at).filter(|at| *at > now).min()
    }

    /// What makes pods, and what they are reached by, as far as it is still there.
    fn parts_left(&self) -> impl Iterator<Item = (&'static str, &ObjectMeta)> {
        self.workloads_left().chain(metadata("Service", &self.services))
    }

    /// What makes pods, as far as it is there.
    pub fn workloads_left(&self) -> impl Iterator<Item = (&'static str, &ObjectMeta)> {
        let machines = metadata("VirtualMachine", &self.machines);
        machines.chain(metadata("Deployment", &self.deployments))
    }
}

fn metadata<'a, K: Resource>(
    kind: &'static str,
    objects: &'a [Arc<K>],
) -> impl Iterator<Item = (&'static str, &'a ObjectMeta)> {
    objects.iter().map(move |object| (kind, object.meta()))
}

/// A part, and what keeps it.
pub(super) fn with_finalizers((kind, part): (&str, &ObjectMeta)) -> String {
    let name = part.name.as_deref().unwrap_or_default();
    let finalizers = part.finalizers.as_deref().unwrap_or_default().join(", ");
    format!("{kind} {name} (finalizers: {finalizers})")
}

impl Sight<'_> {
    pub(super) fn deleting(&self) -> Option<Finding> {
        let is_leaving = self.standing.verdict == Verdict::Leaving;
        is_leaving.then(|| Finding::new(true, Reason::Deleting, self.whats_left()))
    }

    fn whats_left(&self) -> String {
        let of_trouble = self.standing.trouble.as_ref().map(|trouble| trouble.lack.message.clone());
        let is_cut_off = self.observed.is_cut_off();
        let of_reach = is_cut_off.then(|| out_of_reach(&self.observed.namespace));
        let found = of_trouble.or(of_reach).or_else(|| self.late_pods());
        let found = found.or_else(|| self.late_parts()).or_else(|| self.kept());
        found.unwrap_or_else(|| "waits for its pods and parts to end".to_owned())
    }

    /// Pods are named once their time to end is over: before, they go one by one.
    fn late_pods(&self) -> Option<String> {
        let pods = self.observed.pods.iter();
        let late = pods.filter(|pod| is_overdue(&pod.metadata, self.now));
        let late: Vec<String> = late.map(|pod| pod.name_any()).collect();
        (!late.is_empty()).then(|| format!("these pods do not end: {}", late.join(", ")))
    }

    /// So are parts, with what keeps them.
    fn late_parts(&self) -> Option<String> {
        let late = self.observed.parts_left().filter(|(_, part)| is_overdue(part, self.now));
        let late: Vec<String> = late.map(with_finalizers).collect();
        (!late.is_empty()).then(|| format!("these parts do not go: {}", late.join(", ")))
    }

    /// Nothing of it runs any more, and somebody else means to see to it before it goes.
    fn kept(&self) -> Option<String> {
        let is_empty = !self.observed.has_workloads() && self.observed.services.is_empty();
        let workspace = self.observed.workspace.as_ref().filter(|_| is_empty)?;
        let others = workspace.finalizers().iter().filter(|it| *it != WORKSPACE_FINALIZER);
        let others: Vec<&str> = others.map(String::as_str).collect();
        (!others.is_empty()).then(|| {
            format!(
                "its pods and parts are gone, and finalizers of others keep it: {}",
                others.join(", ")
            )
        })
    }
}

fn out_of_reach(namespace: &str) -> String {
    format!(
        "the controller may not look into namespace '{namespace}', so whether its pods have ended is not known: it asks again, and when it still may not after a minute, the workspace goes all the same"
    )
}
