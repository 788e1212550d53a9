//! One canonical case per verdict and per edge of the diagram.

use otctl_kit::attempt::Confirmed;
use otctl_types::diskimage::VMDiskImageSpec;
use otctl_types::import::ImportReason;

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use otctl_types::diskimage::{Current, Cut, LateSnapshots};
use policy::Policy;

use super::{Verdict, judge};
use crate::image::fixture::{Facts, State, complete_report, failed_report, image, now};
use crate::image::observe::Lane;
use crate::snapshots::VolumeSnapshot;

/// The verdict's name and what it says.
fn check(facts: Facts, expected: &str) {
    let told = match judge(&facts.observed(), now()) {
        Verdict::Queued(wait) => format!("Queued {}", wait.reason),
        Verdict::Invalid(obstacle) => format!("Invalid {}", obstacle.reason),
        Verdict::GivenUp(obstacle) => format!("GivenUp {}", obstacle.reason),
        Verdict::Releasing(number, ending)
        | Verdict::ProbeFailed(number, ending)
        | Verdict::Closing(number, ending) => {
            let how = ending.failure.map_or("Succeeded".to_owned(), |f| f.reason.to_string());
            let charge = if ending.is_charged { "charged" } else { "free" };
            format!("ends {number} {how} {charge}")
        }
        Verdict::Probing { number, is_missing } => format!("Probing {number} {is_missing}"),
        Verdict::Preparing(number) => format!("Preparing {number}"),
        Verdict::Recording { number, job } => format!("Recording {number} {job}"),
        Verdict::Starting(job) => format!("Starting {job}"),
        Verdict::Stopping { job, .. } => format!("Stopping {job}"),
        Verdict::Snapshotting { is_missing, .. } => format!("Snapshotting {is_missing}"),
        Verdict::SnapshotQueued { is_full } => format!("SnapshotQueued {is_full}"),
        Verdict::SnapshotLate { is_noted, .. } => format!("SnapshotLate {is_noted}"),
        Verdict::SnapshotGivenUp { replaced, .. } => format!("SnapshotGivenUp {replaced}"),
        Verdict::Cutting(cut) => {
            format!("cuts {} {}", cut.reason, if cut.charged { "charged" } else { "free" })
        }
        Verdict::Restoring { is_missing } => format!("Restoring {is_missing}"),
        other => other.name().to_owned(),
    };
    assert_eq!(told, expected);
}

#[test]
fn a_new_image_waits_for_its_ticket_and_says_nothing_before() {
    check(image(), "Unticketed");
}

#[test]
fn with_a_ticket_it_waits_for_a_slot() {
    check(image().ticket("3"), "Queued SlotsBusy");
    check(image().ticket("3").policy(|policy| policy.concurrency = 0), "Queued Paused");
    check(image().ticket("3").without_storage(), "Queued StorageClassNotFound");
}

#[test]
fn an_edit_alone_brings_a_spec_forward_that_cannot_be_read() {
    let unreadable = |spec: &mut VMDiskImageSpec| spec.disk_size = Some("many".to_owned());
    check(image().spec(unreadable), "Invalid InvalidSpec");
}

#[test]
fn a_suspended_image_waits_for_nothing() {
    check(image().spec(|spec| spec.suspend = true), "Suspended");
}

#[test]
fn a_slot_pays_for_a_probe_first() {
    check(image().slot(1), "Probing 1 true");
    check(image().slot(1).probe(1, State::Running), "Probing 1 false");
    check(image().slot(1).probe(1, complete_report()), "Preparing 1");
    check(image().slot(2).known_source(), "Preparing 2");
}

#[test]
fn a_probe_that_fails_ends_the_attempt_and_only_a_passing_failure_is_charged() {
    let probed = |reason| image().slot(1).probe(1, failed_report(reason));
    check(probed(ImportReason::SourceNotFound), "ends 1 SourceNotFound free");
    check(probed(ImportReason::ConnectionLost), "ends 1 ConnectionLost charged");
    check(probed(ImportReason::SecretNotFound), "ends 1 SecretNotFound free");
    check(image().slot(1).probe(1, State::Ended(None)), "ends 1 Interrupted charged");
}

