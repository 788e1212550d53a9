use WatchEvent::{Added, Deleted, Modified};
use serde_json::{Value, json};

use super::*;

fn workspace(version: u64, status: &Value) -> Workspace {
    serde_json::from_value(json!({
        "metadata": {"name": "lab", "resourceVersion": version.to_string(), "generation": 1},
        "spec": {"containers": [{"name": "web", "image": "registry/web:1"}]}, "status": status,
    }))
    .unwrap()
}

fn told(phase: &str, reason: &str, machine: &Value, container: &str) -> Value {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-05-01T12:00:00Z",
    });
    json!({
        "phase": phase, "readyParts": "1/2", "conditions": [condition],
        "resourceStatus": {
            "virtualMachines": [machine], "containers": [{"name": "web", "status": container}],
        },
    })
}

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A workspace that waits for its image and becomes ready, the watches being open for 10 s before.
fn story() -> Story {
    let mut story = Story::default();
    story.see_workspace(&Added(workspace(7, &Value::Null)), after(10));
    let missing = json!({"name": "db", "phase": "NotFound", "message": "there is none"});
    let syncing = json!({"name": "db", "phase": "Syncing", "message": "it is waited for"});
    let starting =
        json!({"name": "db", "phase": "Succeeded", "machine": "Starting", "message": "starting"});
    let running = json!({"name": "db", "phase": "Succeeded", "machine": "Running"});
    let course = [
        (11, told("Provisioning", "ImageNotFound", &missing, "Pending")),
        (12, told("Provisioning", "AwaitingImages", &syncing, "Pending")),
        (13, told("Provisioning", "AwaitingImages", &syncing, "Pending")),
        (20, told("Provisioning", "Progressing", &starting, "Running")),
        (22, told("Ready", "AllReady", &running, "Running")),
    ];
    for (at, status) in course {
        story.see_workspace(&Modified(workspace(at, &status)), after(at));
    }
    story
}

#[test]
fn a_part_is_told_by_the_words_that_it_went_through() {
    let story = story();
    let told: Vec<_> = story
        .parts
        .iter()
        .map(|part| (part.name.as_str(), part.words.join(" "), part.ready_after))
        .collect();
    let db = ("db", "NotFound Syncing Starting Running".to_owned(), Some(after(12)));
    assert_eq!(told, [db, ("web", "Pending Running".to_owned(), Some(after(10)))]);
    assert_eq!(story.reasons, ["ImageNotFound", "AwaitingImages", "Progressing", "AllReady"]);
    assert_eq!((story.made, story.ready_after), (Some(7), Some(after(12))));
    assert!(story.has_ended());
}

#[test]
fn what_was_ready_and_is_not_any_more_is_not() {
    let mut story = story();
    let broken = json!({"name": "db", "machine": "Running", "message": "its Service is gone"});
    let status = told("Provisioning", "Degraded", &broken, "Degraded");
    story.see_workspace(&Modified(workspace(30, &status)), after(30));
    assert!(story.parts.iter().all(|part| part.ready_after.is_none()), "{:?}", story.parts);
    assert_eq!((story.ready_after, story.has_ended()), (None, false));
    let again = json!({"name": "db", "machine": "Running"});
    let status = told("Ready", "AllReady", &again, "Running");
    story.see_workspace(&Modified(workspace(31, &status)), after(31));
    assert_eq!((story.parts[0].ready_after, story.ready_after), (Some(after(21)), Some(after(21))));
}

fn policy(version: u64, types: &[&str], label: &str) -> NetworkPolicy {
    serde_json::from_value(json!({
        "metadata": {"name": "lab--network", "resourceVersion": version.to_string()},
        "spec": {"podSelector": {"matchLabels": {label: "u"}}, "policyTypes": types},
    }))
    .unwrap()
}

#[test]
fn only_what_closes_both_directions_isolates_and_only_while_it_is_there() {
    let both = ["Ingress", "Egress"];
    let seen = |events: &[WatchEvent<NetworkPolicy>]| {
        let mut story = Story::default();
        events.iter().for_each(|event| story.see_policy(event, after(0)));
        story.policy
    };
    let made = || Added(policy(8, &both, WORKSPACE_LABEL));
    assert_eq!(seen(&[made()]), Some(8));
    assert_eq!(seen(&[Added(policy(8, &["Ingress"], WORKSPACE_LABEL))]), None);
    assert_eq!(seen(&[Added(policy(8, &both, "app"))]), None);
    assert_eq!(seen(&[made(), Modified(policy(9, &both, WORKSPACE_LABEL))]), Some(8));
    assert_eq!(seen(&[made(), Modified(policy(9, &["Egress"], WORKSPACE_LABEL))]), None);
    assert_eq!(seen(&[made(), Deleted(policy(9, &both, WORKSPACE_LABEL))]), None);
}

#[test]
fn it_is_whole_when_its_pods_its_policy_and_the_end_of_its_slot_were_seen() {
    let pod = |version: u64| {
        let pod = json!({"metadata": {"name": "p", "resourceVersion": version.to_string()}});
        Added(serde_json::from_value(pod).unwrap())
    };
    let mut whole = story();
    whole.see_policy(&Added(policy(8, &["Ingress", "Egress"], WORKSPACE_LABEL)), after(0));
    whole.see_pod(&pod(15), after(0));
    whole.see_pod(&pod(16), after(0));
    whole.slots = Entries { now: 0, most: 1 };
    assert!(whole.is_whole());
    let but = |change: fn(&mut Story)| {
        let mut story = whole.clone();
        change(&mut story);
        story.is_whole()
    };
    assert!(!but(|story| story.policy = None));
    assert!(!but(|story| story.pods.truncate(1)));
    assert!(!but(|story| story.slots.now = 1));
    assert!(!but(|story| story.slots.most = 0));
    assert!(!but(|story| story.workspace = None));
}

#[test]
fn it_moves_with_its_parts() {
    let mut story = story();
    let item = story.item().unwrap();
    let told = (item.name.as_str(), item.phase.as_str(), item.reason.as_str());
    assert_eq!(told, ("workspace/lab", "Ready", ""));
    assert_eq!(item.progress.text, "1 of 2 parts");
    story.see_workspace(&Added(workspace(7, &Value::Null)), after(1));
    assert_eq!(story.item().unwrap().phase, "Unseen");
    assert!(Story::default().item().is_none());
}
