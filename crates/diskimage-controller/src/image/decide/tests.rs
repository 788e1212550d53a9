//! What follows from a verdict: the writes in their order, and what people see. Of snapshots: `snapshots`.

mod snapshots;

use std::time::Duration;

use jiff::SignedDuration;
use kube::core::ObjectMeta;
use otctl_kit::attempt::Confirmed;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_kit::reconciler::{Refusal, RefusalCause};
use otctl_types::VMDiskImageStatus;
use otctl_types::condition;
use otctl_types::diskimage::{Cut, LateSnapshots, Phase};
use otctl_types::import::{ImportReason, ImportReport};

use super::{decide, refused};
use crate::image::fixture::{Facts, State, complete_report, failed_report, image, now};
use crate::image::observe::Lane;
use crate::progress::Talk;

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
fn a_job_that_never_ran_is_noted_before_it_is_deleted() {
    let unheld = || image().open(1).import(1, State::Suspended).confirmed(Confirmed::Held(false));
    assert_eq!(writes(&plan(unheld())), ["remember", "delete Job lab/web-e71cfbef-a1"]);
    let noted = unheld().status(|status| status.open_attempt.as_mut().unwrap().never_ran = true);
    assert_eq!(writes(&plan(noted)).len(), 1, "once");
    let running = image().slot(1).open(1).import(1, State::Running);
    assert_eq!(writes(&plan(running.spec(|spec| spec.suspend = true))).len(), 1, "it ran");
}

#[test]
fn the_ticket_of_a_slot_is_told_with_the_first_look() {
    let status = plan(image().slot(1)).status.unwrap();
    assert_eq!(status.ticket.as_deref(), Some("1"));
}

#[test]
fn why_an_attempt_is_cut_is_on_record_before_its_job_goes() {
    let mute = |talk: &mut Talk| talk.mute_for = Some(Duration::from_secs(600));
    let cut = plan(image().slot(1).open(1).import(1, State::AtWork(60)).talk(mute));
    let open = cut.status.unwrap().open_attempt.unwrap();
    assert_eq!(open.cut.unwrap().reason, "NoProgress");
    assert!(cut.writes.is_empty(), "what is deleted is deleted after the status says so");
    assert!(cut.clear[0].to_string().starts_with("delete Job"), "{}", cut.clear[0]);
}

#[test]
fn a_claim_that_does_not_bind_is_waited_for_without_a_slot() {
    let open = image().slot(1).open(1).confirmed(Confirmed::Gone(true));
    let closed = plan(open.status(|status| {
        let cut =
            Cut { reason: "NotBinding".to_owned(), message: "claim x".to_owned(), charged: false };
        status.open_attempt.as_mut().unwrap().cut = Some(cut);
    }));
    let status = closed.status.unwrap();
    assert_eq!(condition_of(&status, condition::READY), "False NotBinding");
    assert_eq!(status.budget.unwrap().charged, 0);
    assert_eq!(status.next_retry_at.unwrap().0.duration_since(now()).as_secs(), 30);
    assert!(!status.attempts[0].is_final);
}

#[test]
fn progress_is_unknown_while_the_import_cannot_be_asked() {
    let at_work = |change: fn(&mut Talk)| {
        let minute_ago = now() - jiff::SignedDuration::from_mins(1);
        let facts = image().slot(1).open(1).import(1, State::AtWork(60)).talk(change);
        let facts = facts.status(|status| {
            status.open_attempt.as_mut().unwrap().started_at =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute_ago));
        });
        plan(facts).status.unwrap().progress
    };
    assert_eq!(at_work(|_| {}).unwrap().percent.as_deref(), Some("50%"));
    let unknown = at_work(|talk| talk.unknown_for = Some(Duration::from_secs(30))).unwrap();
    assert_eq!(unknown.percent.as_deref(), Some("unknown"));
    assert_eq!(at_work(|talk| talk.unknown_for = Some(Duration::from_secs(5))), None);
}

