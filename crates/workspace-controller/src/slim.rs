//! What of a pod is kept in memory. A decision that reads one more field takes it off the list here.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// Of a pod: whose it is, whether it is ready, and what its containers say.
pub fn pod(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.spec = None;
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        conditions: status.conditions,
        container_statuses: status.container_statuses.map(told),
        init_container_statuses: status.init_container_statuses.map(told),
        ..PodStatus::default()
    });
}

fn told(statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    let kept = |it: ContainerStatus| ContainerStatus {
        name: it.name,
        ready: it.ready,
        started: it.started,
        restart_count: it.restart_count,
        state: it.state,
        last_state: it.last_state,
        ..ContainerStatus::default()
    };
    statuses.into_iter().map(kept).collect()
}
