//! One case per row of the protocol and per edge of its diagram.

use super::*;

fn job(number: i64) -> JobFacts {
    JobFacts {
        number,
        uid: format!("job-{number}"),
        resource_version: "7".to_owned(),
        is_suspended: true,
        has_ended: false,
        is_deleting: false,
    }
}

fn running(number: i64) -> JobFacts {
    JobFacts { is_suspended: false, ..job(number) }
}

fn ended(number: i64) -> JobFacts {
    JobFacts { has_ended: true, ..running(number) }
}

fn open(number: i64) -> OpenAttempt {
    OpenAttempt {
        number,
        job_uid: format!("job-{number}"),
        started_at: None,
        ticket: None,
        budget: None,
        revision: None,
        never_ran: false,
        cut: None,
    }
}

fn facts<'a>(last: i64, entry: Option<i64>, jobs: &'a [JobFacts]) -> AttemptFacts<'a> {
    AttemptFacts {
        last,
        open: None,
        entry,
        jobs,
        may_start: true,
        may_go_on: true,
        confirmed: Confirmed::Nothing,
    }
}

fn stop(number: i64, version: Option<&str>) -> AttemptStep {
    AttemptStep::Stop { job: format!("job-{number}"), resource_version: version.map(str::to_owned) }
}

fn sweep(number: i64, version: Option<&str>) -> AttemptStep {
    AttemptStep::Sweep {
        job: format!("job-{number}"),
        resource_version: version.map(str::to_owned),
    }
}

#[test]
fn without_slot_and_jobs_nothing_is_due() {
    assert_eq!(facts(0, None, &[]).step(), AttemptStep::Idle);
}

#[test]
fn an_entry_above_the_last_number_is_prepared() {
    assert_eq!(facts(0, Some(1), &[]).step(), AttemptStep::Prepare(1));
    assert_eq!(
        facts(1, Some(4), &[]).step(),
        AttemptStep::Prepare(4),
        "numbers may have gaps after a restored status"
    );
}

#[test]
fn an_entry_of_a_used_number_prepares_nothing() {
    assert_eq!(facts(1, Some(1), &[]).step(), AttemptStep::Idle);
}

#[test]
fn what_may_not_start_uses_its_number_up() {
    assert_eq!(
        AttemptFacts { may_start: false, ..facts(0, Some(1), &[]) }.step(),
        AttemptStep::CloseUnused(1)
    );
    let jobs = [job(1)];
    assert_eq!(
        AttemptFacts { may_start: false, ..facts(0, Some(1), &jobs) }.step(),
        AttemptStep::CloseUnused(1)
    );
}

#[test]
fn a_created_job_is_recorded_before_it_is_started() {
    let jobs = [job(1)];
    assert_eq!(
        facts(0, Some(1), &jobs).step(),
        AttemptStep::Record { number: 1, job: "job-1".to_owned() }
    );
}

#[test]
fn a_job_that_ended_before_a_status_was_lost_is_recorded_again_not_repeated() {
    let jobs = [ended(1)];
    assert_eq!(
        facts(0, Some(1), &jobs).step(),
        AttemptStep::Record { number: 1, job: "job-1".to_owned() }
    );
}

#[test]
fn the_recorded_job_starts_only_while_the_ledger_holds_its_number() {
    let (jobs, record) = ([job(1)], open(1));
    let facts = AttemptFacts { open: Some(&record), ..facts(1, Some(1), &jobs) };
    assert_eq!(facts.need(), Need::Ledger(1));
    assert_eq!(facts.step(), AttemptStep::Await, "not before the ledger was read");
    let held = AttemptFacts { confirmed: Confirmed::Held(true), ..facts.clone() };
    assert_eq!(held.step(), AttemptStep::Start { job: "job-1".to_owned() });
    let lost = AttemptFacts { confirmed: Confirmed::Held(false), ..facts };
    assert_eq!(lost.step(), stop(1, Some("7")), "never started: deleted only if still unstarted");
}

#[test]
fn a_running_job_runs_until_its_pod_ended() {
    let (jobs, record) = ([running(1)], open(1));
    let facts = AttemptFacts { open: Some(&record), ..facts(1, None, &jobs) };
    assert_eq!(facts.need(), Need::Nothing);
    assert_eq!(
        facts.step(),
        AttemptStep::Run { job: "job-1".to_owned() },
        "a lost ledger stops nothing"
    );
    let jobs = [ended(1)];
    assert_eq!(AttemptFacts { jobs: &jobs, ..facts }.step(), AttemptStep::Close(1));
}

#[test]
fn an_attempt_that_may_not_go_on_is_stopped_and_closed_only_when_gone() {
    let (jobs, record) = ([running(1)], open(1));
    let facts = AttemptFacts { open: Some(&record), may_go_on: false, ..facts(1, Some(1), &jobs) };
    assert_eq!(facts.step(), stop(1, None));
    let deleting = [JobFacts { is_deleting: true, ..running(1) }];
    assert_eq!(AttemptFacts { jobs: &deleting, ..facts.clone() }.step(), AttemptStep::Await);
    let nothing = AttemptFacts { jobs: &[], ..facts };
    assert_eq!(nothing.need(), Need::Absence(&record));
    assert_eq!(nothing.step(), AttemptStep::Await, "absent from a cache is not gone");
    let pod_left = AttemptFacts { confirmed: Confirmed::Gone(false), ..nothing.clone() };
    assert_eq!(pod_left.step(), AttemptStep::Await);
    assert_eq!(
        AttemptFacts { confirmed: Confirmed::Gone(true), ..nothing }.step(),
        AttemptStep::Close(1)
    );
}

#[test]
fn another_job_of_the_recorded_name_does_not_stand_for_it() {
    let impostor = [JobFacts { uid: "other".to_owned(), ..running(1) }];
    let record = open(1);
    let facts = AttemptFacts { open: Some(&record), ..facts(1, Some(1), &impostor) };
    assert_eq!(facts.need(), Need::Absence(&record));
    assert_eq!(
        AttemptFacts { confirmed: Confirmed::Gone(true), ..facts }.step(),
        AttemptStep::Close(1)
    );
}

#[test]
fn jobs_that_no_record_speaks_for_are_swept() {
    let left = [job(1)];
    assert_eq!(facts(1, None, &left).step(), sweep(1, None));
    let finished = [ended(1)];
    assert_eq!(
        facts(1, None, &finished).step(),
        AttemptStep::Idle,
        "an ended one is left to people"
    );
}

#[test]
fn a_suspended_job_above_the_last_number_is_swept_only_without_an_entry() {
    let jobs = [job(2)];
    let facts = facts(1, None, &jobs);
    assert_eq!(facts.need(), Need::Ledger(2));
    assert_eq!(facts.step(), AttemptStep::Await);
    assert_eq!(
        AttemptFacts { confirmed: Confirmed::Held(true), ..facts.clone() }.step(),
        AttemptStep::Await
    );
    assert_eq!(
        AttemptFacts { confirmed: Confirmed::Held(false), ..facts }.step(),
        sweep(2, Some("7"))
    );
}
