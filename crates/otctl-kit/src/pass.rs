//! One pass over one object: observe, decide, commit. The driver calls it when a key's turn has come, the simulator in
//! the order of its seed; it is the same code. A pass never waits but for its requests, and never retries.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tracing::{Instrument, Span};

use crate::backoff::RETRY_AFTER_MAX;
use crate::clock::Clock;
use crate::cluster::{ApiError, Cluster, Target};
use crate::commit::{Author, CommitError, Committed, Made, WriteError, commit};
use crate::error::{Category, Error};
use crate::expectations::Expectation;
use crate::plan::{Next, Plan};
use crate::queue::End;
use crate::reconciler::{Observation, Reconciler, Refusal, RefusalCause, Subject, Told, Undone};
use crate::report::{self, Outcome};
use crate::store::Key;

/// A failure that wants a person is looked at again no sooner.
const SLOWLY: Duration = Duration::from_secs(1);
/// The verdict of a pass that could not observe.
const UNOBSERVED: &str = "unobserved";

/// What a pass did.
#[derive(Debug)]
pub struct Passed {
    /// The state the object was judged to be in.
    pub verdict: &'static str,
    /// A line per write that was made, also when a later one failed.
    pub writes: Vec<String>,
    /// What the views must show before the next pass of the key.
    pub expected: Vec<Expectation>,
    /// When to look again without a trigger: one that failed does so no later.
    pub next: Next,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed, if it did.
    pub error: Option<Error>,
    /// The object as it was observed; none when it is gone or could not be observed.
    pub subject: Option<Subject>,
    /// Its span: what is told of the pass belongs to its trace.
    pub span: Span,
}

/// Makes one pass of `reconciler` over `key`. A panic in it is a failed pass, not the end of the loop; one in `decide` is
/// told in the object's status too, if the reconciler has words for it.
pub async fn pass<R: Reconciler>(
    reconciler: &R,
    cluster: &dyn Cluster,
    key: &Key,
    clock: &dyn Clock,
) -> Passed {
    let span = report::span(R::NAME, key);
    let mut passed = Passed {
        verdict: UNOBSERVED,
        writes: Vec::new(),
        expected: Vec::new(),
        next: Next::Wait,
        outcome: Outcome::Rested,
        error: None,
        subject: None,
        span: span.clone(),
    };
    let turn = Turn { reconciler, cluster, key, clock };
    // What a panic leaves half done is `passed`, and that is valid at every moment.
    let ended = AssertUnwindSafe(turn.take(&mut passed)).catch_unwind().instrument(span).await;
    let ended = ended.unwrap_or_else(|panic| Err(Error::Panic { message: said(&*panic) }));
    passed.close(ended);
    report::record(&passed);
    passed
}

/// Everything that a pass needs.
struct Turn<'a, R> {
    reconciler: &'a R,
    cluster: &'a dyn Cluster,
    key: &'a Key,
    clock: &'a dyn Clock,
}

impl<R: Reconciler> Turn<'_, R> {
    async fn take(self, passed: &mut Passed) -> Result<(), Error> {
        let observed = self.reconciler.observe(self.key).await.map_err(Error::Observe)?;
        passed.subject = observed.subject();
        let at = self.clock.now();
        let author = Author { controller: R::CONTROLLER, at };
        let plan = match decide::<R>(&observed, at) {
            Ok(plan) => plan,
            Err(message) => {
                passed.made(self.tell_panic(&observed, author, &message).await);
                return Err(Error::Panic { message });
            }
        };
        passed.verdict = plan.verdict;
        passed.next = plan.next;
        match commit(self.cluster, author, passed.subject.as_ref(), &plan).await {
            Ok(committed) => {
                passed.made(committed.into_made());
                Ok(())
            }
            Err(mut error) => {
                passed.made(std::mem::take(&mut error.done));
                if !error.is_after_status {
                    passed.made(self.tell_refused(&observed, author, &error).await);
                }
                Err(Error::Commit(Box::new(error)))
            }
        }
    }

    /// The status that says why a write was refused, when the reconciler has one to give.
    async fn tell_refused(
        &self,
        observed: &R::Observed,
        author: Author,
        error: &CommitError,
    ) -> Made {
        let told = undone(error).and_then(|undone| R::refused(observed, &undone, author.at));
        self.tell(error.subject.as_ref(), author, told).await
    }

    /// The status that says that there is no decision about this object. What made `decide` panic may make `refused`
    /// panic too.
    async fn tell_panic(&self, observed: &R::Observed, author: Author, message: &str) -> Made {
        let subject = observed.subject();
        let told = subject.as_ref().and_then(|subject| {
            let cause = RefusalCause::Panicked { message };
            let undone = Undone::of(Refusal { target: &subject.target, cause });
            caught(|| R::refused(observed, &undone, author.at)).ok().flatten()
        });
        self.tell(subject.as_ref(), author, told).await
    }

    /// Tells it instead of what was planned. That it cannot be told either changes nothing about the failure.
    async fn tell(
        &self,
        subject: Option<&Subject>,
        author: Author,
        told: Option<Told<R::Status>>,
    ) -> Made {
        let Some(Told { status, notices }) = told else { return Made::default() };
        let plan = Plan { status: Some(status), notices, ..Plan::rest("refused") };
        let told = commit(self.cluster, author, subject, &plan).await;
        told.map(Committed::into_made).unwrap_or_else(|error| {
            tracing::debug!(%error, "the refusal was not told");
            error.done
        })
    }
}

