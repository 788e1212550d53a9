//! One canonical case per verdict and per edge of the diagram.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_types::diskimage::Phase;

use super::{Verdict, Wait, judge};
use crate::grounds::Ground;
use crate::workspace::fixture::{Facts, bare, now, spec_of_image, with_machine, workspace};

/// The verdict and what it says.
fn check(facts: Facts, expected: &str) {
    let told = match judge(&facts.observed(), now()) {
        Verdict::Invalid(lack) => format!("invalid: {}", lack.reason),
        Verdict::Waiting(Wait::Line) => "wait: line".to_owned(),
        Verdict::Waiting(Wait::Paused) => "wait: paused".to_owned(),
        Verdict::Waiting(Wait::Blocked(lack)) => format!("wait: {}", lack.reason),
        Verdict::Yielding(lack) => format!("yield: {}", lack.reason),
        Verdict::Opening(number) => format!("open {number}"),
        other => other.name().to_owned(),
    };
    assert_eq!(told, expected);
}

#[test]
fn a_new_workspace_says_nothing_before_its_ticket() {
    check(workspace(), "Unticketed");
    check(with_machine().without_image(), "Unticketed");
}

#[test]
fn with_a_ticket_it_waits_for_a_slot() {
    check(workspace().ticket("3"), "wait: line");
    check(workspace().ticket("3").policy(|it| it.workspace_concurrency = 0), "wait: paused");
    check(workspace().ticket("3").slot(1), "open 1");
    check(workspace().slot(1), "open 1");
}

#[test]
fn an_image_that_is_not_there_keeps_it_from_a_slot() {
    let waiting = || with_machine().ticket("3");
    check(waiting().without_image(), "wait: ImageNotFound");
    check(waiting().image_in(Phase::Queued), "wait: AwaitingImages");
    check(waiting().image_in(Phase::Syncing), "wait: AwaitingImages");
    check(waiting().image(|image| image.status = None), "wait: AwaitingImages");
    check(waiting().image_in(Phase::Failed), "wait: ImageFailed");
    let going = |it: &mut otctl_types::VMDiskImage| {
        it.metadata.deletion_timestamp = Some(Time(now()));
    };
    check(waiting().image(going), "wait: ImageTerminating");
    check(waiting(), "wait: line");
    check(waiting().slot(1).image_in(Phase::Syncing), "wait: AwaitingImages");
}

#[test]
fn numbers_of_turns_end() {
    let last = otctl_types::names::LAST_ATTEMPT;
    check(workspace().ticket("3").turns(last - 1), "wait: line");
    check(workspace().ticket("3").turns(last - 1).slot(last), &format!("open {last}"));
    check(workspace().ticket("3").turns(last), "wait: Rejected");
    check(workspace().open(last), "Building");
}

#[test]
fn an_image_that_it_can_make_is_work() {
    let brings = |facts: Facts| {
        facts.ticket("3").entry_of("db", |entry| entry.spec.image = Some(spec_of_image()))
    };
    check(brings(with_machine().without_image()), "wait: line");
    check(brings(with_machine().without_image()).slot(1), "open 1");
    check(brings(with_machine().without_image()).open(1), "Building");
    check(brings(with_machine()).image_in(Phase::Syncing).open(1), "yield: AwaitingImages");
    let other = |image: &mut otctl_types::VMDiskImage| image.spec.url = "http://other".to_owned();
    check(brings(with_machine()).image(other), "wait: ImageDiffers");
}

#[test]
fn a_pinned_revision_is_waited_for_until_a_disk_was_made_from_it() {
    let pinned = |facts: Facts, revision: &str| {
        let revision = revision.to_owned();
        facts.ticket("3").entry_of("db", |entry| entry.spec.revision = Some(revision))
    };
    check(pinned(with_machine(), "r1"), "wait: line");
    check(pinned(with_machine(), "r2"), "wait: RevisionNotFound");
    check(pinned(with_machine().machine_is("db", "Stopped").revision("r2"), "r1"), "wait: line");
}

#[test]
fn a_machine_with_a_disk_of_its_own_needs_its_image_no_more() {
    let copied = || with_machine().machine_is("db", "Stopped").ticket("3");
    check(copied().without_image(), "wait: line");
    check(copied().image_in(Phase::Failed), "wait: line");
}

#[test]
fn without_kubevirt_no_machine_is_started() {
    check(with_machine().ticket("3").without_kubevirt(), "wait: KubeVirtNotInstalled");
    check(with_machine().open(1).without_kubevirt(), "yield: KubeVirtNotInstalled");
    check(bare().image_entry("data").ticket("3").without_kubevirt(), "wait: line");
    check(workspace().ticket("3").without_kubevirt(), "wait: line");
}

#[test]
fn a_turn_is_over_when_everything_is_ready_or_its_time_has_passed() {
    check(workspace().open(1), "Building");
    check(workspace().open(1).runs("api", 0), "Building");
    check(workspace().open(1).runs("api", 1), "Ready");
    let patient = |facts: Facts| {
        facts.policy(|policy| policy.provisioning_timeout = Duration::from_secs(600))
    };
    check(patient(workspace().open_since(1, 599)), "Building");
    check(patient(workspace().open_since(1, 600)), "Late");
    check(patient(workspace().open_since(1, 600).runs("api", 1)), "Ready");
}

