//! An image as a tree: each part, its state, what it waits for, what comes next and when. Pure.

mod children;
mod next;

use diskimage_controller::record::SUCCEEDED;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use otctl_queue::effective_policy;
use otctl_types::VMDiskImageStatus;
use otctl_types::condition::{RECONCILING, Reason, STALLED};
use otctl_types::diskimage::{Attempt, Current, Phase};
use otctl_types::import::SourceFacts;
use policy::Policy;

use super::observe::{Facts, Place};
use crate::kind::told;
use crate::out::{self, when};
use crate::tree::Node;

#[cfg(test)]
mod tests;

/// The tree at this time.
pub(super) fn tree(facts: &Facts, now: Timestamp) -> Node {
    Teller { facts, status: facts.image.status.clone().unwrap_or_default(), now }.image()
}

/// Who tells of one image.
struct Teller<'a> {
    facts: &'a Facts,
    status: VMDiskImageStatus,
    now: Timestamp,
}

impl Teller<'_> {
    fn image(&self) -> Node {
        let standing = &self.facts.standing;
        let reason = Some(&standing.reason).filter(|it| !it.is_empty() && **it != standing.phase);
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let amount = Some(&standing.progress.text).filter(|text| !text.is_empty());
        let amount = amount.map(|text| format!(", {text}")).unwrap_or_default();
        let image = &self.facts.image;
        let place = format!("{}/{}", image.namespace().unwrap_or_default(), image.name_any());
        Node::new(format!("VMDiskImage {place}: {}{reason}{amount}", standing.phase))
            .note(standing.message.clone())
            .note(self.next().map(|next| format!("next: {next}")).unwrap_or_default())
            .parts([self.source()])
            .parts(self.queue())
            .parts(self.attempts())
            .parts(self.children())
            .parts(self.status.current.as_ref().map(|current| self.usable(current)))
            .parts([self.conditions()])
            .parts(self.events())
            .parts(self.unread())
    }

    fn source(&self) -> Node {
        let spec = &self.facts.image.spec;
        let secret = spec.secret_ref.as_ref().map(|name| format!(", with Secret '{name}'"));
        let seen = self.status.source.as_ref().map(seen);
        Node::new(format!("Source: {}", spec.url))
            .note(format!("{}{}", spec.source_type.as_str(), secret.unwrap_or_default()))
            .note(seen.unwrap_or_else(|| "nothing is known of it yet".to_owned()))
    }

    /// Its slot, its place, or its snapshot's place; nothing for one that needs none.
    fn queue(&self) -> Option<Node> {
        let ledger = self.facts.ledger.as_ref()?;
        let uid = self.facts.image.uid().unwrap_or_default();
        let limit = ledger.limit.map_or("?".to_owned(), |limit| limit.to_string());
        let slots = format!("{} of {limit} slots are taken", ledger.active.len());
        if let Some(entry) = ledger.active.iter().find(|entry| entry.uid == uid) {
            let since = when(entry.since.0, self.now);
            let node = Node::new(format!("Queue: holds a slot since {since}"));
            return Some(node.note(format!("for attempt {}; {slots}", entry.attempt)));
        }
        if let Some(entry) = ledger.snapshots.iter().find(|entry| entry.uid == uid) {
            let since = when(entry.since.0, self.now);
            return Some(Node::new(format!("Queue: may take its snapshot since {since}")));
        }
        let Place { position, waiting } = self.facts.place.filter(|_| self.waits())?;
        let place = match position {
            Some(position) => format!("position {position} of {waiting} that wait"),
            None => "no position: more room would not help it, and nobody waits for it".to_owned(),
        };
        let queued = self
            .status
            .queued_at
            .as_ref()
            .map(|at| format!("in the queue since {}", when(at.0, self.now)));
        Some(Node::new(format!("Queue: {place}")).note(slots).notes(queued))
    }

    fn waits(&self) -> bool {
        !self.facts.image.spec.suspend && matches!(self.status.phase, None | Some(Phase::Queued))
    }

    fn attempts(&self) -> Option<Node> {
        let charged = self.status.budget.as_ref().map_or(0, |budget| budget.charged);
        let budget = match self.policy() {
            Some(policy) => {
                format!("{charged} of {} downloads charged", policy.retry_limit.saturating_add(1))
            }
            None => format!("{charged} downloads charged"),
        };
        let open = self.status.open_attempt.as_ref().map(|open| {
            let since =
                open.started_at.as_ref().map(|at| format!(" since {}", when(at.0, self.now)));
            let cut = open
                .cut
                .as_ref()
                .map(|cut| format!("being ended ({}): {}", cut.reason, cut.message));
            Node::new(format!("{}: under way{}", open.number, since.unwrap_or_default())).notes(cut)
        });
        let ended = self.status.attempts.iter().map(|attempt| self.attempt(attempt));
        let parts: Vec<Node> = ended.chain(open).collect();
        (!parts.is_empty()).then(|| Node::new(format!("Attempts: {budget}")).parts(parts))
    }

    fn attempt(&self, attempt: &Attempt) -> Node {
        let reason = attempt.reason.as_deref().unwrap_or("ended");
        let bytes = |count: i64| out::size(u64::try_from(count).unwrap_or(0));
        let fetched = attempt.bytes.map(|count| format!(", {} fetched", bytes(count)));
        let ended = attempt.ended_at.as_ref().map(|at| format!(", {}", when(at.0, self.now)));
        let free = if attempt.charged || reason == SUCCEEDED { "" } else { ", not charged" };
        Node::new(format!(
            "{}: {reason}{}{free}{}",
            attempt.number,
            fetched.unwrap_or_default(),
            ended.unwrap_or_default()
        ))
        .notes(attempt.message.clone())
    }

    fn usable(&self, current: &Current) -> Node {
        let snapshot = current.snapshot.as_ref().map(|name| format!("snapshot '{name}'"));
        let volume = current.volume.as_ref().map(|name| format!("volume '{name}'"));
        let names: Vec<String> = snapshot.into_iter().chain(volume).collect();
        let size = current.minimum_size.map(|bytes| {
            format!(
                "a claim made from it needs {bytes} bytes ({})",
                out::size(u64::try_from(bytes).unwrap_or(0))
            )
        });
        let since = current.synced_at.as_ref().map(|at| format!("since {}", when(at.0, self.now)));
        Node::new(format!("Usable: {}", names.join(", "))).notes(size).notes(since)
    }

    /// Those that are not as they should be.
    fn conditions(&self) -> Node {
        told::conditions(&self.status.conditions, &self.facts.standing.message, is_remarkable)
    }

    fn events(&self) -> Option<Node> {
        told::events(self.facts.events.get(&self.facts.image.uid()?)?, self.now)
    }

    fn unread(&self) -> Option<Node> {
        let unread = &self.facts.unread;
        (!unread.is_empty()).then(|| Node::new("Not shown").notes(unread.iter().cloned()))
    }

    /// The policy in effect, where the ledger could be read.
    fn policy(&self) -> Option<Policy> {
        self.facts.ledger.as_ref().map(|ledger| effective_policy(Some(ledger)))
    }
}

fn seen(source: &SourceFacts) -> String {
    let compression = source.compression.map(|it| format!(" inside {}", it.as_str()));
    let size = source.size.map(|bytes| format!(", {}", out::size(bytes)));
    let disk = source.virtual_size.map(|bytes| format!(", a disk of {}", out::size(bytes)));
    let ranges = if source.accepts_ranges { "" } else { ", without ranges" };
    let [compression, size, disk] = [compression, size, disk].map(Option::unwrap_or_default);
    format!("{}{compression}{size}{disk}{ranges}", source.format)
}

fn is_remarkable(condition: &Condition) -> bool {
    match condition.type_.as_str() {
        RECONCILING => false,
        STALLED => condition.status == "True",
        _ => condition.status != "True" && condition.reason != Reason::NotRequested.as_str(),
    }
}
