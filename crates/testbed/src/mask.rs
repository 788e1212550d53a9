//! Makes end states comparable: what is left after two runs is the same set of objects once everything is masked that
//! is new in each run by its nature: UIDs, times, resourceVersions, tickets, and names made from them. Works on objects
//! of the world and of a real API server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::golden;
use crate::json::{items, text};

/// Kinds that are no part of an end state: Events are told or lost, a Lease is always moving.
const LEFT_OUT: [&str; 2] = ["Event", "Lease"];
/// Fields of metadata that differ in every run.
const METADATA: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];
/// Fields that hold a place in an order.
const TICKETS: [&str; 2] = ["ticket", "oldestWaitingTicket"];

/// A set of masked objects: each name may stand for several.
pub type EndState = BTreeMap<String, Vec<Value>>;

/// The end state that `objects` are.
#[must_use]
pub fn end_state(objects: impl IntoIterator<Item = Value>) -> EndState {
    let mut state = EndState::new();
    for object in objects {
        if LEFT_OUT.contains(&text(&object["kind"])) {
            continue;
        }
        let object = masked(object);
        let metadata = &object["metadata"];
        let name = format!(
            "{} {}/{}",
            text(&object["kind"]),
            text(&metadata["namespace"]),
            text(&metadata["name"])
        );
        state.entry(name).or_default().push(object);
    }
    state.values_mut().for_each(|same| same.sort_by_key(Value::to_string));
    state
}

/// The difference of two end states: what is missing by name, what nobody wanted in full, and what differs as a line
/// diff. Empty when they are equal.
#[must_use]
pub fn difference(wanted: &EndState, found: &EndState) -> String {
    let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let differences = names.into_iter().map(|name| match (wanted.get(name), found.get(name)) {
        (Some(_), None) => format!("{name} is missing\n"),
        (None, Some(found)) => format!("{name} was not wanted:\n{}", pretty(found)),
        (wanted, found) if wanted == found => String::new(),
        (wanted, found) => {
            let [old, new] =
                [wanted, found].map(|all| all.map_or_else(String::new, |all| pretty(all)));
            format!("{name} differs:\n{}", golden::difference(&old, &new))
        }
    });
    differences.collect()
}

fn pretty(objects: &[Value]) -> String {
    objects
        .iter()
        .map(|object| serde_json::to_string_pretty(object).expect("JSON is printable") + "\n")
        .collect()
}

/// An object with everything masked that differs from run to run.
#[must_use]
pub fn masked(mut object: Value) -> Value {
    let stem = text(&object["metadata"]["generateName"]).to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
        if !stem.is_empty() {
            metadata.insert("name".to_owned(), Value::from(format!("{stem}<random>")));
        }
    }
    mask(&mut object);
    sort_by_name(&mut object);
    object
}

fn mask(value: &mut Value) {
    match value {
        Value::String(content) => *content = masked_text(content),
        Value::Array(elements) => elements.iter_mut().for_each(mask),
        Value::Object(fields) => mask_fields(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_fields(fields: &mut Map<String, Value>) {
    for (name, field) in fields.iter_mut() {
        if TICKETS.contains(&name.as_str()) {
            *field = Value::from("<ticket>");
        } else {
            mask(field);
        }
    }
}

/// Conditions and ledger entries are sets: their order is no part of the state.
fn sort_by_name(object: &mut Value) {
    for (list, key) in [("conditions", "type"), ("active", "name")] {
        if let Some(elements) = object["status"].get_mut(list).and_then(Value::as_array_mut) {
            elements.sort_by_key(|element| element[key].to_string());
        }
    }
    debug_assert!(
        items(&object["status"]["conditions"]).iter().all(|condition| condition.is_object())
    );
}

fn masked_text(content: &str) -> String {
    if content.parse::<jiff::Timestamp>().is_ok() {
        return "<time>".to_owned();
    }
    let content = replace_runs(content, UID_LENGTH, is_uid, "<uid>");
    replace_runs(&content, 10, is_hash_in_name, "-<hash>-")
}

const UID_LENGTH: usize = 36;

fn is_uid(piece: &str) -> bool {
    piece.char_indices().all(|(at, c)| match at {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    })
}

/// Eight hexadecimal digits between hyphens, as in the names of children that are made from their owner's UID.
fn is_hash_in_name(piece: &str) -> bool {
    let inner = piece.strip_prefix('-').and_then(|piece| piece.strip_suffix('-'));
    inner.is_some_and(|inner| inner.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)))
}

/// Replaces every piece of `length` bytes that `is_meant`.
fn replace_runs(
    content: &str,
    length: usize,
    is_meant: impl Fn(&str) -> bool,
    mask: &str,
) -> String {
    let mut told = String::new();
    let mut rest = content;
    while let Some(first) = rest.chars().next() {
        if rest.get(..length).is_some_and(&is_meant) {
            told.push_str(mask);
            rest = &rest[length..];
        } else {
            told.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(uid: &str, hash: &str, time: &str) -> Value {
        json!({
            "kind": "Job",
            "metadata": {
                "name": format!("disk-{hash}-a1"), "namespace": "lab", "uid": uid, "resourceVersion": "7",
                "creationTimestamp": time, "labels": {"pelotech.ot/owner-uid": uid},
                "ownerReferences": [{"name": "disk", "uid": uid}],
            },
            "status": {"startTime": time, "ticket": time, "volume": format!("pvc-{uid}")},
        })
    }

    #[test]
    fn what_is_new_in_every_run_is_masked() {
        let one = job("00000000-0000-4000-8000-000000000001", "0123abcd", "2026-01-01T12:00:00Z");
        let other =
            job("9f1c2c1e-0d58-4a2f-8a51-0c2b53b7a0aa", "deadbeef", "2027-02-03T01:02:03.123456Z");
        let state = end_state([one]);
        assert_eq!(difference(&state, &end_state([other])), "");
        assert_eq!(state.keys().collect::<Vec<_>>(), ["Job lab/disk-<hash>-a1"]);
    }

    #[test]
    fn what_is_not_is_told() {
        let time = "2026-01-01T12:00:00Z";
        let one = end_state([job("u", "0123abcd", time)]);
        let mut changed = job("u", "0123abcd", time);
        changed["status"]["active"] = json!(1);
        assert!(difference(&one, &end_state([changed])).contains("+    \"active\": 1"));
        assert_eq!(difference(&one, &end_state([])), "Job lab/disk-<hash>-a1 is missing\n");
        let unwanted = difference(&end_state([]), &one);
        assert!(unwanted.contains("a1 was not wanted:\n{\n  \"kind\": \"Job\""), "{unwanted}");
        let twice = [job("u", "0123abcd", time), job("v", "4567abcd", time)];
        assert_ne!(one, end_state(twice), "two of a masked name are not one");
    }

    #[test]
    fn generated_names_lose_their_random_end() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "job-x7f2k", "generateName": "job-", "namespace": "lab"}});
        assert!(end_state([pod]).contains_key("Pod lab/job-<random>"));
    }
}
