//! The queue: one reconciler over the one ledger of images. It alone parses the policy ConfigMap, gives tickets and
//! slots, and takes slots back. Admission needs the whole set and one compare-and-swap, so a loop per image would not
//! do: it could only ask, and two that ask at once could both be told yes.
//!
//! ```text
//!   images, ledger, policy ──▶ drop what is used up ──▶ make whole ──▶ admit while there is room ──▶ one PUT ──▶ tickets
//! ```

pub mod decide;
pub mod lane;
pub mod observe;
pub mod status;
mod turn;
pub mod work;

use std::sync::Arc;

use jiff::Timestamp;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Cluster};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::Plan;
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::Reconciler;
use otctl_kit::store::Key;
use otctl_types::names::DISKIMAGE_CONTROLLER;
use otctl_types::queue::AdmissionQueueStatus;

use crate::views::Views;

/// Where the policy is.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The reconciler of the ledger.
pub struct Queue {
    /// What the watches have seen.
    pub views: Views,
    /// Consistent reads.
    pub reader: Reader,
    /// Where the policy is.
    pub policy: PolicySource,
    /// The time, only to know whether an admission is due and the reads for it are worth making.
    pub clock: Arc<dyn Clock>,
}

impl Queue {
    /// A reconciler over these views.
    pub fn new(
        views: Views,
        cluster: Arc<dyn Cluster>,
        policy: PolicySource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { views, reader: Reader::new(cluster), policy, clock }
    }
}

impl Reconciler for Queue {
    type Observed = observe::Observed;
    type Status = AdmissionQueueStatus;
    const NAME: &'static str = "queue";
    const CONTROLLER: &'static str = DISKIMAGE_CONTROLLER;

    async fn observe(&self, _: &Key) -> Result<Self::Observed, ApiError> {
        self.look().await
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.views.queues.has_seen(expectation) && self.views.images.has_seen(expectation)
    }

    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status> {
        decide::decide(observed, now)
    }
}