#[test]
fn a_job_is_recorded_then_started_then_runs() {
    check(image().slot(1).known_source().import(1, State::Suspended), "Recording 1 job-1");
    let open = || image().slot(1).open(1).import(1, State::Suspended);
    check(open(), "Awaiting");
    check(open().confirmed(Confirmed::Held(true)), "Starting job-1");
    check(open().confirmed(Confirmed::Held(false)), "Stopping job-1");
    check(image().slot(1).open(1).import(1, State::Running), "Importing");
}

#[test]
fn an_attempt_ends_with_its_report_or_without_one() {
    let open = |state| image().slot(1).open(1).import(1, state);
    check(open(complete_report()), "ends 1 Succeeded charged");
    check(open(failed_report(ImportReason::ServerError)), "ends 1 ServerError charged");
    check(open(State::Ended(None)), "ends 1 Interrupted charged");
    check(image().slot(1).open(1), "Awaiting");
    check(image().slot(1).open(1).confirmed(Confirmed::Gone(true)), "ends 1 Interrupted charged");
}

#[test]
fn what_may_not_go_on_is_stopped_before_it_is_closed() {
    let running = || image().slot(1).open(1).import(1, State::Running);
    check(running().spec(|spec| spec.suspend = true), "Stopping job-1");
    check(running().edited(), "Stopping job-1");
    check(running().deleted(), "Stopping job-1");
    let gone = || image().slot(1).open(1).confirmed(Confirmed::Gone(true));
    check(gone().spec(|spec| spec.suspend = true), "ends 1 Suspended free");
    check(gone().edited(), "ends 1 Superseded charged");
}

#[test]
fn what_was_stopped_before_it_ran_is_not_charged() {
    let gone = image().slot(1).open(1).confirmed(Confirmed::Gone(true));
    let noted = gone.status(|status| status.open_attempt.as_mut().unwrap().never_ran = true);
    check(noted, "ends 1 PodNotStarted free");
}

#[test]
fn an_edit_is_known_by_what_the_attempt_was_made_for_whatever_was_told_since() {
    let gone = image().slot(1).open(1).confirmed(Confirmed::Gone(true));
    check(gone.edited().told(), "ends 1 Superseded charged");
}

#[test]
fn an_attempt_that_succeeded_while_it_was_suspended_has_succeeded() {
    let open = image().slot(1).open(1).import(1, complete_report());
    check(open.spec(|spec| spec.suspend = true), "ends 1 Succeeded charged");
}

#[test]
fn a_slot_that_may_not_be_used_is_given_back_unused() {
    check(image().slot(1).spec(|spec| spec.suspend = true), "ends 1 Suspended free");
    check(image().slot(1).without_storage(), "ends 1 StorageClassNotFound free");
    check(image().slot(1).deleted(), "ends 1 Superseded free");
    check(image().slot(2).failed("TooSmall", 0, true), "ends 2 Superseded free");
}

#[test]
fn a_slot_is_not_given_back_while_a_probe_runs() {
    let suspended = image().slot(1).spec(|spec| spec.suspend = true);
    check(suspended.probe(1, State::Running), "Stopping probe-1");
}

#[test]
fn a_job_that_no_record_speaks_for_is_deleted() {
    let used_up = image().ticket("1").failed("ServerError", 1, false);
    check(used_up.import(1, State::Suspended), "Stopping job-1");
    check(image().ticket("1").import(1, State::Suspended), "Awaiting");
    let unheld = image().ticket("1").import(1, State::Suspended);
    check(unheld.confirmed(Confirmed::Held(false)), "Stopping job-1");
}

#[test]
fn a_failure_in_passing_is_a_backoff_and_a_missing_thing_is_named() {
    let failed = |reason| image().ticket("1").failed(reason, 1, false).retry_in(5);
    check(failed("ServerError"), "Queued Backoff");
    check(failed("SecretNotFound"), "Queued SecretNotFound");
    check(failed("NameConflict"), "Queued NameConflict");
    check(image().ticket("1").failed("ServerError", 1, false).retry_in(-1), "Queued SlotsBusy");
}

#[test]
fn an_edit_ends_a_backoff() {
    check(
        image().ticket("1").failed("ServerError", 1, false).retry_in(5).edited(),
        "Queued SlotsBusy",
    );
}

