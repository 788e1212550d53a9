//! What no plan may ever contain, whatever was observed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::{Action, Next, Plan, Write};
use otctl_kit::reconciler::{Observation, Reconciler, Subject, Told, Undone};
use otctl_kit::store::Key;
use otctl_types::names::MADE_BY_ANNOTATION;
use serde::Serialize;
use serde_json::Value;

/// Fields of a status that decisions rest on: once remembered in a pass, the same pass does not forget them.
const MEMORY: [&str; 14] = [
    "namespace",
    "ticket",
    "queuedAt",
    "budget",
    "lastAttempt",
    "attempts",
    "openAttempt",
    "lastLossAt",
    "lastTurn",
    "openTurn",
    "startedParts",
    "startedMachines",
    "unreachableParts",
    "disks",
];

/// A reconciler whose every decision is made twice and linted. A problem is a panic, which a
/// [`Sim`](crate::sim::Sim) turns into the end of the test.
pub struct Linted<R>(pub R);

impl<R: Reconciler> Reconciler for Linted<R> {
    type Observed = R::Observed;
    type Status = R::Status;
    const NAME: &'static str = R::NAME;
    const CONTROLLER: &'static str = R::CONTROLLER;

    async fn observe(&self, key: &Key) -> Result<Self::Observed, ApiError> {
        self.0.observe(key).await
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.0.has_seen(expectation)
    }

    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status> {
        let plan = R::decide(observed, now);
        let mut problems = lint_plan(&plan, observed.subject().as_ref());
        if matches!(plan.next, Next::At(at) if at <= now) {
            problems.push(format!("asks to be looked at again in the past: {:?}", plan.next));
        }
        if fingerprint(&plan) != fingerprint(&R::decide(observed, now)) {
            problems.push("decides otherwise on the same facts".to_owned());
        }
        assert!(
            problems.is_empty(),
            "plan \"{}\" of {}: {}",
            plan.verdict,
            R::NAME,
            problems.join("; ")
        );
        plan
    }

    fn refused(
        observed: &Self::Observed,
        undone: &Undone<'_>,
        now: Timestamp,
    ) -> Option<Told<Self::Status>> {
        R::refused(observed, undone, now)
    }
}

fn fingerprint<S: Serialize>(plan: &Plan<S>) -> String {
    let status = serde_json::to_value(&plan.status).expect("a status serialises");
    let (writes, lanes, clear) = (&plan.writes, &plan.lanes, &plan.clear);
    let (verdict, notices, next) = (plan.verdict, &plan.notices, plan.next);
    format!("{verdict} {writes:?} {lanes:?} {clear:?} {status} {notices:?} {next:?}")
}

/// What is wrong with `plan`, decided about `subject`.
#[must_use]
pub fn lint_plan<S: Serialize>(plan: &Plan<S>, subject: Option<&Subject>) -> Vec<String> {
    let mut problems = lint_words(plan);
    let is_deletion = |write: &&Write| matches!(write.action, Action::Delete { .. });
    if !plan.clear.iter().all(|write| is_deletion(&write)) {
        problems.push("clears by something else than a deletion".to_owned());
    }
    for write in plan.before_status().chain(&plan.clear) {
        problems.extend(
            lint_action(&write.action, subject).map(|problem| format!("{write}: {problem}")),
        );
    }
    problems.extend(lint_order(plan));
    problems.extend(lint_memory(plan, subject));
    if subject.is_none() && plan.status.is_some() {
        problems.push("writes the status of an object that is gone".to_owned());
    }
    problems
}

