//! What the node says about one container. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};

use super::container_state::Termination;

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(Termination),
}

/// Everything the node says about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerReport {
    pub(super) state: State,
    /// Whether its startup probe has succeeded, or it has none.
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    pub(super) last: Option<Termination>,
}

impl ContainerReport {
    /// A container that was not started yet.
    pub(super) fn creating() -> Self {
        Self {
            state: State::Waiting { reason: "ContainerCreating", message: String::new() },
            started: false,
            ready: false,
            restarts: 0,
            last: None,
        }
    }

    /// How it ended for good.
    pub(super) fn end(&self) -> Option<&Termination> {
        match &self.state {
            State::Ended(end) => Some(end),
            State::Waiting { .. } | State::Running { .. } => None,
        }
    }

    /// True if it waits for its first start.
    pub(super) fn never_ran(&self) -> bool {
        matches!(self.state, State::Waiting { .. }) && self.last.is_none()
    }

    pub(super) fn run(&mut self, since: Timestamp) {
        self.become_(State::Running { since });
    }

    pub(super) fn wait(&mut self, reason: &'static str, message: String) {
        self.become_(State::Waiting { reason, message });
    }

    pub(super) fn end_as(&mut self, end: Termination) {
        self.become_(State::Ended(end));
    }

    /// A container that is only now started is neither started nor ready; its probes say when.
    fn become_(&mut self, state: State) {
        self.state = state;
        self.started = false;
        self.ready = false;
    }

    /// The status as JSON.
    pub(super) fn to_json(&self, container: &Container) -> Value {
        let has_process = !matches!(self.state, State::Waiting { .. });
        let image = container.image.clone().unwrap_or_default();
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": if has_process { image } else { String::new() },
            "containerID": has_process.then(|| format!("process://{}-{}", container.name, self.restarts)),
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": state(&self.state),
            "lastState": self.last.as_ref().map_or(json!({}), terminated),
        })
    }
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => {
            json!({"waiting": {"reason": reason}})
        }
        State::Waiting { reason, message } => {
            json!({"waiting": {"reason": reason, "message": message}})
        }
        State::Running { since } => json!({"running": {"startedAt": since.to_string()}}),
        State::Ended(end) => terminated(end),
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
