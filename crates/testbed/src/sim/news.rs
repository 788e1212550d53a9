//! What a pass changed, in words of the domain, read from what it committed and not from what it says: phases, tickets,
//! slots. Stories get shorter by it, and truer.

use serde_json::Value;

use crate::json::{items, text};
use crate::world::{Verb, Version};

/// What was committed by one pass, and everything before.
pub(super) struct News<'a> {
    /// The history until the pass began.
    pub(super) before: &'a [Version],
    /// What its process committed since then.
    pub(super) since: Vec<&'a Version>,
}

impl News<'_> {
    /// The writes as the pass told them, with those replaced that can be said better; then what they changed.
    pub(super) fn tell(&self, writes: &[String]) -> Vec<String> {
        let (tickets, slots, phases) = (self.tickets(), self.slots(), self.phases());
        let is_told_better = |write: &&String| {
            (write.starts_with("mark VMDiskImage") && !tickets.is_empty())
                || (write.starts_with("swap status") && !slots.is_empty())
                || (write.starts_with("status ") && !phases.is_empty())
        };
        let told: Vec<String> =
            writes.iter().filter(|write| !is_told_better(write)).cloned().collect();
        let tickets = (!tickets.is_empty()).then(|| format!("tickets {}", tickets.join(", ")));
        slots.into_iter().chain(tickets).chain(told).chain(phases).collect()
    }

    fn tickets(&self) -> Vec<String> {
        let given = self.since.iter().filter(|version| version.id.kind == "VMDiskImage");
        let given = given.filter_map(|version| {
            let ticket = text(&version.object["status"]["ticket"]);
            let held = self
                .previous(version)
                .map(|object| text(&object["status"]["ticket"]))
                .unwrap_or_default();
            (!ticket.is_empty() && ticket != held).then(|| format!("{} {ticket}", version.id.key))
        });
        given.collect()
    }

    fn slots(&self) -> Vec<String> {
        let Some(last) =
            self.since.iter().rev().find(|version| version.id.kind == "AdmissionQueue")
        else {
            return Vec::new();
        };
        let held = self.previous(last).map(entries).unwrap_or_default();
        let (now, limit) = (entries(&last.object), &last.object["status"]["limit"]);
        let released =
            held.iter().filter(|name| !now.contains(name)).map(|name| format!("release {name}"));
        let admitted =
            now.iter().filter(|name| !held.contains(name)).map(|name| format!("admit {name}"));
        let mut told: Vec<String> = released.chain(admitted).collect();
        if let Some(last) = told.last_mut() {
            last.push_str(&format!(" ({} of {limit})", now.len()));
        }
        told
    }

    fn phases(&self) -> Vec<String> {
        let changed = self.since.iter().filter(|version| version.verb == Verb::Status);
        let phase = |object: &Value| text(&object["status"]["phase"]).to_owned();
        let changed = changed.filter_map(|version| {
            let (now, held) =
                (phase(&version.object), self.previous(version).map(phase).unwrap_or_default());
            (!now.is_empty() && now != held).then(|| format!("phase {now}"))
        });
        let mut told: Vec<String> = changed.collect();
        told.dedup();
        told
    }

    /// The object of a version as it was when the pass began.
    fn previous(&self, version: &Version) -> Option<&Value> {
        let held = self.before.iter().rev().find(|other| other.id == version.id)?;
        (!held.is_removal()).then_some(&held.object)
    }
}

/// Who holds slots; with the attempt when it is not the first.
fn entries(ledger: &Value) -> Vec<String> {
    let name = |entry: &Value| {
        let who = format!("{}/{}", text(&entry["namespace"]), text(&entry["name"]));
        match entry["attempt"].as_i64() {
            Some(attempt) if attempt > 1 => format!("{who} attempt {attempt}"),
            _ => who,
        }
    };
    items(&ledger["status"]["active"]).iter().map(name).collect()
}
