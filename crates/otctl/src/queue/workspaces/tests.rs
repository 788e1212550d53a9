use otctl_types::AdmissionQueueSpec;
use policy::Policy;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

/// A workspace of one container, created `minute` minutes past eleven.
fn workspace(name: &str, minute: u32, status: &Value) -> Workspace {
    let object = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": format!("{}", 100 + minute),
            "creationTimestamp": format!("2026-05-01T11:{minute:02}:00Z"),
        },
        "spec": {"containers": [{"name": "api", "image": "registry/api:1"}]},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn unready(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-05-01T11:00:00Z"})
}

/// One that has this ticket, and waits for that reason.
fn waits(name: &str, ticket: &str, reason: &str) -> Workspace {
    let conditions = [unready("Admitted", reason), unready("Ready", reason)];
    let status = json!({
        "phase": "Provisioning", "namespace": "labs", "ticket": ticket, "queuedAt": "2026-05-01T11:55:00Z",
        "conditions": conditions, "readyParts": "0/1",
    });
    workspace(name, 0, &status)
}

/// One whose turn is open.
fn starts(name: &str) -> Workspace {
    let open = json!({"number": 1, "since": "2026-05-01T11:58:00Z"});
    let status = json!({
        "phase": "Provisioning", "openTurn": open, "ticket": "1", "queuedAt": "2026-05-01T11:50:00Z",
        "conditions": [unready("Ready", "Progressing")],
    });
    workspace(name, 0, &status)
}

fn entry(name: &str) -> ActiveEntry {
    let entry = json!({"namespace": "", "name": name, "uid": format!("uid-{name}"), "attempt": 1,
        "ticket": "1", "since": "2026-05-01T11:57:00Z"});
    serde_json::from_value(entry).unwrap()
}

fn queue(limit: u32, active: Vec<ActiveEntry>) -> AdmissionQueue {
    let mut queue = AdmissionQueue::new("workspaces", AdmissionQueueSpec::default());
    let policy = Policy { workspace_concurrency: limit, ..Policy::default() };
    let (limit, policy) = (i32::try_from(limit).ok(), policy.to_entries());
    queue.status = Some(AdmissionQueueStatus { limit, active, policy, ..Default::default() });
    queue
}

fn tabled(queue: &AdmissionQueue, workspaces: impl IntoIterator<Item = Workspace>) -> Table {
    let workspaces: Vec<_> = workspaces.into_iter().map(Arc::new).collect();
    table(Some(queue), &workspaces, now())
}

/// One line a row: position, name and reason of those in the queue, then names of the rest.
#[track_caller]
fn check<const N: usize>(
    (limit, active): (u32, &[&str]),
    workspaces: [Workspace; N],
    expected: &[&str],
) {
    let active = active.iter().map(|name| entry(name)).collect();
    let table = tabled(&queue(limit, active), workspaces);
    let line = |row: &Row| {
        let position = row.position.map_or_else(|| "-".to_owned(), |position| position.to_string());
        let rest = if row.is_at_rest { " (at rest)" } else { "" };
        format!("{position} {} {}{rest}", row.name, row.reason)
    };
    assert_eq!(table.workspaces.iter().map(line).collect::<Vec<_>>(), expected);
}

#[test]
fn those_that_wait_stand_behind_those_that_start_in_the_order_of_their_tickets() {
    check(
        (1, &["a"]),
        [waits("c", "3", "SlotsBusy"), waits("b", "2", "SlotsBusy"), starts("a")],
        &["- a Progressing", "1 b SlotsBusy", "2 c SlotsBusy"],
    );
}

#[test]
fn one_that_waits_for_something_else_holds_nobody_up() {
    check(
        (1, &[]),
        [waits("a", "1", "AwaitingImages"), waits("b", "2", "Queued")],
        &["1 b Queued", "- a AwaitingImages"],
    );
}

#[test]
fn a_newcomer_stands_behind_all_that_have_a_ticket_by_age() {
    let of = |name, minute| workspace(name, minute, &Value::Null);
    check(
        (0, &[]),
        [of("young", 9), of("old", 8), waits("first", "7", "Paused")],
        &["1 first Paused", "2 old Paused", "3 young Paused"],
    );
}

#[test]
fn one_that_starts_again_stands_behind_every_first_ticket() {
    let again = workspace("again", 0, &json!({"lastTurn": 1}));
    check(
        (0, &[]),
        [again, workspace("new", 9, &Value::Null), waits("first", "7", "Paused")],
        &["1 first Paused", "2 again Paused", "3 new Paused"],
    );
}

#[test]
fn one_that_was_admitted_says_so_before_its_own_status_does() {
    check((1, &["a"]), [waits("a", "1", "SlotsBusy")], &["- a Admitted"]);
}

#[test]
fn what_has_had_its_start_or_is_not_to_start_is_in_no_queue() {
    let ready = json!({"phase": "Ready", "startedParts": ["api"]});
    let mut suspended = workspace("suspended", 0, &json!({"phase": "Suspended"}));
    suspended.spec.suspended = true;
    let mut leaving = waits("leaving", "1", "SlotsBusy");
    leaving.metadata.deletion_timestamp = suspended.metadata.creation_timestamp.clone();
    let refused = json!({"phase": "Failed", "conditions": [
        unready("Accepted", "NamespaceNotAllowed"), unready("Ready", "NamespaceNotAllowed"),
    ]});
    let all =
        [workspace("ready", 0, &ready), suspended, leaving, workspace("refused", 0, &refused)];
    check(
        (1, &[]),
        all.clone(),
        &[
            "- leaving SlotsBusy (at rest)",
            "- ready Queued (at rest)",
            "- refused NamespaceNotAllowed (at rest)",
            "- suspended Queued (at rest)",
        ],
    );
    let counts = tabled(&queue(1, vec![]), all).counts;
    assert_eq!((counts.waiting, counts.failed), (0, 1));
}

#[test]
fn one_whose_image_has_failed_is_counted_where_it_waits() {
    let mut stalled = waits("a", "1", "ImageFailed");
    stalled.status.as_mut().unwrap().phase = Some(Phase::Failed);
    let counts = tabled(&queue(1, vec![]), [stalled]).counts;
    assert_eq!((counts.waiting, counts.failed), (1, 0));
}

#[test]
fn a_row_says_since_when() {
    let table = tabled(&queue(4, vec![entry("a")]), [starts("a"), waits("b", "2", "Queued")]);
    let since = |row: &Row| [row.active_since, row.queued_at].map(|at| at.map(|at| at.to_string()));
    assert_eq!(since(&table.workspaces[0]), [Some("2026-05-01T11:57:00Z".to_owned()), None]);
    assert_eq!(since(&table.workspaces[1]), [None, Some("2026-05-01T11:55:00Z".to_owned())]);
    let lost = tabled(&queue(4, vec![]), [starts("a")]);
    assert_eq!(since(&lost.workspaces[0])[0].as_deref(), Some("2026-05-01T11:58:00Z"));
}
