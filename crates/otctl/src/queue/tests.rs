use diskimage_controller::names::{budget_key, revision};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::ObjectMeta;
use otctl_types::diskimage::{Attempt, OpenAttempt, Progress};
use otctl_types::import::{ImageFormat, SourceFacts};
use otctl_types::{AdmissionQueueSpec, VMDiskImageSpec};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn noon() -> Timestamp {
    at("2026-05-01T12:00:00Z")
}

/// An image created `minute` minutes past eleven, without a status.
fn image(name: &str, minute: u32) -> VMDiskImage {
    let spec =
        VMDiskImageSpec { url: format!("http://images/{name}"), ..VMDiskImageSpec::default() };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("labs".to_owned()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some(format!("{}", 100 + minute)),
        creation_timestamp: Some(Time(at(&format!("2026-05-01T11:{minute:02}:00Z")))),
        ..ObjectMeta::default()
    };
    VMDiskImage { metadata, spec, status: None }
}

fn with(mut image: VMDiskImage, change: impl FnOnce(&mut VMDiskImageStatus)) -> VMDiskImage {
    change(image.status.get_or_insert_default());
    image
}

fn ticketed(name: &str, minute: u32, ticket: &str) -> VMDiskImage {
    with(image(name, minute), |status| {
        status.phase = Some(Phase::Queued);
        status.ticket = Some(ticket.to_owned());
        status.conditions = vec![ready("SlotsBusy")];
    })
}

fn ready(reason: &str) -> Condition {
    Condition {
        type_: READY.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(noon()),
    }
}

fn entry(name: &str, ticket: &str) -> ActiveEntry {
    ActiveEntry {
        namespace: "labs".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        attempt: 1,
        ticket: ticket.to_owned(),
        host: None,
        since: Time(noon()),
    }
}

fn queue(limit: u32, active: Vec<ActiveEntry>) -> AdmissionQueue {
    let mut queue = AdmissionQueue::new("vmdiskimages", AdmissionQueueSpec::default());
    let policy = Policy { concurrency: limit, ..Policy::default() };
    let limit = i32::try_from(limit).ok();
    queue.status = Some(AdmissionQueueStatus {
        limit,
        active,
        policy: policy.to_entries(),
        ..Default::default()
    });
    queue
}

/// One line a row: position, name, phase, reason.
fn check(limit: u32, active: Vec<ActiveEntry>, images: Vec<VMDiskImage>, expected: &[&str]) {
    let images: Vec<_> = images.into_iter().map(Arc::new).collect();
    let table = table(Some(&queue(limit, active)), &images, noon());
    let line = |row: &Row| {
        let position = row.position.map_or_else(|| "-".to_owned(), |position| position.to_string());
        format!("{position} {} {:?} {}", row.name, row.phase, row.reason)
    };
    assert_eq!(table.images.iter().map(line).collect::<Vec<_>>(), expected);
}

#[test]
fn those_that_wait_stand_in_the_order_of_their_tickets() {
    let running = with(ticketed("a", 0, "1"), |status| {
        status.phase = Some(Phase::Syncing);
        status.conditions = vec![ready("Importing")];
    });
    check(
        1,
        vec![entry("a", "1")],
        vec![ticketed("c", 1, "3"), ticketed("b", 2, "2"), running],
        &["- a Syncing Importing", "1 b Queued SlotsBusy", "2 c Queued SlotsBusy"],
    );
}

#[test]
fn one_without_a_ticket_stands_behind_all_that_have_one_by_age() {
    check(
        0,
        vec![],
        vec![image("young", 9), image("old", 8), ticketed("first", 30, "7")],
        &["1 first Queued SlotsBusy", "2 old Queued Paused", "3 young Queued Paused"],
    );
}

#[test]
fn one_that_cannot_start_holds_nobody_up() {
    let blocked = with(ticketed("a", 0, "1"), |status| {
        status.conditions = vec![ready("StorageClassNotFound")]
    });
    check(
        1,
        vec![],
        vec![blocked, ticketed("b", 1, "2")],
        &["1 b Queued SlotsBusy", "- a Queued StorageClassNotFound"],
    );
}

#[test]
fn a_retry_stands_behind_every_first_ticket_given_until_then() {
    check(
        0,
        vec![],
        vec![
            ticketed("retry", 0, "2+2026-05-01T11:59:00Z"),
            ticketed("later", 1, "3"),
            ticketed("earlier", 2, "2"),
        ],
        &["1 earlier Queued SlotsBusy", "2 retry Queued SlotsBusy", "3 later Queued SlotsBusy"],
    );
}

