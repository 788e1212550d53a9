//! The ledger's invariants, on every version of a history: the limit, an entry per pod, a pod per attempt, the order of
//! first tickets, attempts that are on record before they run.

use std::collections::{BTreeMap, BTreeSet};

use otctl_kit::store::Key;
use otctl_types::names::ATTEMPT_ANNOTATION;
use policy::Ticket;
use serde_json::{Value, json};

use super::replay::{Replay, Slot, is_finished, is_started, slot_of_entry, slot_of_job};
use crate::json::{controller, is_deleting, items, text, uid};
use crate::world::{Id, Verb, Version};

/// What must hold while only the controllers write the ledger.
#[must_use]
pub fn intact(history: &[Version]) -> Vec<String> {
    let mut found = always(history);
    found.extend(pods_have_entries(history));
    found.extend(fair_admission(history));
    found
}

/// What must hold even when the ledger was lost, emptied or restored from a backup.
#[must_use]
pub fn always(history: &[Version]) -> Vec<String> {
    let mut found = admissions_within_limit(history);
    found.extend(limit_is_current(history));
    found.extend(pods_within_limit(history));
    found.extend(one_pod_per_attempt(history));
    found.extend(started_jobs_are_recorded(history));
    found.extend(attempts_only_grow(history));
    found.extend(first_tickets_in_order(history));
    found
}

/// A write that admits leaves at most `limit` entries. Work that already runs may be entered above it.
#[must_use]
pub fn admissions_within_limit(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, before| {
        let Some(ledger) = ledger_write(version) else { return };
        let (active, limit) =
            (items(&ledger["status"]["active"]), ledger["status"]["limit"].as_u64());
        let admitted: Vec<String> =
            added(before, ledger).filter(|slot| !runs(world, slot)).map(|s| told(&s)).collect();
        if !admitted.is_empty() && limit.is_none_or(|limit| active.len() as u64 > limit) {
            let (held, admitted) = (active.len(), admitted.join(", "));
            found.push(format!(
                "at {}: {admitted} admitted, {held} of {limit:?} active",
                version.revision
            ));
        }
    });
    found
}

/// A write that admits carries a `concurrency` that stood in the policy at some time since the version it replaces.
/// Values that are no numbers say nothing here.
#[must_use]
pub fn limit_is_current(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_effect: Vec<Option<u64>> = Vec::new();
    Replay::walk(history, |world, version, before| {
        if version.id.kind == "ConfigMap" && !version.object["data"].is_null() {
            let value = text(&version.object["data"]["concurrency"]).parse().ok();
            in_effect.push(value.filter(|_| !version.is_removal()));
        }
        let Some(ledger) = ledger_write(version) else { return };
        let limit = ledger["status"]["limit"].as_u64();
        let admits = added(before, ledger).any(|slot| !runs(world, &slot));
        let all_readable = !in_effect.is_empty() && in_effect.iter().all(Option::is_some);
        if admits && all_readable && !in_effect.contains(&limit) {
            found.push(format!(
                "at {}: admitted by limit {limit:?}, the policy said {in_effect:?}",
                version.revision
            ));
        }
        in_effect.drain(..in_effect.len().saturating_sub(1));
    });
    found
}

/// Import pods that have not ended are never more than the highest limit since the oldest of them got its Job.
#[must_use]
pub fn pods_within_limit(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut limits: Vec<(u64, u64)> = Vec::new();
    let mut job_made: BTreeMap<&str, u64> = BTreeMap::new();
    Replay::walk(history, |world, version, _| {
        if let Some(limit) =
            ledger_write(version).and_then(|ledger| ledger["status"]["limit"].as_u64())
        {
            limits.push((version.revision, limit));
        }
        if version.id.kind == "Job" && version.verb == Verb::Created {
            job_made.insert(uid(&version.object), version.revision);
        }
        if version.id.kind != "Pod" || version.verb != Verb::Created {
            return;
        }
        let pods = world.import_pods();
        let made =
            |pod: &Value| controller(pod).and_then(|job| job_made.get(text(&job["uid"]))).copied();
        let oldest = pods.iter().filter_map(|(pod, _)| made(pod)).min().unwrap_or(version.revision);
        let since = limits.iter().rposition(|(at, _)| *at <= oldest).unwrap_or(0);
        let highest =
            limits[since.min(limits.len())..].iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        if pods.len() as u64 > highest {
            found.push(format!(
                "at {}: {} import pods alive, the limit is {highest}",
                version.revision,
                pods.len()
            ));
        }
    });
    found
}

