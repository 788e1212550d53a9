//! What is read afresh in which state, and that nothing is made without it.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use otctl_types::diskimage::Phase;

use crate::grounds::Ground;
use crate::workspace::decide::decide;
use crate::workspace::fixture::{Facts, bare, now, spec_of_image, with_machine, workspace};
use crate::workspace::works::is_new;

/// What is asked for: `ground`, `pods`, both, or nothing.
#[track_caller]
fn check(facts: Facts, expected: &str) {
    let observed = facts.observed();
    let ground = observed.asks_for_ground().then_some("ground");
    let pods = observed.awaits_last_pod().then_some("pods");
    let asked: Vec<&str> = ground.into_iter().chain(pods).collect();
    assert_eq!(asked.join(" "), expected);
}

#[test]
fn one_that_waits_or_is_at_rest_asks_for_nothing() {
    check(workspace(), "");
    check(workspace().ticket("3"), "");
    check(workspace().ticket("3").turns(2).slot(2), "");
    check(workspace().suspended(), "");
    let ready = || workspace().isolated().runs("api", 1).started(&["api"]);
    check(ready(), "");
    check(ready().container("web"), "");
    let machine = || with_machine().isolated().machine_is("db", "Running").started(&["db"]);
    check(machine(), "");
    check(machine().without_image(), "");
    check(workspace().isolated().runs("api", 0).open(1), "");
    check(ready().machine("db").without_kubevirt().service("db").started(&["api", "db"]), "");
}

#[test]
fn the_namespace_is_asked_for_before_something_is_made() {
    check(workspace().slot(1), "ground");
    check(workspace().open(1), "ground");
    check(workspace().open(1).isolated().runs("api", 0), "");
    check(workspace().started(&["api"]), "ground");
    check(workspace().started(&["api"]).runs("api", 1), "ground");
    check(workspace().started(&["api"]).isolated().service("api"), "ground");
    check(workspace().spec(|spec| spec.network.isolate = false).open(1).runs("api", 0), "");
    check(workspace().suspended().isolated().service("api"), "ground");
    check(with_machine().open(1).isolated().service("db"), "ground");
    check(with_machine().open(1).isolated().service("db").without_kubevirt(), "");
}

#[test]
fn the_namespace_is_asked_for_when_pods_of_what_had_its_start_are_missing() {
    check(workspace().isolated().runs("api", 0).started(&["api"]), "ground");
    check(workspace().isolated().runs("api", 0).started(&["api"]).ground(Ground::Terminating), "");
    check(workspace().suspended().isolated().runs("api", 0), "");
}

#[test]
fn the_namespace_is_asked_for_before_an_image_is_made() {
    let brings = |facts: Facts| {
        facts.isolated().entry_of("db", |entry| entry.spec.image = Some(spec_of_image()))
    };
    let data = || brings(bare().image_entry("db").without_image().service("db"));
    check(data(), "");
    check(data().open(1), "ground");
    check(data().started(&["db"]), "ground");
    let other = || data().image_entry("copy").started(&["db"]);
    check(other(), "ground");
    let copy_waits = |facts: Facts| {
        let facts = facts.isolated().image_entry("copy").without_image().service("copy");
        facts.entry_of("db", |entry| entry.spec.image = Some(spec_of_image()))
    };
    check(copy_waits(bare().image_entry("db")).started(&["copy"]), "ground");
    check(brings(bare().image_entry("db")).service("db").started(&["db"]), "");
}

#[test]
fn a_name_that_is_taken_is_not_made() {
    check(workspace().started(&["api"]).isolated().foreign::<Deployment>("lab--api"), "");
    check(
        workspace().started(&["api"]).runs("api", 1).foreign::<NetworkPolicy>("lab--network"),
        "",
    );
    check(workspace().container("web").open(1).foreign::<Deployment>("lab--api"), "ground");
}

#[test]
fn a_namespace_that_takes_nothing_is_asked_for_by_others() {
    for ground in [Ground::Terminating, Ground::Absent, Ground::OutOfReach, Ground::Lost] {
        check(workspace().open(1).ground(ground), "");
        check(workspace().started(&["api"]).ground(ground), "");
    }
    let elsewhere = |facts: Facts| facts.spec(|spec| spec.namespace = Some("other".to_owned()));
    check(elsewhere(workspace().open(1)), "");
    check(elsewhere(workspace().started(&["api"])), "");
}

