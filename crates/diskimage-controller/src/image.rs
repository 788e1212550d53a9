//! The image: one reconciler per VMDiskImage. It knows whether it holds a slot, and what that slot has paid for so far;
//! `verdict.rs` is its state machine, `status.rs` what people see of it.

pub mod close;
pub mod decide;
pub mod ending;
#[cfg(test)]
pub(crate) mod fixture;
mod line;
pub mod observe;
pub mod status;
pub mod verdict;

use std::sync::Arc;

use jiff::Timestamp;
use otctl_kit::cluster::{ApiError, Cluster};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::Plan;
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::{Reconciler, Told, Undone};
use otctl_kit::store::Key;
use otctl_types::VMDiskImageStatus;
use otctl_types::names::DISKIMAGE_CONTROLLER;

use self::line::Line;
use crate::config::Settings;
use crate::exchange::Correspondence;
use crate::views::Views;

/// The reconciler of images.
pub struct Image {
    /// What the watches have seen.
    pub views: Views,
    /// Consistent reads.
    pub reader: Reader,
    /// Settings of the Deployment.
    pub settings: Arc<Settings>,
    /// What running imports told, and were told.
    pub talk: Correspondence,
    /// The tickets of those that wait.
    line: Line,
}

impl Image {
    /// A reconciler over these views.
    pub fn new(
        views: Views,
        cluster: Arc<dyn Cluster>,
        settings: Arc<Settings>,
        talk: Correspondence,
    ) -> Self {
        Self { views, reader: Reader::new(cluster), settings, talk, line: Line::default() }
    }
}

impl Reconciler for Image {
    type Observed = observe::Observed;
    type Status = VMDiskImageStatus;
    const NAME: &'static str = "image";
    const CONTROLLER: &'static str = DISKIMAGE_CONTROLLER;

    async fn observe(&self, key: &Key) -> Result<Self::Observed, ApiError> {
        self.look(key).await
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        let Views { images, jobs, claims, snapshots, .. } = &self.views;
        images.has_seen(expectation)
            && jobs.has_seen(expectation)
            && claims.has_seen(expectation)
            && snapshots.has_seen(expectation)
    }

    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status> {
        decide::decide(observed, now)
    }

    fn refused(
        observed: &Self::Observed,
        undone: &Undone<'_>,
        now: Timestamp,
    ) -> Option<Told<Self::Status>> {
        decide::refused(observed, &undone.first, now).map(Told::from)
    }
}