#[test]
fn one_in_backoff_says_why_it_failed_and_holds_nobody_up() {
    let failed = with(ticketed("failed", 0, "1"), |status| {
        status.next_retry_at = Some(Time(at("2026-05-01T12:05:00Z")));
        status.conditions = vec![ready("SecretNotFound")];
        let ticket = Some("1".to_owned());
        let revision = Some(revision(&image("failed", 0).spec));
        status.attempts = vec![Attempt { number: 1, ticket, revision, ..Attempt::default() }];
    });
    check(
        1,
        vec![],
        vec![failed, ticketed("next", 1, "2")],
        &["1 next Queued SlotsBusy", "- failed Queued SecretNotFound"],
    );
}

#[test]
fn those_that_are_held_back_wait_all_the_same() {
    let blocked = |name, minute, ticket| {
        with(ticketed(name, minute, ticket), |status| {
            status.conditions = vec![ready("StorageClassNotFound")]
        })
    };
    let images = [blocked("b", 0, "2"), ticketed("c", 1, "3"), blocked("a", 2, "1")].map(Arc::new);
    let table = table(Some(&queue(0, vec![])), &images, noon());
    let names: Vec<_> = table.images.iter().map(|row| (row.name.as_str(), row.position)).collect();
    assert_eq!(names, [("c", Some(1)), ("a", None), ("b", None)]);
    assert_eq!(table.counts.waiting, 3);
}

#[test]
fn what_has_ended_says_so_while_the_ledger_still_holds_its_slot() {
    let failed = with(ticketed("a", 0, "1"), |status| {
        status.phase = Some(Phase::Failed);
        status.conditions = vec![ready("SourceNotFound")];
    });
    check(1, vec![entry("a", "1")], vec![failed], &["- a Failed SourceNotFound"]);
}

#[test]
fn what_has_ended_or_is_suspended_has_no_position() {
    let done = with(image("done", 0), |status| {
        let spec = image("done", 0);
        status.phase = Some(Phase::Failed);
        status.conditions = vec![ready("SourceNotFound")];
        let (budget, revision) = (Some(budget_key(&spec)), Some(revision(&spec.spec)));
        status.attempts =
            vec![Attempt { number: 1, is_final: true, budget, revision, ..Attempt::default() }];
    });
    let mut suspended = image("suspended", 1);
    suspended.spec.suspend = true;
    check(
        2,
        vec![],
        vec![suspended, done],
        &["- done Failed SourceNotFound", "- suspended Queued Queued"],
    );
}

#[test]
fn counts_are_of_the_whole_queue_and_rows_of_what_was_asked_for() {
    let images = [image("a", 0), image("b", 1)].map(Arc::new);
    let table = table(Some(&queue(0, vec![])), &images, noon()).only(|row| row.name == "b");
    assert_eq!(
        (table.counts.waiting, table.images.len(), table.images[0].position),
        (2, 1, Some(2))
    );
}

#[test]
fn a_cluster_without_a_queue_shows_its_images() {
    let table = table(None, &[Arc::new(image("a", 0))], noon());
    assert_eq!(
        (table.counts.limit, table.counts.active, table.images[0].position),
        (None, 0, Some(1))
    );
}

#[test]
fn a_running_attempt_shows_its_number_and_progress() {
    let running = with(image("a", 0), |status| {
        let open = OpenAttempt {
            number: 2,
            job_uid: "job".to_owned(),
            started_at: None,
            ticket: None,
            budget: None,
            revision: None,
            never_ran: false,
            cut: None,
        };
        status.open_attempt = Some(open);
        status.progress =
            Some(Progress { bytes: 10, total_bytes: Some(40), ..Progress::default() });
    });
    let table = table(Some(&queue(1, vec![entry("a", "1")])), &[Arc::new(running)], noon());
    let row = &table.images[0];
    assert_eq!((row.attempt, row.bytes, row.total_bytes), (Some(2), Some(10), Some(40)));
}

#[test]
fn one_that_was_admitted_says_so_before_its_own_status_does() {
    check(1, vec![entry("a", "1")], vec![ticketed("a", 0, "1")], &["- a Queued Admitted"]);
}

#[test]
fn one_that_has_its_data_has_all_of_it() {
    let done = with(image("a", 0), |status| {
        status.phase = Some(Phase::Snapshotting);
        let facts = SourceFacts {
            size: Some(40),
            etag: None,
            accepts_ranges: true,
            format: ImageFormat::Raw,
            compression: None,
            virtual_size: None,
        };
        status.source = Some(facts);
    });
    let table = table(Some(&queue(1, vec![])), &[Arc::new(done)], noon());
    assert_eq!((table.images[0].bytes, table.images[0].total_bytes), (Some(40), Some(40)));
}