#[test]
fn a_final_failure_is_given_up_and_a_new_budget_brings_it_back() {
    let failed = |reason, charged| image().ticket("1").failed(reason, charged, true);
    check(failed("TooSmall", 0), "GivenUp TooSmall");
    check(failed("ServerError", 3), "GivenUp RetriesExhausted");
    check(failed("LostRepeatedly", 2), "GivenUp LostRepeatedly");
    check(failed("LengthMismatch", 2), "GivenUp LengthMismatch");
    check(failed("TooSmall", 0).edited(), "Queued SlotsBusy");
}

#[test]
fn a_spent_budget_is_given_up_whatever_the_last_attempt_says() {
    check(image().ticket("1").failed("ServerError", 3, false), "GivenUp RetriesExhausted");
    let counted = |last| image().ticket("1").status(|status| status.last_attempt = Some(last));
    check(counted(999_999_998), "Queued SlotsBusy");
    check(counted(999_999_999), "GivenUp RetriesExhausted");
    let raised = image().ticket("1").failed("ServerError", 3, false);
    check(raised.policy(|policy| policy.retry_limit = 5), "Queued SlotsBusy");
}

#[test]
fn data_without_a_snapshot_is_ready_while_its_volume_is_there() {
    check(image().fetched().claim(), "Ready");
    check(image().fetched(), "Awaiting");
    check(image().fetched().no_claim(), "Lost");
}

#[test]
fn data_is_ready_when_its_snapshot_is_ready_and_bound() {
    let fetched = || image().snapshotted().fetched().claim();
    check(fetched().no_snapshot().listed(), "Snapshotting true");
    check(fetched().snapshot(false, false), "Snapshotting false");
    check(fetched().snapshot(true, false), "Snapshotting false");
    check(fetched().snapshot(true, true), "Ready");
    check(fetched().current(true).snapshot(false, true), "Ready");
    check(image().snapshotted().fetched().no_claim().no_snapshot(), "Lost");
}

#[test]
fn a_snapshot_of_the_name_of_one_that_was_ready_is_another_one() {
    let remembered = |change: fn(&mut Current)| {
        let image = image().snapshotted().fetched().current(true).snapshot(false, true);
        image.claim().status(|status| change(status.current.as_mut().unwrap()))
    };
    check(remembered(|_| {}), "Ready");
    check(
        remembered(|current| current.snapshot_uid = Some("earlier".to_owned())),
        "Snapshotting false",
    );
    check(remembered(|current| current.snapshot_uid = None), "Snapshotting false");
    let of_another_revision = |current: &mut Current| current.revision = "0123456789abcdef".into();
    check(remembered(of_another_revision), "Snapshotting false");
}

#[test]
fn a_lost_volume_comes_back_from_the_snapshot_if_it_is_kept() {
    let ready = || image().snapshotted().fetched().current(true).snapshot(true, true).no_claim();
    check(ready(), "Ready");
    check(ready().spec(|spec| spec.keep_volume = Some(true)), "Restoring true");
}

#[test]
fn a_claim_with_nothing_behind_it_is_no_copy() {
    check(image().fetched().current(false).lost_claim(), "Lost");
    check(image().lost_claim().ticket("1"), "Queued SlotsBusy");
    check(image().snapshotted().fetched().lost_claim().no_snapshot(), "Lost");
    check(image().snapshotted().fetched().unrestored_claim().no_snapshot(), "Lost");
    check(image().snapshotted().ticket("1").unrestored_claim().no_snapshot(), "Queued SlotsBusy");
    check(image().snapshotted().fetched().unrestored_claim().snapshot(false, false), "Lost");
    let ready = || image().snapshotted().fetched().current(true).snapshot(true, true);
    let kept = |facts: Facts| facts.spec(|spec| spec.keep_volume = Some(true));
    check(kept(ready().lost_claim()), "Restoring false");
    check(kept(ready().unrestored_claim()), "Ready");
    check(ready().lost_claim(), "Ready");
}

#[test]
fn a_volume_that_is_being_deleted_is_no_copy() {
    check(image().fetched().current(false).going_claim(), "Lost");
    check(image().snapshotted().fetched().going_claim().no_snapshot(), "Lost");
    let ready = || image().snapshotted().fetched().current(true).snapshot(true, true);
    check(ready().going_claim(), "Ready");
    check(ready().going_claim().spec(|spec| spec.keep_volume = Some(true)), "Restoring false");
}

