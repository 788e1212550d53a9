//! Versions of an image as they are seen, and what is met on the way.

use serde_json::{Value, json};

use super::*;

/// An image created at noon, as its status is so many minutes later.
fn version(status: Value) -> Arc<VMDiskImage> {
    let metadata =
        json!({"name": "web", "namespace": "lab", "uid": "u", "creationTimestamp": at(0)});
    let mut image = json!({
        "apiVersion": "pelotech.ot/v1alpha1",
        "kind": "VMDiskImage",
        "metadata": metadata,
        "spec": {"url": "http://host/web.qcow2", "sourceType": "http"},
    });
    image["status"] = status;
    Arc::new(serde_json::from_value(image).unwrap())
}

/// So many minutes after noon.
fn at(minute: u32) -> String {
    format!("2026-05-01T12:{minute:02}:00Z")
}

fn open(number: i64, ticket: &str, since: u32) -> Value {
    json!({"number": number, "jobUID": format!("job-{number}"), "ticket": ticket, "startedAt": at(since)})
}

fn ended(number: i64, ticket: &str, (since, until): (u32, u32), reason: &str) -> Value {
    json!({
        "number": number, "ticket": ticket, "startedAt": at(since), "endedAt": at(until), "reason": reason,
        "bytes": 10 * number, "charged": true,
    })
}

fn line(milestone: &Milestone) -> String {
    let minutes = |took: &Duration| format!("{} min", took.as_secs() / 60);
    match milestone {
        Milestone::Admitted { waited } => format!("admitted after {}", minutes(waited)),
        Milestone::Opened { job_uid } => format!("opened {job_uid}"),
        Milestone::Closed { job_uid, bytes } => format!("closed {job_uid} with {bytes:?}"),
        Milestone::Ended(reason) => format!("ended {reason}"),
        Milestone::SnapshotLate => "snapshot late".to_owned(),
        Milestone::Synced { since_admission, since_creation } => {
            let [admission, creation] = [since_admission, since_creation]
                .map(|took| took.as_ref().map_or("-".to_owned(), minutes));
            format!("synced in {admission} of {creation}")
        }
    }
}

/// What is met between these versions, the first of which is news of nothing.
fn check(versions: &[Arc<VMDiskImage>], expected: &[&str]) {
    let mut seen = Seen::first(versions[0].clone());
    let met = versions[1..].iter().flat_map(|version| seen.next(version.clone()));
    assert_eq!(met.map(|met| line(&met)).collect::<Vec<_>>(), expected);
}

/// The versions of a life that waits ten minutes, syncs for five and has its snapshot after another.
fn life() -> [Value; 6] {
    let queued = json!({"phase": "Queued", "ticket": "1", "queuedAt": at(1)});
    let one = json!({"ticket": "1", "queuedAt": at(1), "lastAttempt": 1});
    let with = |more: Value| {
        let mut status = one.clone();
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        status
    };
    let brought = json!([ended(1, "1", (11, 16), "Succeeded")]);
    [
        json!({}),
        queued,
        with(json!({"phase": "Syncing", "openAttempt": open(1, "1", 11)})),
        with(
            json!({"phase": "Syncing", "openAttempt": open(1, "1", 11), "progress": {"bytes": 5}}),
        ),
        with(json!({"phase": "Snapshotting", "attempts": brought})),
        with(json!({
            "phase": "Succeeded", "attempts": brought, "current": {"revision": "r", "syncedAt": at(17)},
        })),
    ]
}

const MET: [&str; 5] = [
    "admitted after 10 min",
    "opened job-1",
    "closed job-1 with Some(10)",
    "ended Succeeded",
    "synced in 6 min of 17 min",
];

#[test]
fn a_life_is_met_step_by_step() {
    check(&life().map(version), &MET);
}

#[test]
fn what_is_seen_again_is_not_met_again() {
    let life = life();
    let twice: Vec<_> = life.iter().flat_map(|it| [it.clone(), it.clone()]).map(version).collect();
    check(&twice, &MET);
}

#[test]
fn versions_that_were_not_seen_hide_no_attempt() {
    let life = life();
    let gap = [life[1].clone(), life[5].clone()].map(version);
    check(&gap, &["admitted after 10 min", "ended Succeeded", "synced in 6 min of 17 min"]);
}

