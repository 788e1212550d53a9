//! The one place that tells of passes: span, log, metrics, and an Event when a pass failed. At level info it says what
//! changed, and nothing of a pass that changed nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, display};

use crate::error::{Category, Error};
use crate::metrics::Metrics;
use crate::pass::Passed;
use crate::plan::Notice;
use crate::store::Key;
use crate::telemetry::note_trace;

/// Failures that end by themselves become an Event only when this many passes failed in a row.
const SILENT_FAILURES: u32 = 5;

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It had nothing to write.
    Rested,
    /// It wrote all that it planned.
    Wrote,
    /// The object went while it was at it; there is nothing left to do.
    Gone,
    /// It failed.
    Failed(Category),
}

impl Outcome {
    /// Every label.
    pub const LABELS: [&str; 4] = ["rested", "wrote", "gone", "failed"];

    /// The metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Rested => "rested",
            Self::Wrote => "wrote",
            Self::Gone => "gone",
            Self::Failed(_) => "failed",
        }
    }
}

/// The span of a pass; what is not known yet is filled in by [`record`].
pub(crate) fn span(controller: &'static str, key: &Key) -> Span {
    let span = tracing::info_span!(
        "pass",
        controller,
        object = %key,
        verdict = Empty,
        writes = Empty,
        outcome = Empty,
        error = Empty,
        trace_id = Empty
    );
    note_trace(&span);
    span
}

/// Completes the span of a pass.
pub(crate) fn record(passed: &Passed) {
    let span = &passed.span;
    span.record("verdict", passed.verdict);
    span.record("writes", display(passed.writes.join("; ")));
    span.record("outcome", passed.outcome.label());
    if let Some(error) = &passed.error {
        span.record("error", display(error.chain()));
    }
}

/// What was told of each object, so that it is told once.
pub(crate) struct Reporter {
    controller: &'static str,
    metrics: Option<Arc<Metrics>>,
    told: Mutex<HashMap<Key, Told>>,
}

#[derive(Default)]
struct Told {
    verdict: &'static str,
    /// Failed passes in a row.
    failures: u32,
    /// The distinct failures among them that became an Event.
    events: BTreeSet<(Category, String)>,
}

impl Reporter {
    pub(crate) fn new(controller: &'static str, metrics: Option<Arc<Metrics>>) -> Self {
        if let Some(metrics) = &metrics {
            metrics.expect(controller, &Outcome::LABELS, &Category::ALL.map(Category::label));
        }
        Self { controller, metrics, told: Mutex::default() }
    }

    /// Tells of a pass; returns the Event that its failure deserves, if it is news.
    pub(crate) fn tell(&self, key: &Key, passed: &Passed, took: Duration) -> Option<Notice> {
        self.count(passed, took);
        let _inside = passed.span.enter();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.entry(key.clone()).or_default();
        match (&passed.error, passed.outcome) {
            (Some(error), Outcome::Failed(category)) => {
                self.tell_failure(key, error, before.failed(category, error))
            }
            _ => {
                let is_news = before.succeeded(passed.verdict);
                self.tell_success(key, passed, is_news);
                if passed.subject.is_none() || passed.outcome == Outcome::Gone {
                    told.remove(key);
                }
                None
            }
        }
    }

    fn count(&self, passed: &Passed, took: Duration) {
        let Some(metrics) = &self.metrics else { return };
        metrics.pass(self.controller, passed.outcome.label(), took);
        if let Outcome::Failed(category) = passed.outcome {
            metrics.error(self.controller, category.label());
        }
    }

    fn tell_success(&self, key: &Key, passed: &Passed, is_news: bool) {
        let (controller, verdict, writes) =
            (self.controller, passed.verdict, passed.writes.join("; "));
        if is_news {
            tracing::info!(controller, object = %key, verdict, writes, "verdict changed");
        } else {
            tracing::debug!(controller, object = %key, verdict, writes, "passed");
        }
    }

    fn tell_failure(&self, key: &Key, error: &Error, notice: Option<Notice>) -> Option<Notice> {
        let (controller, category, chain) =
            (self.controller, error.category().label(), error.chain());
        if notice.is_some() {
            tracing::warn!(controller, object = %key, category, error = chain, "pass failed");
        } else {
            tracing::debug!(controller, object = %key, category, error = chain, "pass failed");
        }
        notice
    }
}

impl Told {
    /// Whether this verdict is news.
    fn succeeded(&mut self, verdict: &'static str) -> bool {
        self.failures = 0;
        self.events.clear();
        std::mem::replace(&mut self.verdict, verdict) != verdict
    }

