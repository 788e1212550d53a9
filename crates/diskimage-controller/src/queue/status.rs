//! The status of the ledger: counts for people, and `PolicyValid`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use otctl_types::condition::{self, Finding, POLICY_VALID, Reason};
use policy::{Policy, Problem, Severity};

use crate::queue::observe::Document;

/// Keys of the policy that this version reads and checks but does not act on.
const NOT_ACTED_ON: [&str; 8] = [
    "workspaceConcurrency",
    "provisioningTimeout",
    "bandwidthLimit",
    "bindTimeout",
    "snapshotConcurrency",
    "snapshotTimeout",
    "pruneUnusedAfter",
    "importEngine",
];

/// The policy in effect and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Reading {
    /// In effect.
    pub policy: Policy,
    /// What could not be read, or is not known.
    pub problems: Vec<Problem>,
    /// `PolicyValid`.
    pub finding: Finding,
}

/// Reads the document; what cannot be read keeps its last good value.
pub fn read(document: &Document, last_good: &Policy) -> Reading {
    match document {
        Document::Present { entries, .. } => read_entries(entries, last_good),
        Document::Absent => Reading {
            policy: Policy::default(),
            problems: Vec::new(),
            finding: Finding::new(
                true,
                Reason::DefaultsInEffect,
                "there is no policy ConfigMap: defaults are in effect",
            ),
        },
        Document::Unreadable(cause) => Reading {
            policy: last_good.clone(),
            problems: Vec::new(),
            finding: Finding::new(
                condition::Truth::Unknown,
                Reason::Invalid,
                format!(
                    "the policy ConfigMap cannot be read, so the last values stay in effect: {cause}"
                ),
            ),
        },
    }
}

fn read_entries(entries: &BTreeMap<String, String>, last_good: &Policy) -> Reading {
    let (policy, problems) = policy::document(entries, last_good);
    let has_errors = problems.iter().any(|problem| problem.severity == Severity::Error);
    let mut sentences: Vec<String> = problems.iter().map(Problem::to_string).collect();
    sentences.extend(not_acted_on(entries));
    let reason = if has_errors { Reason::Invalid } else { Reason::Valid };
    Reading { policy, problems, finding: Finding::new(!has_errors, reason, sentences.join("; ")) }
}

/// Says which keys have no effect in this version: a setting that is silently ignored is worse than none.
fn not_acted_on(entries: &BTreeMap<String, String>) -> Option<String> {
    let is_default_engine =
        |key: &str| key == "importEngine" && entries.get(key).is_some_and(|value| value == "pod");
    let set: Vec<&str> = NOT_ACTED_ON
        .into_iter()
        .filter(|key| entries.contains_key(*key) && !is_default_engine(key))
        .collect();
    if set.is_empty() {
        return None;
    }
    let mut sentence = format!("not acted on by this version: {}", set.join(", "));
    if set.contains(&"importEngine") {
        sentence.push_str(" (imports use engine pod)");
    }
    Some(sentence)
}

/// The condition as it is to stand.
pub fn condition(finding: &Finding, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    vec![condition::condition(POLICY_VALID, finding, None, before, &Time(now))]
}