#[test]
fn a_copy_proves_data_that_a_lost_status_forgot() {
    check(image().snapshotted().snapshot(true, true).claim(), "Ready");
    check(image().finished_claim(), "Ready");
    check(image().slot(1).finished_claim(), "ends 1 Superseded free");
}

#[test]
fn a_policy_that_changes_neither_loses_nor_rewrites_finished_data() {
    let by_policy = || image().policy(|policy| policy.default_snapshot_class = Some("snap".into()));
    check(image().fetched().current(true).snapshot(true, true).no_claim(), "Ready");
    check(by_policy().fetched().current(false).claim(), "Ready");
    check(by_policy().fetched().claim(), "Ready");
}

#[test]
fn the_only_copy_is_kept_whatever_the_spec_says() {
    let facts = image().spec(|spec| spec.keep_volume = Some(false)).fetched().claim();
    assert!(super::keeps_volume(&image().build(), &facts.observed()));
}

#[test]
fn a_pod_that_never_ran_is_not_paid_for() {
    let waiting = |work: State| image().slot(1).probe(1, work);
    check(waiting(State::NotStarted), "ends 1 PodNotStarted free");
    let open = image().slot(1).open(1).import(1, State::NotStarted);
    check(open, "ends 1 PodNotStarted free");
}

#[test]
fn a_failure_after_the_last_byte_is_paid_for_though_it_asked_for_none() {
    let State::Ended(Some(mut report)) = failed_report(ImportReason::VolumeFull) else { panic!() };
    report.download_started = false;
    let open = image().slot(1).open(1).import(1, State::Ended(Some(report)));
    check(open, "ends 1 VolumeFull charged");
}

#[test]
fn an_image_on_its_way_out_is_left_alone() {
    check(image().ticket("1").deleted(), "Gone");
    check(image().fetched().claim().deleted(), "Gone");
}

#[test]
fn a_snapshot_is_asked_for_by_whom_the_queue_lists() {
    let fetched = || image().snapshotted().fetched().claim().no_snapshot();
    check(fetched(), "SnapshotQueued false");
    check(fetched().hall(|hall| hall.lane = Lane::Full), "SnapshotQueued true");
    check(fetched().listed(), "Snapshotting true");
    check(fetched().listed().retry_in(1), "SnapshotRefused");
    check(fetched().listed().retry_in(-1), "Snapshotting true");
}

#[test]
fn a_snapshot_that_is_late_is_replaced_as_often_as_the_policy_says_and_then_given_up() {
    let late = |minutes| image().snapshotted().fetched().claim().late_snapshot(minutes, None);
    let replaced = |facts: Facts, count, uid: &str| {
        facts.status(|status| {
            status.late_snapshots = Some(LateSnapshots { count, last_uid: uid.to_owned() });
        })
    };
    check(late(29), "Snapshotting false");
    check(late(30), "SnapshotLate false");
    check(replaced(late(30), 1, "an earlier one"), "SnapshotLate false");
    check(replaced(late(0), 1, "snapshot"), "SnapshotLate true");
    check(replaced(late(30), 2, "an earlier one"), "SnapshotGivenUp 2");
    let raised = replaced(late(30), 2, "an earlier one").policy(|policy| policy.retry_limit = 3);
    check(raised, "SnapshotLate false");
    let asked_again = replaced(late(30), 2, "an earlier one").status(|status| {
        status.budget.as_mut().unwrap().key = "an earlier one".to_owned();
    });
    check(asked_again, "SnapshotLate false");
    check(replaced(late(30), 2, "x").snapshot(true, true), "Ready");
}

#[test]
fn without_its_volume_a_late_snapshot_is_not_replaced() {
    let taken_up = image().snapshotted().fetched().late_snapshot(40, None).no_claim();
    check(taken_up, "Lost");
}

#[test]
fn a_claim_that_does_not_bind_ends_the_attempt_for_free() {
    let waits =
        |claim, job| image().slot(1).open(1).import(1, State::Waiting(job)).unbound_claim(claim);
    check(waits(9, 9), "Importing");
    check(waits(10, 10), "cuts NotBinding free");
    check(waits(60, 9), "Importing");
    check(waits(9, 60), "Importing");
    let policy = |policy: &mut Policy| policy.bind_timeout = Duration::from_secs(60);
    check(waits(2, 2).policy(policy), "cuts NotBinding free");
}

