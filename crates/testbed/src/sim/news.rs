//! What a pass changed, in words of the domain, read from what it committed and not from what it says: phases, tickets,
//! slots. Stories get shorter by it, and truer.

use otctl_kit::store::Key;
use serde_json::Value;

use crate::json::{items, text};
use crate::world::{Verb, Version};

/// Kinds that wait for slots.
const HOLDERS: [&str; 2] = ["VMDiskImage", "Workspace"];

/// What one pass committed.
pub(super) struct News<'a> {
    pub(super) history: &'a [Version],
    /// Which versions of it are the pass's.
    pub(super) wrote: &'a [usize],
}

impl News<'_> {
    /// The writes as the pass told them, with those replaced that can be said better; then what they changed.
    pub(super) fn tell(&self, writes: &[String]) -> Vec<String> {
        let (tickets, slots, phases) = (self.tickets(), self.slots(), self.phases());
        let is_told_better = |write: &&String| {
            (write.starts_with("mark ") && !tickets.is_empty())
                || (write.starts_with("swap status") && !slots.is_empty())
                || (write.starts_with("status ") && !phases.is_empty())
        };
        let told: Vec<String> =
            writes.iter().filter(|write| !is_told_better(write)).cloned().collect();
        let tickets = (!tickets.is_empty()).then(|| format!("tickets {}", tickets.join(", ")));
        slots.into_iter().chain(tickets).chain(told).chain(phases).collect()
    }

    fn tickets(&self) -> Vec<String> {
        let ticket = |object: &Value| text(&object["status"]["ticket"]).to_owned();
        let holders = self.changes().filter(|(version, _)| HOLDERS.contains(&&*version.id.kind));
        let given = holders.filter(|(version, before)| {
            is_new(before.map(ticket).as_ref(), &ticket(&version.object))
        });
        given
            .map(|(version, _)| format!("{} {}", version.id.key, ticket(&version.object)))
            .collect()
    }

    fn slots(&self) -> Vec<String> {
        let Some((version, before)) =
            self.changes().find(|(version, _)| version.id.kind == "AdmissionQueue")
        else {
            return Vec::new();
        };
        let held = before.map(entries).unwrap_or_default();
        let (now, limit) = (entries(&version.object), &version.object["status"]["limit"]);
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
        let phase = |object: &Value| text(&object["status"]["phase"]).to_owned();
        let statuses = self.changes().filter(|(version, _)| version.verb == Verb::Status);
        let changed = statuses.filter(|(version, before)| {
            is_new(before.map(phase).as_ref(), &phase(&version.object))
        });
        changed.map(|(version, _)| format!("phase {}", phase(&version.object))).collect()
    }

    /// What the pass committed, each with its object as it was before.
    fn changes(&self) -> impl Iterator<Item = (&Version, Option<&Value>)> {
        self.wrote.iter().map(|at| {
            let version = &self.history[*at];
            let before = self.history[..*at].iter().rev().find(|other| other.id == version.id);
            (version, before.filter(|before| !before.is_removal()).map(|before| &before.object))
        })
    }
}

fn is_new(before: Option<&String>, now: &str) -> bool {
    !now.is_empty() && before.is_none_or(|before| before != now)
}

/// Who holds slots; with the attempt when it is not the first.
fn entries(ledger: &Value) -> Vec<String> {
    let name = |entry: &Value| {
        let who = Key::new(text(&entry["namespace"]), text(&entry["name"]));
        match entry["attempt"].as_i64() {
            Some(attempt) if attempt > 1 => format!("{who} attempt {attempt}"),
            _ => who.to_string(),
        }
    };
    items(&ledger["status"]["active"]).iter().map(name).collect()
}