/// Every import pod that has not ended has its entry (UID, n).
#[must_use]
pub fn pods_have_entries(history: &[Version]) -> Vec<String> {
    let mut found = BTreeMap::new();
    Replay::walk(history, |world, version, _| {
        if !matches!(version.id.kind.as_str(), "Pod" | "AdmissionQueue") {
            return;
        }
        let held: BTreeSet<Slot> = world.active().into_iter().map(slot_of_entry).collect();
        for (pod, slot) in world.import_pods() {
            if !held.contains(&slot) {
                let name = text(&pod["metadata"]["name"]);
                let what = format!(
                    "at {}: import pod {name} runs without entry {}",
                    version.revision,
                    told(&slot)
                );
                found.entry(uid(pod)).or_insert(what);
            }
        }
    });
    found.into_values().collect()
}

/// An attempt has at most one import pod over its whole life.
#[must_use]
pub fn one_pod_per_attempt(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut pods: BTreeMap<Slot, &str> = BTreeMap::new();
    Replay::walk(history, |world, version, _| {
        if version.id.kind != "Pod" || version.verb != Verb::Created {
            return;
        }
        let Some(slot) = world.slot_of_pod(&version.object) else { return };
        let what = format!("at {}: a second import pod for {}", version.revision, told(&slot));
        if pods.insert(slot, uid(&version.object)).is_some() {
            found.push(what);
        }
    });
    found
}

/// An import Job is created suspended, and when it is started its image's status has it on record as the open attempt.
#[must_use]
pub fn started_jobs_are_recorded(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |world, version, before| {
        let job = &version.object;
        let was_started = before.is_some_and(is_started);
        let Some(slot) =
            slot_of_job(job).filter(|_| is_started(job) && !was_started && !version.is_removal())
        else {
            return;
        };
        if before.is_none() {
            found.push(format!(
                "at {}: import Job {} was created started",
                version.revision, version.id.key
            ));
            return;
        }
        let open = world
            .last_of(&slot.image)
            .map(|image| &image["status"]["openAttempt"])
            .unwrap_or(&Value::Null);
        if text(&open["jobUID"]) != uid(job) || open["number"] != json!(slot.attempt) {
            let why = format!("started without being on record as {}: {open}", told(&slot));
            found.push(format!("at {}: import Job {} was {why}", version.revision, version.id.key));
        }
    });
    found
}

/// `lastAttempt` of an image never falls while it lives, and no Job of a number is made twice under two UIDs and started.
#[must_use]
pub fn attempts_only_grow(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    Replay::walk(history, |_, version, before| {
        let Some(before) =
            before.filter(|_| version.id.kind == "VMDiskImage" && version.by != "user")
        else {
            return;
        };
        let (last, was) =
            (&version.object["status"]["lastAttempt"], &before["status"]["lastAttempt"]);
        if last.as_i64().unwrap_or(0) < was.as_i64().unwrap_or(0) {
            found.push(format!(
                "at {}: lastAttempt of {} fell from {was} to {last}",
                version.revision, version.id.key
            ));
        }
    });
    found
}

