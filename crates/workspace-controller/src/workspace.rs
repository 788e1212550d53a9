//! The workspace: one reconciler per Workspace. `asks.rs` is what is read afresh before a pass, `verdict.rs` its state
//! machine, `works.rs` what is made in which order, `disks.rs` what is remembered of disks, `status.rs` what people see of
//! it, `decide.rs` the plan that comes of all that.

pub mod asks;
pub mod decide;
pub mod disks;
#[cfg(test)]
pub(crate) mod fixture;
pub mod observe;
pub mod status;
pub mod verdict;
pub mod works;

use std::sync::Arc;

use jiff::Timestamp;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Cluster};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::Plan;
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::{Told, Undone};
use otctl_kit::store::Key;
use otctl_types::names::WORKSPACE_CONTROLLER;
use otctl_types::workspace::WorkspaceStatus;

use crate::config::Site;
use crate::views::Views;

/// The reconciler of workspaces.
pub struct Reconciler {
    /// What the watches have seen.
    pub views: Views,
    /// Consistent reads.
    pub reader: Reader,
    /// Where the controller works.
    pub site: Arc<Site>,
    /// When a namespace is asked for; what is decided gets its time as an argument.
    pub clock: Arc<dyn Clock>,
}

impl Reconciler {
    /// A reconciler over these views.
    pub fn new(
        views: Views,
        site: Arc<Site>,
        (cluster, clock): (Arc<dyn Cluster>, Arc<dyn Clock>),
    ) -> Self {
        Self { views, reader: Reader::new(cluster), site, clock }
    }
}

impl otctl_kit::reconciler::Reconciler for Reconciler {
    type Observed = observe::Observed;
    type Status = WorkspaceStatus;
    const NAME: &'static str = "workspace";
    const CONTROLLER: &'static str = WORKSPACE_CONTROLLER;

    async fn observe(&self, key: &Key) -> Result<Self::Observed, ApiError> {
        self.look(key).await
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        let views = &self.views;
        views.workspaces.has_seen(expectation)
            && views.images.has_seen(expectation)
            && views.networks.has_seen(expectation)
            && views.services.has_seen(expectation)
            && views.deployments.has_seen(expectation)
            && views.claims.has_seen(expectation)
            && views.machines.has_seen(expectation)
    }

    fn decide(observed: &Self::Observed, now: Timestamp) -> Plan<Self::Status> {
        decide::decide(observed, now)
    }

    fn refused(
        observed: &Self::Observed,
        undone: &Undone<'_>,
        now: Timestamp,
    ) -> Option<Told<Self::Status>> {
        decide::refused(observed, undone, now)
    }
}
