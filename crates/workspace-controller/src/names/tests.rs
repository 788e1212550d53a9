//! Names are legal, stable and apart, whatever a workspace is called.

use std::collections::BTreeSet;

use super::*;

const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";
const OTHER: &str = "0b1d2c3e-0000-4000-8000-000000000002";
const REVISION: &str = "0123456789abcdef";

fn workspaces() -> Vec<String> {
    let lengths = [1, 50, 52, 57, 60, 61, 63, 64, 253];
    let plain = lengths.map(|length| "a".repeat(length));
    let dotted =
        lengths.map(|length| "a.b-".repeat(64)[..length].trim_end_matches(['.', '-']).to_owned());
    let numbered = lengths.map(|length| "1".repeat(length));
    plain.into_iter().chain(dotted).chain(numbered).collect()
}

fn is_label_value(value: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    value.len() <= 63
        && value.starts_with(is_end)
        && value.ends_with(is_end)
        && value.chars().all(|c| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c))
}

#[test]
fn names_of_children_are_legal_for_every_workspace_and_entry() {
    for workspace in workspaces() {
        for entry in ["a", "api-server", &"e".repeat(40)] {
            let name = child_name(&workspace, UID, entry);
            assert!(is_service_name(&name), "{name}");
            let claim = claim_name(&workspace, UID, entry, REVISION);
            assert!(is_service_name(&claim) && claim.ends_with("-01234567"), "{claim}");
        }
        let policy = policy_name(&workspace, UID);
        assert!(policy.len() <= 253, "{policy}");
    }
}

#[test]
fn a_plain_name_tells_whose_it_is() {
    assert_eq!(child_name("lab-1", UID, "db"), "lab-1--db");
    assert_eq!(policy_name("lab-1", UID), "lab-1--network");
    assert_eq!(claim_name("lab-1", UID, "db", REVISION), "lab-1--db-01234567");
}

#[test]
fn a_name_that_no_service_may_have_is_a_hash_that_stays() {
    for workspace in ["lab.1", "1-lab", &"a".repeat(60)] {
        assert_eq!(child_name(workspace, UID, "db"), "w-6b500dc08dc81ebc");
        assert_ne!(child_name(workspace, OTHER, "db"), child_name(workspace, UID, "db"));
        assert_ne!(child_name(workspace, UID, "web"), child_name(workspace, UID, "db"));
    }
    assert_eq!(policy_name(&"a".repeat(253), UID).len(), 18);
}

#[test]
fn the_longest_plain_name_has_63_characters() {
    assert_eq!(child_name(&"a".repeat(59), UID, "db").len(), 63);
    assert!(child_name(&"a".repeat(60), UID, "db").starts_with("w-"));
}

#[test]
fn no_two_children_share_a_name() {
    let workspaces = ["a", "a-", "a--b", "a-b", "a--b--c", "w-0123456789abcdef"];
    let mut names = BTreeSet::new();
    for (number, workspace) in workspaces.iter().enumerate() {
        for entry in ["b", "b-c", "c", "d"] {
            let uid = format!("{UID}{number}");
            assert!(names.insert(child_name(workspace, &uid, entry)), "{workspace} {entry}");
        }
    }
}

#[test]
fn a_claim_is_named_after_its_revision_whatever_that_is() {
    let of = |revision: &str| claim_name("lab", UID, "db", revision);
    let names: BTreeSet<_> = ["r1", "r2", "R1", "", "r 1", "é"].map(of).into();
    assert_eq!(names.len(), 6);
    assert!(names.iter().all(|name| is_service_name(name)), "{names:?}");
}

#[test]
fn label_values_are_legal_and_apart() {
    for workspace in workspaces() {
        let all = [
            child_labels(&workspace, UID, Component::Network, None),
            pod_labels(&workspace, UID, Component::Machine, &"e".repeat(40)),
        ];
        let values = all.iter().flat_map(BTreeMap::values);
        values.for_each(|value| assert!(is_label_value(value), "{value}"));
    }
    let (one, two) = (format!("{}x", "a".repeat(80)), format!("{}y", "a".repeat(80)));
    assert_ne!(label_value(&one), label_value(&two));
    assert_eq!(label_value("lab.1"), "lab.1");
}

#[test]
fn the_guarded_label_is_on_pods_alone_and_selectors_are_identity_alone() {
    let child = child_labels("lab", UID, Component::Container, Some("db"));
    assert!(!child.contains_key(WORKSPACE_LABEL));
    assert_eq!((child[OWNER_LABEL].as_str(), child[ENTRY_LABEL].as_str()), (UID, "db"));
    let selector = entry_selector(UID, "db");
    let keys: Vec<_> = selector.keys().map(String::as_str).collect();
    assert_eq!(keys, [ENTRY_LABEL, WORKSPACE_LABEL]);
    let pods = pod_labels("lab", UID, Component::Container, "db");
    assert!(selector.iter().all(|(key, value)| pods.get(key) == Some(value)));
    assert!(!pods.contains_key(OWNER_LABEL));
}
