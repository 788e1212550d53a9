//! The status of a pod, as kubelet writes it. Pure.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::container_state::Termination;

const EVICTION_MESSAGE: &str = "The node was low on resource: ephemeral-storage. ";

/// What the containers of a pod are doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Containers {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(Termination),
}

/// A pod's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// Everything the node says about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) phase: Phase,
    pub(super) containers: Containers,
    pub(super) evicted: bool,
    pub(super) restarts: u32,
    pub(super) last: Option<Termination>,
    pub(super) start_time: Timestamp,
    pub(super) ip: Option<IpAddr>,
}

impl Report {
    /// A pod the node has seen and not started.
    pub(super) fn accepted() -> Self {
        Self {
            phase: Phase::Pending,
            containers: Containers::Waiting { reason: "ContainerCreating", message: String::new() },
            evicted: false,
            restarts: 0,
            last: None,
            start_time: Timestamp::now(),
            ip: None,
        }
    }

    /// Ends the pod for good.
    pub(super) fn end(&mut self, end: Termination) {
        self.phase = if end.succeeded() { Phase::Succeeded } else { Phase::Failed };
        self.containers = Containers::Ended(end);
    }

    /// Ends the pod as evicted, its containers ended this way.
    pub(super) fn evict(&mut self, end: Termination) {
        self.phase = Phase::Failed;
        self.containers = Containers::Ended(end);
        self.evicted = true;
    }

    /// The status as a strategic merge patch.
    pub(super) fn to_patch(&self, pod: &Pod) -> Value {
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let statuses: Vec<_> =
            containers.iter().map(|container| self.container(container)).collect();
        let mut status = json!({
            "phase": self.phase_name(),
            "startTime": self.start_time.to_string(),
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "containerStatuses": statuses,
            "conditions": self.conditions(),
        });
        if let Some(ip) = self.ip {
            status["podIP"] = json!(ip);
            status["podIPs"] = json!([{"ip": ip}]);
        }
        if self.evicted {
            status["reason"] = json!("Evicted");
            status["message"] = json!(EVICTION_MESSAGE);
        }
        status
    }

    fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }

    fn container(&self, container: &Container) -> Value {
        let running = matches!(self.containers, Containers::Running { .. });
        let started = !matches!(self.containers, Containers::Waiting { .. });
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": if started { container.image.clone().unwrap_or_default() } else { String::new() },
            "containerID": started.then(|| format!("process://{}-{}", container.name, self.restarts)),
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
            "state": state(&self.containers),
            "lastState": self.last.as_ref().map_or(json!({}), terminated),
        })
    }

    fn conditions(&self) -> Vec<Value> {
        let now = Timestamp::now();
        let unready = match self.phase {
            Phase::Pending | Phase::Running => "ContainersNotReady",
            Phase::Succeeded => "PodCompleted",
            Phase::Failed => "PodFailed",
        };
        let ready = match self.containers {
            Containers::Running { .. } => ("True", None),
            Containers::Waiting { .. } | Containers::Ended(_) => ("False", Some(unready)),
        };
        let sandbox = if matches!(ready, ("True", _)) { "True" } else { "False" };
        let mut conditions = vec![
            condition("PodReadyToStartContainers", (sandbox, None), now),
            condition("Initialized", ("True", None), self.start_time),
            condition("Ready", ready, now),
            condition("ContainersReady", ready, now),
        ];
        if self.evicted {
            let cause = ("True", Some("TerminationByKubelet"));
            conditions.push(condition("DisruptionTarget", cause, now));
        }
        conditions
    }
}

fn condition(kind: &str, (status, reason): (&str, Option<&str>), since: Timestamp) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since.to_string()})
}

fn state(containers: &Containers) -> Value {
    match containers {
        Containers::Waiting { reason, message } if message.is_empty() => {
            json!({"waiting": {"reason": reason}})
        }
        Containers::Waiting { reason, message } => {
            json!({"waiting": {"reason": reason, "message": message}})
        }
        Containers::Running { since } => json!({"running": {"startedAt": since.to_string()}}),
        Containers::Ended(end) => terminated(end),
    }
}

fn terminated(end: &Termination) -> Value {
    json!({"terminated": {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "message": end.message,
        "startedAt": end.started_at.map(|at| at.to_string()),
        "finishedAt": end.finished_at.to_string(),
    }})
}
