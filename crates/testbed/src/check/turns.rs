//! Slots and turns of workspaces, on every version of a history: the limit, the order of first tickets, turns that are
//! opened once. What somebody edits into a status or the ledger is no controller's doing; what follows from it is soft.

use std::collections::{BTreeMap, BTreeSet};

use otctl_types::names::ENTRY_LABEL;
use policy::Ticket;
use serde_json::{Value, json};

use super::ledger::{entries_added, first_tickets_in_order, ledger_write};
use super::replay::Replay;
use crate::json::{controller, is_deleting, items, text, uid};
use crate::world::{Verb, Version};

/// What must hold while only the controllers write the ledger and statuses.
#[must_use]
pub fn intact(history: &[Version]) -> Vec<String> {
    let mut found = never_above_limit(history);
    found.extend(turns_have_entries(history));
    found.extend(opened_once(history));
    found.extend(turns_only_grow(history));
    found.extend(first_tickets_in_order(history));
    found.extend(fair_admission(history));
    found.extend(memory_fits(history));
    found
}

/// What must hold even when the ledger or a status was lost or restored.
#[must_use]
pub fn always(history: &[Version]) -> Vec<String> {
    let mut found = admissions_within_limit(history);
    found.extend(turns_only_grow(history));
    found
}

/// The ledger never has more entries than its limit, but after the limit was lowered: then not more than before.
#[must_use]
pub fn never_above_limit(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |_, version, before| {
        let Some(ledger) = ledger_write(version) else { return };
        let (held, had) = (entries(ledger), before.map(entries).unwrap_or_default());
        let limit = ledger["status"]["limit"].as_u64().unwrap_or(0);
        if held > limit && held > had {
            found.push(format!("at {}: {held} slots of {limit}", version.revision));
        }
    });
    found
}

/// A write that admits leaves at most `limit` entries. Whose turn is open may be entered above it.
#[must_use]
pub fn admissions_within_limit(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, before| {
        let Some(ledger) = ledger_write(version).filter(|_| version.by != "user") else { return };
        let is_open = |entry: &Value| {
            let holder = world.last_of(text(&entry["uid"]));
            holder.is_some_and(|it| it["status"]["openTurn"]["number"] == entry["attempt"])
        };
        let admitted = entries_added(before, ledger).filter(|entry| !is_open(entry)).count();
        let limit = ledger["status"]["limit"].as_u64().unwrap_or(0);
        if admitted > 0 && entries(ledger) > limit {
            found.push(format!("at {}: {admitted} admitted above {limit}", version.revision));
        }
    });
    found
}

/// A turn is opened by the entry of its number, and no entry goes before its turn is over or its workspace is gone.
#[must_use]
pub fn turns_have_entries(history: &[Version]) -> Vec<String> {
    let mut found = BTreeMap::new();
    Replay::walk(history, |world, version, _| {
        if !matches!(version.id.kind.as_str(), "Workspace" | "AdmissionQueue") {
            return;
        }
        let active = world.active();
        let open = world.of_kind("Workspace").filter_map(|it| Some((it, open_turn(it)?)));
        for (workspace, number) in open {
            let is_its = |entry: &&&Value| {
                entry["uid"] == workspace["metadata"]["uid"] && entry["attempt"] == json!(number)
            };
            if active.iter().find(is_its).is_none() {
                let name = text(&workspace["metadata"]["name"]);
                let what = format!("at {}: turn {number} of {name} has no slot", version.revision);
                found.entry((uid(workspace), number)).or_insert(what);
            }
        }
    });
    found.into_values().collect()
}

/// No turn is opened twice.
#[must_use]
pub fn opened_once(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut opened = BTreeSet::new();
    Replay::walk(history, |_, version, before| {
        let object = &version.object;
        let Some(number) = open_turn(object).filter(|_| version.id.kind == "Workspace") else {
            return;
        };
        let is_new = before.and_then(open_turn) != Some(number);
        if is_new && !opened.insert((uid(object), number)) {
            let name = &version.id.key;
            found.push(format!("at {}: turn {number} of {name} again", version.revision));
        }
    });
    found
}

/// The first object of an entry is made while a turn of its workspace is open, and so is its policy; and so is whatever runs
/// an entry that has not had its start as what it is. Of two controllers at once, one with an old view may make what the
/// other has put off: nothing fences a turn, and the limit of the ledger holds all the same.
#[must_use]
pub fn made_in_turns(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut made = BTreeSet::new();
    Replay::walk(history, |world, version, _| {
        let object = &version.object;
        let owner = controller(object).filter(|it| it["kind"] == "Workspace");
        let workspace = owner.and_then(|it| world.last_of(text(&it["uid"])));
        let Some(workspace) = workspace.filter(|_| version.verb == Verb::Created) else { return };
        let entry = text(&object["metadata"]["labels"][ENTRY_LABEL]);
        let is_first = made.insert((uid(workspace), entry));
        let is_unpaid = runs(object) && !had_start(workspace, entry, version.id.kind.as_str());
        if (is_first || is_unpaid) && open_turn(workspace).is_none() {
            found.push(format!("at {}: {} outside of a turn", version.revision, version.id));
        }
    });
    found
}

