use std::collections::BTreeMap;

use kube::api::WatchEvent;
use otctl_types::Workspace;
use serde_json::json;

use super::*;

fn hash(of: char) -> String {
    of.to_string().repeat(64)
}

fn workspace(phase: &str, generation: i64) -> Workspace {
    serde_json::from_value(json!({
        "metadata": {"name": "lab", "resourceVersion": "7", "generation": generation},
        "spec": {}, "status": {"phase": phase},
    }))
    .unwrap()
}

/// A workspace as it should be seen.
pub(in crate::demo::report) fn ready() -> Lab {
    let part = |name: &str| Part {
        name: name.to_owned(),
        words: vec!["Pending".to_owned(), "Running".to_owned()],
        ready_after: Some(Duration::from_millis(12_300)),
    };
    let mut story = Story {
        workspace: Some(workspace("Ready", 1)),
        made: Some(7),
        ready_after: Some(Duration::from_secs(14)),
        reasons: vec!["ImageNotFound".to_owned(), "AllReady".to_owned()],
        parts: ["database", "analytics", "api-server", "web"].map(part).to_vec(),
        images: BTreeMap::from(MACHINES.map(|(_, image)| (image.to_owned(), 9))),
        policy: Some(20),
        pods: vec![23, 21, 22],
        ..Story::default()
    };
    take_slots(&mut story, &["lab"]);
    Lab {
        story,
        disks: BTreeMap::from(MACHINES.map(|(entry, _)| (entry.to_owned(), Ok(hash('a'))))),
        expected: BTreeMap::from(MACHINES.map(|(_, image)| (image, hash('a')))),
    }
}

/// The ledger shows slots of these.
fn take_slots(story: &mut Story, names: &[&str]) {
    let slot = |name: &&str| {
        json!({
            "namespace": "", "name": name, "uid": name, "attempt": 1, "ticket": "1",
            "since": "2026-05-01T12:00:00Z",
        })
    };
    let active: Vec<_> = names.iter().map(slot).collect();
    let queue =
        json!({"metadata": {"name": "workspaces"}, "spec": {}, "status": {"active": active}});
    let queue = serde_json::from_value(queue).unwrap();
    story.see_queue(&WatchEvent::Modified(queue), Duration::ZERO);
}

/// What is said of one that is as it should be but for `change`.
fn check(change: impl FnOnce(&mut Lab), expected: &[&str]) {
    let mut lab = ready();
    change(&mut lab);
    let problems = lab.problems();
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, part) in problems.iter().zip(expected) {
        assert!(problem.contains(part), "{problem:?} does not say {part:?}");
    }
}

#[test]
fn what_is_right_is_no_problem() {
    check(|_| {}, &[]);
}

#[test]
fn one_that_is_not_ready_is_one() {
    check(|lab| lab.story.workspace = Some(workspace("Provisioning", 1)), &["Provisioning"]);
    check(|lab| lab.story.parts[1].ready_after = None, &["analytics: it is Running, not ready"]);
    check(|lab| drop(lab.story.parts.pop()), &["3 parts, not of 4"]);
}

#[test]
fn one_that_somebody_helped_is_one() {
    check(|lab| lab.story.workspace = Some(workspace("Ready", 2)), &["edited"]);
}

#[test]
fn one_that_did_not_wait_for_its_images_is_one() {
    check(|lab| drop(lab.story.reasons.remove(0)), &["never said"]);
    let image = MACHINES[0].1;
    check(|lab| lab.story.images.extend([(image.to_owned(), 6)]), &["was not made after it"]);
    check(|lab| lab.story.images.retain(|name, _| name != image), &["was not made after it"]);
}

#[test]
fn a_pod_before_its_policy_is_one() {
    check(|lab| lab.story.pods.push(19), &["before its policy"]);
    check(|lab| lab.story.policy = None, &["no network policy"]);
    check(|lab| lab.story.pods.clear(), &["no pod"]);
}

#[test]
fn more_at_once_than_allowed_is_one_and_so_is_a_count_that_saw_nothing() {
    let mut story = Story::default();
    take_slots(&mut story, &["lab", "other"]);
    assert_eq!(
        Lab { story, ..ready() }.slot_problem().unwrap(),
        "2 were active at once, 1 are allowed"
    );
    let blind = Lab { story: Story::default(), ..ready() };
    assert!(blind.slot_problem().unwrap().contains("proves nothing"));
}

#[test]
fn a_machine_that_read_another_disk_is_one() {
    let read = |read| move |lab: &mut Lab| drop(lab.disks.insert("database".to_owned(), read));
    check(read(Ok(hash('b'))), &["database: its disk hashes to bbbb"]);
    check(read(Err("it has no output".to_owned())), &["it has no output"]);
    check(|lab| drop(lab.disks.remove("analytics")), &["analytics: no pod"]);
    check(|lab| lab.expected.clear(), &["the raw content to none", "the raw content to none"]);
}

#[test]
fn the_text_tells_each_part_and_what_was_first() {
    let text = ready().text();
    let line = text.lines().find(|line| line.contains("database")).unwrap();
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, "database 12.3 s aaaaaaaaaaaaaaaa… ok Pending, Running");
    for part in [
        "Ready 14.0 s after it was created; until then it said ImageNotFound.",
        "It was there before its images, its network policy before the first of its 3 pods.",
        "1 of 1 allowed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wrong = Lab { disks: Disks::new(), ..ready() };
    assert!(wrong.text().contains("unknown"), "{}", wrong.text());
}
