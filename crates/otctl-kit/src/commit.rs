//! Carries out plans: the writes in their order, then the lanes, then the status, then the Events, then the deletions that
//! the status justifies; the first failure ends it, but a refusal in a lane lets the other lanes come to their own ends
//! first. This is the only place that writes what controllers decide. How one write is made is in `writer`.
//!
//! Nothing is kept between two writes that is not in the API: the process may die at any of them. What the answers tell
//! is handed back as [`Expectation`]s, so that the next pass does not begin on an older view.

mod writer;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use self::writer::Writer;
use crate::cluster::{ApiError, Cluster, Target};
use crate::expectations::Expectation;
use crate::merge::merge_diff;
use crate::plan::{Action, Notice, Plan, Write};
use crate::reconciler::Subject;

/// The log target that tells of every write before it is made: `write n of m`, with `object` and `write`. At level
/// debug, so a filter can turn on this target alone.
pub const WRITE_TARGET: &str = "otctl_kit::commit::write";

/// Who commits, and when.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    /// The controller, as the reporter of its Events.
    pub controller: &'static str,
    /// The time of the decision.
    pub at: Timestamp,
}

/// The proof that every write of a plan was made and its status stands. Only [`commit`] makes one.
#[derive(Debug)]
pub struct Committed(Made);

impl Committed {
    /// The writes.
    #[must_use]
    pub fn into_made(self) -> Made {
        self.0
    }
}

/// Writes that were made, and what their answers tell.
#[derive(Debug, Default)]
pub struct Made {
    /// A line each.
    pub lines: Vec<String>,
    /// What views must show before the next pass, a refused write's answer included.
    pub expected: Vec<Expectation>,
}

/// The first write that failed; those after it that rest on it were not made.
#[derive(Debug, thiserror::Error)]
#[error("write {number} of {total} failed, {write}")]
pub struct CommitError {
    /// Which one, from 1.
    pub number: usize,
    /// How many there were to make.
    pub total: usize,
    /// Whether the status of the plan stands: it was a deletion that follows it.
    pub is_after_status: bool,
    /// What it was.
    pub write: String,
    /// What it was to write.
    pub target: Option<Target>,
    /// The writes that were made, before it or in other lanes.
    pub done: Made,
    /// The plan's own object as those writes left it.
    pub subject: Option<Subject>,
    /// Why it failed.
    #[source]
    pub cause: WriteError,
    /// What failed after it, each in a lane of its own.
    pub others: Vec<Failed>,
    /// What was to be written besides status and Events, and was not: what failed, and what was behind it.
    pub undone: Vec<Target>,
}

/// A write of a lane that failed after another one.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What it was to write.
    pub target: Option<Target>,
    /// Why it failed.
    pub cause: WriteError,
}

/// Why a write failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server refused it, or did not tell.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The name is taken by an object that the subject does not own. It is not touched.
    #[error("{object} exists and is not ours")]
    Foreign {
        /// The object in the way.
        object: String,
        /// Whose it says that it is.
        found: Box<ObjectMeta>,
    },
    /// The plan's own object is gone, and with it the reason for the plan.
    #[error("the object is gone")]
    Gone,
    /// The plan asks for what no plan may; a defect of the decision.
    #[error("the plan is unsound: {why}")]
    Unsound {
        /// Which rule it breaks.
        why: &'static str,
    },
}

/// Carries out `plan` about `subject`. An Event that cannot be published fails nothing.
///
/// # Errors
/// The first write that failed. What was made besides it stands, and its status was not written.
pub async fn commit<S: Serialize>(
    cluster: &dyn Cluster,
    author: Author,
    subject: Option<&Subject>,
    plan: &Plan<S>,
) -> Result<Committed, CommitError> {
    let steps = steps(subject, plan);
    let total = steps.len();
    let mut writer = Writer::new(cluster, author, subject);
    let (mut lines, mut undone, mut is_over) = (Vec::new(), Vec::new(), false);
    let (mut failures, mut ended) = (Vec::new(), None);
    for ((lane, step), number) in steps.iter().zip(1..) {
        // Whatever follows the lanes rests on all of them.
        if is_over || !failures.is_empty() && (lane.is_none() || *lane == ended) {
            undone.extend(step.child());
            continue;
        }
        tracing::debug!(target: WRITE_TARGET, object = %writer.about(), write = %step, "write {number} of {total}");
        match writer.carry_out(step).await {
            Ok(()) => lines.push(step.to_string()),
            Err(error) if matches!(step, Step::Notice(_)) => {
                tracing::debug!(%error, "an event was not published")
            }
            Err(cause) => {
                tracing::debug!(%cause, write = %step, "a write failed");
                is_over = lane.is_none() || !cause.is_refusal();
                ended = *lane;
                undone.extend(step.child());
                failures.push((number, step, cause));
            }
        }
    }
    let (after, expected) = writer.into_parts();
    let done = Made { lines, expected };
    let mut failures = failures.into_iter();
    let Some((number, step, cause)) = failures.next() else { return Ok(Committed(done)) };
    let others = failures.map(|(_, step, cause)| Failed { target: step.target(subject), cause });
    Err(CommitError {
        number,
        total,
        is_after_status: matches!(step, Step::Clear(_)),
        write: step.to_string(),
        target: step.target(subject),
        done,
        subject: after,
        cause,
        others: others.collect(),
        undone,
    })
}

