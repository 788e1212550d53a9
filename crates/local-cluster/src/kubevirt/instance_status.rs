//! The status of an instance, which follows from its pod. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::objects::{
    Condition, InstanceStatus, Interface, PhaseTransition, VirtualMachineInstance, timed,
};

/// Why the pod of an instance is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a status is made from.
pub(super) struct Seen<'a> {
    pub(super) instance: &'a VirtualMachineInstance,
    pub(super) pod: Option<&'a Pod>,
    pub(super) obstacle: Option<Obstacle>,
    pub(super) now: Timestamp,
}

impl Seen<'_> {
    /// The whole status.
    pub(super) fn status(&self) -> InstanceStatus {
        let before = self.instance.status.clone().unwrap_or_default();
        let phase = self.phase();
        let mut transitions = before.phase_transition_timestamps;
        if before.phase != phase {
            transitions.push(PhaseTransition {
                phase: phase.to_owned(),
                phase_transition_timestamp: Time(self.now),
            });
        }
        InstanceStatus {
            phase: phase.to_owned(),
            node_name: self.node().or(before.node_name),
            conditions: timed(self.conditions(phase), &before.conditions, self.now),
            interfaces: self.interfaces().unwrap_or(before.interfaces),
            active_pods: self.active_pods(),
            phase_transition_timestamps: transitions,
        }
    }

    fn phase(&self) -> &'static str {
        let is_deleted = self.instance.metadata.deletion_timestamp.is_some();
        let before = self.instance.phase();
        match (before, self.pod) {
            ("Succeeded", _) => "Succeeded",
            ("Failed", _) => "Failed",
            ("" | "Pending", None) if is_deleted => "Failed",
            ("" | "Pending", None) => "Pending",
            (_, None) if is_deleted => "Succeeded",
            (_, None) => "Failed",
            (_, Some(pod)) => match pod_phase(pod) {
                "Succeeded" => "Succeeded",
                // The guest was asked to shut down, and has.
                "Failed" if is_deleted => "Succeeded",
                "Failed" => "Failed",
                _ if compute(pod).is_some_and(|it| it.started == Some(true)) => "Running",
                "Running" => "Scheduled",
                _ => "Scheduling",
            },
        }
    }

    fn conditions(&self, phase: &str) -> Vec<Condition> {
        let unscheduled = self.pod.and_then(|pod| pod_condition(pod, "PodScheduled"));
        let unscheduled = unscheduled.filter(|condition| !condition.is_true());
        let lacks_claim = self.obstacle.as_ref().filter(|it| it.reason == "FailedPvcNotFound");
        let unscheduled = unscheduled.or_else(|| {
            let words = ("Unschedulable", lacks_claim?.message.as_str());
            Some(Condition::new("PodScheduled", false, words))
        });
        let obstacle = self.obstacle.clone().or_else(|| self.pod.and_then(image_obstacle));
        let unsynchronized = obstacle
            .map(|it| Condition::new("Synchronized", false, (it.reason, it.message.as_str())));
        let ready = Some(self.ready(phase));
        [ready, unscheduled, unsynchronized].into_iter().flatten().collect()
    }

    fn ready(&self, phase: &str) -> Condition {
        let not = |reason, message| Condition::new("Ready", false, (reason, message));
        match self.pod {
            None => not("PodNotExists", "virt-launcher pod has not yet been scheduled"),
            Some(pod) if is_going(pod) => not("PodTerminating", "virt-launcher pod is terminating"),
            Some(_) if phase != "Running" => {
                not("GuestNotRunning", "Guest VM is not reported as running")
            }
            Some(pod) => pod_condition(pod, "Ready").unwrap_or_else(|| {
                not("PodConditionMissing", "virt-launcher pod is missing the Ready condition")
            }),
        }
    }

    fn node(&self) -> Option<String> {
        self.pod?.spec.as_ref()?.node_name.clone()
    }

    fn interfaces(&self) -> Option<Vec<Interface>> {
        let address = self.pod?.status.as_ref()?.pod_ip.clone()?;
        let domain = &self.instance.spec.domain;
        let name = domain["devices"]["interfaces"][0]["name"].as_str().unwrap_or("default");
        let (name, ip_addresses) = (name.to_owned(), vec![address.clone()]);
        Some(vec![Interface { name, ip_address: address, ip_addresses }])
    }

    fn active_pods(&self) -> Map<String, Value> {
        let pod = self.pod.filter(|pod| !is_going(pod));
        let node = self.node().unwrap_or_default();
        pod.and_then(Pod::uid).map(|uid| (uid, Value::from(node))).into_iter().collect()
    }
}

fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || matches!(pod_phase(pod), "Succeeded" | "Failed")
}

fn compute(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|it| it.name == "compute")
}

/// A condition of the pod, as one of the instance.
fn pod_condition(pod: &Pod, kind: &str) -> Option<Condition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|condition| condition.type_ == kind)?;
    let words = |words: &Option<String>| words.clone().unwrap_or_default();
    let (reason, message) = (words(&found.reason), words(&found.message));
    Some(Condition::new(kind, found.status == "True", (&reason, &message)))
}

/// An image of the pod that cannot be had, in the kubelet's words.
fn image_obstacle(pod: &Pod) -> Option<Obstacle> {
    let waiting = compute(pod)?.state.as_ref()?.waiting.as_ref()?;
    let reasons = ["ErrImagePull", "ImagePullBackOff"];
    let reason = reasons.into_iter().find(|it| waiting.reason.as_deref() == Some(it))?;
    Some(Obstacle { reason, message: waiting.message.clone().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::InstanceSpec;
    use super::*;

    fn instance(phase: &str) -> VirtualMachineInstance {
        let mut instance = VirtualMachineInstance::new("m", InstanceSpec::default());
        instance.status = Some(InstanceStatus { phase: phase.to_owned(), ..Default::default() });
        instance
    }

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "status": status}))
            .unwrap()
    }

    fn status(phase: &str, pod: Option<&Pod>) -> InstanceStatus {
        let instance = instance(phase);
        Seen { instance: &instance, pod, obstacle: None, now: Timestamp::UNIX_EPOCH }.status()
    }

    /// The phase of an instance whose pod is in this phase, with a guest that is up or not.
    fn check(before: &str, seen: Option<(&str, bool)>, wanted: &str) {
        let pod = seen.map(|(phase, started)| {
            let compute = json!([{"name": "compute", "started": started, "ready": started, "image": "",
                "imageID": "", "restartCount": 0}]);
            pod(&json!({"phase": phase, "containerStatuses": compute}))
        });
        assert_eq!(status(before, pod.as_ref()).phase, wanted, "{before} {seen:?}");
    }

    #[test]
    fn the_phase_follows_from_the_pod() {
        check("", None, "Pending");
        check("Pending", Some(("Pending", false)), "Scheduling");
        check("Scheduling", Some(("Running", false)), "Scheduled");
        check("Scheduled", Some(("Running", true)), "Running");
        check("Running", Some(("Succeeded", false)), "Succeeded");
        check("Running", Some(("Failed", false)), "Failed");
        check("Running", None, "Failed");
        check("Succeeded", None, "Succeeded");
    }

    #[test]
    fn what_keeps_a_pod_from_starting_stands_in_the_conditions() {
        let words = |status: &InstanceStatus, type_: &str| {
            let found = super::super::objects::find(&status.conditions, type_).unwrap();
            (found.reason.clone(), found.message.clone())
        };
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/2 nodes are available"}]);
        let pending =
            status("Pending", Some(&pod(&json!({"phase": "Pending", "conditions": unscheduled}))));
        assert_eq!(
            words(&pending, "PodScheduled"),
            ("Unschedulable".into(), "0/2 nodes are available".into())
        );
        let compute = json!([{"name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]);
        let pulling = status(
            "Scheduling",
            Some(&pod(&json!({"phase": "Pending", "containerStatuses": compute}))),
        );
        assert_eq!(words(&pulling, "Synchronized"), ("ErrImagePull".into(), "not found".into()));
        assert_eq!(words(&pulling, "Ready").0, "GuestNotRunning");
        assert_eq!(words(&status("", None), "Ready").0, "PodNotExists");
    }
}
