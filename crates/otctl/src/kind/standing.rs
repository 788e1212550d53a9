//! Where an object stands, told by the status that all our kinds have: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use otctl_types::condition::{AVAILABLE, READY, STALLED, find, is_true};
use serde::{Deserialize, Serialize};

use crate::cli::Goal;
use crate::progress::Progress;

/// The phase of what the controller has not looked at as it is now.
const UNSEEN: &str = "Unseen";

/// Where an object stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Standing {
    /// Whether that is what is wanted.
    #[serde(skip)]
    pub(crate) verdict: Verdict,
    /// The phase it tells, or that nothing was told of the spec as it is now.
    pub(crate) phase: String,
    /// Why it is not further, in one word; empty when nobody said.
    pub(crate) reason: String,
    /// The same as a sentence.
    pub(crate) message: String,
    /// How far it is.
    pub(crate) progress: Progress,
}

impl Standing {
    /// Whether nothing was told of the spec as it is now.
    pub(crate) fn is_unseen(&self) -> bool {
        self.phase == UNSEEN
    }
}

/// What is to be expected of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as wanted.
    Reached,
    /// It will not be as wanted until a person acts.
    Failed,
    /// That is not decided.
    Going,
}

/// What every kind tells.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    observed_generation: Option<i64>,
    phase: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
}

/// Where an object stands. `has_heard` is whether its status answers what changes no generation.
pub(super) fn judge(
    object: &DynamicObject,
    goal: Goal,
    has_heard: bool,
    progress: Progress,
) -> Standing {
    // A status that has another form was not written by a controller of ours, and tells nothing.
    let told = Told::deserialize(&object.data["status"]).unwrap_or_default();
    if let Some(since) = &object.metadata.deletion_timestamp {
        let message = format!("it is being deleted since {:.0}", since.0);
        return standing(Verdict::Failed, told.phase, ("Deleting", &message), progress);
    }
    let is_current = told.observed_generation >= object.metadata.generation.or(Some(0));
    let is_reached = is_current && is_true(&told.conditions, condition(goal));
    let is_stalled = is_current && is_true(&told.conditions, STALLED);
    let verdict = match (is_reached, is_stalled) {
        (true, _) => Verdict::Reached,
        (false, true) if has_heard => Verdict::Failed,
        (false, _) => Verdict::Going,
    };
    if verdict == Verdict::Going && (!is_current || !has_heard) {
        let message = unseen(&told, is_current);
        return standing(verdict, Some(UNSEEN.to_owned()), ("", message), progress);
    }
    let reason = find(&told.conditions, READY).map(|ready| ready.reason.as_str());
    let message = told.message.unwrap_or_default();
    standing(verdict, told.phase, (reason.unwrap_or_default(), &message), progress)
}

fn standing(
    verdict: Verdict,
    phase: Option<String>,
    (reason, message): (&str, &str),
    progress: Progress,
) -> Standing {
    Standing {
        verdict,
        phase: phase.unwrap_or_default(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        progress,
    }
}

fn condition(goal: Goal) -> &'static str {
    match goal {
        Goal::Ready => READY,
        Goal::Available => AVAILABLE,
    }
}

fn unseen(told: &Told, is_current: bool) -> &'static str {
    match (told.observed_generation, is_current) {
        (None, _) => "the controller has not looked at it yet",
        (Some(_), false) => "the controller has not looked at the changed spec yet",
        (Some(_), true) => "the controller has not seen yet that it was asked for again",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn condition(kind: &str, reason: &str) -> Value {
        let at = "2026-05-01T12:00:00Z";
        json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at})
    }

    /// Of generation 2.
    fn object(observed: i64, conditions: &[Value]) -> DynamicObject {
        let status = json!({
            "observedGeneration": observed, "phase": "Phase", "message": "why", "conditions": conditions,
        });
        let text = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Any",
            "metadata": {"name": "a", "generation": 2}, "status": status,
        });
        serde_json::from_value(text).unwrap()
    }

    #[track_caller]
    fn check(object: &DynamicObject, goal: Goal, has_heard: bool, expected: (Verdict, &str, &str)) {
        let found = judge(object, goal, has_heard, Progress::default());
        assert_eq!((found.verdict, found.phase.as_str(), found.message.as_str()), expected);
    }

    #[test]
    fn ready_and_stalled_decide_and_everything_else_goes_on() {
        let told = |verdict| (verdict, "Phase", "why");
        let ready = object(2, &[condition("Ready", "Succeeded")]);
        check(&ready, Goal::Ready, true, told(Verdict::Reached));
        let stalled = object(2, &[condition("Stalled", "SourceNotFound")]);
        check(&stalled, Goal::Ready, true, told(Verdict::Failed));
        check(&object(2, &[]), Goal::Ready, true, told(Verdict::Going));
        check(
            &object(2, &[condition("Reconciling", "Queued")]),
            Goal::Ready,
            true,
            told(Verdict::Going),
        );
    }

    #[test]
    fn what_was_told_of_an_earlier_spec_is_no_answer() {
        let told =
            (Verdict::Going, UNSEEN, "the controller has not looked at the changed spec yet");
        for kind in ["Ready", "Stalled"] {
            check(&object(1, &[condition(kind, "Any")]), Goal::Ready, true, told);
        }
    }

    #[test]
    fn nothing_told_is_no_answer() {
        let mut untold = object(2, &[]);
        untold.data = json!({"spec": {}});
        check(
            &untold,
            Goal::Ready,
            true,
            (Verdict::Going, UNSEEN, "the controller has not looked at it yet"),
        );
    }

    #[test]
    fn an_earlier_state_will_do_for_available_also_when_the_update_has_failed() {
        let both =
            object(2, &[condition("Available", "Updating"), condition("Stalled", "TooSmall")]);
        check(&both, Goal::Available, true, (Verdict::Reached, "Phase", "why"));
        check(&both, Goal::Ready, true, (Verdict::Failed, "Phase", "why"));
    }

    #[test]
    fn a_failure_from_before_a_retry_is_no_answer_and_success_is_one() {
        let stalled = object(2, &[condition("Stalled", "SourceNotFound")]);
        let message = "the controller has not seen yet that it was asked for again";
        check(&stalled, Goal::Ready, false, (Verdict::Going, UNSEEN, message));
        let ready = object(2, &[condition("Ready", "Succeeded")]);
        check(&ready, Goal::Ready, false, (Verdict::Reached, "Phase", "why"));
    }

    #[test]
    fn what_is_being_deleted_has_failed() {
        let mut ready = object(2, &[condition("Ready", "Succeeded")]);
        ready.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-05-01T12:00:00Z")).unwrap();
        let message = "it is being deleted since 2026-05-01T12:00:00Z";
        check(&ready, Goal::Ready, true, (Verdict::Failed, "Phase", message));
    }

    #[test]
    fn the_reason_is_that_of_ready() {
        let mut waits = condition("Ready", "SlotsBusy");
        waits["status"] = json!("False");
        let found = judge(&object(2, &[waits]), Goal::Ready, true, Progress::default());
        assert_eq!(found.reason, "SlotsBusy");
    }
}