impl WriteError {
    /// Whether the API server answered, and meant this write alone.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Foreign { .. } => true,
            Self::Refused(
                ApiError::Conflict { .. } | ApiError::AlreadyExists | ApiError::NotFound { .. },
            ) => true,
            Self::Refused(error) => error.is_told(),
            Self::Gone | Self::Unsound { .. } => false,
        }
    }
}

/// One thing to do, in the order in which it is done.
enum Step<'a> {
    Write(&'a Write),
    /// A deletion that rests on the status.
    Clear(&'a Write),
    /// The status, and what of it changes.
    Status {
        whole: Value,
        change: Value,
    },
    Notice(&'a Notice),
}

impl Step<'_> {
    /// What it writes; none for an Event.
    fn target(&self, subject: Option<&Subject>) -> Option<Target> {
        match self {
            Self::Notice(_) => None,
            Self::Write(_) | Self::Clear(_) | Self::Status { .. } => {
                self.child().or_else(|| subject.map(|subject| subject.target.clone()))
            }
        }
    }

    /// What it writes, if that is not the plan's own object.
    fn child(&self) -> Option<Target> {
        match self {
            Self::Write(write) | Self::Clear(write) => write.action.child(),
            Self::Status { .. } | Self::Notice(_) => None,
        }
    }
}

/// What is to be done, with the lane that it is in.
fn steps<'a, S: Serialize>(
    subject: Option<&Subject>,
    plan: &'a Plan<S>,
) -> Vec<(Option<usize>, Step<'a>)> {
    let mut steps: Vec<_> = plan.writes.iter().map(|write| (None, Step::Write(write))).collect();
    for (number, lane) in plan.lanes.iter().enumerate() {
        steps.extend(lane.iter().map(|write| (Some(number), Step::Write(write))));
    }
    steps.extend(status_step(subject, plan).map(|step| (None, step)));
    // Before the deletions: one that fails must not take the news with it, since the next pass has none to tell.
    steps.extend(plan.notices.iter().map(|notice| (None, Step::Notice(notice))));
    steps.extend(plan.clear.iter().map(|write| (None, Step::Clear(write))));
    steps
}

/// The last status write, against the status as the plan's own writes leave it; none when nothing is left to change.
/// Before deletions an unchanged status is written all the same: it is refused if what they rest on is out of date.
fn status_step<S: Serialize>(subject: Option<&Subject>, plan: &Plan<S>) -> Option<Step<'static>> {
    let before = plan.writes.iter().rev().find_map(|write| match &write.action {
        Action::Remember(status) | Action::Swap(status) => Some(status),
        Action::Finalize(_)
        | Action::Mark { .. }
        | Action::Ensure(_)
        | Action::Create(_)
        | Action::Establish(_)
        | Action::Either { .. }
        | Action::Apply(_)
        | Action::Strip { .. }
        | Action::Delete { .. } => None,
    });
    let before = before.or(subject.map(|subject| &subject.status)).unwrap_or(&Value::Null);
    let whole = serde_json::to_value(plan.status.as_ref()?).expect("a status serialises");
    let guard = (!plan.clear.is_empty()).then(|| Value::Object(serde_json::Map::new()));
    merge_diff(before, &whole).or(guard).map(|change| Step::Status { whole, change })
}

/// One line, for logs and goldens.
impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write) | Self::Clear(write) => write.fmt(f),
            Self::Status { change, .. } => {
                let fields = change.as_object().into_iter().flat_map(|fields| fields.keys());
                write!(f, "status {}", fields.map(String::as_str).collect::<Vec<_>>().join(", "))
            }
            Self::Notice(notice) => write!(f, "event {}", notice.reason),
        }
    }
}

#[cfg(test)]
mod tests;