/// First tickets follow the order of creation, among images, and among workspaces, that lived at the same time: a number that only
/// the dead had may be given again. Who was ever suspended is left out: it takes its first ticket when it is resumed.
/// Creates that cross may be in one order by their timestamps, which the API server takes first, and in the other by their
/// versions; then either is right.
#[must_use]
pub fn first_tickets_in_order(history: &[Version]) -> Vec<String> {
    let mut created: BTreeMap<&str, (u64, &str, &Id)> = BTreeMap::new();
    let mut given: BTreeMap<&str, Ticket> = BTreeMap::new();
    let mut gone: BTreeMap<&str, u64> = BTreeMap::new();
    let mut suspended: BTreeSet<&str> = BTreeSet::new();
    Replay::walk(history, |_, version, before| {
        let object = &version.object;
        if matches!(version.id.kind.as_str(), "VMDiskImage" | "Workspace") {
            created
                .entry(uid(object))
                .or_insert_with(|| (version.revision, second(object), &version.id));
            // A workspace gives its ticket back when it is ready; then its number may be given again as well.
            let had = before.is_some_and(|it| !it["status"]["ticket"].is_null());
            let is_back = had && object["status"]["ticket"].is_null();
            if version.verb == Verb::Removed || is_back {
                gone.entry(uid(object)).or_insert(version.revision);
            }
            let is_held =
                ["suspend", "suspended"].iter().any(|it| object["spec"][it] == json!(true));
            suspended.extend(is_held.then(|| uid(object)));
            note(&mut given, uid(object), &object["status"]["ticket"]);
        }
        for entry in
            ledger_write(version).into_iter().flat_map(|ledger| items(&ledger["status"]["active"]))
        {
            note(&mut given, text(&entry["uid"]), &entry["ticket"]);
        }
    });
    let mut order: Vec<Life<'_>> = given
        .iter()
        .filter(|(uid, ticket)| !suspended.contains(*uid) && ticket.retry_at().is_none())
        .filter_map(|(uid, ticket)| {
            let (created, second, id) = created.get(uid)?;
            let gone = gone.get(uid).copied().unwrap_or(u64::MAX);
            let (kind, name) = (&id.kind, &id.key);
            Some(Life { kind, created: *created, second, gone, ticket: *ticket, name })
        })
        .collect();
    order.sort_by_key(|life| life.created);
    let pairs = order
        .iter()
        .enumerate()
        .flat_map(|(at, younger)| order[..at].iter().map(move |elder| (elder, younger)));
    let inverted = pairs.filter(|(elder, younger)| {
        let lived_together = elder.kind == younger.kind && elder.gone > younger.created;
        let is_before = elder.second <= younger.second || elder.ticket == younger.ticket;
        lived_together && is_before && elder.ticket >= younger.ticket
    });
    inverted
        .map(|(elder, younger)| {
            format!(
                "{} has first ticket {}, {}, created later, has {}",
                elder.name, elder.ticket, younger.name, younger.ticket
            )
        })
        .collect()
}

/// An image with a first ticket: between which versions it lived.
struct Life<'a> {
    kind: &'a str,
    created: u64,
    second: &'a str,
    gone: u64,
    ticket: Ticket,
    name: &'a Key,
}

/// The second in which an object was created.
fn second(object: &Value) -> &str {
    text(&object["metadata"]["creationTimestamp"])
}

fn note<'a>(given: &mut BTreeMap<&'a str, Ticket>, uid: &'a str, ticket: &Value) {
    if let Ok(ticket) = text(ticket).parse::<Ticket>() {
        given.entry(uid).or_insert(ticket);
    }
}

/// Nobody is admitted while one with a lower first ticket, already in its status, has waited for nothing but a slot ever
/// since it got that ticket. One that turns out to be held up by something else, or by its host's limit, is passed over
/// by right.
#[must_use]
pub fn fair_admission(history: &[Version]) -> Vec<String> {
    let mut found = Vec::new();
    let mut held_up: BTreeSet<&str> = BTreeSet::new();
    let mut limits_hosts = false;
    Replay::walk(history, |world, version, before| {
        if version.id.kind == "VMDiskImage" && is_held_up(&version.object) {
            held_up.insert(uid(&version.object));
        }
        limits_hosts |= !text(&version.object["data"]["concurrencyPerHost"]).is_empty();
        let Some(ledger) = ledger_write(version) else { return };
        let active: Vec<&Value> = world.active();
        let waiting = world.of_kind("VMDiskImage").filter(|image| {
            let is_held = active.iter().any(|entry| entry["uid"] == image["metadata"]["uid"]);
            let may_wait =
                limits_hosts && active.iter().any(|entry| text(&entry["host"]) == host(image));
            is_fresh(image) && !is_held && !may_wait && !held_up.contains(uid(image))
        });
        let waiting: Vec<(Ticket, &Value)> =
            waiting.filter_map(|image| Some((ticket(image)?, image))).collect();
        for entry in entries_added(before, ledger) {
            let Ok(ticket) = text(&entry["ticket"]).parse::<Ticket>() else { continue };
            for (lower, image) in waiting.iter().filter(|(lower, _)| *lower < ticket) {
                let (name, who) = (text(&image["metadata"]["name"]), text(&entry["name"]));
                let what = format!(
                    "at {}: {who} ({ticket}) was admitted before {name} ({lower})",
                    version.revision
                );
                found.push((uid(image), version.revision, what));
            }
        }
    });
    found.retain(|(image, at, _)| !turns_out_held_up(history, image, *at));
    found.into_iter().map(|(_, _, what)| what).collect()
}

