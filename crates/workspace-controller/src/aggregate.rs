//! What a part of a workspace says of itself, in one word, one reason and one sentence: what its Deployment or machine and
//! its pods say, reduced to the worst. The sentence is the scheduler's, the node's or the API server's own where something
//! is wrong.
//!
//! The same facts in another order give the same answer. Words that change with every try, such as the time that a node
//! waits before the next one, are left out: a status that changes is written.

mod machine;
mod pods;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::Pod;
use otctl_types::condition::Reason;
use otctl_types::workspace::{Container, ContainerState};

pub use self::machine::machine;

const NOT_TAKEN_UP: &str = "the last change has not been taken up yet";

/// What a part says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it stands. `Running` is as its entry says, and nothing else is.
    pub state: ContainerState,
    /// Why.
    pub reason: Reason,
    /// Why, as a sentence for people; empty when there is nothing to say.
    pub message: String,
    /// Whether that is because what was there is being changed: nothing is lost then, and nothing broken.
    pub is_changing: bool,
}

impl Part {
    fn new(state: ContainerState, reason: Reason, message: impl Into<String>) -> Self {
        Self { state, reason, message: message.into(), is_changing: false }
    }

    fn progressing(message: impl Into<String>) -> Self {
        Self::new(ContainerState::Progressing, Reason::Progressing, message)
    }

    fn changing(message: impl Into<String>) -> Self {
        Self { is_changing: true, ..Self::progressing(message) }
    }

    fn degraded(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(ContainerState::Degraded, reason, message)
    }

    pub(crate) fn running() -> Self {
        Self::new(ContainerState::Running, Reason::AllReady, "")
    }

    fn not_made() -> Self {
        Self::new(ContainerState::Pending, Reason::Creating, "it has not been made yet")
    }

    /// Its pods are to be told the address of another entry, which has none.
    pub(crate) fn held_up(other: &str) -> Self {
        let message = format!(
            "waits for the Service of '{other}': nothing is made before every entry has its address"
        );
        Self::new(ContainerState::Pending, Reason::Creating, message)
    }

    /// What runs it was deleted, and is still there.
    pub(crate) fn leaving() -> Self {
        let message = "what runs it is being deleted: it is made anew when that is gone";
        Self::new(ContainerState::Progressing, Reason::OldChildTerminating, message)
    }

    fn stopped() -> Self {
        Self::new(ContainerState::Pending, Reason::Suspended, "it is stopped")
    }
}

/// What a container says of itself: `pods` are those of its entry. While it `is_starting`, that its Deployment was complete
/// once is long ago: before it was stopped.
pub fn container(
    entry: &Container,
    deployment: Option<&Deployment>,
    pods: &[Arc<Pod>],
    is_starting: bool,
) -> Part {
    let Some(deployment) = deployment else { return Part::not_made() };
    let asked = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    if asked == 0 && entry.replicas > 0 {
        return Part::stopped();
    }
    let status = deployment.status.clone().unwrap_or_default();
    if asked != entry.replicas || is_behind(deployment, &status) {
        return Part::changing(NOT_TAKEN_UP);
    }
    if is_complete(&status, asked) {
        return Part::running();
    }
    if is_paused(deployment) {
        // What it said before is not about what is there now.
        return paused(&count(entry, &status, pods));
    }
    refusal(&status)
        .or_else(|| pods::trouble(&entry.name, pods))
        .unwrap_or_else(|| waiting(entry, deployment, pods, is_starting))
}

/// Whether a status is about an earlier spec.
fn is_behind(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    status.observed_generation < deployment.metadata.generation
}

/// Whether there are as many pods as asked for, all of this spec and all ready.
fn is_complete(status: &DeploymentStatus, asked: i32) -> bool {
    let counts = [status.replicas, status.updated_replicas, status.available_replicas];
    counts.into_iter().all(|count| count.unwrap_or(0) == asked)
}

fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// What the API server said when it refused a pod, or the set that was to make them.
fn refusal(status: &DeploymentStatus) -> Option<Part> {
    let of_pods = condition(status, "ReplicaFailure").filter(|it| it.status == "True");
    let of_set = condition(status, "Progressing")
        .filter(|it| it.reason.as_deref() == Some("ReplicaSetCreateError"));
    let words = of_pods.or(of_set)?.message.clone().unwrap_or_default();
    Some(refused(words))
}

/// The condition has one reason for every refusal, so they are told apart as the kit tells them: by what the API server has
/// always begun with.
fn refused(words: String) -> Part {
    if words.contains("exceeded quota:") {
        return Part::degraded(Reason::QuotaExceeded, words);
    }
    if words.contains(" is invalid: ") {
        return Part::new(ContainerState::Failed, Reason::InvalidSpec, words);
    }
    Part::degraded(Reason::PodRefused, words)
}

fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true)
}

fn paused(count: &str) -> Part {
    let message = format!("{count}; its Deployment was paused by hand: kubectl rollout resume");
    Part::degraded(Reason::NotReady, message)
}

/// How many are ready, and what those that run and are not wait for. Of pods from before a change it is not known which are
/// the ready ones.
fn count(entry: &Container, status: &DeploymentStatus, pods: &[Arc<Pod>]) -> String {
    let (asked, ready) = (entry.replicas, status.available_replicas.unwrap_or(0));
    let updated = status.updated_replicas.unwrap_or(0);
    let probe = pods::unanswered_probe(entry, pods);
    let probe = probe.map_or_else(String::new, |probe| format!(": {probe} does not succeed"));
    match status.replicas.unwrap_or(0) - updated {
        ..=0 => format!("{ready} of {asked} pods are ready{probe}"),
        before => {
            format!("{updated} of {asked} pods are of the last change, {before} of before{probe}")
        }
    }
}

/// All that are asked for are ready, and there are more of the same: nothing is lost with those.
fn surplus(status: &DeploymentStatus, asked: i32) -> Option<Part> {
    let (all, updated) = (status.replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    let are_ready = status.available_replicas.unwrap_or(0) >= asked;
    let is_surplus = all == updated && all > asked && are_ready;
    is_surplus.then(|| Part::changing(format!("{} pods more than asked for end", all - asked)))
}

/// Nothing is wrong with any pod, and not all are ready.
fn waiting(
    entry: &Container,
    deployment: &Deployment,
    pods: &[Arc<Pod>],
    is_starting: bool,
) -> Part {
    let status = deployment.status.clone().unwrap_or_default();
    let (asked, count) = (entry.replicas, count(entry, &status, pods));
    if let Some(surplus) = surplus(&status, asked) {
        return surplus;
    }
    let progress = condition(&status, "Progressing");
    let is_late = progress.is_some_and(|it| it.status == "False");
    let was_complete =
        progress.and_then(|it| it.reason.as_deref()) == Some("NewReplicaSetAvailable");
    if is_late || was_complete && !is_starting && pods::have_all_started(pods, asked) {
        return Part::degraded(Reason::NotReady, count);
    }
    // One that was made just now has been changed by nobody.
    let was_changed = deployment.metadata.generation.is_some_and(|generation| generation > 1);
    if was_changed && progress.is_some() && !was_complete {
        return Part::changing(count);
    }
    Part::progressing(count)
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