#[test]
fn an_import_that_has_fetched_all_is_not_said_to_fetch() {
    let hour_ago = now() - jiff::SignedDuration::from_hours(1);
    let message = |bytes| {
        let facts = image().slot(1).open(1).import(1, State::AtWork(60));
        let facts = facts.talk(|talk| talk.progress.as_mut().unwrap().bytes = bytes);
        let facts = facts.status(|status| {
            status.open_attempt.as_mut().unwrap().started_at =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(hour_ago));
        });
        plan(facts).status.unwrap().message.unwrap()
    };
    assert_eq!(message(4095), "the data is being fetched");
    assert!(message(4096).contains("being verified and written"));
}

/// Whatever an import pod says, the status has room for it and the next pass can go on from it.
#[test]
fn absurd_numbers_of_an_import_are_told_within_bounds() {
    let minute_ago = now() - jiff::SignedDuration::from_mins(1);
    let more_than_all = image().slot(1).open(1).import(1, State::AtWork(60)).talk(|talk| {
        let told = talk.progress.as_mut().unwrap();
        (told.bytes, told.total_bytes) = (u64::MAX, Some(1));
    });
    let told = more_than_all.status(|status| {
        status.open_attempt.as_mut().unwrap().started_at =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute_ago));
    });
    let progress = plan(told).status.unwrap().progress.unwrap();
    assert_eq!((progress.bytes, progress.percent.as_deref()), (i64::MAX, Some("100%")));
    let State::Ended(Some(report)) = failed_report(ImportReason::TooSmall) else { unreachable!() };
    let mut absurd = ImportReport { bytes: u64::MAX, ..report };
    absurd.source.as_mut().unwrap().virtual_size = Some(u64::MAX);
    let failed = image().slot(1).open(1).import(1, State::Ended(Some(absurd)));
    let again = failed.status(|status| status.bytes_transferred = Some(i64::MAX));
    let status = plan(again).status.unwrap();
    assert_eq!(status.bytes_transferred, Some(i64::MAX));
    assert!(status.attempts[0].reason.as_deref() == Some("TooSmall"));
}

#[test]
fn a_busy_host_is_told_once() {
    let queued = |busy: bool| {
        image()
            .ticket("3")
            .policy(|policy| policy.concurrency_per_host = Some(1))
            .hall(|hall| hall.is_host_busy = busy)
    };
    let told = plan(queued(true)).status.unwrap();
    assert_eq!(condition_of(&told, condition::READY), "False HostBusy");
    assert_eq!(condition_of(&told, condition::ADMITTED), "False HostBusy");
    let later = plan(queued(false).status(|status| *status = told.clone())).status.unwrap();
    assert_eq!(later, told, "that every slot is taken now is no news");
}

#[test]
fn what_does_not_fit_is_told_with_the_size_that_does() {
    let plan = plan(image().slot(1).probe(1, failed_report(ImportReason::TooSmall)));
    let message = plan.status.unwrap().message.unwrap();
    assert!(message.contains("set diskSize to 3Mi or more, or leave it out"), "{message}");
}

#[test]
fn what_is_given_up_is_told_with_the_command_that_asks_again() {
    let command = "once that is mended, if not by an edit of the spec: kubectl annotate vmdi web -n lab pelotech.ot/retry=$(date +%s) --overwrite";
    let lost = image().ticket("1").failed("LostRepeatedly", 1, true);
    let spent = image().ticket("1").failed("ServerError", 3, true);
    let terminal = image().slot(1).probe(1, failed_report(ImportReason::BadFormat));
    let late = image().snapshotted().fetched().claim().late_snapshot(30, None).status(|status| {
        status.late_snapshots = Some(LateSnapshots { count: 2, last_uid: "earlier".to_owned() });
    });
    for facts in [lost, spent, terminal, late] {
        let status = plan(facts).status.unwrap();
        assert_eq!(status.phase, Some(Phase::Failed));
        let stalled = condition::find(&status.conditions, condition::STALLED).unwrap();
        assert!(stalled.message.ends_with(command), "{}", stalled.message);
        assert_eq!(stalled.message.matches("kubectl").count(), 1, "{}", stalled.message);
    }
    let invalid = plan(image().spec(|spec| spec.url = "http://host:99999/x".to_owned()));
    let told = invalid.status.unwrap().message.unwrap();
    assert_eq!(told, "url cannot be asked: port 99999 is above 65535", "an edit is enough");
}

