//! The status of the ledger: counts for people, and `PolicyValid`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use otctl_types::condition::{self, Finding, POLICY_VALID, Reason};
use policy::{ImportEngine, NOT_ACTED_ON, Policy, Problem, Severity};

use crate::document::Document;

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
    sentences.extend(not_acted_on(entries, &policy));
    let reason = match (has_errors, problems.is_empty()) {
        (true, _) => Reason::Invalid,
        (false, false) => Reason::UnknownKeys,
        (false, true) => Reason::Valid,
    };
    Reading { policy, problems, finding: Finding::new(!has_errors, reason, sentences.join("; ")) }
}

/// Says which keys have no effect in this version: a setting that is silently ignored is worse than none.
fn not_acted_on(entries: &BTreeMap<String, String>, policy: &Policy) -> Option<String> {
    let is_true_anyway =
        |key: &str| key == "importEngine" && policy.import_engine == ImportEngine::Pod;
    let set: Vec<&str> = NOT_ACTED_ON
        .into_iter()
        .filter(|key| entries.contains_key(*key) && !is_true_anyway(key))
        .collect();
    if set.is_empty() {
        return None;
    }
    let mut sentence = format!("not acted on by this version: {}", set.join(", "));
    if set.contains(&"importEngine") {
        sentence.push_str(" (every import uses engine pod, whatever it says)");
    }
    Some(sentence)
}

/// The condition as it is to stand.
pub fn condition(finding: &Finding, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    vec![condition::condition(POLICY_VALID, finding, None, before, &Time(now))]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use otctl_types::condition::Truth;

    use super::*;

    /// What is said of these entries after a policy with engine `cdi`, which was good.
    fn told(entries: &[(&str, &str)]) -> Finding {
        let entries = entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let reference = Box::new(ObjectReference::default());
        let document = Document::Present { entries: entries.collect(), reference };
        read(&document, &Policy { import_engine: ImportEngine::Cdi, ..Policy::default() }).finding
    }

    #[test]
    fn a_reason_for_each_kind_of_trouble() {
        let check = |entries: &[(&str, &str)], status: Truth, reason: Reason, words: &[&str]| {
            let found = told(entries);
            assert_eq!((found.status, found.reason), (status, reason), "{entries:?}");
            for word in words {
                assert!(found.message.contains(word), "{entries:?}: {}", found.message);
            }
        };
        check(&[("concurrency", "4")], Truth::True, Reason::Valid, &[]);
        let typo = ["concurency: no such key", "accepted is concurrency"];
        check(&[("concurency", "9")], Truth::True, Reason::UnknownKeys, &typo);
        let both = [("concurency", "9"), ("retryLimit", "many")];
        check(&both, Truth::False, Reason::Invalid, &["concurency", "retryLimit"]);
        let unused = ["not acted on by this version: pruneUnusedAfter"];
        check(&[("pruneUnusedAfter", "1h")], Truth::True, Reason::Valid, &unused);
    }

    #[test]
    fn an_engine_that_is_kept_is_not_said_to_be_in_force() {
        let found = told(&[("importEngine", "Pod")]);
        assert!(found.message.contains("\"cdi\" is kept"), "{}", found.message);
        assert!(!found.message.contains("in force"), "{}", found.message);
        assert!(found.message.contains("every import uses engine pod"), "{}", found.message);
        assert_eq!(told(&[("importEngine", "pod")]).message, "");
    }
}
