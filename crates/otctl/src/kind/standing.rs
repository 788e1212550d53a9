//! Where an object stands, told by the status that all our kinds have: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use otctl_types::condition::{READY, STALLED, find, is_true};
use serde::{Deserialize, Serialize};

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
    /// It will not be as wanted until a person lets it go on.
    Suspended,
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

/// What is wanted of an object, and what its kind knows of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// The condition that is to be True.
    pub(super) condition: &'static str,
    /// Whether its status answers what changes no generation.
    pub(super) has_heard: bool,
    /// Whether its spec holds it up.
    pub(super) is_suspended: bool,
}

/// Where an object stands.
pub(super) fn judge(object: &DynamicObject, wanted: Wanted, progress: Progress) -> Standing {
    let Wanted { condition, has_heard, is_suspended } = wanted;
    // A status that has another form was not written by a controller of ours, and tells nothing.
    let told = Told::deserialize(&object.data["status"]).unwrap_or_default();
    if let Some(since) = &object.metadata.deletion_timestamp {
        let message = format!("it is being deleted since {:.0}", since.0);
        return standing(Verdict::Failed, told.phase, ("Deleting", &message), progress);
    }
    let is_current = told.observed_generation >= object.metadata.generation.or(Some(0));
    let is_reached = is_current && is_true(&told.conditions, condition);
    let is_stalled = is_current && is_true(&told.conditions, STALLED);
    let verdict = match (is_reached, is_stalled) {
        (true, _) => Verdict::Reached,
        (false, true) if has_heard => Verdict::Failed,
        (false, _) if is_suspended && is_current => Verdict::Suspended,
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

fn unseen(told: &Told, is_current: bool) -> &'static str {
    match (told.observed_generation, is_current) {
        (None, _) => "the controller has not looked at it yet",
        (Some(_), false) => "the controller has not looked at the changed spec yet",
        (Some(_), true) => "the controller has not seen yet that it was asked for again",
    }
}

#[cfg(test)]
mod tests {
    use otctl_types::condition::AVAILABLE;
    use serde_json::{Value, json};

    use super::*;

    /// Asked once, and not held up.
    const READILY: Wanted = Wanted { condition: READY, has_heard: true, is_suspended: false };
    const UNHEARD: Wanted = Wanted { has_heard: false, ..READILY };
    const SUSPENDED: Wanted = Wanted { is_suspended: true, ..READILY };

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
    fn check(object: &DynamicObject, wanted: Wanted, expected: (Verdict, &str, &str)) {
        let found = judge(object, wanted, Progress::default());
        assert_eq!((found.verdict, found.phase.as_str(), found.message.as_str()), expected);
    }

    #[test]
    fn ready_and_stalled_decide_and_everything_else_goes_on() {
        let told = |verdict| (verdict, "Phase", "why");
        let ready = object(2, &[condition("Ready", "Succeeded")]);
        check(&ready, READILY, told(Verdict::Reached));
        let stalled = object(2, &[condition("Stalled", "SourceNotFound")]);
        check(&stalled, READILY, told(Verdict::Failed));
        check(&object(2, &[]), READILY, told(Verdict::Going));
        check(&object(2, &[condition("Reconciling", "Queued")]), READILY, told(Verdict::Going));
    }

    #[test]
    fn what_was_told_of_an_earlier_spec_is_no_answer() {
        let told =
            (Verdict::Going, UNSEEN, "the controller has not looked at the changed spec yet");
        for kind in ["Ready", "Stalled"] {
            check(&object(1, &[condition(kind, "Any")]), READILY, told);
        }
    }

    #[test]
    fn nothing_told_is_no_answer() {
        let mut untold = object(2, &[]);
        untold.data = json!({"spec": {}});
        check(
            &untold,
            READILY,
            (Verdict::Going, UNSEEN, "the controller has not looked at it yet"),
        );
    }

    #[test]
    fn an_earlier_state_will_do_for_available_also_when_the_update_has_failed() {
        let both =
            object(2, &[condition("Available", "Updating"), condition("Stalled", "TooSmall")]);
        check(
            &both,
            Wanted { condition: AVAILABLE, ..READILY },
            (Verdict::Reached, "Phase", "why"),
        );
        check(&both, READILY, (Verdict::Failed, "Phase", "why"));
    }

    #[test]
    fn a_failure_from_before_a_retry_is_no_answer_and_success_is_one() {
        let stalled = object(2, &[condition("Stalled", "SourceNotFound")]);
        let message = "the controller has not seen yet that it was asked for again";
        check(&stalled, UNHEARD, (Verdict::Going, UNSEEN, message));
        let ready = object(2, &[condition("Ready", "Succeeded")]);
        check(&ready, UNHEARD, (Verdict::Reached, "Phase", "why"));
    }

    #[test]
    fn one_that_is_held_up_is_waited_for_no_longer_once_its_controller_says_so() {
        let told = |verdict| (verdict, "Phase", "why");
        check(&object(2, &[]), SUSPENDED, told(Verdict::Suspended));
        let unheard = Wanted { has_heard: false, ..SUSPENDED };
        check(&object(2, &[]), unheard, told(Verdict::Suspended));
        let stalled = object(2, &[condition("Stalled", "SourceNotFound")]);
        check(&stalled, SUSPENDED, told(Verdict::Failed));
        let ready = object(2, &[condition("Ready", "Succeeded")]);
        check(&ready, SUSPENDED, told(Verdict::Reached));
        let unseen = "the controller has not looked at the changed spec yet";
        check(&object(1, &[]), SUSPENDED, (Verdict::Going, UNSEEN, unseen));
    }

    #[test]
    fn what_is_being_deleted_has_failed() {
        let mut ready = object(2, &[condition("Ready", "Succeeded")]);
        ready.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-05-01T12:00:00Z")).unwrap();
        let message = "it is being deleted since 2026-05-01T12:00:00Z";
        check(&ready, READILY, (Verdict::Failed, "Phase", message));
    }

    #[test]
    fn the_reason_is_that_of_ready() {
        let mut waits = condition("Ready", "SlotsBusy");
        waits["status"] = json!("False");
        let found = judge(&object(2, &[waits]), READILY, Progress::default());
        assert_eq!(found.reason, "SlotsBusy");
    }
}