fn lint_words<S>(plan: &Plan<S>) -> Vec<String> {
    let mut problems = Vec::new();
    if plan.verdict.is_empty() {
        problems.push("has no verdict".to_owned());
    }
    if plan.before_status().chain(&plan.clear).any(|write| write.because.is_empty()) {
        problems.push("has a write without a reason".to_owned());
    }
    let is_word = |reason: &str| {
        reason.starts_with(|c: char| c.is_ascii_uppercase())
            && reason.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let bad =
        plan.notices.iter().filter(|notice| !is_word(&notice.reason) || !is_word(notice.action));
    problems.extend(
        bad.map(|notice| format!("has an event whose reason or action is no word: {notice:?}")),
    );
    problems
}

fn lint_action(action: &Action, subject: Option<&Subject>) -> Option<String> {
    match action {
        Action::Remember(status) | Action::Swap(status) => {
            let is_empty = status.as_object().is_none_or(serde_json::Map::is_empty);
            match subject {
                None => Some("writes the status of an object that is gone".to_owned()),
                Some(_) if is_empty => Some("carries no status".to_owned()),
                Some(_) => None,
            }
        }
        Action::Finalize(_) => None,
        Action::Mark { target, resource_version, fields } => {
            lint_mark(target, resource_version, fields, subject)
        }
        Action::Ensure(object) => {
            let says = |value: &Value| !value.as_object().is_some_and(serde_json::Map::is_empty);
            let extra =
                object.data.as_object().into_iter().flat_map(serde_json::Map::values).any(says);
            extra.then(|| "ensures more than metadata".to_owned())
        }
        Action::Create(object) | Action::Establish(object) => lint_create(object, subject),
        Action::Either { wanted, otherwise } => {
            let differ = wanted.child() != otherwise.child() || wanted.child().is_none();
            let differ = differ.then(|| "writes either of two objects".to_owned());
            differ
                .or_else(|| lint_action(wanted, subject))
                .or_else(|| lint_action(otherwise, subject))
        }
        Action::Apply(object) => lint_apply(object),
        Action::Strip { uid, resource_version, places, .. } => {
            let is_vague = uid.is_empty() || resource_version.is_empty() || places.is_empty();
            is_vague.then(|| "strips without a UID, a resourceVersion or a place".to_owned())
        }
        Action::Delete { uid, .. } => uid.is_empty().then(|| "deletes without a UID".to_owned()),
    }
}

fn lint_mark(
    target: &Target,
    version: &str,
    fields: &Value,
    subject: Option<&Subject>,
) -> Option<String> {
    if version.is_empty() {
        return Some("marks without a resourceVersion".to_owned());
    }
    if subject.is_some_and(|subject| subject.target == *target) {
        return Some("marks its own object: that is the status's business".to_owned());
    }
    let is_empty = fields.as_object().is_none_or(serde_json::Map::is_empty);
    is_empty.then(|| "marks nothing".to_owned())
}

fn lint_create(object: &DynamicObject, subject: Option<&Subject>) -> Option<String> {
    if object.metadata.name.is_none() {
        return Some(
            "creates without a name of its own: a second attempt would make a second object"
                .to_owned(),
        );
    }
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    let Some(owner) = owner else {
        let is_marked = object.annotations().contains_key(MADE_BY_ANNOTATION);
        return (!is_marked).then(|| "creates without a controller owner".to_owned());
    };
    let subject = subject?;
    if owner.uid != subject.uid {
        return Some(format!(
            "creates for owner UID {}, the object's is {}",
            owner.uid, subject.uid
        ));
    }
    let namespace = subject.target.namespace.clone();
    (namespace.is_some() && namespace != object.namespace())
        .then(|| "creates in another namespace".to_owned())
}

fn lint_apply(object: &DynamicObject) -> Option<String> {
    if object.metadata.uid.as_ref().is_none_or(String::is_empty) {
        return Some(
            "applies without a UID: it would be merged into a stranger's object".to_owned(),
        );
    }
    if object.metadata.managed_fields.is_some() {
        return Some("applies managedFields, which the API refuses".to_owned());
    }
    object.data.get("status").is_some().then(|| "applies a status, which is ignored".to_owned())
}

/// A swap opens its plan, because everything after it rests on it; nothing is destroyed before it is remembered; no
/// object is written twice.
fn lint_order<S>(plan: &Plan<S>) -> Vec<String> {
    let mut problems = Vec::new();
    let is_swap = |action: &Action| matches!(action, Action::Swap(_));
    if plan.writes.iter().skip(1).any(|write| is_swap(&write.action)) {
        problems.push("swaps after another write".to_owned());
    }
    let is_status = |action: &Action| matches!(action, Action::Remember(_) | Action::Swap(_));
    if plan.lanes.iter().flatten().any(|write| is_status(&write.action)) {
        problems.push("writes the status in a lane, on which the others do not rest".to_owned());
    }
    let delete = plan.writes.iter().position(|write| matches!(write.action, Action::Delete { .. }));
    let remember =
        plan.writes.iter().rposition(|write| matches!(write.action, Action::Remember(_)));
    if let (Some(delete), Some(remember)) = (delete, remember)
        && delete < remember
    {
        problems.push("remembers after it deleted".to_owned());
    }
    let mut seen = BTreeSet::new();
    let targets = plan.before_status().filter_map(|write| Some(write.action.child()?.to_string()));
    for target in targets {
        if !seen.insert(target.clone()) {
            problems.push(format!("writes {target} twice"));
        }
    }
    problems
}

/// The status at the end keeps what the plan itself remembered. What a write before it only leaves as it was may change with
/// the status: nothing has rested on it.
fn lint_memory<S: Serialize>(plan: &Plan<S>, subject: Option<&Subject>) -> Vec<String> {
    let Some(status) = &plan.status else { return Vec::new() };
    let status = serde_json::to_value(status).expect("a status serialises");
    let before = subject.map_or(&Value::Null, |subject| &subject.status);
    let remembered = plan.writes.iter().filter_map(|write| match &write.action {
        Action::Remember(status) => Some(status),
        _ => None,
    });
    let lost = remembered.flat_map(|memory| {
        let is_lost =
            |field: &&str| memory[*field] != before[*field] && memory[*field] != status[*field];
        MEMORY.into_iter().filter(is_lost)
    });
    lost.map(|field| format!("forgets \"{field}\", which it has just remembered")).collect()
}