/// The decision, or what its panic said.
fn decide<R: Reconciler>(observed: &R::Observed, at: Timestamp) -> Result<Plan<R::Status>, String> {
    caught(|| R::decide(observed, at))
}

/// What `pure` returns, or what its panic said. It leaves nothing half done: it has nothing to change.
fn caught<T>(pure: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(pure)).map_err(|panic| said(&*panic))
}

/// What a reconciler is asked about, if there is anything.
fn undone(error: &CommitError) -> Option<Undone<'_>> {
    let others = error.others.iter().map(|failed| (failed.target.as_ref(), &failed.cause));
    let all = std::iter::once((error.target.as_ref(), &error.cause)).chain(others);
    let mut refusals = all.filter_map(|(target, cause)| refusal(target?, cause));
    let first = refusals.next()?;
    Some(Undone { first, others: refusals.collect(), children: error.undone.iter().collect() })
}

/// Only what no automatic step changes at once.
fn refusal<'a>(target: &'a Target, cause: &'a WriteError) -> Option<Refusal<'a>> {
    let cause = match cause {
        WriteError::Foreign { found, .. } => RefusalCause::Foreign(found),
        WriteError::Refused(cause) if cause.is_told() => RefusalCause::Api(cause),
        WriteError::Refused(_) | WriteError::Gone | WriteError::Unsound { .. } => return None,
    };
    Some(Refusal { target, cause })
}

impl Passed {
    /// What it means for the next turn of its key.
    #[must_use]
    pub fn end(&self) -> End {
        match self.outcome {
            Outcome::Rested | Outcome::Wrote => End::Done(self.next),
            Outcome::Gone => End::Done(Next::Wait),
            Outcome::Failed(Category::Conflict) => End::Conflict,
            Outcome::Failed(Category::Transient) => self.failed(Duration::ZERO),
            Outcome::Failed(Category::Throttled) => self.failed(asked(self.error.as_ref())),
            Outcome::Failed(
                Category::Forbidden
                | Category::Invalid
                | Category::Foreign
                | Category::Internal
                | Category::Panicked,
            ) => self.failed(SLOWLY),
        }
    }

    fn failed(&self, at_least: Duration) -> End {
        End::Failed { at_least, next: self.next }
    }

    fn made(&mut self, made: Made) {
        self.writes.extend(made.lines);
        self.expected.extend(made.expected);
    }

    fn close(&mut self, ended: Result<(), Error>) {
        match ended {
            Ok(()) => {
                self.outcome = if self.writes.is_empty() { Outcome::Rested } else { Outcome::Wrote }
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) {
        let is_gone =
            matches!(&error, Error::Commit(error) if matches!(error.cause, WriteError::Gone));
        self.outcome = if is_gone { Outcome::Gone } else { Outcome::Failed(error.category()) };
        self.error = Some(error);
    }
}

/// How long the server asked us to wait, within reason.
fn asked(error: Option<&Error>) -> Duration {
    match error.and_then(Error::api) {
        Some(ApiError::Throttled { retry_after_seconds: Some(seconds) }) => {
            Duration::from_secs(*seconds).min(RETRY_AFTER_MAX)
        }
        _ => SLOWLY,
    }
}

/// What a panic said, if it said something.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_may_ask_for_time_but_not_for_ever() {
        let asks = |seconds| {
            asked(Some(&Error::Observe(ApiError::Throttled { retry_after_seconds: seconds })))
        };
        assert_eq!(asks(Some(7)), Duration::from_secs(7));
        assert_eq!(asks(Some(1_000_000_000)), RETRY_AFTER_MAX);
        assert_eq!(asks(None), SLOWLY);
    }
}
