//! What a pass remembers, which Events it publishes, and when it looks again.

use std::time::Duration;

use otctl_kit::plan::{Action, Next, Plan};
use otctl_types::diskimage::Phase as ImagePhase;
use otctl_types::workspace::{Phase, WorkspaceStatus};

use super::decide;
use crate::grounds::Ground;
use crate::workspace::fixture::{Facts, now, with_machine, workspace};

fn plan(facts: Facts) -> Plan<WorkspaceStatus> {
    decide(&facts.observed(), now())
}

/// `last turn, open turn, started parts, ticket`.
fn memory(facts: Facts) -> String {
    let status = plan(facts).status.expect("something is to be told");
    let number = |number: Option<i64>| number.map_or("-".to_owned(), |number| number.to_string());
    format!(
        "{} {} [{}] {}",
        number(status.last_turn),
        number(status.open_turn.map(|open| open.number)),
        status.started_parts.join(" "),
        status.ticket.unwrap_or("-".to_owned())
    )
}

#[test]
fn a_turn_is_on_record_before_anything_is_made() {
    let plan = plan(workspace().ticket("3").slot(2));
    let Action::Remember(status) = &plan.writes[0].action else { panic!("{:?}", plan.writes) };
    assert_eq!((&status["lastTurn"], &status["openTurn"]["number"]), (&2.into(), &2.into()));
    assert!(plan.before_status().count() > 1);
}

#[test]
fn the_ticket_of_one_that_was_admitted_at_once_comes_from_its_entry() {
    assert_eq!(memory(workspace().slot(1)), "1 1 [] 7");
    assert_eq!(memory(workspace().ticket("3").slot(1)), "1 1 [] 3");
}

#[test]
fn a_turn_that_is_over_leaves_its_number_and_what_it_was_for() {
    assert_eq!(memory(workspace().ticket("3").open(1)), "1 1 [] 3");
    let started = workspace().ticket("3").isolated().runs("api", 1);
    assert_eq!(memory(started.clone().open(1)), "1 - [api] -");
    assert_eq!(memory(workspace().ticket("3").open_since(1, 3600)), "1 - [api] -");
    let yielding = with_machine().ticket("3").open(1).image_in(ImagePhase::Syncing);
    assert_eq!(memory(yielding), "1 - [] 3", "its place is kept");
    assert_eq!(memory(started.open(1).suspended()), "1 - [] 3");
}

#[test]
fn a_slot_that_cannot_be_used_is_used_up() {
    let blocked = with_machine().ticket("3").image_in(ImagePhase::Syncing);
    assert_eq!(memory(blocked.slot(1)), "1 - [] 3");
    assert_eq!(memory(workspace().suspended().slot(4)), "4 - [] -");
}

#[test]
fn entries_that_are_not_in_the_spec_any_more_are_forgotten() {
    assert_eq!(memory(workspace().started(&["api", "gone"])), "1 - [api] -");
}

/// Somebody may ask for it again before the end of the pass is told: what is made anew takes a slot.
#[test]
fn what_is_deleted_has_had_no_start_from_before_its_deletion_on() {
    let first = |facts: Facts| match &plan(facts).writes[0].action {
        Action::Remember(status) => {
            let kept = &status["disks"][0]["copied"];
            format!("{} {}", status["startedParts"], kept)
        }
        other => format!("{other:?}"),
    };
    let runs = || {
        let facts = with_machine().container("api").isolated().finalized();
        let facts = facts.machine_is("db", "Running").runs("api", 1).addressed();
        facts.started(&["db", "api"]).copied("db", "debian")
    };
    assert!(plan(runs()).writes.is_empty(), "{:?}", plan(runs()).writes);
    let gone = runs().spec(|spec| spec.virtual_machines.clear());
    assert_eq!(first(gone), "[\"api\"] null");
    let unrun = runs().entry_of("db", |entry| entry.spec.instance = None);
    assert_eq!(first(unrun), "[\"db\",\"api\"] false");
    // What is to stop does not wait for that.
    assert!(plan(runs().suspended()).writes.is_empty());
}

/// Its policy is lost, and may not be made again for now: nothing may make pods meanwhile.
#[test]
fn nothing_is_applied_that_may_make_pods_while_their_policy_cannot_be_made() {
    let edited = || {
        let facts = workspace().runs("api", 1).addressed().started(&["api"]).finalized();
        facts.spec(|spec| spec.containers[0].replicas = 3)
    };
    let applies = |facts: Facts| {
        let plan = plan(facts);
        plan.before_status().filter(|it| matches!(it.action, Action::Apply(_))).count()
    };
    assert_eq!(applies(edited().isolated()), 1);
    assert_eq!(applies(edited()), 1, "the policy is made first");
    assert_eq!(applies(edited().ground(Ground::OutOfReach)), 0);
}

#[test]
fn what_was_accepted_is_remembered_and_what_was_refused_is_not() {
    let namespace = |facts: Facts| plan(facts).status.unwrap().namespace;
    assert_eq!(namespace(workspace().slot(1)).as_deref(), Some("labs"));
    let refused = workspace().spec(|spec| spec.namespace = Some("other".to_owned()));
    assert_eq!(namespace(refused), None);
}

