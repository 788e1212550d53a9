//! What follows from a verdict: the writes in their order, and what people see.

use otctl_kit::attempt::Confirmed;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::plan::Plan;
use otctl_kit::reconciler::{Refusal, RefusalCause};
use otctl_types::VMDiskImageStatus;
use otctl_types::condition;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;

use super::{decide, refused};
use crate::image::fixture::{Facts, State, complete_report, failed_report, image, now};

fn plan(facts: Facts) -> Plan<VMDiskImageStatus> {
    decide(&facts.observed(), now())
}

fn writes(plan: &Plan<VMDiskImageStatus>) -> Vec<String> {
    let first_words = |line: String| line.split(" because ").next().unwrap_or_default().to_owned();
    plan.writes.iter().map(|write| first_words(write.to_string())).collect()
}

fn condition_of(status: &VMDiskImageStatus, kind: &str) -> String {
    condition::find(&status.conditions, kind)
        .map_or("absent".to_owned(), |found| format!("{} {}", found.status, found.reason))
}

#[test]
fn nothing_is_written_before_there_is_a_ticket() {
    let plan = plan(image());
    assert!(plan.writes.is_empty() && plan.status.is_none() && plan.notices.is_empty());
}

#[test]
fn the_job_is_made_suspended_after_what_it_mounts() {
    let plan = plan(image().slot(1).probe(1, complete_report()));
    let kinds: Vec<String> =
        writes(&plan).iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(kinds, ["PersistentVolumeClaim", "PersistentVolumeClaim", "Job"]);
    let job = plan.writes.last().unwrap();
    let otctl_kit::plan::Action::Create(object) = &job.action else { panic!("{job}") };
    assert_eq!(object.data["spec"]["suspend"], true);
}

#[test]
fn recording_takes_the_number_the_job_and_the_ticket_in_one_write() {
    let plan = plan(image().slot(4).known_source().import(4, State::Suspended));
    let status = plan.status.unwrap();
    assert!(plan.writes.is_empty(), "starting it is another pass, after the ledger was read");
    assert_eq!(status.last_attempt, Some(4));
    assert_eq!(status.open_attempt.unwrap().job_uid, "job-4");
    assert_eq!(status.ticket.as_deref(), Some("1"));
}

#[test]
fn starting_changes_one_field_of_the_job_with_that_uid() {
    let open = image().slot(1).open(1).import(1, State::Suspended);
    let plan = plan(open.confirmed(Confirmed::Held(true)));
    let otctl_kit::plan::Action::Apply(object) = &plan.writes[0].action else { panic!() };
    assert_eq!(object.metadata.uid.as_deref(), Some("job-1"));
    assert_eq!(object.data, serde_json::json!({"spec": {"suspend": false}}));
}

#[test]
fn success_with_a_snapshot_asks_for_it_before_the_attempt_is_closed() {
    let plan = plan(image().snapshotted().slot(1).open(1).import(1, complete_report()).claim());
    let otctl_kit::plan::Action::Create(snapshot) = &plan.writes[0].action else { panic!() };
    let hashes = snapshot.metadata.annotations.as_ref().unwrap();
    assert_eq!(
        hashes["pelotech.ot/disk-checksum"], "sha256:d",
        "only the ended pod still knows them"
    );
    let status = plan.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Snapshotting));
    assert_eq!(status.open_attempt, None);
    assert_eq!(status.current, None, "not usable before the snapshot is ready");
    assert_eq!(condition_of(&status, condition::READY), "False Snapshotting");
    assert_eq!(condition_of(&status, condition::SYNCED), "True Succeeded");
}

#[test]
fn ready_is_told_by_every_condition_and_none_of_kstatus() {
    let plan = plan(image().snapshotted().fetched().claim().snapshot(true, true));
    let status = plan.status.clone().unwrap();
    for kind in [condition::READY, condition::AVAILABLE, condition::SNAPSHOTTED, condition::SYNCED]
    {
        assert_eq!(condition_of(&status, kind), "True Succeeded", "{kind}");
    }
    assert_eq!(condition_of(&status, condition::RECONCILING), "absent");
    assert_eq!(condition_of(&status, condition::STALLED), "absent");
    assert_eq!(status.observed_generation, Some(1));
    let current = status.current.unwrap();
    assert_eq!(current.volume, None, "the volume goes when the snapshot is ready");
    assert!(current.snapshot.is_some());
    assert!(plan.writes.is_empty(), "what is deleted is deleted after the status says so");
    assert!(plan.clear.iter().all(|write| write.to_string().starts_with("delete PersistentVol")));
}