#[test]
fn an_address_that_cannot_be_asked_takes_no_ticket_and_no_attempt() {
    for url in ["http://127.0.0.1:99999/x", "http://[::1/x"] {
        for facts in [image(), image().ticket("1")] {
            let plan = plan(facts.spec(|spec| spec.url = url.to_owned()));
            let status = plan.status.unwrap();
            assert!(plan.writes.is_empty(), "{url}");
            assert_eq!(condition_of(&status, condition::ACCEPTED), "False InvalidSpec", "{url}");
            assert_eq!(condition_of(&status, condition::STALLED), "True InvalidSpec", "{url}");
            assert_eq!((status.last_attempt, status.attempts.len()), (None, 0), "{url}");
        }
    }
}

#[test]
fn what_is_missing_around_an_image_leaves_its_spec_accepted() {
    let missing = plan(image().ticket("1").without_storage()).status.unwrap();
    assert_eq!(condition_of(&missing, condition::ACCEPTED), "True Accepted");
    assert_eq!(condition_of(&missing, condition::ADMITTED), "False StorageClassNotFound");
    assert_eq!(condition_of(&missing, condition::READY), "False StorageClassNotFound");
}

#[test]
fn a_secret_is_told_by_its_name() {
    let told = |reason: ImportReason, secret: Option<&str>| {
        let facts = image().slot(1).probe(1, failed_report(reason));
        let named = facts.spec(|spec| spec.secret_ref = secret.map(str::to_owned));
        plan(named).status.unwrap().attempts[0].message.clone().unwrap()
    };
    let absent = told(ImportReason::SecretNotFound, Some("keys"));
    assert_eq!(absent, "Secret lab/keys does not exist, or is empty");
    let lacking = told(ImportReason::SecretKeyMissing, Some("keys"));
    assert!(lacking.starts_with("Secret lab/keys: "), "{lacking}");
    let refused = told(ImportReason::Forbidden, Some("keys"));
    assert!(refused.ends_with("; asked with Secret lab/keys"), "{refused}");
    let without = told(ImportReason::Forbidden, None);
    assert!(without.ends_with("; asked without a Secret: secretRef is not set"), "{without}");
}

#[test]
fn a_refused_address_is_told_with_the_list_that_refused_it() {
    let refused = |is_valid: bool| {
        let facts = image().slot(1).probe(1, failed_report(ImportReason::AddressRefused));
        plan(facts.hall(|hall| hall.is_policy_valid = is_valid)).status.unwrap().message.unwrap()
    };
    assert!(refused(true).contains("allowedSourceHosts in effect is '*'"), "{}", refused(true));
    assert!(refused(false).contains("last good ones stay in effect"), "{}", refused(false));
}

