//! The status of a pod, as kubelet writes it. Pure.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::conditions::Transitions;
use super::container_report::ContainerReport;
use super::container_state::Termination;

const EVICTION_MESSAGE: &str = "The node was low on resource: ephemeral-storage. ";

/// A pod's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// Everything the node says about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// In the order of the pod's containers.
    pub(super) containers: Vec<ContainerReport>,
    pub(super) evicted: bool,
    pub(super) start_time: Timestamp,
    pub(super) ip: Option<IpAddr>,
    transitions: Transitions,
}

impl Report {
    /// A pod the node has seen and not started.
    pub(super) fn accepted(pod: &Pod) -> Self {
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        Self {
            containers: vec![ContainerReport::creating(); containers],
            evicted: false,
            start_time: Timestamp::now(),
            ip: None,
            transitions: Transitions::default(),
        }
    }

    /// The phase that follows from the containers. One that has ended is not started again.
    pub(super) fn phase(&self) -> Phase {
        let ends: Vec<_> = self.containers.iter().filter_map(ContainerReport::end).collect();
        if self.evicted {
            Phase::Failed
        } else if ends.len() == self.containers.len() {
            let succeeded = ends.into_iter().all(Termination::succeeded);
            if succeeded { Phase::Succeeded } else { Phase::Failed }
        } else if self.containers.iter().any(ContainerReport::never_ran) {
            Phase::Pending
        } else {
            Phase::Running
        }
    }

    /// Whether the pod has its address, and something that uses it.
    pub(super) fn has_sandbox(&self) -> bool {
        self.ip.is_some() && self.containers.iter().any(|container| container.end().is_none())
    }

    /// Ends every container that has not ended: as it did last, if it ever ran.
    pub(super) fn end_rest(&mut self) {
        for container in &mut self.containers {
            if container.end().is_none() {
                let end = container.last.clone().unwrap_or_else(Termination::unknown);
                container.end_as(end);
            }
        }
    }

    /// Ends every container in this way.
    pub(super) fn end_all(&mut self, end: impl Fn(&ContainerReport) -> Termination) {
        for container in &mut self.containers {
            container.end_as(end(container));
        }
    }

    /// The status as a strategic merge patch.
    pub(super) fn patch(&mut self, pod: &Pod) -> Value {
        let mut transitions = std::mem::take(&mut self.transitions);
        let conditions = transitions.note(pod, self);
        self.transitions = transitions;
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let statuses = containers.iter().zip(&self.containers);
        let statuses: Vec<_> = statuses.map(|(it, report)| report.to_json(it)).collect();
        let mut status = json!({
            "phase": self.phase().name(),
            "startTime": self.start_time.to_string(),
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "containerStatuses": statuses,
            "conditions": conditions,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(containers: usize) -> Pod {
        let containers: Vec<_> =
            (0..containers).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
        serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}),
        )
        .expect("a pod")
    }

    fn ended(code: i32) -> ContainerReport {
        let mut container = ContainerReport::creating();
        container.end_as(Termination::with_code(code, None, String::new()));
        container
    }

    fn running() -> ContainerReport {
        let mut container = ContainerReport::creating();
        container.run(Timestamp::now());
        container
    }

    fn crashing() -> ContainerReport {
        let mut container = ContainerReport::creating();
        container.last = ended(1).end().cloned();
        container
    }

    fn check(containers: Vec<ContainerReport>, wanted: Phase) {
        let mut report = Report::accepted(&pod(containers.len()));
        report.containers = containers;
        assert_eq!(report.phase(), wanted, "{report:?}");
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        check(vec![ContainerReport::creating()], Phase::Pending);
        check(vec![running(), ContainerReport::creating()], Phase::Pending);
        check(vec![running(), running()], Phase::Running);
        check(vec![crashing()], Phase::Running);
        check(vec![ended(0), running()], Phase::Running);
        check(vec![ended(1), running()], Phase::Running);
        check(vec![ended(0), ended(0)], Phase::Succeeded);
        check(vec![ended(0), ended(1)], Phase::Failed);
    }

    fn condition(patch: &Value, kind: &str) -> Value {
        let conditions = patch["conditions"].as_array().expect("conditions");
        conditions.iter().find(|condition| condition["type"] == kind).cloned().expect(kind)
    }

    #[test]
    fn a_pod_is_ready_when_all_its_containers_are() {
        let pod = pod(2);
        let mut report = Report::accepted(&pod);
        report.containers = vec![running(), running()];
        report.containers[0].ready = true;
        let unready = condition(&report.patch(&pod), "Ready");
        assert_eq!(
            (&unready["status"], &unready["reason"]),
            (&json!("False"), &json!("ContainersNotReady"))
        );
        assert_eq!(unready["message"], "containers with unready status: [c1]");
        report.containers[1].ready = true;
        assert_eq!(condition(&report.patch(&pod), "ContainersReady")["status"], "True");
    }

    #[test]
    fn a_condition_keeps_its_time_while_it_stays_what_it_is() {
        let pod = pod(1);
        let mut report = Report::accepted(&pod);
        let first = condition(&report.patch(&pod), "Ready");
        report.containers = vec![running()];
        assert_eq!(condition(&report.patch(&pod), "Ready"), first);
        report.containers[0].ready = true;
        assert_ne!(
            condition(&report.patch(&pod), "Ready")["lastTransitionTime"],
            first["lastTransitionTime"]
        );
    }

    #[test]
    fn a_container_that_never_ran_ends_as_unknown() {
        let mut report = Report::accepted(&pod(2));
        report.containers = vec![crashing(), ContainerReport::creating()];
        report.end_rest();
        let codes: Vec<_> =
            report.containers.iter().filter_map(|it| it.end().map(|end| end.exit_code)).collect();
        assert_eq!(codes, [1, 137]);
    }
}
