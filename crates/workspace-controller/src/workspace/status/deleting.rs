//! `Deleting`: what a workspace that goes still waits for.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use otctl_types::condition::{Finding, Reason};

use super::Sight;
use crate::workspace::verdict::Verdict;

/// A pod that was to have ended so long ago is held up by something.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// When a pod that is being deleted is late.
pub fn overdue_at(pod: &Pod) -> Option<Timestamp> {
    let due = pod.metadata.deletion_timestamp.as_ref()?.0;
    Some(due.checked_add(GRACE).unwrap_or(Timestamp::MAX))
}

fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    overdue_at(pod).is_some_and(|at| at <= now)
}

impl Sight<'_> {
    pub(super) fn deleting(&self) -> Option<Finding> {
        let is_leaving = self.standing.verdict == Verdict::Leaving;
        is_leaving.then(|| Finding::new(true, Reason::Deleting, self.whats_left()))
    }

    /// Pods are named once their time to end is over: before, they go one by one.
    fn whats_left(&self) -> String {
        let of_trouble = self.standing.trouble.as_ref().map(|trouble| trouble.lack.message.clone());
        let overdue = self.observed.pods.iter().filter(|pod| is_overdue(pod, self.now));
        let overdue: Vec<String> = overdue.map(|pod| pod.name_any()).collect();
        let is_cut_off = self.observed.is_cut_off();
        let of_reach = is_cut_off.then(|| out_of_reach(&self.observed.namespace));
        of_trouble.or(of_reach).unwrap_or_else(|| match overdue.as_slice() {
            [] => "waits for its pods to end".to_owned(),
            names => format!("these pods do not end: {}", names.join(", ")),
        })
    }
}

fn out_of_reach(namespace: &str) -> String {
    format!(
        "the controller may not look into namespace '{namespace}', so whether its pods have ended is not known: it asks again, and when it still may not after a minute, the workspace goes all the same"
    )
}
