//! What is remembered of a disk, by what is seen, made and on record.

use otctl_types::workspace::{DiskOrigin, Resources, VirtualMachineReport};

use crate::grounds::Ground;
use crate::workspace::decide::decide;
use crate::workspace::fixture::{Facts, bare, now, with_machine, workspace};

/// `entry image revision`, and whether it is a copy.
#[track_caller]
fn check(facts: Facts, expected: &str) {
    let status = decide(&facts.observed(), now()).status.expect("something is to be told");
    let told = status.disks.iter().map(|disk| {
        let DiskOrigin { entry, image, revision, copied } = disk;
        format!("{entry} {image} {revision} {}", if *copied { "copied" } else { "used" })
    });
    assert_eq!(told.collect::<Vec<_>>().join(", "), expected);
}

/// Its name leads somewhere: the next thing to make is the claim.
fn addressed() -> Facts {
    with_machine().isolated().service("db").addressed()
}

fn image() -> Facts {
    bare().image_entry("db").isolated()
}

fn names_fedora(facts: Facts) -> Facts {
    facts.entry_of("db", |entry| entry.spec.vm_disk_image_name = "fedora".to_owned())
}

#[test]
fn a_disk_is_on_record_from_the_pass_on_that_makes_it() {
    check(with_machine().ticket("1"), "");
    check(with_machine().isolated().open(1), "");
    check(addressed().open(1), "db debian r1 copied");
    check(addressed().revision("r2").open(1), "db debian r2 copied");
}

#[test]
fn a_disk_that_is_there_stays_what_it_was_made_from() {
    let runs = || with_machine().isolated().machine_is("db", "Running");
    check(runs().open(1), "db debian r1 copied");
    check(runs().started(&["db"]), "db debian r1 copied");
    check(runs().started(&["db"]).revision("r2"), "db debian r1 copied");
    check(runs().started(&["db"]).copied("db", "debian").suspended(), "db debian r1 copied");
    check(names_fedora(runs().started(&["db"]).copied("db", "debian")), "db debian r1 copied");
}

#[test]
fn a_disk_that_is_not_seen_stays_on_record_until_another_one_is_made() {
    let unseen = || addressed().started(&["db"]).copied("db", "debian").revision("r2");
    check(unseen().ground(Ground::OutOfReach), "db debian r1 copied");
    check(unseen().without_kubevirt(), "db debian r1 copied");
    check(unseen().without_image(), "db debian r1 copied");
    check(unseen().suspended().without_kubevirt(), "db debian r1 copied");
    let elsewhere = unseen().spec(|spec| spec.namespace = Some("other".to_owned()));
    check(elsewhere, "db debian r1 copied");
    check(unseen(), "db debian r2 copied");
}

#[test]
fn a_record_goes_with_its_entry() {
    check(workspace().started(&["api"]).copied("db", "debian"), "");
    check(with_machine().ticket("1").used("api", "debian"), "");
}

#[test]
fn an_image_that_no_machine_runs_from_is_used_from_its_service_on() {
    check(image().ticket("1"), "");
    check(image().open(1), "");
    check(image().open(1).service("db"), "db debian r1 used");
    let used = || image().service("db").started(&["db"]).used("db", "debian");
    check(used().revision("r2"), "db debian r1 used");
    check(used().without_image(), "db debian r1 used");
    // Until the other one can be used.
    check(names_fedora(used()), "db debian r1 used");
    check(image().service("db").started(&["db"]).used("db", "fedora"), "db debian r1 used");
}

#[test]
fn a_machine_that_its_entry_loses_takes_its_disk_with_it() {
    let lost = || image().service("db").started(&["db"]);
    check(lost().copied("db", "debian").revision("r2"), "db debian r1 used");
    check(names_fedora(lost().copied("db", "debian")), "db debian r1 used");
}

/// Otherwise it would be taken for one whose start is over, and its slot go to the next while it starts.
#[test]
fn a_machine_that_its_entry_gains_is_on_record_when_its_start_is_over() {
    let gained = |facts: Facts| facts.started(&["db"]).used("db", "debian").ticket("2");
    let runs = |word: &str| gained(with_machine().isolated().machine_is("db", word));
    check(gained(addressed()), "db debian r1 used");
    check(gained(addressed()).revision("r2").open(2), "db debian r2 used");
    check(runs("Starting").open(2), "db debian r1 used");
    check(runs("Running"), "db debian r1 used");
    check(runs("Running").open(2), "db debian r1 copied");
    check(runs("Starting").open_since(2, 3600), "db debian r1 copied");
    // It was never made: a record that asks for a slot would ask for one for ever.
    check(gained(with_machine().isolated()).open_since(2, 3600), "");
}

#[test]
fn what_an_older_release_has_told_is_its_memory() {
    let told = |image: &str| {
        let image = Some(image.to_owned());
        let revision = Some("r1".to_owned());
        let name = "db".to_owned();
        let report = VirtualMachineReport { name, image, revision, ..Default::default() };
        Resources { virtual_machines: vec![report], ..Resources::default() }
    };
    let old = |facts: Facts| {
        facts.started(&["db"]).revision("r2").status(|it| it.resource_status = Some(told("debian")))
    };
    check(old(with_machine()).without_kubevirt(), "db debian r1 copied");
    check(old(image().service("db")), "db debian r1 used");
    check(old(image().service("db")).used("db", "fedora"), "db debian r2 used");
}

/// Images of one source share a revision, and the record is of before there was a claim.
#[test]
fn a_disk_is_of_the_image_that_its_claim_names_and_not_of_one_that_was_used_before() {
    let gained = names_fedora(with_machine()).isolated().machine_is("db", "Starting");
    let gained = || gained.clone().used("db", "debian").started(&["db"]);
    check(gained().open(2), "db fedora r1 used");
    check(gained().slot(2), "db fedora r1 used");
}
