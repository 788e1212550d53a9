//! One case per edge of [`step`], with 15 s, 10 s and 2 s.

use std::time::Duration;

use crate::cluster::ApiError;
use crate::leader::{Record, Step, Timing, TimingError, View, step};

const ME: &str = "me";

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn record(holder: &str, version: &str) -> Record {
    Record { holder: holder.to_owned(), version: version.to_owned(), duration: Some(at(15.0)) }
}

fn view() -> View {
    View::new(ME.to_owned(), Timing::default())
}

/// On standby, having read `holder` at `seconds`.
fn reads(holder: &str, seconds: f64) -> View {
    let mut view = view();
    view.read(Some(record(holder, "1")), at(seconds));
    view
}

/// Leading by a claim that was sent at `seconds` and answered half a second later.
fn leads_since(seconds: f64) -> View {
    let mut view = reads("", seconds);
    view.claimed(record(ME, "2"), at(seconds), at(seconds + 0.5));
    view
}

fn unknown() -> ApiError {
    ApiError::Unknown { detail: "cut".to_owned() }
}

fn conflict() -> ApiError {
    ApiError::Conflict { detail: "changed".to_owned() }
}

#[track_caller]
fn check(view: &View, seconds: f64, expected: Step) {
    assert_eq!(step(view, at(seconds)), expected);
}

#[test]
fn knowing_nothing_it_reads() {
    check(&view(), 0.0, Step::Read);
}

#[test]
fn an_absent_lease_is_created_without_a_holder() {
    let mut view = view();
    view.read(None, at(1.0));
    check(&view, 1.0, Step::Create);
}

#[test]
fn anothers_lease_that_was_deleted_is_made_again_only_after_its_duration() {
    let mut view = reads("other", 1.0);
    view.read(None, at(3.0));
    check(&view, 3.0, Step::Wait(at(5.0)));
    check(&view, 5.0, Step::Read);
    view.read(None, at(17.0));
    check(&view, 17.5, Step::Wait(at(18.0)));
    check(&view, 18.0, Step::Create);
}

#[test]
fn a_free_lease_is_claimed_at_once() {
    check(&reads("", 1.0), 1.0, Step::Claim);
}

#[test]
fn anothers_lease_is_looked_at_again_after_the_retry_period() {
    let view = reads("other", 1.0);
    check(&view, 1.0, Step::Wait(at(3.0)));
    check(&view, 3.0, Step::Read);
}

#[test]
fn anothers_lease_is_claimed_when_it_was_not_seen_to_change_for_its_duration() {
    let mut view = reads("other", 1.0);
    for seconds in 2..=15 {
        view.read(Some(record("other", "1")), at(f64::from(seconds)));
    }
    check(&view, 15.9, Step::Wait(at(16.0)));
    check(&view, 16.0, Step::Claim);
}

#[test]
fn a_change_starts_the_wait_anew() {
    let mut view = reads("other", 1.0);
    view.read(Some(record("other", "2")), at(15.0));
    check(&view, 16.0, Step::Wait(at(17.0)));
    view.read(Some(record("other", "2")), at(29.0));
    check(&view, 29.9, Step::Wait(at(30.0)));
    check(&view, 30.0, Step::Claim);
}

#[test]
fn a_failed_read_does_not_start_the_wait_anew() {
    let mut view = reads("other", 1.0);
    view.failed(&unknown(), at(10.0));
    view.read(Some(record("other", "1")), at(15.5));
    check(&view, 16.0, Step::Claim);
}

#[test]
fn a_longer_duration_of_the_holder_counts() {
    let mut view = view();
    view.read(Some(Record { duration: Some(at(60.0)), ..record("other", "1") }), at(0.0));
    view.read(Some(Record { duration: Some(at(60.0)), ..record("other", "1") }), at(59.0));
    check(&view, 59.5, Step::Wait(at(60.0)));
    check(&view, 60.0, Step::Claim);
}

#[test]
fn an_absurd_or_missing_duration_keeps_nobody_out_for_ever() {
    for (stated, free_at) in [(None, 15.0), (Some(at(0.0)), 1.0), (Some(at(1e9)), 300.0)] {
        let mut view = view();
        view.read(Some(Record { duration: stated, ..record("other", "1") }), at(0.0));
        view.read(Some(Record { duration: stated, ..record("other", "1") }), at(free_at - 0.1));
        check(&view, free_at, Step::Claim);
    }
}

#[test]
fn a_held_lease_is_renewed_a_retry_period_after_it_was_sent() {
    let view = leads_since(1.0);
    check(&view, 1.5, Step::Wait(at(3.0)));
    check(&view, 3.0, Step::Claim);
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let view = leads_since(1.0);
    assert_eq!(view.deadline(), Some(at(11.0)));
    check(&view, 11.0, Step::StepDown("the renew deadline passed"));
}

