//! One queue of a controller: who waits there, and what of them still runs.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Cluster};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::{Next, Plan, Write};
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::Reconciler;
use otctl_kit::store::{Key, Store};
use otctl_types::AdmissionQueue;
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use policy::Policy;
use policy::admission::Limits;

use crate::document::PolicySource;
use crate::member::{Member, Want};
use crate::observe::{Observed, Trace};
use crate::work::Work;

/// A kind of object that waits in a queue of its own. What has no default is what every kind must say.
pub trait Line: Send + Sync + Sized + 'static {
    /// What waits.
    type Member: Member;
    /// Facts of this line alone, beside its members.
    type Facts: Send + Sync;
    /// Name of the ledger.
    const QUEUE: &'static str;
    /// Who reports its Events: the controller that runs it.
    const CONTROLLER: &'static str;

    /// Everything that may wait.
    fn members(&self) -> Vec<Arc<Self::Member>>;

    /// The facts of this line, from the watches.
    fn facts(&self, members: &[Arc<Self::Member>]) -> Self::Facts;

    /// Whether the watches of its members show what an earlier pass made so.
    fn has_seen(&self, expectation: &Expectation) -> bool;

    /// Completes the facts by consistent reads.
    ///
    /// # Errors
    /// Any failed read; the pass ends and is tried again.
    fn complete(
        &self,
        observed: &mut Observed<Self>,
        reader: &Reader,
    ) -> impl Future<Output = Result<(), ApiError>> + Send {
        let _ = (observed, reader);
        async { Ok(()) }
    }

    /// What consistent reads find of a holder that is not among the members: the object, then what runs for it.
    ///
    /// # Errors
    /// Any failed read; the pass ends and is tried again.
    fn trace(
        &self,
        entry: &ActiveEntry,
        reader: &Reader,
    ) -> impl Future<Output = Result<Trace, ApiError>> + Send;

    /// What has not ended of all that runs, by consistent lists.
    ///
    /// # Errors
    /// Any failed read; the pass ends and is tried again.
    fn work(&self, reader: &Reader) -> impl Future<Output = Result<Work, ApiError>> + Send;

    /// How many may hold a slot.
    fn limits(policy: &Policy) -> Limits;

    /// What a member wants.
    fn want(
        observed: &Observed<Self>,
        member: &Self::Member,
        policy: &Policy,
        now: Timestamp,
    ) -> Want;

    /// The highest number of a member that its status has forgotten.
    fn forgotten(observed: &Observed<Self>, member: &Self::Member) -> i64 {
        let _ = (observed, member);
        0
    }

    /// What else stands in the ledger after this turn.
    fn extend(
        observed: &Observed<Self>,
        policy: &Policy,
        before: &AdmissionQueueStatus,
        after: &mut AdmissionQueueStatus,
        now: Timestamp,
    ) {
        let _ = (observed, policy, before, after, now);
    }

    /// What else is deleted once the ledger stands.
    fn clear(observed: &Observed<Self>) -> Vec<Write> {
        let _ = observed;
        Vec::new()
    }

    /// When else to look again.
    fn next(observed: &Observed<Self>, now: Timestamp) -> Next {
        let _ = (observed, now);
        Next::Wait
    }
}

/// The reconciler of a ledger.
pub struct Queue<L> {
    /// Who waits.
    pub line: L,
    /// The ledger, as the watch has seen it.
    pub ledgers: Store<AdmissionQueue>,
    /// The policy, as the watch has seen it.
    pub policies: Store<ConfigMap>,
    /// Where the policy is.
    pub source: PolicySource,
    /// Consistent reads.
    pub reader: Reader,
    /// The time, only to know whether an admission is due and the reads for it are worth making.
    pub clock: Arc<dyn Clock>,
}

impl<L: Line> Queue<L> {
    /// A reconciler of the ledger of `line`.
    pub fn new(
        line: L,
        (ledgers, policies): (Store<AdmissionQueue>, Store<ConfigMap>),
        source: PolicySource,
        (cluster, clock): (Arc<dyn Cluster>, Arc<dyn Clock>),
    ) -> Self {
        Self { line, ledgers, policies, source, reader: Reader::new(cluster), clock }
    }

    /// The key of its ledger.
    #[must_use]
    pub fn key() -> Key {
        Key::new("", L::QUEUE)
    }
}

impl<L: Line> Reconciler for Queue<L> {
    type Observed = Observed<L>;
    type Status = AdmissionQueueStatus;
    const NAME: &'static str = "queue";
    const CONTROLLER: &'static str = L::CONTROLLER;

    async fn observe(&self, _: &Key) -> Result<Self::Observed, ApiError> {
        self.look().await
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.ledgers.has_seen(expectation) && self.line.has_seen(expectation)
    }

    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status> {
        crate::decide::decide(observed, now)
    }
}