#[test]
fn a_failure_in_passing_waits_by_the_policy_and_tells_so() {
    let plan = plan(image().slot(1).open(1).import(1, failed_report(ImportReason::ServerError)));
    let status = plan.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Queued));
    assert_eq!(condition_of(&status, condition::READY), "False Backoff");
    assert_eq!(condition_of(&status, condition::RECONCILING), "True Backoff");
    let wait = status.next_retry_at.unwrap().0.duration_since(now());
    assert!(
        wait.as_secs() >= 300 && wait.as_secs() <= 330,
        "{wait}: 5 min and at most 10 % of jitter"
    );
    assert_eq!(status.budget.unwrap().charged, 1);
    assert_eq!(plan.notices.iter().filter(|notice| notice.warning).count(), 1);
}

#[test]
fn a_terminal_failure_stalls_and_says_what_to_change() {
    let plan = plan(image().slot(1).probe(1, failed_report(ImportReason::TooSmall)));
    let status = plan.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(condition_of(&status, condition::STALLED), "True TooSmall");
    assert_eq!(condition_of(&status, condition::RECONCILING), "absent");
    assert_eq!(status.budget.unwrap().charged, 0);
    assert!(status.attempts[0].is_final);
}

#[test]
fn the_same_length_missed_twice_is_final_and_another_length_is_not() {
    let mismatch = failed_report(ImportReason::LengthMismatch);
    let once = |length| {
        let facts = image().slot(2).failed("LengthMismatch", 1, false);
        let facts = facts.status(|status| status.attempts[0].total_bytes = Some(length));
        plan(facts.open(2).import(2, mismatch.clone())).status.unwrap().attempts[1].is_final
    };
    assert!(once(4096));
    assert!(!once(4095));
}

#[test]
fn a_slot_given_by_an_old_view_undoes_no_end() {
    let failed = plan(image().failed("SourceNotFound", 0, true).slot(2)).status.unwrap();
    assert_eq!((failed.last_attempt, failed.phase), (Some(2), Some(Phase::Failed)));
    assert!(failed.attempts.last().unwrap().is_final, "the end is still the last that is told");
    let fetched = plan(image().fetched().slot(2)).status.unwrap();
    assert_eq!(fetched.last_attempt, Some(2));
    assert_eq!(fetched.attempts.last().unwrap().reason.as_deref(), Some("Succeeded"));
}

#[test]
fn a_second_loss_within_a_day_is_final() {
    let lost = |hours: i64| {
        let at = now() - jiff::SignedDuration::from_hours(hours);
        let facts = image().fetched().current(false).no_claim();
        let facts = facts.status(|status| {
            status.last_loss_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        });
        plan(facts).status.unwrap()
    };
    let again = lost(23);
    assert_eq!(condition_of(&again, condition::STALLED), "True LostRepeatedly");
    assert_eq!(again.current, None);
    let later = lost(25);
    assert_eq!(condition_of(&later, condition::STALLED), "absent");
    assert_eq!(
        later.budget.unwrap().charged,
        2,
        "one more download, whatever was left of the budget"
    );
}

#[test]
fn a_refused_write_gives_the_slot_back_and_stands_where_people_look() {
    let facts = image().slot(1).probe(1, complete_report()).observed();
    let target = Target::new::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(Some("lab"), "x");
    let told = |cause: RefusalCause<'_>| {
        let status = refused(&facts, &Refusal { target: &target, cause }, now()).unwrap();
        assert_eq!((status.last_attempt, status.budget.as_ref().unwrap().charged), (Some(1), 0));
        condition_of(&status, condition::READY)
    };
    assert_eq!(told(RefusalCause::Foreign), "False NameConflict");
    let forbidden = |quota, namespace_terminating| ApiError::Forbidden {
        detail: "no".to_owned(),
        quota,
        namespace_terminating,
    };
    assert_eq!(told(RefusalCause::Api(&forbidden(true, false))), "False QuotaExceeded");
    assert_eq!(told(RefusalCause::Api(&forbidden(false, true))), "False NamespaceTerminating");
    assert_eq!(told(RefusalCause::Api(&forbidden(false, false))), "False Rejected");
}
