//! Which children a workspace has, and in whose way others are.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{Child, Family};
use crate::machines::VirtualMachine;
use crate::workspace::fixture::{Facts, bare, with_machine, workspace};

fn family(facts: Facts) -> Family {
    facts.observed().needs.family
}

/// `Kind name of entry`, in order.
fn check<const N: usize>(facts: Facts, expected: [&str; N]) {
    let told = |child: &Child| {
        let of = child.entry.as_ref().map(|entry| format!(" of {entry}")).unwrap_or_default();
        format!("{:?} {}{of}", child.kind, child.name)
    };
    let told: Vec<String> = family(facts).iter().map(told).collect();
    assert_eq!(told, expected);
}

#[test]
fn an_entry_has_a_service_and_what_runs_it() {
    let open = |facts: Facts| facts.spec(|spec| spec.network.isolate = false);
    check(bare(), ["NetworkPolicy lab--network"]);
    check(open(bare()), []);
    check(open(workspace()), ["Service lab--api of api", "Deployment lab--api of api"]);
    check(open(bare().image_entry("data")), ["Service lab--data of data"]);
    check(
        workspace().machine("db"),
        [
            "NetworkPolicy lab--network",
            "Service lab--api of api",
            "Service lab--db of db",
            "Deployment lab--api of api",
            "Claim lab--db-r1 of db",
            "VirtualMachine lab--db of db",
        ],
    );
}

#[test]
fn a_claim_is_that_which_is_there_or_that_of_the_current_revision() {
    let claim = |facts: Facts| {
        let family = family(facts);
        family.iter().find(|child| child.name.starts_with("lab--db-")).map(|it| it.name.clone())
    };
    assert_eq!(claim(with_machine()).as_deref(), Some("lab--db-r1"));
    assert_eq!(claim(with_machine().revision("r2")).as_deref(), Some("lab--db-r2"));
    let copied = || with_machine().machine_is("db", "Running");
    assert_eq!(claim(copied().revision("r2")).as_deref(), Some("lab--db-r1"));
    assert_eq!(claim(copied().without_image()).as_deref(), Some("lab--db-r1"));
    assert_eq!(claim(with_machine().without_image()), None);
}

#[test]
fn the_first_name_that_is_taken_is_told_and_its_entry_alone_waits() {
    let all = || workspace().machine("db");
    let check = |facts: Facts, first: &str, entries: [bool; 3]| {
        let family = family(facts);
        let taken = family.taken().map(|child| child.target("labs").to_string());
        assert_eq!(taken.unwrap_or_default(), first);
        assert_eq!([None, Some("api"), Some("db")].map(|it| family.is_taken(it)), entries);
    };
    check(all(), "", [false; 3]);
    check(all().foreign::<Service>("lab--web"), "", [false; 3]);
    let api = || all().foreign::<Deployment>("lab--api");
    check(api(), "Deployment labs/lab--api", [false, true, false]);
    let both = || api().foreign::<Service>("lab--db");
    check(both(), "Service labs/lab--db", [false, true, true]);
    check(
        both().foreign::<NetworkPolicy>("lab--network"),
        "NetworkPolicy labs/lab--network",
        [true; 3],
    );
    let left = || all().left::<NetworkPolicy>("lab--network").left::<Service>("lab--db");
    check(left(), "", [true, false, true]);
    let first = family(left()).left().map(|child| child.target("labs").to_string());
    assert_eq!(first.as_deref(), Some("NetworkPolicy labs/lab--network"));
    check(left().foreign::<Deployment>("lab--api"), "Deployment labs/lab--api", [true; 3]);
    let disk = || all().foreign::<PersistentVolumeClaim>("lab--db-r1");
    check(disk(), "PersistentVolumeClaim labs/lab--db-r1", [false, false, true]);
    check(
        all().foreign::<VirtualMachine>("lab--db"),
        "VirtualMachine labs/lab--db",
        [false, false, true],
    );
}