/// Whether an object makes pods: not that of a workspace that is suspended.
fn runs(object: &Value) -> bool {
    match text(&object["kind"]) {
        "Deployment" => object["spec"]["replicas"] != 0,
        "VirtualMachine" => object["spec"]["runStrategy"] != "Halted",
        _ => false,
    }
}

/// Whether it is on record that an entry has had its start with an object of that kind.
fn had_start(workspace: &Value, entry: &str, kind: &str) -> bool {
    let status = &workspace["status"];
    let names = |list: &Value| items(list).iter().any(|it| it == entry);
    let is_machine = kind == "VirtualMachine";
    let machines = &status["startedMachines"];
    let mut disks = items(&status["disks"]).iter();
    let gains = is_machine && disks.any(|it| it["entry"] == entry && it["copied"] == false);
    names(&status["startedParts"])
        && (machines.is_null() || names(machines) == is_machine)
        && !gains
}

/// `lastTurn` never falls by a controller's write.
#[must_use]
pub fn turns_only_grow(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |_, version, before| {
        let is_ours = version.id.kind == "Workspace" && version.by != "user";
        let Some(before) = before.filter(|_| is_ours) else { return };
        let (now, was) = (last_turn(&version.object), last_turn(before));
        if now < was {
            let name = &version.id.key;
            found.push(format!(
                "at {}: lastTurn of {name} fell from {was} to {now}",
                version.revision
            ));
        }
    });
    found
}

/// Who has nothing to start has no place in the line, which would be before everybody's one day; and of who is suspended
/// nothing has had its start, or it would be resumed without a slot.
#[must_use]
pub fn memory_fits(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |_, version, _| {
        let (object, status) = (&version.object, &version.object["status"]);
        let is_judged = version.id.kind == "Workspace"
            && version.by != "user"
            && status["observedGeneration"] == object["metadata"]["generation"]
            && !is_deleting(object);
        if !is_judged {
            return;
        }
        let (revision, name) = (version.revision, &version.id.key);
        let is_suspended = object["spec"]["suspended"] == json!(true);
        let is_right = is_out_of_reach(object) || items(&status["startedParts"]).is_empty();
        if is_suspended && !is_right {
            found.push(format!("at {revision}: {name} is suspended and has had its start"));
        }
        let had_start =
            |(entry, kind): (&Value, &str)| had_start(object, text(&entry["name"]), kind);
        let machines = items(&object["spec"]["virtualMachines"]).iter();
        let containers = items(&object["spec"]["containers"]).iter();
        let machines = machines.map(|entry| (entry, "VirtualMachine"));
        let mut parts = machines.chain(containers.map(|entry| (entry, "Deployment")));
        let has_started = !is_suspended && parts.all(had_start) && open_turn(object).is_none();
        if has_started && !status["ticket"].is_null() {
            found.push(format!("at {revision}: {name} has a ticket and nothing to start"));
        }
    });
    found
}

/// Nothing is written for it, so nothing of it stops.
fn is_out_of_reach(workspace: &Value) -> bool {
    let mut conditions = items(&workspace["status"]["conditions"]).iter();
    conditions.any(|it| it["type"] == "Accepted" && it["reason"] == "NamespaceNotAllowed")
}

/// Nobody is admitted while one with a lower ticket in its status has waited for nothing but a slot ever since. One
/// that is, was, or turns out to be held up by something else is passed over by right.
#[must_use]
pub fn fair_admission(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut held_up: BTreeSet<&str> = BTreeSet::new();
    Replay::walk(history, |world, version, before| {
        if version.id.kind == "Workspace" && is_held_up(&version.object) {
            held_up.insert(uid(&version.object));
        }
        let Some(ledger) = ledger_write(version) else { return };
        let active = world.active();
        let waiting: Vec<(Ticket, &Value)> = world
            .of_kind("Workspace")
            .filter(|it| open_turn(it).is_none() && !held_up.contains(uid(it)))
            .filter(|it| !active.iter().any(|entry| entry["uid"] == it["metadata"]["uid"]))
            .filter_map(|it| Some((text(&it["status"]["ticket"]).parse().ok()?, it)))
            .collect();
        for entry in entries_added(before, ledger) {
            let Ok(ticket) = text(&entry["ticket"]).parse::<Ticket>() else { continue };
            for (lower, workspace) in waiting.iter().filter(|(lower, _)| *lower < ticket) {
                let (name, who) = (text(&workspace["metadata"]["name"]), text(&entry["name"]));
                let what = format!(
                    "at {}: {who} ({ticket}) was admitted before {name} ({lower})",
                    version.revision
                );
                found.push((uid(workspace), what));
            }
        }
    });
    found.retain(|(uid, _)| !held_up.contains(uid));
    found.into_iter().map(|(_, what)| what).collect()
}