/// Whether the next thing that an image's status says after a revision is that it waits for something else.
fn turns_out_held_up(history: &[Version], image: &str, at: u64) -> bool {
    let next =
        history.iter().find(|version| version.revision > at && uid(&version.object) == image);
    next.is_some_and(|version| is_held_up(&version.object))
}

/// Whether an image has made no attempt so far.
fn is_fresh(image: &Value) -> bool {
    let status = &image["status"];
    matches!(text(&status["phase"]), "" | "Queued")
        && status["lastAttempt"].as_i64().unwrap_or(0) == 0
}

/// Whether an image waits for something else than its ticket and a slot, as far as it says so itself.
fn is_held_up(image: &Value) -> bool {
    let status = &image["status"];
    let reason = |kind: &str| {
        let condition =
            items(&status["conditions"]).iter().find(|condition| condition["type"] == kind)?;
        Some(text(&condition["reason"]).to_owned())
    };
    let waits_for_slot =
        |reason: &str| matches!(reason, "Queued" | "SlotsBusy" | "Paused" | "NoData");
    let has_other_reason =
        ["Admitted", "Ready"].into_iter().filter_map(reason).any(|reason| !waits_for_slot(&reason));
    let is_refused = reason("Accepted").is_some_and(|reason| reason != "Accepted");
    let is_put_off = !status["nextRetryAt"].is_null()
        || image["spec"]["suspend"] == json!(true)
        || is_deleting(image);
    is_put_off || is_refused || (is_fresh(image) && has_other_reason)
}

fn ticket(image: &Value) -> Option<Ticket> {
    text(&image["status"]["ticket"]).parse().ok()
}

/// The host of an image's source.
fn host(image: &Value) -> &str {
    let url = text(&image["spec"]["url"]);
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', ':', '?', '#']).next().unwrap_or_default()
}

/// The ledger, when `version` is a state of it.
pub(super) fn ledger_write(version: &Version) -> Option<&Value> {
    (version.id.kind == "AdmissionQueue" && !version.is_removal()).then_some(&version.object)
}

fn slots(ledger: &Value) -> BTreeSet<Slot> {
    items(&ledger["status"]["active"]).iter().map(slot_of_entry).collect()
}

/// The entries that a write of the ledger brought.
pub(super) fn entries_added<'a>(
    before: Option<&Value>,
    ledger: &'a Value,
) -> impl Iterator<Item = &'a Value> {
    let held = before.map(slots).unwrap_or_default();
    items(&ledger["status"]["active"])
        .iter()
        .filter(move |entry| !held.contains(&slot_of_entry(entry)))
}

fn added(before: Option<&Value>, ledger: &Value) -> impl Iterator<Item = Slot> {
    entries_added(before, ledger).map(slot_of_entry)
}

/// Whether work for that slot was started and is not over: then entering it is no admission.
fn runs(world: &Replay<'_>, slot: &Slot) -> bool {
    let has_job = world
        .of_kind("Job")
        .any(|job| slot_of_job(job).as_ref() == Some(slot) && is_started(job) && !is_finished(job));
    has_job || world.import_pods().iter().any(|(_, of)| of == slot)
}

fn told(slot: &Slot) -> String {
    format!("({}, {ATTEMPT_ANNOTATION} {})", slot.image, slot.attempt)
}