#[test]
fn an_event_for_each_change_of_phase_and_for_a_start_that_takes_too_long() {
    let events = |facts: Facts, before: Option<Phase>| {
        let facts = facts.status(|status| status.phase = before);
        let notices = plan(facts).notices;
        let told = notices
            .iter()
            .map(|notice| format!("{}{}", if notice.warning { "!" } else { "" }, notice.reason));
        told.collect::<Vec<_>>().join(" ")
    };
    let ready = || workspace().isolated().runs("api", 1).started(&["api"]);
    assert_eq!(events(workspace().ticket("1"), None), "Queued");
    assert_eq!(events(workspace().slot(1), None), "Admitted");
    assert_eq!(events(workspace().open(1), Some(Phase::Provisioning)), "");
    assert_eq!(events(ready(), Some(Phase::Provisioning)), "AllReady");
    assert_eq!(events(ready(), Some(Phase::Ready)), "");
    let broken = || workspace().isolated().runs("api", 0).started(&["api"]);
    assert_eq!(events(broken(), Some(Phase::Ready)), "!Degraded");
    assert_eq!(events(broken(), Some(Phase::Suspended)), "Degraded");
    assert_eq!(events(broken(), Some(Phase::Provisioning)), "", "it is on its way");
    let fails = || workspace().isolated().runs("api", 0).pod_waits("api", "ErrImagePull", "none");
    assert_eq!(events(fails().open(1), Some(Phase::Provisioning)), "!Degraded");
    let told = plan(fails().open(1)).status.unwrap().conditions;
    let still = fails().open(1).status(|status| status.conditions = told);
    assert_eq!(events(still, Some(Phase::Provisioning)), "", "it was told");
    let edited = ready().spec(|spec| spec.containers[0].image = "api:2".to_owned());
    assert_eq!(events(edited, Some(Phase::Ready)), "Progressing");
    let added = || ready().container("web").ticket("2");
    assert_eq!(events(added(), Some(Phase::Ready)), "Queued");
    let failed = with_machine().ticket("1").image_in(ImagePhase::Failed);
    assert_eq!(events(failed, Some(Phase::Provisioning)), "!ImageFailed");
    let late = workspace().isolated().runs("api", 0).open_since(1, 3600);
    assert_eq!(events(late, Some(Phase::Provisioning)), "!ProvisioningTimedOut");
    assert_eq!(events(workspace().suspended(), Some(Phase::Ready)), "Suspended");
}

#[test]
fn it_looks_again_when_its_turn_is_over_and_else_when_it_is_woken() {
    let in_seconds = |facts: Facts| match plan(facts).next {
        Next::Wait => None,
        Next::At(at) => Some(at.duration_since(now()).as_secs()),
    };
    let patient =
        |facts: Facts| facts.policy(|it| it.provisioning_timeout = Duration::from_secs(600));
    assert_eq!(in_seconds(patient(workspace().slot(1))), Some(600));
    assert_eq!(in_seconds(patient(workspace().open_since(1, 100))), Some(500));
    assert_eq!(in_seconds(patient(workspace().open_since(1, 900))), None);
    assert_eq!(in_seconds(workspace().ticket("1")), None);
    assert_eq!(in_seconds(workspace().started(&["api"])), None);
    let leaving = || workspace().started(&["api"]).deleted().finalized();
    assert_eq!(in_seconds(leaving().pod_going("api", 0)), Some(30));
    assert_eq!(in_seconds(leaving().pod_going("api", 30)), None);
    assert_eq!(in_seconds(leaving()), Some(10), "the API server still knows a pod");
    assert_eq!(in_seconds(leaving().ground(Ground::OutOfReach)), Some(10), "it may be a moment");
    assert_eq!(in_seconds(leaving().ground(Ground::Lost)), None);
}

/// Its policy outlives its pods, which nobody can see for now: their binding may be about to be made anew.
#[test]
fn only_a_right_that_stays_away_takes_the_finalizer() {
    let check = |ground: Ground, expected: &[&str]| {
        let leaving = workspace().started(&["api"]).isolated().runs("api", 1).deleted().finalized();
        let plan = plan(leaving.ground(ground));
        let told: Vec<&str> = plan.before_status().map(|write| write.because).collect();
        assert_eq!(told, expected, "{ground:?}");
    };
    let going = "its workspace is being deleted";
    check(Ground::Firm, &[going, going]);
    check(Ground::Terminating, &[going, going]);
    check(Ground::OutOfReach, &[]);
    check(Ground::Absent, &["nothing of it can be seen to any more"]);
    check(Ground::Lost, &["nothing of it can be seen to any more"]);
    let elsewhere = workspace().started(&["api"]).deleted().finalized().ground(Ground::OutOfReach);
    let elsewhere = plan(elsewhere.spec(|spec| spec.namespace = Some("other".to_owned())));
    assert_eq!(elsewhere.writes[0].because, "nothing of it can be seen to any more");
}

#[test]
fn one_that_is_new_is_left_alone() {
    let plan = plan(workspace());
    assert_eq!((plan.verdict, plan.before_status().count()), ("Unticketed", 0));
    assert_eq!(plan.status, None);
}
