//! What is written and said of a snapshot: asked for, waited for, late, refused, given up.

use super::*;

#[test]
fn success_with_a_snapshot_is_closed_with_its_hashes_and_waits_to_be_listed() {
    let closed = plan(image().snapshotted().slot(1).open(1).import(1, complete_report()).claim());
    assert!(closed.writes.is_empty(), "nobody may ask for a snapshot before it is listed");
    let status = closed.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Snapshotting));
    assert_eq!(status.open_attempt, None);
    assert_eq!(status.current, None, "not usable before the snapshot is ready");
    assert_eq!(condition_of(&status, condition::READY), "False Snapshotting");
    assert_eq!(condition_of(&status, condition::SYNCED), "True Succeeded");
    let ended = &status.attempts[0];
    assert_eq!(ended.disk_checksum.as_deref(), Some("sha256:d"), "its pod may go before");
    let listed = image().snapshotted().fetched().status(|now| *now = status.clone()).claim();
    let asked = plan(listed.no_snapshot().listed());
    let otctl_kit::plan::Action::Create(snapshot) = &asked.writes[0].action else { panic!() };
    let hashes = snapshot.metadata.annotations.as_ref().unwrap();
    assert_eq!(hashes["pelotech.ot/disk-checksum"], "sha256:d");
    assert_eq!(asked.status.unwrap(), status, "no write tells what was told already");
}

#[test]
fn a_snapshot_that_waits_for_others_says_so() {
    let full = |facts: Facts| facts.hall(|hall| hall.lane = Lane::Full);
    let closed = full(image().snapshotted().slot(1).open(1).import(1, complete_report()).claim());
    let status = plan(closed).status.unwrap();
    assert_eq!(condition_of(&status, condition::READY), "False SnapshotThrottled");
    assert_eq!(condition_of(&status, condition::ADMITTED), "True Succeeded", "it holds no slot");
    let waiting = full(image().snapshotted().fetched().claim().no_snapshot());
    assert_eq!(
        condition_of(&plan(waiting).status.unwrap(), condition::READY),
        "False SnapshotThrottled"
    );
}

#[test]
fn what_the_driver_says_of_its_limits_is_no_failure() {
    let told = |error| {
        let facts = image().snapshotted().fetched().claim().late_snapshot(1, Some(error));
        condition_of(&plan(facts).status.unwrap(), condition::READY)
    };
    let limit = "failed to take snapshot: rpc error: code = ResourceExhausted desc = ConcurrentSnapshotLimitExceeded";
    assert_eq!(told(limit), "False SnapshotThrottled");
    assert_eq!(told("rpc error: code = Internal desc = no"), "False SnapshotFailed");
}

#[test]
fn a_late_snapshot_is_counted_before_it_is_deleted_and_once() {
    let late = || image().snapshotted().fetched().claim().late_snapshot(30, Some("slow"));
    let first = plan(late());
    let status = first.status.unwrap();
    assert_eq!(status.late_snapshots.as_ref().unwrap().count, 1);
    assert_eq!(condition_of(&status, condition::READY), "False SnapshotFailed");
    assert!(first.writes.is_empty() && deletes_as_seen(&first.clear[0]));
    assert!(first.notices.iter().any(|notice| notice.warning && notice.message.contains("slow")));
    let noted = status.late_snapshots.clone();
    let again = plan(late().status(|status| status.late_snapshots = noted));
    assert_eq!(again.status.unwrap().late_snapshots.unwrap().count, 1);
    assert_eq!(again.clear.len(), 1, "its deletion is made good");
    assert!(again.notices.iter().all(|notice| !notice.warning));
}

/// It deletes the snapshot only if that is still as it was seen: not if it has become ready since.
fn deletes_as_seen(write: &Write) -> bool {
    let version = match &write.action {
        Action::Delete { target, resource_version, .. }
            if target.resource.kind == "VolumeSnapshot" =>
        {
            resource_version.as_deref()
        }
        _ => None,
    };
    version == Some("7")
}

#[test]
fn a_snapshot_that_was_never_taken_goes_only_as_it_was_seen() {
    let plan = plan(image().snapshotted().ticket("1").no_claim().snapshot(false, false));
    assert!(plan.writes.iter().any(deletes_as_seen), "{:?}", plan.writes);
}

#[test]
fn the_end_of_a_late_snapshot_that_is_going_is_seen_and_not_asked_for() {
    let plan =
        plan(image().snapshotted().fetched().claim().late_snapshot(45, None).going_snapshot());
    assert_eq!((plan.verdict, plan.next), ("Snapshotting", Next::Wait));
}

#[test]
fn snapshots_that_are_given_up_stall_with_what_the_driver_said_and_keep_the_data() {
    let late = image().snapshotted().fetched().claim().late_snapshot(30, Some("no more space"));
    let given_up = plan(late.status(|status| {
        status.late_snapshots = Some(LateSnapshots { count: 2, last_uid: "earlier".to_owned() });
    }));
    let status = given_up.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(condition_of(&status, condition::STALLED), "True SnapshotFailed");
    assert_eq!(condition_of(&status, condition::SYNCED), "True Succeeded");
    assert!(status.message.unwrap().contains("no more space"));
    assert!(given_up.writes.is_empty() && given_up.clear.is_empty(), "nothing is thrown away");
}

#[test]
fn a_snapshot_that_is_refused_is_asked_for_again_after_a_while() {
    let facts = image().snapshotted().fetched().claim().no_snapshot().listed().observed();
    let target = Target::new::<crate::snapshots::VolumeSnapshot>(Some("lab"), "x");
    let quota = ApiError::Forbidden {
        detail: "exceeded".to_owned(),
        quota: true,
        namespace_terminating: false,
    };
    let refusal = Refusal { target: &target, cause: RefusalCause::Api(&quota) };
    let status = refused(&facts, &refusal, now()).unwrap();
    assert_eq!(condition_of(&status, condition::READY), "False QuotaExceeded");
    assert_eq!(status.next_retry_at.unwrap().0.duration_since(now()).as_secs(), 30);
}

#[test]
fn the_content_of_a_ready_snapshot_is_looked_at_again_soon_since_nobody_watches_it() {
    let next = |facts: Facts| plan(facts).next;
    let fetched = || image().snapshotted().fetched().claim();
    let soon = now() + SignedDuration::from_secs(10);
    assert_eq!(next(fetched().late_snapshot(1, None).snapshot(true, false)), Next::At(soon));
    let late = now() + SignedDuration::from_mins(29);
    assert_eq!(next(fetched().late_snapshot(1, None)), Next::At(late));
}
