//! When the lines of `/etc/hosts` may change, and with them every pod.

use otctl_types::names::WORKSPACE_LABEL;

use super::*;
use crate::children::deployment::deployment;
use crate::children::fixture::{Fixture, full};

/// Addresses of the workspace when the pods were made.
const THEN: [(&str, &str); 2] = [("api-server", "10.96.0.7"), ("attacker", "10.96.0.8")];

fn made(fixture: &Fixture, addresses: &[(&str, &str)]) -> Deployment {
    let pair = |(entry, address): &(&str, &str)| ((*entry).to_owned(), (*address).to_owned());
    let aliases = host_aliases(&addresses.iter().map(pair).collect());
    let entry = fixture.container("worker");
    deployment(&fixture.facts(), entry, entry.replicas, aliases)
}

/// Whose lines the pods have once it is settled: those of `then` or of `now`.
fn check(
    now: &[(&str, &str)],
    change: impl FnOnce(&mut Fixture),
    by_hand: impl FnOnce(&mut Deployment),
    expected: &[(&str, &str)],
) {
    let mut observed = made(&full(), &THEN);
    by_hand(&mut observed);
    let desired = made(&full().with(change), now);
    let settled = settled(desired.clone(), &observed, &BTreeSet::new());
    let lines: Vec<_> = pairs(lines(&settled)).collect();
    assert_eq!(lines, expected);
    assert_eq!(with(settled, Vec::new()), with(desired, Vec::new()), "nothing else is touched");
}

fn nothing<T>(_: &mut T) {}

fn pods(deployment: &mut Deployment) -> &mut PodSpec {
    deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap()
}

const WITH_DB: [(&str, &str); 3] =
    [("api-server", "10.96.0.7"), ("attacker", "10.96.0.8"), ("db", "10.96.0.9")];

#[test]
fn a_new_entry_restarts_no_neighbour() {
    check(&WITH_DB, nothing, nothing, &THEN);
}

#[test]
fn an_entry_that_went_restarts_no_neighbour() {
    check(&THEN[..1], nothing, nothing, &THEN);
    check(&[], nothing, nothing, &THEN);
}

#[test]
fn pods_that_are_replaced_anyway_get_every_name() {
    let image = |fixture: &mut Fixture| fixture.workspace.spec.containers[1].image.push('1');
    check(&WITH_DB, image, nothing, &WITH_DB);
}

#[test]
fn a_field_that_is_not_asked_for_any_more_replaces_pods_too() {
    let full_entry = full().with(|it| it.workspace.spec.containers[1].args = vec!["-v".to_owned()]);
    let observed = made(&full_entry, &THEN);
    let settled = settled(made(&full(), &WITH_DB), &observed, &BTreeSet::new());
    assert_eq!(lines(&settled).len(), 3);
}

#[test]
fn pods_that_are_made_more_or_fewer_stay_as_they_are() {
    let replicas = |fixture: &mut Fixture| fixture.workspace.spec.containers[1].replicas = 5;
    check(&WITH_DB, replicas, nothing, &THEN);
}

#[test]
fn a_label_that_was_lost_outside_of_the_template_replaces_nothing() {
    let strip = |deployment: &mut Deployment| deployment.metadata.labels = None;
    check(&WITH_DB, nothing, strip, &THEN);
}

#[test]
fn a_template_that_was_edited_by_hand_is_put_right_with_every_name() {
    let relabel = |deployment: &mut Deployment| {
        let metadata = deployment.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(WORKSPACE_LABEL.to_owned(), "another".to_owned());
    };
    check(&WITH_DB, nothing, relabel, &WITH_DB);
    check(&WITH_DB, nothing, |it| pods(it).host_network = Some(true), &WITH_DB);
}

#[test]
fn a_name_that_leads_elsewhere_is_put_right() {
    let moved = [("api-server", "10.96.0.7"), ("attacker", "10.96.0.99")];
    check(&moved, nothing, nothing, &moved);
    let by_hand = |it: &mut Deployment| {
        "10.0.0.1".clone_into(&mut pods(it).host_aliases.as_mut().unwrap()[0].ip)
    };
    check(&THEN, nothing, by_hand, &THEN);
}

#[test]
fn a_name_that_was_taken_away_by_hand_is_given_back() {
    let emptied = |it: &mut Deployment| pods(it).host_aliases.as_mut().unwrap()[1].hostnames = None;
    check(&WITH_DB, nothing, emptied, &WITH_DB);
    check(&THEN, nothing, |it| drop(pods(it).host_aliases.as_mut().unwrap().remove(0)), &THEN);
    check(&THEN, nothing, |it| pods(it).host_aliases = None, &THEN);
}

#[test]
fn a_note_that_is_gone_or_cannot_be_read_is_made_from_the_lines_themselves() {
    for note in [None, Some("db"), Some("a=1,db")] {
        let by_hand = |it: &mut Deployment| {
            let annotations = it.metadata.annotations.as_mut().unwrap();
            annotations.remove(HOSTS_ANNOTATION);
            annotations.extend(note.map(|note| (HOSTS_ANNOTATION.to_owned(), note.to_owned())));
        };
        check(&WITH_DB, nothing, by_hand, &THEN);
    }
}

#[test]
fn what_others_put_into_the_template_replaces_nothing() {
    let inject = |deployment: &mut Deployment| {
        let sidecar = pods(deployment).containers[0].clone();
        let sidecar = k8s_openapi::api::core::v1::Container { name: "mesh".to_owned(), ..sidecar };
        pods(deployment).containers.push(sidecar);
        pods(deployment).termination_grace_period_seconds = Some(30);
    };
    check(&WITH_DB, nothing, inject, &THEN);
}

/// Its address is free for anybody.
#[test]
fn a_name_that_has_no_address_any_more_is_taken_away() {
    let observed = made(&full(), &THEN);
    let now = &THEN[..1];
    let settled = settled(made(&full(), now), &observed, &BTreeSet::from(["attacker"]));
    assert_eq!(pairs(lines(&settled)).collect::<Vec<_>>(), now);
}

/// Once: it is noted which restart that was.
#[test]
fn pods_that_are_replaced_by_hand_get_every_name() {
    let mut observed = made(&full(), &THEN);
    let template = &mut observed.spec.as_mut().unwrap().template;
    let annotations = &mut template.metadata.get_or_insert_default().annotations;
    let at = (RESTARTED_AT.to_owned(), "2026-05-01T12:00:00Z".to_owned());
    annotations.get_or_insert_default().extend([at]);
    let desired = || made(&full(), &WITH_DB);
    let restarted = settled(desired(), &observed, &BTreeSet::new());
    assert_eq!(pairs(lines(&restarted)).collect::<Vec<_>>(), WITH_DB);
    let mut again = observed.clone();
    again.metadata.annotations.clone_from(&restarted.metadata.annotations);
    let again = with(again, host_aliases(&BTreeMap::new()));
    let kept = settled(desired(), &again, &BTreeSet::new());
    assert!(lines(&kept).is_empty(), "{kept:?}");
}