#[test]
fn a_defect_of_ours_is_told_and_gives_back_what_was_not_used() {
    let target = Target::new::<otctl_types::VMDiskImage>(Some("lab"), "web");
    let told = |facts: Facts| {
        let cause = RefusalCause::Panicked { message: "index out of bounds" };
        refused(&facts.observed(), &Refusal { target: &target, cause }, now()).unwrap()
    };
    let held = told(image().slot(1));
    assert_eq!(condition_of(&held, condition::READY), "False InternalError");
    assert_eq!((held.last_attempt, held.budget.as_ref().unwrap().charged), (Some(1), 0));
    assert!(held.message.unwrap().contains("looked at again"));
    let running = told(image().slot(1).open(1).import(1, State::Running));
    assert_eq!(condition_of(&running, condition::READY), "False InternalError");
    assert!(running.open_attempt.is_some(), "what runs goes on");
    let done = told(image().fetched().current(false).claim());
    assert!(done.current.is_some(), "and what is there stays usable");
    assert_eq!(condition_of(&done, condition::AVAILABLE).split(' ').next(), Some("True"));
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
    assert_eq!(told(RefusalCause::Foreign(&ObjectMeta::default())), "False NameConflict");
    let forbidden = |quota, namespace_terminating| ApiError::Forbidden {
        detail: "no".to_owned(),
        quota,
        namespace_terminating,
    };
    assert_eq!(told(RefusalCause::Api(&forbidden(true, false))), "False QuotaExceeded");
    assert_eq!(told(RefusalCause::Api(&forbidden(false, true))), "False NamespaceTerminating");
    assert_eq!(told(RefusalCause::Api(&forbidden(false, false))), "False Rejected");
}

#[test]
fn what_is_lost_afterwards_replaces_what_is_told_of_its_attempt() {
    let status = plan(image().fetched().no_claim()).status.unwrap();
    let told: Vec<_> =
        status.attempts.iter().map(|it| (it.number, it.reason.as_deref(), it.charged)).collect();
    assert_eq!(told, [(1, Some("Lost"), true)]);
    assert_eq!(status.attempts[0].disk_checksum, None, "it proves nothing any more");
}

#[test]
fn a_result_that_was_lost_is_free_once_and_not_twice_in_a_row() {
    let unread = |facts: Facts| plan(facts.import(2, State::Unread)).status.unwrap();
    let before = |reason| image().failed(reason, 1, false).slot(2).open(2);
    let first = unread(before("ServerError"));
    assert_eq!(first.attempts.last().unwrap().reason.as_deref(), Some("ResultLost"));
    assert_eq!(first.budget.unwrap().charged, 1);
    assert_eq!(first.next_retry_at.unwrap().0, now() + SignedDuration::from_secs(30));
    let second = unread(before("ResultLost"));
    assert_eq!(second.budget.unwrap().charged, 2, "what it fetched is taken away each time");
    assert!(second.next_retry_at.unwrap().0 > now() + SignedDuration::from_mins(4), "a backoff");
}

#[test]
fn the_job_of_an_earlier_attempt_goes_when_the_next_one_is_on_record() {
    let ended = image().ticket("1").failed("ServerError", 1, false).known_source();
    let facts = ended.slot(2).import(1, failed_report(ImportReason::ServerError));
    let plan = plan(facts.import(2, State::Suspended));
    let cleared: Vec<String> = plan.clear.iter().map(ToString::to_string).collect();
    assert!(cleared.len() == 1 && cleared[0].contains("-a1 "), "{cleared:?}");
    assert_eq!(plan.status.unwrap().last_attempt, Some(2));
}

#[test]
fn who_keeps_a_job_from_going_is_told_with_the_pod_and_its_finalizers() {
    let held = image().slot(1).open(1).import(1, State::Held);
    let status = plan(held.status(|status| status.phase = Some(Phase::Syncing))).status.unwrap();
    let message = status.message.unwrap();
    for part in ["Job lab/web-", "foregroundDeletion", "Pod lab/web-pod", "somebody/else"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(status.phase, Some(Phase::Syncing), "its slot is kept");
}

#[test]
fn a_pod_whose_node_says_nothing_is_told_with_what_to_do() {
    let silent = image().slot(1).open(1).import(1, State::Silent);
    let status = plan(silent.status(|status| status.phase = Some(Phase::Syncing))).status.unwrap();
    assert_eq!(condition_of(&status, condition::READY), "False NodeUnreachable");
    let message = status.message.unwrap();
    for part in ["worker-7", "Pod lab/web-pod", "kubectl delete node worker-7", "out-of-service"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(status.phase, Some(Phase::Syncing), "its slot is kept");
}
