//! What a slot is needed for.

use otctl_types::workspace::{Resources, VirtualMachineReport, WorkspaceStatus};

use super::{machines_to_start, started, unstarted};
use crate::workspace::fixture::{Facts, bare, with_machine, workspace};

/// `names of what is started | of what is not`.
fn check(facts: Facts, expected: &str) {
    let workspace = facts.observed().workspace.expect("it is there");
    let started: Vec<&str> = started(&workspace).into_iter().collect();
    let unstarted: Vec<&str> = unstarted(&workspace).collect();
    assert_eq!(format!("{} | {}", started.join(" "), unstarted.join(" ")), expected);
    let machines = machines_to_start(&workspace).into_iter();
    let machines: Vec<&str> = machines.map(|entry| entry.name.as_str()).collect();
    let is_machine =
        |name: &&str| workspace.spec.virtual_machines.iter().any(|entry| entry.name == *name);
    assert_eq!(machines, unstarted.into_iter().filter(is_machine).collect::<Vec<_>>());
}

#[test]
fn what_is_on_record_as_started_is() {
    check(workspace(), " | api");
    check(workspace().started(&["api"]), "api | ");
    check(workspace().container("web").started(&["api"]), "api | web");
    check(with_machine().container("api").started(&["api"]), "api | db");
}

/// It is another thing than the one that was started.
#[test]
fn an_entry_of_the_other_kind_is_not() {
    let container_now =
        || with_machine().started(&["db"]).spec(|spec| spec.virtual_machines.clear());
    check(container_now().container("db"), " | db");
    check(container_now().container("api"), " | api");
    let machine_now = with_machine().spec(|spec| {
        spec.containers.clear();
        spec.virtual_machines[0].name = "api".to_owned();
    });
    let status = workspace().started(&["api"]).observed().workspace.unwrap().status.clone();
    check(machine_now.clone().status(|it| *it = status.clone().unwrap()), " | api");
    // An older release did not tell: what runs is not started again.
    let told = |it: &mut WorkspaceStatus| it.started_machines = None;
    check(machine_now.status(|it| *it = status.unwrap()).status(told), "api | ");
}

#[test]
fn a_machine_that_an_entry_has_gained_is_not() {
    let machine = || with_machine().container("api").started(&["api", "db"]);
    check(machine().copied("db", "debian"), "api db | ");
    check(machine().used("db", "debian"), "api | db");
    check(machine().used("db", "fedora"), "api | db");
    check(machine().used("other", "debian"), "api db | ");
    let image = bare().image_entry("db").started(&["db"]);
    check(image.clone().used("db", "debian"), "db | ");
    check(image.copied("db", "debian"), "db | ");
}

/// Nobody knows what a disk was that no record tells of: it is not started again.
#[test]
fn without_a_record_what_was_started_is() {
    check(with_machine().started(&["db"]), "db | ");
    let told = VirtualMachineReport {
        name: "db".to_owned(),
        image: Some("debian".to_owned()),
        revision: Some("r1".to_owned()),
        ..VirtualMachineReport::default()
    };
    let told = Resources { virtual_machines: vec![told], ..Resources::default() };
    let old = with_machine().started(&["db"]).status(|it| it.resource_status = Some(told));
    check(old.clone(), "db | ");
    check(old.used("db", "debian"), " | db");
}
