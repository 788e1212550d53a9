//! Deployments, pods and machines in verbs, for the tables of this module.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use otctl_types::workspace::{Container, Instance, RunStrategy};
use serde_json::{Value, json};

use crate::machines::VirtualMachine;

/// An entry of the name `api` with so many pods.
pub(super) fn entry(replicas: i32) -> Container {
    Container { name: "api".to_owned(), replicas, ..Container::default() }
}

/// A Deployment that asks for so many pods, of which its controller has said nothing yet.
pub(super) fn deployment(replicas: i32) -> Made {
    Made(json!({
        "metadata": {"name": "lab--api", "generation": 2},
        "spec": {"replicas": replicas, "selector": {}, "template": {}},
        "status": {},
    }))
}

pub(super) struct Made(Value);

impl Made {
    /// Its controller has seen that generation.
    pub(super) fn seen(mut self, generation: i64) -> Self {
        self.0["status"]["observedGeneration"] = json!(generation);
        self
    }

    /// It was changed so often, and made before that.
    pub(super) fn generation(mut self, generation: i64) -> Self {
        self.0["metadata"]["generation"] = json!(generation);
        self
    }

    /// So many pods in all, of the last spec, and ready.
    pub(super) fn pods(mut self, all: i32, updated: i32, available: i32) -> Self {
        let status = &mut self.0["status"];
        status["replicas"] = json!(all);
        status["updatedReplicas"] = json!(updated);
        status["availableReplicas"] = json!(available);
        self
    }

    /// As the API server writes that none is ready: not at all.
    pub(super) fn none_available(mut self) -> Self {
        self.0["status"]["availableReplicas"] = Value::Null;
        self
    }

    pub(super) fn says(mut self, kind: &str, status: &str, reason: &str, message: &str) -> Self {
        let condition =
            json!({"type": kind, "status": status, "reason": reason, "message": message});
        match self.0["status"]["conditions"].as_array_mut() {
            Some(all) => all.push(condition),
            None => self.0["status"]["conditions"] = json!([condition]),
        }
        self
    }

    pub(super) fn paused(mut self) -> Self {
        self.0["spec"]["paused"] = json!(true);
        self
    }

    pub(super) fn read(self) -> Deployment {
        serde_json::from_value(self.0).expect("a Deployment")
    }
}

/// A pod of that name with a container `api` of which nothing is known.
pub(super) fn pod(name: &str) -> Running {
    Running {
        pod: json!({"metadata": {"name": name}, "status": {"phase": "Pending", "conditions": []}}),
        container: json!({"name": "api", "ready": false, "restartCount": 0, "image": "", "imageID": ""}),
    }
}

/// A pod on a node.
pub(super) struct Running {
    pod: Value,
    container: Value,
}

impl Running {
    pub(super) fn unscheduled(mut self, message: &str) -> Self {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        self.pod["status"]["conditions"] = json!([condition]);
        self.container = Value::Null;
        self
    }

    pub(super) fn waits(mut self, reason: &str, message: &str) -> Self {
        self.container["state"] = json!({"waiting": {"reason": reason, "message": message}});
        self
    }

    pub(super) fn runs(mut self, ready: bool) -> Self {
        self.container["state"] = json!({"running": {}});
        self.container["ready"] = json!(ready);
        self.pod["status"]["phase"] = json!("Running");
        self
    }

    /// It has just ended.
    pub(super) fn ended(mut self, exit_code: i32, reason: &str, message: &str) -> Self {
        let end = json!({"exitCode": exit_code, "reason": reason, "message": message});
        self.container["state"] = json!({"terminated": end});
        self
    }

    /// It ended before, and so often.
    pub(super) fn before(mut self, restarts: i32, exit_code: i32, message: &str) -> Self {
        let end = json!({"exitCode": exit_code, "reason": "Error", "message": message});
        self.container["lastState"] = json!({"terminated": end});
        self.container["restartCount"] = json!(restarts);
        self
    }

    /// It is about another container of the pod.
    pub(super) fn of_container(mut self, name: &str) -> Self {
        self.container["name"] = json!(name);
        self
    }

    pub(super) fn phase(mut self, phase: &str, reason: &str, message: &str) -> Self {
        let status = &mut self.pod["status"];
        status["phase"] = json!(phase);
        (status["reason"], status["message"]) = (json!(reason), json!(message));
        self
    }

    pub(super) fn going(mut self) -> Self {
        self.pod["metadata"]["deletionTimestamp"] = json!("2026-05-01T12:00:00Z");
        self
    }

    pub(super) fn read(self) -> Arc<Pod> {
        let mut pod: Pod = serde_json::from_value(self.pod).expect("a pod");
        let status: Option<ContainerStatus> =
            serde_json::from_value(self.container).expect("the status of a container");
        pod.status.get_or_insert_default().container_statuses = status.map(|it| vec![it]);
        Arc::new(pod)
    }
}

/// An entry that runs a machine so.
pub(super) fn instance(run_strategy: RunStrategy) -> Instance {
    Instance { run_strategy, memory: Some("1Gi".to_owned()), ..Instance::default() }
}

/// A machine with that strategy and that word of KubeVirt.
pub(super) fn machine(strategy: RunStrategy, word: &str) -> Machine {
    Machine(json!({
        "metadata": {"name": "lab--db", "namespace": "labs", "generation": 2},
        "spec": {"runStrategy": strategy.as_str()},
        "status": {"printableStatus": word, "observedGeneration": 2},
    }))
}

pub(super) struct Machine(Value);

impl Machine {
    /// An instance exists.
    pub(super) fn created(mut self) -> Self {
        self.0["status"]["created"] = json!(true);
        self
    }

    pub(super) fn ready(mut self) -> Self {
        self.0["status"]["ready"] = json!(true);
        self
    }

    pub(super) fn seen(mut self, generation: Option<i64>) -> Self {
        self.0["status"]["observedGeneration"] = json!(generation);
        self
    }

    pub(super) fn says(mut self, kind: &str, status: &str, message: &str) -> Self {
        self.0["status"]["conditions"] =
            json!([{"type": kind, "status": status, "message": message}]);
        self
    }

    pub(super) fn unseen(mut self) -> Self {
        self.0["status"] = Value::Null;
        self
    }

    pub(super) fn read(self) -> VirtualMachine {
        serde_json::from_value(self.0).expect("a machine")
    }
}