/// It may be back in a moment: a slot is not given back for that, and none is taken.
#[test]
fn a_right_that_is_away_for_a_moment_takes_no_turn_away() {
    let away = |facts: Facts| facts.ground(Ground::OutOfReach);
    check(away(workspace().open(1).runs("api", 0)), "Building");
    check(away(workspace().started(&["api"]).runs("api", 1)), "Tending");
    check(away(workspace().ticket("3")), "wait: NamespaceNotFound");
    check(away(workspace().ticket("3").slot(1)), "wait: NamespaceNotFound");
}

#[test]
fn a_turn_without_anything_to_start_is_over() {
    check(workspace().started(&["api"]).open(1), "Ready");
}

#[test]
fn what_has_had_its_start_is_tended_without_a_slot() {
    check(workspace().started(&["api"]), "Tending");
    check(workspace().started(&["api"]).runs("api", 0), "Tending");
    check(with_machine().started(&["db"]).image_in(Phase::Failed), "Tending");
    check(workspace().started(&["api"]).slot(2), "Tending");
}

#[test]
fn an_added_entry_waits_for_a_turn_of_its_own() {
    let edited = || workspace().container("web").started(&["api"]);
    check(edited(), "wait: line");
    check(edited().slot(1), "wait: line");
    check(edited().slot(2), "open 2");
    check(edited().machine("db").image_in(Phase::Syncing), "wait: AwaitingImages");
}

#[test]
fn a_turn_is_over_when_what_it_is_for_is_ready_though_another_part_is_broken() {
    let edited = |new: i32, old: i32| {
        let parts = workspace().container("web").isolated().runs("api", old).runs("web", new);
        parts.started(&["api"]).open(2)
    };
    check(edited(1, 0), "Ready");
    check(edited(0, 1), "Building");
    check(edited(0, 0), "Building");
}

#[test]
fn a_used_slot_opens_nothing() {
    check(workspace().ticket("3").turns(1).slot(1), "wait: line");
    check(workspace().ticket("3").turns(4).slot(3), "wait: line");
}

#[test]
fn suspension_comes_before_the_line_and_after_what_is_invalid() {
    check(workspace().suspended(), "Suspended");
    check(workspace().open(1).suspended(), "Suspended");
    check(workspace().started(&["api"]).suspended(), "Suspended");
    check(with_machine().without_image().suspended(), "Suspended");
    check(workspace().suspended().foreign::<Deployment>("lab--api"), "invalid: NameConflict");
}

#[test]
fn what_cannot_be_acted_on_is_invalid() {
    let elsewhere = |namespace: &str| {
        let namespace = namespace.to_owned();
        workspace().spec(|spec| spec.namespace = Some(namespace))
    };
    check(elsewhere("other"), "invalid: NamespaceNotAllowed");
    check(elsewhere("kube-system"), "invalid: NamespaceNotAllowed");
    check(elsewhere("otctl"), "invalid: NamespaceNotAllowed");
    check(elsewhere("exams"), "Unticketed");
    check(workspace().foreign::<NetworkPolicy>("lab--network"), "invalid: NameConflict");
    check(workspace().open(1).foreign::<Deployment>("lab--api"), "invalid: NameConflict");
}

#[test]
fn what_an_earlier_workspace_of_its_name_left_is_waited_for_without_a_slot() {
    let left = |facts: Facts| facts.left::<Deployment>("lab--api");
    check(left(workspace()), "Unticketed");
    check(left(workspace().ticket("3")), "wait: OldChildTerminating");
    check(left(workspace().ticket("3").slot(1)), "wait: OldChildTerminating");
    check(left(workspace().open(1)), "yield: OldChildTerminating");
    check(left(workspace().started(&["api"])), "Tending");
    check(left(workspace().suspended()), "Suspended");
    check(left(workspace().deleted()), "Leaving");
    let both = left(workspace()).foreign::<NetworkPolicy>("lab--network");
    check(both, "invalid: NameConflict");
}

#[test]
fn a_namespace_that_goes_keeps_it_from_its_turn() {
    for (ground, reason) in [
        (Ground::Terminating, "NamespaceTerminating"),
        (Ground::Absent, "NamespaceNotFound"),
        (Ground::Lost, "NamespaceNotFound"),
    ] {
        check(workspace().ticket("3").ground(ground), &format!("wait: {reason}"));
        check(workspace().slot(1).ground(ground), &format!("wait: {reason}"));
        check(workspace().open(1).ground(ground), &format!("yield: {reason}"));
        check(workspace().started(&["api"]).ground(ground), "Tending");
    }
}

#[test]
fn deletion_comes_before_everything() {
    check(workspace().deleted(), "Leaving");
    check(workspace().open(1).deleted().suspended(), "Leaving");
    check(workspace().deleted().foreign::<Deployment>("lab--api"), "Leaving");
}

#[test]
fn what_is_not_there_is_gone() {
    let mut observed = workspace().observed();
    observed.workspace = None;
    assert_eq!(judge(&observed, now()), Verdict::Gone);
}
