//! A workspace as a tree: each part, its state, what it waits for, what comes next and when. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use otctl_queue::effective_policy;
use otctl_types::WorkspaceStatus;
use otctl_types::condition::{CREATING_WORKS, DELETING, RECONCILING, Reason, STALLED};
use otctl_types::names::ENTRY_LABEL;
use otctl_types::workspace::{ContainerReport, DiskOrigin, Phase, VirtualMachineReport};

use super::observe::Facts;
use crate::kind::told;
use crate::out::when;
use crate::tree::Node;

#[cfg(test)]
mod tests;

/// The tree at this time.
pub(super) fn tree(facts: &Facts, now: Timestamp) -> Node {
    Teller { facts, status: facts.workspace.status.clone().unwrap_or_default(), now }.workspace()
}

/// Who tells of one workspace.
struct Teller<'a> {
    facts: &'a Facts,
    status: WorkspaceStatus,
    now: Timestamp,
}

impl Teller<'_> {
    fn workspace(&self) -> Node {
        let standing = &self.facts.standing;
        let reason = Some(&standing.reason).filter(|it| !it.is_empty() && **it != standing.phase);
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let amount = Some(&standing.progress.text).filter(|text| !text.is_empty());
        let amount = amount.map(|text| format!(", {text}")).unwrap_or_default();
        let name = self.facts.workspace.name_any();
        let place = self.status.namespace.as_ref().map(|it| format!("made in namespace {it}"));
        let resources = self.status.resource_status.clone().unwrap_or_default();
        Node::new(format!("Workspace {name}: {}{reason}{amount}", standing.phase))
            .note(standing.message.clone())
            .notes(place)
            .note(self.next().map(|next| format!("next: {next}")).unwrap_or_default())
            .parts(self.queue())
            .parts([self.network()])
            .parts(resources.virtual_machines.iter().map(|report| self.machine(report)))
            .parts(resources.containers.iter().map(|report| self.container(report)))
            .parts([told::conditions(&self.status.conditions, &standing.message, is_remarkable)])
            .parts(told::events(&self.facts.events, self.now))
            .parts(self.unread())
    }

    /// What happens without anybody's doing, and when.
    fn next(&self) -> Option<String> {
        if let Some(open) = &self.status.open_turn {
            let policy = effective_policy(self.facts.ledger.as_ref());
            let patience = SignedDuration::try_from(policy.provisioning_timeout).ok()?;
            let end = open.since.0.checked_add(patience).ok()?;
            let end = when(end, self.now);
            return Some(format!("ready, or its slot is given back {end} and it goes on without"));
        }
        match self.status.phase? {
            Phase::Provisioning if self.starts_later() => {
                Some("it starts by itself when what it waits for is there".to_owned())
            }
            Phase::Provisioning => Some("it heals by itself when the cause goes".to_owned()),
            Phase::Suspended => Some("nothing until it is resumed".to_owned()),
            Phase::Failed => Some("it goes on by itself once that is mended".to_owned()),
            Phase::Ready => None,
        }
    }

    /// Something of it has not had its start.
    fn starts_later(&self) -> bool {
        workspace_controller::parts::unstarted(&self.facts.workspace).next().is_some()
    }

    /// Its slot, or that it waits for one; nothing for one that needs none.
    fn queue(&self) -> Option<Node> {
        let ledger = self.facts.ledger.as_ref()?;
        let uid = self.facts.workspace.uid().unwrap_or_default();
        let limit = ledger.limit.map_or("?".to_owned(), |limit| limit.to_string());
        let slots = format!("{} of {limit} slots are taken", ledger.active.len());
        if let Some(entry) = ledger.active.iter().find(|entry| entry.uid == uid) {
            let since = when(entry.since.0, self.now);
            return Some(Node::new(format!("Queue: holds a slot since {since}")).note(slots));
        }
        let waits = !self.facts.workspace.spec.suspended && self.starts_later();
        let queued = self.status.queued_at.as_ref().filter(|_| waits)?;
        let since = when(queued.0, self.now);
        Some(Node::new(format!("Queue: waits since {since}")).note(slots))
    }

    fn network(&self) -> Node {
        let report = self.status.resource_status.as_ref().and_then(|it| it.network.clone());
        let report = report.unwrap_or_default();
        let state = match (&report.policy, self.facts.workspace.spec.network.isolate) {
            (Some(policy), _) => format!("isolated by NetworkPolicy '{policy}'"),
            (None, true) => "to be isolated".to_owned(),
            (None, false) => "open".to_owned(),
        };
        Node::new(format!("Network: {state}")).notes(report.message)
    }

    fn machine(&self, report: &VirtualMachineReport) -> Node {
        let image = report.image.as_deref().unwrap_or_default();
        let phase = report.phase.as_deref().unwrap_or("not looked at yet");
        let machine = report.machine.as_ref().map(|it| format!(", machine {it}"));
        let title = format!(
            "Virtual machine {}: image '{image}' {phase}{}",
            report.name,
            machine.unwrap_or_default()
        );
        let revision = report.revision.as_ref().map(|it| format!("revision {it}"));
        Node::new(title)
            .notes(self.unsaid(report.message.as_ref()))
            .notes(revision)
            .notes(self.other_origin(report))
            .notes(self.reached(&report.name, report.service.as_ref()))
            .parts(self.pods(&report.name))
    }

    /// A disk that was made from another image than its entry names by now.
    fn other_origin(&self, report: &VirtualMachineReport) -> Option<String> {
        let mut disks = self.status.disks.iter().filter(|disk| disk.entry == report.name);
        let is_other =
            |disk: &&DiskOrigin| disk.copied && report.image.as_ref() != Some(&disk.image);
        let disk = disks.find(is_other)?;
        Some(format!("its disk was made from image '{}', revision {}", disk.image, disk.revision))
    }

    fn container(&self, report: &ContainerReport) -> Node {
        Node::new(format!("Container {}: {}", report.name, report.status.as_str()))
            .notes(self.unsaid(report.message.as_ref()))
            .notes(self.reached(&report.name, report.service.as_ref()))
            .parts(self.pods(&report.name))
    }

    /// By which names: pods of the workspace find the entry by its own, everybody by that of its Service. A Service
    /// without ports has no address, so that the entry's own name leads nowhere.
    fn reached(&self, entry: &str, service: Option<&String>) -> Option<String> {
        let service = service?;
        Some(if self.serves_ports(entry) {
            format!("reached as {entry} (Service {service})")
        } else {
            format!("reached as Service {service}")
        })
    }

    fn serves_ports(&self, entry: &str) -> bool {
        let spec = &self.facts.workspace.spec;
        let machine = spec.virtual_machines.iter().find(|it| it.name == entry);
        let instance = machine.and_then(|it| it.spec.instance.as_ref());
        let container = spec.containers.iter().find(|it| it.name == entry);
        instance.is_some_and(|it| !it.ports.is_empty())
            || container.is_some_and(|it| !it.ports.is_empty())
    }

    /// What stands on top of the tree is not told again.
    fn unsaid(&self, message: Option<&String>) -> Option<String> {
        message.filter(|message| **message != self.facts.standing.message).cloned()
    }

    fn pods(&self, entry: &str) -> Vec<Node> {
        let pods = self.facts.pods.iter();
        let of_entry =
            pods.filter(|pod| pod.labels().get(ENTRY_LABEL).is_some_and(|it| it == entry));
        of_entry.map(pod).collect()
    }

    fn unread(&self) -> Option<Node> {
        let unread = &self.facts.unread;
        (!unread.is_empty()).then(|| Node::new("Not shown").notes(unread.iter().cloned()))
    }
}