#[test]
fn whoever_comes_later_meets_what_is_left() {
    let life = life().map(version);
    check(&life[3..], &MET[2..]);
    check(&life[4..], &MET[4..]);
    check(&life[5..], &[]);
}

#[test]
fn ticket_and_slot_at_once_are_a_wait_since_creation() {
    let probing = json!({"phase": "Syncing", "ticket": "1", "queuedAt": at(3)});
    let mut importing = probing.clone();
    importing["openAttempt"] = open(1, "1", 2);
    importing["lastAttempt"] = json!(1);
    check(&[json!({}), probing, importing].map(version), &["admitted after 2 min", "opened job-1"]);
}

/// A status whose first attempt failed at minute 5.
fn failed_once() -> Value {
    json!({
        "phase": "Queued", "ticket": "1", "queuedAt": at(0), "lastAttempt": 1, "nextRetryAt": at(10),
        "attempts": [ended(1, "1", (0, 5), "ServerError")],
    })
}

#[test]
fn a_retry_waits_from_its_own_ticket() {
    let mut queued = failed_once();
    queued["ticket"] = json!("1r");
    queued["queuedAt"] = json!(at(10));
    let mut again = queued.clone();
    again["lastAttempt"] = json!(2);
    again["openAttempt"] = open(2, "1r", 30);
    check(&[failed_once(), queued, again].map(version), &["admitted after 20 min", "opened job-2"]);
}

#[test]
fn a_retry_that_is_admitted_when_it_is_due_has_not_waited() {
    let mut again = failed_once();
    again["ticket"] = json!("1r");
    again["lastAttempt"] = json!(2);
    again["openAttempt"] = open(2, "1r", 10);
    check(&[failed_once(), again].map(version), &["admitted after 0 min", "opened job-2"]);
}

#[test]
fn a_number_counts_once_whatever_is_learned_of_it_later() {
    let mut lost = failed_once();
    lost["attempts"] = json!([ended(1, "1", (0, 5), "Lost")]);
    lost["lastLossAt"] = json!(at(20));
    check(&[failed_once(), lost].map(version), &[]);
}

#[test]
fn a_status_that_was_wiped_and_restored_tells_no_news() {
    let mut next = failed_once();
    next["lastAttempt"] = json!(2);
    next["attempts"] =
        json!([ended(1, "1", (0, 5), "ServerError"), ended(2, "2", (9, 9), "SecretNotFound")]);
    check(
        &[failed_once(), json!({}), failed_once(), next].map(version),
        &["admitted after 0 min", "ended SecretNotFound"],
    );
}

#[test]
fn time_that_a_person_took_is_not_told_as_ours() {
    let synced = |minute| {
        json!({
            "phase": "Succeeded", "lastAttempt": 2, "current": {"revision": "r", "syncedAt": at(minute)},
            "attempts": [ended(2, "2", (40, minute), "Succeeded")],
        })
    };
    let failed = json!({"phase": "Failed", "lastAttempt": 1});
    let expected = ["admitted after 0 min", "ended Succeeded", "synced in 10 min of -"];
    check(&[failed, synced(50)].map(version), &expected);
    let lost = json!({"phase": "Queued", "lastAttempt": 1, "lastLossAt": at(30)});
    let mut again = synced(50);
    again["lastLossAt"] = json!(at(30));
    check(&[lost, again].map(version), &expected);
}

#[test]
fn each_late_snapshot_is_met() {
    let late =
        |count| json!({"phase": "Snapshotting", "lateSnapshots": {"count": count, "lastUID": "s"}});
    let versions = [json!({"phase": "Snapshotting"}), late(1), late(1), late(2), json!({})];
    check(&versions.map(version), &["snapshot late", "snapshot late"]);
}

#[test]
fn clocks_that_disagree_make_no_negative_time() {
    let synced = json!({
        "phase": "Succeeded", "lastAttempt": 1, "attempts": [ended(1, "1", (9, 7), "Succeeded")],
        "current": {"revision": "r", "syncedAt": at(7)},
    });
    let expected = ["admitted after 9 min", "ended Succeeded", "synced in 0 min of 7 min"];
    check(&[json!({}), synced].map(version), &expected);
}