/// Whether a workspace waits for something else than a slot, as far as it says so itself.
fn is_held_up(workspace: &Value) -> bool {
    let conditions = items(&workspace["status"]["conditions"]).iter();
    let mut admitted = conditions.filter(|it| it["type"] == "Admitted" && it["status"] == "False");
    let waits = |reason: &str| matches!(reason, "Queued" | "SlotsBusy" | "Paused");
    is_deleting(workspace)
        || workspace["spec"]["suspended"] == json!(true)
        || admitted.any(|it| !waits(text(&it["reason"])))
}

fn entries(ledger: &Value) -> u64 {
    items(&ledger["status"]["active"]).len() as u64
}

fn open_turn(workspace: &Value) -> Option<i64> {
    workspace["status"]["openTurn"]["number"].as_i64()
}

fn last_turn(workspace: &Value) -> i64 {
    workspace["status"]["lastTurn"].as_i64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::key;
    use crate::clock::VirtualClock;
    use crate::world::World;

    /// Two workspaces and a ledger, as tests write them.
    struct Book {
        world: World,
    }

    impl Book {
        fn new() -> Self {
            let world = World::new(&VirtualClock::default());
            let make = |kind: &str, name: &str| {
                world.create_value(json!({
                    "apiVersion": "pelotech.ot/v1alpha1", "kind": kind, "metadata": {"name": name},
                }))
            };
            make("AdmissionQueue", "workspaces");
            make("Workspace", "a");
            make("Workspace", "b");
            Self { world }
        }

        /// The ledger holds turn 1 of these; `a` has ticket 1, `b` ticket 2.
        fn active(self, limit: u64, names: &[&str]) -> Self {
            let entry = |name: &&str| {
                let uid =
                    self.world.get("Workspace", &key(name)).unwrap()["metadata"]["uid"].clone();
                let ticket = if *name == "a" { "1" } else { "2" };
                json!({"namespace": "", "name": name, "uid": uid, "attempt": 1, "ticket": ticket})
            };
            let entries: Vec<Value> = names.iter().map(entry).collect();
            let mut queue = self.world.get("AdmissionQueue", &key("workspaces")).unwrap();
            queue["status"] = json!({"limit": limit, "active": entries});
            let queue = serde_json::from_value(queue).unwrap();
            let request = otctl_kit::cluster::Request::ReplaceStatus(Box::new(queue));
            self.world.request("controller", request).unwrap();
            self
        }

        fn status(self, name: &str, fields: &Value) -> Self {
            let target = otctl_kit::cluster::Target::new::<otctl_types::Workspace>(None, name);
            let patch = json!({"status": fields});
            let request = otctl_kit::cluster::Request::PatchStatus { target, patch };
            self.world.request("controller", request).unwrap();
            self
        }

        fn open(self, name: &str) -> Self {
            self.status(name, &json!({"lastTurn": 1, "openTurn": {"number": 1}}))
        }

        fn close(self, name: &str) -> Self {
            self.status(name, &json!({"openTurn": null, "ticket": null}))
        }

        fn found(&self, find: fn(&[Version]) -> Vec<String>, wanted: &str) {
            let found = self.world.history(find).join("\n");
            let is_as_wanted =
                if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) };
            assert!(is_as_wanted, "\"{wanted}\" in: {found}");
        }
    }

    #[test]
    fn what_is_remembered_in_vain_is_found() {
        let check = |suspended: bool, mut status: Value, wanted: &str| {
            let book = Book::new();
            book.world.edit("Workspace", &key("a"), |it| {
                it["spec"] = json!({"containers": [{"name": "api"}], "suspended": suspended});
            });
            let workspace = book.world.get("Workspace", &key("a")).unwrap();
            status["observedGeneration"] = workspace["metadata"]["generation"].clone();
            book.status("a", &status).found(memory_fits, wanted);
        };
        check(false, json!({"startedParts": ["api"], "ticket": "1"}), "a has a ticket and nothing");
        check(false, json!({"startedParts": ["api"]}), "");
        check(false, json!({"startedParts": [], "ticket": "1"}), "");
        check(true, json!({"startedParts": ["api"]}), "a is suspended and has had its start");
        check(true, json!({"startedParts": []}), "");
    }

    #[test]
    fn a_history_by_the_book_has_no_violations() {
        let book = Book::new().status("a", &json!({"ticket": "1"})).active(1, &["a"]).open("a");
        let book = book.status("b", &json!({"ticket": "2"})).close("a").active(1, &["b"]).open("b");
        book.close("b").active(1, &[]).found(intact, "");
    }

    #[test]
    fn slots_above_the_limit_are_found() {
        Book::new().active(1, &["a", "b"]).found(never_above_limit, "2 slots of 1");
        Book::new().active(1, &["a", "b"]).found(always, "2 admitted above 1");
        let lowered = Book::new().active(2, &["a", "b"]).active(1, &["a", "b"]).active(1, &["a"]);
        lowered.found(never_above_limit, "");
        let lost = Book::new().active(2, &["a", "b"]).open("a").open("b").active(1, &[]);
        lost.active(1, &["a", "b"]).found(always, "");
    }

    #[test]
    fn a_turn_without_a_slot_and_one_that_is_opened_twice_are_found() {
        Book::new()
            .active(1, &["b"])
            .open("a")
            .found(turns_have_entries, "turn 1 of a has no slot");
        let twice = Book::new().active(1, &["a"]).open("a").close("a").open("a");
        twice.found(opened_once, "turn 1 of a again");
        let back = Book::new().open("a").status("a", &json!({"lastTurn": 0}));
        back.found(turns_only_grow, "lastTurn of a fell from 1 to 0");
    }

    #[test]
    fn a_child_that_is_made_outside_of_a_turn_is_found() {
        let child = |book: &Book, name: &str| {
            let uid = book.world.get("Workspace", &key("a")).unwrap()["metadata"]["uid"].clone();
            let owner = json!({"kind": "Workspace", "name": "a", "uid": uid, "controller": true});
            book.world.create_value(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": name, "namespace": "labs", "ownerReferences": [owner],
                    "labels": {ENTRY_LABEL: name},
                },
            }));
        };
        let book = Book::new().active(1, &["a"]).open("a");
        child(&book, "in-time");
        book.found(made_in_turns, "");
        let book = book.close("a");
        child(&book, "late");
        book.found(made_in_turns, "Service labs/late outside of a turn");
    }

    #[test]
    fn what_runs_an_entry_that_had_no_start_as_that_is_found() {
        let made = |kind: &str, status: &Value| {
            let book = Book::new().active(1, &["a"]).open("a");
            let uid = book.world.get("Workspace", &key("a")).unwrap()["metadata"]["uid"].clone();
            let owner = json!({"kind": "Workspace", "name": "a", "uid": uid, "controller": true});
            let child = |kind: &str| {
                json!({
                    "apiVersion": "v1", "kind": kind,
                    "metadata": {
                        "name": "x", "namespace": "labs", "ownerReferences": [owner],
                        "labels": {ENTRY_LABEL: "x"},
                    },
                })
            };
            book.world.create_value(child("Service"));
            let book = book.close("a").status("a", status);
            book.world.create_value(child(kind));
            book
        };
        let container = json!({"startedParts": ["x"], "startedMachines": []});
        made("Deployment", &container).found(made_in_turns, "");
        let late = "VirtualMachine labs/x outside of a turn";
        made("VirtualMachine", &container).found(made_in_turns, late);
        let machine = json!({"startedParts": ["x"], "startedMachines": ["x"]});
        made("VirtualMachine", &machine).found(made_in_turns, "");
        let gained = json!({
            "startedParts": ["x"], "startedMachines": ["x"], "disks": [{"entry": "x", "copied": false}],
        });
        made("VirtualMachine", &gained).found(made_in_turns, late);
        made("Deployment", &json!({})).found(made_in_turns, "Deployment labs/x outside of a turn");
        made("Deployment", &json!({"startedParts": ["x"]})).found(made_in_turns, "");
    }

    #[test]
    fn overtaking_is_found_and_passing_over_is_not() {
        let waiting = || Book::new().status("a", &json!({"ticket": "1"}));
        waiting().active(1, &["b"]).found(fair_admission, "b (2) was admitted before a (1)");
        let admitted = json!([{"type": "Admitted", "status": "False", "reason": "AwaitingImages"}]);
        let passed_over = waiting().active(1, &["b"]).status("a", &json!({"conditions": admitted}));
        passed_over.found(fair_admission, "");
        let inverted = Book::new().status("a", &json!({"ticket": "2"}));
        inverted.status("b", &json!({"ticket": "1"})).found(intact, "a has first ticket 2");
    }
}
