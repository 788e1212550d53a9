//! What is wrong with pods: the worst of it, whichever pod it is that says so.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;
use otctl_types::condition::Reason;
use otctl_types::workspace::{Container, ContainerState};

use super::Part;

/// What the scheduler says of a pod whose claims have no volume yet, as every new one's.
pub(super) const UNBOUND: &str = "unbound immediate PersistentVolumeClaims";

/// Reasons from the worst on: what a person has to change, then what comes back by itself the least likely.
const WORST_FIRST: [Reason; 5] = [
    Reason::ImagePullBackOff,
    Reason::ContainerFailed,
    Reason::CrashLoopBackOff,
    Reason::Unschedulable,
    Reason::NotReady,
];

/// The worst that one of the pods of an entry tells; of two that are as bad, what the pod tells whose name comes first.
pub(super) fn trouble(entry: &str, pods: &[Arc<Pod>]) -> Option<Part> {
    let told = relevant(pods);
    let told = told.iter().filter_map(|pod| Some((of_pod(entry, pod)?, pod.name_any())));
    let rank = |part: &Part| {
        let place = WORST_FIRST.iter().position(|reason| *reason == part.reason);
        (part.state != ContainerState::Failed, place.unwrap_or(WORST_FIRST.len()))
    };
    let worst = told.min_by_key(|(part, name)| (rank(part), name.clone()));
    worst.map(|(part, _)| part)
}

/// Whether as many pods as asked for have been started, ready or not.
pub(super) fn have_all_started(pods: &[Arc<Pod>], asked: i32) -> bool {
    let has_started = |pod: &&Arc<Pod>| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        statuses.is_some_and(|all| !all.is_empty() && !all.iter().any(is_being_made))
    };
    let pods = relevant(pods);
    let started = pods.iter().copied().filter(has_started).count();
    i32::try_from(started).is_ok_and(|started| started >= asked)
}

/// The probe that a container which runs has not passed.
pub(super) fn unanswered_probe(entry: &Container, pods: &[Arc<Pod>]) -> Option<&'static str> {
    let statuses = relevant(pods).into_iter().filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    let runs = |it: &&ContainerStatus| {
        !it.ready && it.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let waiting: Vec<_> = containers.filter(|it| it.name == entry.name).filter(runs).collect();
    let is_starting = |it: &&ContainerStatus| it.started == Some(false);
    if entry.startup_probe.is_some() && waiting.iter().any(is_starting) {
        return Some("startupProbe");
    }
    let is_up = waiting.iter().any(|it| !is_starting(it));
    (is_up && entry.readiness_probe.is_some()).then_some("readinessProbe")
}

/// Pods that go on. One that has ended was replaced: it tells something only when there is no other.
fn relevant(pods: &[Arc<Pod>]) -> Vec<&Arc<Pod>> {
    let stays = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
    let (ended, living): (Vec<_>, Vec<_>) =
        pods.iter().filter(stays).partition(|pod| has_ended(pod));
    if living.is_empty() { ended } else { living }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn of_pod(entry: &str, pod: &Pod) -> Option<Part> {
    let status = pod.status.as_ref()?;
    if has_ended(pod) {
        return Some(ended(status));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    let troubles = containers.flatten().filter_map(|it| of_container(it).map(|part| (it, part)));
    let named = |(it, part): (&ContainerStatus, Part)| {
        if it.name == entry || part.message.is_empty() {
            return part;
        }
        Part { message: format!("container '{}': {}", it.name, part.message), ..part }
    };
    unscheduled(status).or_else(|| troubles.map(named).next())
}

/// Such as a pod that its node has evicted.
fn ended(status: &PodStatus) -> Part {
    let words = [&status.reason, &status.message].into_iter().flatten().cloned();
    let words = words.collect::<Vec<_>>().join(": ");
    let message = if words.is_empty() { "its pod has ended".to_owned() } else { words };
    Part::degraded(Reason::ContainerFailed, message)
}

fn unscheduled(status: &PodStatus) -> Option<Part> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    let words = condition.message.as_ref().or(condition.reason.as_ref());
    let words = words.cloned().unwrap_or_default();
    if words.contains(UNBOUND) {
        return Some(Part::progressing(words));
    }
    Some(Part::degraded(Reason::Unschedulable, words))
}

/// Whether a container has not been started yet, and nothing is wrong with that.
fn is_being_made(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let word = waiting.and_then(|waiting| waiting.reason.as_deref());
    word.is_some_and(|word| Reason::of_waiting(word) == Reason::Progressing)
}

fn of_container(status: &ContainerStatus) -> Option<Part> {
    if status.ready || is_being_made(status) {
        return None;
    }
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let word = waiting.reason.as_deref().unwrap_or_default();
        return Some(waits(status, word, waiting.message.as_deref().unwrap_or_default()));
    }
    // Between two tries, and during one, it is still a container that ends again and again.
    if let Some(end) = &state.terminated {
        return fails(status, end, status.restart_count > 0);
    }
    let before = status.last_state.as_ref().and_then(|last| last.terminated.as_ref())?;
    fails(status, before, true)
}

fn waits(status: &ContainerStatus, word: &str, message: &str) -> Part {
    let reason = Reason::of_waiting(word);
    let words = match reason {
        Reason::CrashLoopBackOff => {
            let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
            last.map_or_else(|| message.to_owned(), end)
        }
        Reason::ImagePullBackOff => cause_of_pull(message).to_owned(),
        _ if message.is_empty() => word.to_owned(),
        _ => format!("{word}: {message}"),
    };
    // A reference that is none is not pulled, however often it is tried.
    let state = match word {
        "InvalidImageName" => ContainerState::Failed,
        _ => ContainerState::Degraded,
    };
    Part::new(state, reason, if words.is_empty() { word.to_owned() } else { words })
}

/// While a node waits to pull again it puts this before the words of the last try. Without it both are one sentence.
fn cause_of_pull(message: &str) -> &str {
    message.split_once("ErrImagePull: ").map_or(message, |(_, cause)| cause)
}

/// An init container that has ended well is done; any other container is to go on.
fn fails(
    status: &ContainerStatus,
    terminated: &ContainerStateTerminated,
    is_loop: bool,
) -> Option<Part> {
    if !is_loop && terminated.exit_code == 0 {
        return None;
    }
    let is_restarting = is_loop && status.restart_count > 0;
    let reason = if is_restarting { Reason::CrashLoopBackOff } else { Reason::ContainerFailed };
    Some(Part::degraded(reason, end(terminated)))
}

/// `exit code 3: no such database`; without a message, the node's own word where it says more than that it failed.
fn end(terminated: &ContainerStateTerminated) -> String {
    let said = terminated.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let word = terminated.reason.as_deref().filter(|word| !["Error", ""].contains(word));
    match said.or(word) {
        Some(words) => format!("exit code {}: {words}", terminated.exit_code),
        None => format!("exit code {}", terminated.exit_code),
    }
}