#[test]
fn a_pod_that_does_not_start_ends_the_attempt_for_free() {
    let waits = |minutes| image().slot(1).open(1).import(1, State::Waiting(minutes));
    check(waits(9), "Importing");
    check(waits(10), "cuts PodNotStarted free");
}

#[test]
fn an_import_that_runs_for_too_long_is_ended_by_its_node_and_else_from_outside() {
    let at_work = |minutes| image().slot(1).open(1).import(1, State::AtWork(minutes));
    check(at_work(360), "Importing");
    check(at_work(361), "cuts AttemptTimeout charged");
    let lowered = |policy: &mut Policy| policy.attempt_timeout = Duration::from_secs(60);
    check(at_work(300).policy(lowered), "Importing");
}

#[test]
fn a_frozen_import_ends_as_one_without_progress_and_one_out_of_reach_does_not() {
    let at_work = || image().slot(1).open(1).import(1, State::AtWork(60));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    check(at_work(), "Importing");
    check(at_work().talk(|talk| talk.mute_for = Some(minutes(9))), "Importing");
    check(at_work().talk(|talk| talk.mute_for = Some(minutes(10))), "cuts NoProgress charged");
    check(at_work().talk(|talk| talk.still_for = minutes(10)), "Importing");
    check(at_work().talk(|talk| talk.still_for = minutes(11)), "cuts NoProgress charged");
    check(at_work().talk(|talk| talk.unknown_for = Some(minutes(600))), "Importing");
}

#[test]
fn an_attempt_that_was_ended_from_outside_tells_why_unless_it_succeeded() {
    let cut = |facts: Facts, reason: &str, charged| {
        facts.status(|status| {
            let cut = Cut { reason: reason.to_owned(), message: "why".to_owned(), charged };
            status.open_attempt.as_mut().unwrap().cut = Some(cut);
        })
    };
    let open = || image().slot(1).open(1);
    check(cut(open().import(1, State::AtWork(60)), "NoProgress", true), "Stopping job-1");
    let gone = || open().confirmed(Confirmed::Gone(true));
    check(cut(gone(), "NoProgress", true), "ends 1 NoProgress charged");
    check(cut(gone(), "NotBinding", false), "ends 1 NotBinding free");
    let interrupted = open().import(1, failed_report(ImportReason::Interrupted));
    check(cut(interrupted, "NoProgress", true), "ends 1 NoProgress charged");
    check(cut(open().import(1, complete_report()), "NoProgress", true), "ends 1 Succeeded charged");
}

#[test]
fn an_import_starts_when_the_bandwidth_has_room() {
    let held =
        || image().slot(1).open(1).import(1, State::Suspended).confirmed(Confirmed::Held(true));
    check(held(), "Starting job-1");
    check(held().hall(|hall| hall.has_bandwidth = false), "Awaiting");
}

#[test]
fn a_host_without_a_free_slot_is_told_while_others_have_some() {
    let queued = || image().ticket("3");
    check(queued().hall(|hall| hall.is_host_busy = true), "Queued HostBusy");
    let paused = queued().policy(|policy| policy.concurrency = 0);
    check(paused.hall(|hall| hall.is_host_busy = true), "Queued Paused");
}

#[test]
fn a_taken_name_is_told_before_anything_is_fetched() {
    let taken = || image().slot(1).foreign::<VolumeSnapshot>();
    check(taken().snapshotted(), "ends 1 NameConflict free");
    check(taken(), "Probing 1 true");
    check(image().slot(1).foreign::<PersistentVolumeClaim>(), "ends 1 NameConflict free");
}

#[test]
fn a_job_that_somebody_made_in_our_name_is_not_taken_for_an_attempt() {
    let held = || image().slot(1).known_source();
    check(held().import(1, State::Suspended).forged(), "ends 1 NameConflict free");
    check(held().import(1, State::Running).forged(), "ends 1 NameConflict free");
    check(held().import(1, complete_report()).forged(), "ends 1 NameConflict free");
    check(image().slot(1).probe(1, complete_report()).forged(), "ends 1 NameConflict free");
    check(image().ticket("1").open(1).import(1, State::Running), "Importing");
    let later = image().ticket("1").failed("NameConflict", 0, false);
    check(later.import(1, State::Running).forged(), "Stopping job-1");
}