fn pod(pod: &Pod) -> Node {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let restarts: i32 = containers.iter().map(|it| it.restart_count).sum();
    let restarts = if restarts > 0 { format!(", {restarts} restarts") } else { String::new() };
    let ready = containers.iter().filter(|it| it.ready).count();
    let phase = status.phase.unwrap_or_else(|| "Pending".to_owned());
    let title =
        format!("pod {}: {phase}, {ready}/{} ready{restarts}", pod.name_any(), containers.len());
    let waiting = containers.iter().filter_map(|it| {
        let waiting = it.state.as_ref()?.waiting.as_ref()?;
        let [reason, message] =
            [&waiting.reason, &waiting.message].map(|it| it.as_deref().unwrap_or_default());
        Some(format!("{reason} {message}").trim().to_owned())
    });
    let scheduled = status.conditions.into_iter().flatten().filter(|it| it.type_ == "PodScheduled");
    let refused = scheduled.filter(|it| it.status == "False").filter_map(|it| it.message);
    Node::new(title).notes(waiting.chain(refused))
}

fn is_remarkable(condition: &Condition) -> bool {
    match condition.type_.as_str() {
        RECONCILING => false,
        STALLED | DELETING => condition.status == "True",
        CREATING_WORKS => condition.reason != Reason::AllCreated.as_str(),
        _ => condition.status != "True",
    }
}