#[test]
fn an_answer_after_the_deadline_makes_nobody_lead() {
    let mut view = reads("", 1.0);
    view.claimed(record(ME, "2"), at(1.0), at(11.0));
    assert!(!view.leads());
}

#[test]
fn a_lost_renewal_is_read_again_and_the_deadline_stays() {
    let mut view = leads_since(1.0);
    view.failed(&unknown(), at(6.0));
    check(&view, 6.0, Step::Wait(at(6.5)));
    check(&view, 6.5, Step::Read);
    assert_eq!(view.deadline(), Some(at(11.0)));
    view.read(Some(record(ME, "3")), at(7.0));
    check(&view, 7.0, Step::Claim);
    assert_eq!(view.deadline(), Some(at(11.0)), "reading our name is no renewal");
}

#[test]
fn failures_never_carry_it_over_the_deadline() {
    let mut view = leads_since(1.0);
    view.failed(&unknown(), at(10.9));
    check(&view, 10.9, Step::Wait(at(11.0)));
    check(&view, 11.0, Step::StepDown("the renew deadline passed"));
}

#[test]
fn a_conflict_is_read_at_once() {
    let mut view = leads_since(1.0);
    view.failed(&conflict(), at(3.1));
    check(&view, 3.1, Step::Read);
}

#[test]
fn a_missing_namespace_is_not_asked_for_at_full_speed() {
    let mut view = view();
    view.read(None, at(1.0));
    view.failed(&ApiError::NotFound { detail: "no namespace".to_owned() }, at(1.0));
    check(&view, 1.0, Step::Wait(at(3.0)));
}

#[test]
fn anothers_name_ends_leading_at_once() {
    let mut view = leads_since(1.0);
    view.failed(&conflict(), at(3.1));
    view.read(Some(record("other", "3")), at(3.2));
    check(&view, 3.2, Step::StepDown("the lease names another"));
    view.stepped_down();
    check(&view, 3.2, Step::Wait(at(5.2)));
}

#[test]
fn a_deleted_lease_ends_leading_and_is_made_again() {
    let mut view = leads_since(1.0);
    view.read(None, at(3.2));
    check(&view, 3.2, Step::StepDown("the lease is gone"));
    view.stepped_down();
    check(&view, 3.2, Step::Create);
}

#[test]
fn our_name_with_a_lost_answer_is_claimed_again_before_we_lead() {
    let mut view = reads("", 1.0);
    view.failed(&unknown(), at(4.0));
    check(&view, 6.0, Step::Read);
    view.read(Some(record(ME, "2")), at(6.5));
    assert!(!view.leads());
    check(&view, 6.5, Step::Claim);
}

#[test]
fn a_throttled_call_waits_as_told_but_not_longer_than_a_period() {
    let mut view = view();
    view.failed(&ApiError::Throttled { retry_after_seconds: Some(1) }, at(1.0));
    check(&view, 1.0, Step::Wait(at(2.0)));
    view.failed(&ApiError::Throttled { retry_after_seconds: Some(600) }, at(1.0));
    check(&view, 1.0, Step::Wait(at(3.0)));
}

#[test]
fn it_knows_whether_there_is_something_to_give_back() {
    assert_eq!(view().names_us(), None);
    assert_eq!(reads("other", 0.0).names_us(), Some(false));
    let mut view = leads_since(0.0);
    assert_eq!(view.names_us(), Some(true));
    view.failed(&unknown(), at(1.0));
    assert_eq!(view.names_us(), None);
}

#[test]
fn times_that_could_let_two_lead_are_refused() {
    let timing = |a, b, c| Timing::new(at(a), at(b), at(c));
    assert_eq!(timing(15.0, 13.0, 2.0), Err(TimingError::RenewDeadline));
    assert_eq!(timing(0.9, 0.5, 0.1), Err(TimingError::Duration));
    assert_eq!(timing(301.0, 10.0, 2.0), Err(TimingError::Duration));
    assert_eq!(timing(15.0, 10.0, 0.0), Err(TimingError::Retry));
    assert_eq!(timing(15.0, 10.0, 4.0), Err(TimingError::Retry));
    assert_eq!(timing(1.0, 0.7, 0.2).unwrap().duration_seconds(), 1);
    assert_eq!(timing(1.5, 1.0, 0.2).unwrap().duration_seconds(), 2);
}

#[test]
fn the_boot_clock_goes_forward() {
    let clock = crate::leader::boot_clock();
    let first = clock();
    assert!(first > Duration::ZERO);
    assert!(clock() >= first);
}
