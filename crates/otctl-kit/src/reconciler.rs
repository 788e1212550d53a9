//! The contract between the kit and a controller: observe, then decide. The kit commits and reports.

use std::future::Future;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{ApiError, Target};
use crate::expectations::Expectation;
use crate::plan::{Notice, Plan};
use crate::store::Key;

/// One loop of a controller, over objects of one kind.
pub trait Reconciler: Send + Sync + 'static {
    /// Everything a decision may need, as plain facts. Absence is a fact.
    type Observed: Observation + Send + Sync;
    /// The status that the plan writes.
    type Status: Serialize + Send + Sync;
    /// Name for logs, metrics and goldens: `image`, `queue`.
    const NAME: &'static str;
    /// Who reports its Events, as users see it: the controller that runs this loop.
    const CONTROLLER: &'static str = "otctl";

    /// Reads the facts. Interprets nothing except "absent" and "cannot be parsed".
    ///
    /// # Errors
    /// Any failed consistent read; the pass ends and is tried again.
    fn observe(&self, key: &Key) -> impl Future<Output = Result<Self::Observed, ApiError>> + Send;

    /// Whether the views that `observe` reads show what an earlier pass made so; true for what no view is kept of. Asked
    /// before a pass, so that it is not decided on what was before our own writes; a look into memory, and no more.
    fn has_seen(&self, expectation: &Expectation) -> bool {
        let _ = expectation;
        true
    }

    /// The whole choice: pure, total, with the time as an argument.
    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status>;

    /// What tells a person why not all of the plan was carried out: a write was refused (a missing right, a quota, a
    /// policy of the cluster), or there is no plan because `decide` panicked. Asked only for failures that no automatic
    /// step changes at once ([`ApiError::is_told`], a foreign object of a child's name, a panic); told instead of what was
    /// planned. Pure, like `decide`. A status that is the same each time is written once.
    fn refused(
        observed: &Self::Observed,
        undone: &Undone<'_>,
        now: Timestamp,
    ) -> Option<Told<Self::Status>> {
        let _ = (observed, undone, now);
        None
    }
}

/// What is told where a plan was not carried out.
#[derive(Clone, Debug)]
pub struct Told<S> {
    /// The whole status.
    pub status: S,
    /// Events, published only after the status was written.
    pub notices: Vec<Notice>,
}

impl<S> From<S> for Told<S> {
    fn from(status: S) -> Self {
        Self { status, notices: Vec::new() }
    }
}

/// What of a plan was not carried out. Lanes that nothing was refused in were.
#[derive(Clone, Debug)]
pub struct Undone<'a> {
    /// What was refused first.
    pub first: Refusal<'a>,
    /// What else was, each in a lane of its own.
    pub others: Vec<Refusal<'a>>,
    /// Everything that was to be written besides the plan's own object, and was not: what was refused or failed otherwise,
    /// and what was behind it.
    pub children: Vec<&'a Target>,
}

impl<'a> Undone<'a> {
    /// Nothing but what was refused.
    #[must_use]
    pub fn of(first: Refusal<'a>) -> Self {
        Self { first, others: Vec::new(), children: Vec::new() }
    }

    /// Everything that was refused, in the order of the plan.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal<'a>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// A write that was refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// What was to be written; after a panic, the object that was to be decided about.
    pub target: &'a Target,
    /// Why.
    pub cause: RefusalCause<'a>,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug)]
pub enum RefusalCause<'a> {
    /// The API server said no.
    Api(&'a ApiError),
    /// An object has the name of the child that is not the subject's: what it says of itself.
    Foreign(&'a ObjectMeta),
    /// `decide` panicked: a defect of ours.
    Panicked {
        /// What the panic said.
        message: &'a str,
    },
}

/// What the kit must know of an observation to commit a plan that was decided on it.
pub trait Observation {
    /// The object the plan is about; none when it is gone, and then the plan may write nothing about it.
    fn subject(&self) -> Option<Subject>;
}

/// The object of a pass, as it was when it was observed.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Which object.
    pub target: Target,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion: the guard of every status write.
    pub resource_version: String,
    /// Its status as observed, to skip a write that would change nothing.
    pub status: Value,
}

impl Subject {
    /// As Events refer to it.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        self.target.reference(&self.uid)
    }
}
