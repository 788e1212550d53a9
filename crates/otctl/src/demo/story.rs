//! The story of the one workspace of the demo, event by event: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::WatchEvent;
use kube::{Resource, ResourceExt as _};
use otctl_types::condition::{READY, find};
use otctl_types::names::WORKSPACE_LABEL;
use otctl_types::workspace::{ContainerReport, ContainerState, Phase, VirtualMachineReport};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace, WorkspaceStatus};

use super::peak::Entries;
use crate::progress::Progress;
use crate::view::Item;

/// What KubeVirt says of a machine that runs.
const RUNNING: &str = "Running";
/// The phase of an image that is there.
const SYNCED: &str = "Succeeded";

/// What was told so far. Numbers of versions say in which order things were made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Story {
    /// The workspace as it is now.
    pub(crate) workspace: Option<Workspace>,
    /// The version in which it was made.
    pub(crate) made: Option<u64>,
    /// How long after that it was ready.
    pub(crate) ready_after: Option<Duration>,
    /// The reasons of its Ready, each as often as it was another one than before.
    pub(crate) reasons: Vec<String>,
    /// Its parts, virtual machines first.
    pub(crate) parts: Vec<Part>,
    /// The version in which each image was made.
    pub(crate) images: BTreeMap<String, u64>,
    /// The version in which the policy that isolates it was made; none as well when it has gone.
    pub(crate) policy: Option<u64>,
    /// The version in which each of its pods was made.
    pub(crate) pods: Vec<u64>,
    /// Slots of workspaces.
    pub(super) slots: Entries,
    /// When it was made, from the opening of the watches.
    pub(super) began: Duration,
}

/// A part of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name of its entry.
    pub(crate) name: String,
    /// Where it stood, each word as often as it was another one than before. The last is where it stands.
    pub(crate) words: Vec<String>,
    /// How long after the workspace was made it became ready and stayed so.
    pub(crate) ready_after: Option<Duration>,
}

impl Story {
    /// `at` is the time since the watches were opened, here as below.
    pub(super) fn see_workspace(&mut self, event: &WatchEvent<Workspace>, at: Duration) {
        match event {
            WatchEvent::Added(workspace) => {
                self.made = number(workspace);
                self.began = at;
                self.take(workspace, at);
            }
            WatchEvent::Modified(workspace) => self.take(workspace, at),
            WatchEvent::Deleted(_) => self.workspace = None,
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }

    fn take(&mut self, workspace: &Workspace, at: Duration) {
        self.workspace = Some(workspace.clone());
        let after = at.saturating_sub(self.began);
        let status = workspace.status.clone().unwrap_or_default();
        if let Some(ready) = find(&status.conditions, READY) {
            add_word(&mut self.reasons, &ready.reason);
        }
        let is_ready = status.phase == Some(Phase::Ready);
        self.ready_after = is_ready.then(|| self.ready_after.unwrap_or(after));
        let parts = status.resource_status.unwrap_or_default();
        for report in &parts.virtual_machines {
            self.part(&report.name).take(machine_word(report), is_machine_ready(report), after);
        }
        for report in &parts.containers {
            let is_ready = report.status == ContainerState::Running;
            self.part(&report.name).take(container_word(report), is_ready, after);
        }
    }

    fn part(&mut self, name: &str) -> &mut Part {
        let place = self.parts.iter().position(|part| part.name == name);
        let place = place.unwrap_or_else(|| {
            self.parts.push(Part { name: name.to_owned(), ..Part::default() });
            self.parts.len() - 1
        });
        &mut self.parts[place]
    }

    pub(super) fn see_queue(&mut self, event: &WatchEvent<AdmissionQueue>, _: Duration) {
        self.slots.see(event);
    }

    pub(super) fn see_image(&mut self, event: &WatchEvent<VMDiskImage>, _: Duration) {
        if let WatchEvent::Added(image) = event {
            self.images.extend(number(image).map(|number| (image.name_any(), number)));
        }
    }

    /// A policy that isolates the pods of a workspace; there is only one.
    pub(super) fn see_policy(&mut self, event: &WatchEvent<NetworkPolicy>, _: Duration) {
        match event {
            WatchEvent::Added(policy) if isolates(policy) => self.policy = number(policy),
            WatchEvent::Deleted(policy) if isolates(policy) => self.policy = None,
            WatchEvent::Modified(policy) if !isolates(policy) => self.policy = None,
            _ => {}
        }
    }

    pub(super) fn see_pod(&mut self, event: &WatchEvent<Pod>, _: Duration) {
        if let WatchEvent::Added(pod) = event {
            self.pods.extend(number(pod));
        }
    }

    /// Its phase.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.status()?.phase
    }

    /// The first thing that is not as it should be, in its own words.
    pub(crate) fn message(&self) -> Option<&str> {
        self.status()?.message.as_deref()
    }

    /// Whether it is ready, or cannot become so by itself.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase(), Some(Phase::Ready | Phase::Failed))
    }

    /// Whether everything was heard that must be heard of a workspace that is ready.
    pub(super) fn is_whole(&self) -> bool {
        let is_at_rest = self.slots.now == 0 && self.slots.most > 0;
        let has_pods = !self.parts.is_empty() && self.pods.len() >= self.parts.len();
        self.phase() == Some(Phase::Ready) && is_at_rest && has_pods && self.policy.is_some()
    }

    /// The most slots at once.
    pub(crate) fn most_slots(&self) -> usize {
        self.slots.most
    }

    /// It, among what moves.
    pub(crate) fn item(&self) -> Option<Item> {
        let name = self.workspace.as_ref()?.name_any();
        let phase = self.phase().map_or("Unseen", Phase::as_str).to_owned();
        let reason = self.reasons.last().filter(|_| self.phase() != Some(Phase::Ready));
        Some(Item {
            name: format!("workspace/{name}"),
            position: None,
            phase,
            reason: reason.cloned().unwrap_or_default(),
            message: String::new(),
            progress: self.progress().unwrap_or_default(),
        })
    }

    fn progress(&self) -> Option<Progress> {
        Progress::of_told_parts(self.status()?.ready_parts.as_deref()?)
    }

    fn status(&self) -> Option<&WorkspaceStatus> {
        self.workspace.as_ref()?.status.as_ref()
    }
}

impl Part {
    fn take(&mut self, word: Option<&str>, is_ready: bool, after: Duration) {
        word.into_iter().for_each(|word| add_word(&mut self.words, word));
        self.ready_after = is_ready.then(|| self.ready_after.unwrap_or(after));
    }
}

/// KubeVirt's word, and before there is a machine its image's, until that is there.
fn machine_word(report: &VirtualMachineReport) -> Option<&str> {
    let of_image = report.phase.as_deref().filter(|phase| *phase != SYNCED);
    report.machine.as_deref().or(of_image)
}

fn is_machine_ready(report: &VirtualMachineReport) -> bool {
    report.message.is_none() && report.machine.as_deref() == Some(RUNNING)
}

fn container_word(report: &ContainerReport) -> Option<&str> {
    Some(report.status.as_str())
}

fn add_word(words: &mut Vec<String>, word: &str) {
    if words.last().is_none_or(|last| last != word) {
        words.push(word.to_owned());
    }
}

/// Whether it closes both directions for pods with the label of workspaces.
fn isolates(policy: &NetworkPolicy) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let labels = spec.pod_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    let types = spec.policy_types.as_deref().unwrap_or_default();
    labels.is_some_and(|labels| labels.contains_key(WORKSPACE_LABEL))
        && ["Ingress", "Egress"].iter().all(|direction| types.iter().any(|it| it == direction))
}

fn number<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests;