#[test]
fn the_last_pod_is_asked_for_when_nothing_else_is_seen() {
    check(workspace().started(&["api"]).deleted(), "");
    let leaving = || workspace().started(&["api"]).isolated().deleted().finalized();
    check(leaving(), "ground pods");
    check(leaving().runs("api", 1), "ground");
    check(leaving().pod_going("api", 0), "ground");
    check(leaving().ground(Ground::Terminating), "ground pods");
    check(leaving().ground(Ground::OutOfReach), "ground");
    check(leaving().ground(Ground::Lost), "ground");
    check(leaving().spec(|spec| spec.namespace = Some("other".to_owned())), "");
    check(workspace().started(&["api"]).finalized(), "ground");
}

type Change = fn(Facts) -> Facts;

/// Everything that `facts` become by one change out of each row.
fn product(facts: Vec<Facts>, rows: &[&[Change]]) -> Vec<Facts> {
    rows.iter().fold(facts, |facts, row| {
        let each = facts.into_iter();
        each.flat_map(|facts| row.iter().map(move |change| change(facts.clone()))).collect()
    })
}

fn brings(facts: Facts) -> Facts {
    facts.entry_of("db", |entry| entry.spec.image = Some(spec_of_image()))
}

const LIVES: &[Change] = &[
    |it| it,
    |it| it.ticket("3"),
    |it| it.ticket("3").slot(1),
    |it| it.ticket("3").open(1),
    |it| it.open_since(1, 9999),
    |it| it.started(&["api"]),
    |it| it.started(&["db"]).slot(2),
    |it| it.started(&["db", "api"]),
];
const IMAGES: &[Change] = &[
    |it| it,
    |it| it.without_image(),
    |it| brings(it),
    |it| brings(it.without_image()),
    |it| it.image_entry("copy"),
    |it| brings(it.without_image()).image_entry("copy"),
    |it| it.image_in(Phase::Syncing),
];
const CHILDREN: &[Change] = &[
    |it| it,
    |it| it.isolated(),
    |it| it.isolated().service("db").service("api").addressed(),
    |it| it.isolated().runs("api", 1).service("db").addressed(),
    |it| it.runs("api", 1).machine_is("db", "Running").addressed(),
    |it| it.isolated().runs("api", 0).machine_is("db", "Stopped").addressed(),
    |it| it.isolated().service("api").machine_is("db", "Running"),
];
const TROUBLES: &[Change] = &[
    |it| it,
    |it| it.suspended(),
    |it| it.without_kubevirt(),
    |it| it.foreign::<Deployment>("lab--api"),
    |it| it.suspended().foreign::<NetworkPolicy>("lab--network"),
    |it| it.foreign::<PersistentVolumeClaim>("lab--db-r1"),
    |it| it.ground(Ground::Terminating),
    |it| it.spec(|spec| spec.network.isolate = false),
    |it| it.spec(|spec| spec.namespace = Some("other".to_owned())),
    |it| it.deleted(),
    |it| it.deleted().finalized(),
];

#[test]
fn nothing_is_made_in_a_namespace_that_was_not_asked_for() {
    let parts = bare().machine("db").container("api");
    let mut made = BTreeSet::new();
    for facts in product(vec![parts], &[LIVES, IMAGES, CHILDREN, TROUBLES]) {
        let observed = facts.observed();
        let plan = decide(&observed, now());
        let new: Vec<String> = plan.before_status().filter(|it| is_new(it)).map(kind).collect();
        assert!(new.is_empty() || observed.asks_for_ground(), "{new:?} of {observed:#?}");
        made.extend(new);
    }
    let kinds = [
        "Deployment",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Service",
        "VMDiskImage",
        "VirtualMachine",
    ];
    assert!(made.iter().eq(kinds), "{made:?}");
}

fn kind(write: &otctl_kit::plan::Write) -> String {
    assert!(is_new(write), "{write} makes nothing");
    write.action.child().unwrap().resource.kind
}
