//! From a pod that is bound to the node to everything its process is started with.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::launch::{self, Launch};
use super::mounts::NotYet;
use super::pod_status::{Containers, Report};
use super::{NodeContext, PodName};

/// How soon a pod that cannot start yet is tried again; doubles up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// A pod that is to start.
pub(super) struct Preparation<'a> {
    pub(super) context: &'a NodeContext,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) address: IpAddr,
    /// What was said of the pod so far.
    pub(super) report: Report,
}

impl Preparation<'_> {
    /// Waits until the pod is not held and all it needs is there; says once why it is not.
    pub(super) async fn until_ready(self) -> Launch {
        self.context.holds.released(&PodName::from(self.pod)).await;
        let (mut delay, mut tries_with, mut problem) = (FIRST_RETRY, 0, None);
        loop {
            self.context.link.up().await;
            match launch::prepare(self.context, self.pod, self.container, self.address).await {
                Ok(launch) => return launch,
                Err(again) if problem.as_ref() == Some(&again) => tries_with += 1,
                Err(other) => (problem, tries_with) = (Some(other), 1),
            }
            // The first time says little: the API server may not yet know that this node has the pod.
            if tries_with == 2
                && let Some(problem) = &problem
            {
                self.tell(problem).await;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }

    async fn tell(&self, problem: &NotYet) {
        self.context.events.warn(self.pod, problem.event, &problem.message).await;
        // kubelet shows no message while a volume is missing: only the Event has it.
        let message =
            if problem.is_about_volume() { String::new() } else { problem.message.clone() };
        let containers = Containers::Waiting { reason: problem.waiting, message };
        let report = Report { containers, ..self.report.clone() };
        self.context.write_status(self.pod, &report.to_patch(self.pod)).await;
    }
}