    /// The Event of a failure that is news: at once if it wants a person, else when it lasts.
    fn failed(&mut self, category: Category, error: &Error) -> Option<Notice> {
        self.failures = self.failures.saturating_add(1);
        if category.is_transient() && self.failures < SILENT_FAILURES {
            return None;
        }
        let is_news = self.events.insert((category, place(error)));
        is_news.then(|| Notice {
            warning: true,
            reason: category.reason().to_owned(),
            action: "Reconcile",
            message: error.chain(),
            regarding: None,
        })
    }
}

/// What tells one failure from another: not its text, in which versions and times change.
fn place(error: &Error) -> String {
    match error {
        Error::Observe(_) => "observe".to_owned(),
        Error::Commit(error) => error.write.clone(),
        Error::Panic { message } => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Build;
    use crate::cluster::ApiError;
    use crate::plan::Next;

    fn passed(verdict: &'static str, error: Option<Error>) -> Passed {
        let outcome =
            error.as_ref().map_or(Outcome::Rested, |error| Outcome::Failed(error.category()));
        Passed {
            verdict,
            writes: Vec::new(),
            expected: Vec::new(),
            next: Next::Wait,
            outcome,
            error,
            subject: None,
            span: Span::none(),
        }
    }

    fn forbidden(detail: &str) -> Error {
        Error::Observe(ApiError::Forbidden {
            detail: detail.to_owned(),
            quota: false,
            namespace_terminating: false,
        })
    }

    #[test]
    fn a_failure_that_wants_a_person_is_told_once_until_it_was_overcome() {
        let reporter = Reporter::new("image", None);
        let (key, took) = (Key::new("lab", "a"), Duration::ZERO);
        let first = reporter.tell(&key, &passed("x", Some(forbidden("at 10:00"))), took).unwrap();
        assert_eq!((first.warning, first.reason.as_str()), (true, "Forbidden"));
        assert_eq!(reporter.tell(&key, &passed("x", Some(forbidden("at 10:01"))), took), None);
        let panic = Error::Panic { message: "index out of bounds".to_owned() };
        assert_eq!(
            reporter.tell(&key, &passed("x", Some(panic)), took).unwrap().reason,
            "InternalError"
        );
        reporter.tell(&key, &passed("x", None), took);
        assert!(reporter.tell(&key, &passed("x", Some(forbidden("again"))), took).is_some());
    }

    #[test]
    fn a_failure_that_ends_by_itself_is_told_when_it_lasts() {
        let reporter = Reporter::new("image", None);
        let key = Key::new("lab", "a");
        let fail = || {
            let error =
                Error::Observe(ApiError::Unknown { detail: "connection refused".to_owned() });
            reporter.tell(&key, &passed("x", Some(error)), Duration::ZERO)
        };
        for _ in 1..SILENT_FAILURES {
            assert_eq!(fail(), None);
        }
        assert_eq!(fail().unwrap().reason, "ApiUnavailable");
        assert_eq!(fail(), None);
    }

    #[test]
    fn objects_that_are_gone_are_forgotten() {
        let reporter = Reporter::new("image", None);
        let key = Key::new("lab", "a");
        reporter.tell(&key, &passed("gone", None), Duration::ZERO);
        assert!(reporter.told.lock().unwrap().is_empty());
    }

    #[test]
    fn every_series_of_a_loop_is_there_from_the_start() {
        let metrics = Arc::new(Metrics::new(Build::of("test")));
        let reporter = Reporter::new("image", Some(metrics.clone()));
        let text = metrics.render().unwrap();
        for category in Category::ALL {
            let label = format!("category=\"{}\",controller=\"image\"}} 0", category.label());
            assert!(text.contains(&label), "{label} is not in {text}");
        }
        let count = |text: &str| text.matches("otctl_reconcile_total{").count();
        let outcomes = [Outcome::Rested, Outcome::Wrote, Outcome::Gone];
        for outcome in outcomes.into_iter().chain(Category::ALL.map(Outcome::Failed)) {
            reporter.count(&Passed { outcome, ..passed("x", None) }, Duration::ZERO);
        }
        assert_eq!(count(&metrics.render().unwrap()), count(&text), "and no other comes");
    }

    #[test]
    fn a_verdict_is_news_once() {
        let mut told = Told::default();
        assert!(told.succeeded("queued"));
        assert!(!told.succeeded("queued"));
        assert!(told.succeeded("syncing"));
    }
}
