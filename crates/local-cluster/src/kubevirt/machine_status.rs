//! The status of a machine, in KubeVirt's words. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::objects::{
    Condition, MachineStatus, StartFailure, StateChangeRequest, VirtualMachine,
    VirtualMachineInstance, timed,
};
use super::run_strategy;

/// The generation of the machine that an instance was made from.
pub(super) const GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";
/// The longest wait is this many times the first one.
const GROWTH: u32 = 30;

/// What a status is made from.
pub(super) struct Seen<'a> {
    pub(super) machine: &'a VirtualMachine,
    pub(super) instance: Option<&'a VirtualMachineInstance>,
    /// Whether a claim of it is not bound.
    pub(super) waits_for_claim: bool,
    /// Why its instance could not be made or deleted.
    pub(super) failure: Option<String>,
    /// Whether another instance is to be started when this one is gone.
    pub(super) is_replaced: bool,
    pub(super) backoff: Duration,
    pub(super) now: Timestamp,
}

impl Seen<'_> {
    /// The whole status.
    pub(super) fn status(&self) -> MachineStatus {
        let before = self.machine.status.clone().unwrap_or_default();
        let ready = self.instance.and_then(|instance| instance.condition("Ready"));
        let mut status = MachineStatus {
            created: self.instance.is_some(),
            ready: ready.is_some_and(Condition::is_true),
            conditions: timed(self.conditions(), &before.conditions, self.now),
            observed_generation: self.observed_generation().or(before.observed_generation),
            desired_generation: self.machine.metadata.generation,
            state_change_requests: self.requests(&before),
            start_failure: self.start_failure(before.start_failure.clone()),
            ..before
        };
        // Noted first when there is an instance, so that it tells whether there ever was one.
        if status.run_strategy.is_some() || status.created {
            status.run_strategy = Some(run_strategy::of(self.machine).to_owned());
        }
        status.printable_status = self.printable(&status).to_owned();
        status
    }

    fn is_outdated(&self) -> bool {
        let template = &self.machine.spec.template.spec;
        self.instance.is_some_and(|instance| instance.spec != *template)
    }

    fn observed_generation(&self) -> Option<i64> {
        let instance = self.instance?;
        if self.is_outdated() {
            return instance.annotations().get(GENERATION_ANNOTATION)?.parse().ok();
        }
        self.machine.metadata.generation
    }

    fn requests(&self, before: &MachineStatus) -> Vec<StateChangeRequest> {
        match self.instance {
            _ if self.is_replaced => {
                vec![StateChangeRequest { action: run_strategy::START.to_owned() }]
            }
            Some(instance)
                if !instance.is_final() && instance.metadata.deletion_timestamp.is_none() =>
            {
                Vec::new()
            }
            _ => before.state_change_requests.clone(),
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = vec![self.ready()];
        if let Some(failure) = &self.failure {
            conditions.push(Condition::new("Failure", true, ("FailedCreate", failure)));
        }
        if self.is_outdated() {
            let message = "a non-live-updatable field was changed in the template spec";
            conditions.push(Condition::new("RestartRequired", true, ("", message)));
        }
        let own = ["Ready", "Failure", "RestartRequired"];
        let status = self.instance.and_then(|instance| instance.status.as_ref());
        let others = status.into_iter().flat_map(|status| &status.conditions);
        conditions.extend(others.filter(|it| !own.contains(&it.type_.as_str())).cloned());
        conditions
    }

    fn ready(&self) -> Condition {
        match (self.instance, self.instance.and_then(|instance| instance.condition("Ready"))) {
            (None, _) => Condition::new("Ready", false, ("VMINotExists", "VMI does not exist")),
            (Some(_), None) => {
                let words = ("VMIConditionMissing", "VMI is missing the Ready condition");
                Condition::new("Ready", false, words)
            }
            (Some(_), Some(ready)) => ready.clone(),
        }
    }

    /// Instances in a row that ended before they ran; each is counted once.
    fn start_failure(&self, before: Option<StartFailure>) -> Option<StartFailure> {
        let Some(instance) = self.instance else {
            let is_tried =
                matches!(run_strategy::of(self.machine), "Always" | "RerunOnFailure" | "Once");
            return before.filter(|_| is_tried);
        };
        let is_counted = |failure: &StartFailure| failure.last_failed_vmi_uid == instance.uid();
        if instance.has_run() {
            return None;
        }
        if !instance.is_final() || before.as_ref().is_some_and(is_counted) {
            return before;
        }
        let count = before.map_or(0, |failure| failure.consecutive_fail_count) + 1;
        let delay = self.backoff.saturating_mul(count.saturating_mul(count));
        let delay = delay.min(self.backoff.saturating_mul(GROWTH));
        Some(StartFailure {
            consecutive_fail_count: count,
            last_failed_vmi_uid: instance.uid(),
            retry_after_timestamp: Some(Time(self.now + delay)),
        })
    }

    /// The first that holds, in KubeVirt's own order.
    fn printable(&self, status: &MachineStatus) -> &'static str {
        let is_deleted = self.machine.metadata.deletion_timestamp.is_some();
        let Some(instance) = self.instance else {
            return match &status.start_failure {
                _ if is_deleted => "Terminating",
                Some(_) => "CrashLoopBackOff",
                None => "Stopped",
            };
        };
        let is_stopping = instance.metadata.deletion_timestamp.is_some() && !instance.is_final();
        let fails = |type_, reason| instance.fails(type_, reason);
        match instance.phase() {
            _ if is_deleted => "Terminating",
            _ if is_stopping => "Stopping",
            "Running" => "Running",
            _ if fails("Synchronized", "FailedPvcNotFound") => "ErrorPvcNotFound",
            _ if fails("PodScheduled", "Unschedulable") => "ErrorUnschedulable",
            _ if self.waits_for_claim => "WaitingForVolumeBinding",
            _ if fails("Synchronized", "ErrImagePull") => "ErrImagePull",
            _ if fails("Synchronized", "ImagePullBackOff") => "ImagePullBackOff",
            "" | "Pending" | "Scheduling" | "Scheduled" => "Starting",
            _ if status.start_failure.is_some() => "CrashLoopBackOff",
            _ => "Stopped",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "m", "generation": 3},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
        }))
        .unwrap()
    }

    fn instance(status: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "m", "uid": "u1", "annotations": {GENERATION_ANNOTATION: "2"}},
            "spec": {"domain": {"devices": {}}}, "status": status,
        }))
        .unwrap()
    }

    fn seen<'a>(
        machine: &'a VirtualMachine,
        instance: Option<&'a VirtualMachineInstance>,
    ) -> Seen<'a> {
        Seen {
            machine,
            instance,
            waits_for_claim: false,
            failure: None,
            is_replaced: false,
            backoff: Duration::from_secs(10),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn check(status: &Value, wanted: &str) {
        let instance = instance(status);
        assert_eq!(seen(&machine(), Some(&instance)).status().printable_status, wanted, "{status}");
    }

    #[test]
    fn what_is_shown_follows_from_the_instance() {
        let fails = |phase: &str, type_: &str, reason: &str| json!({"phase": phase, "conditions": [{"type": type_, "status": "False", "reason": reason}]});
        check(&json!({}), "Starting");
        check(&json!({"phase": "Scheduling"}), "Starting");
        check(&json!({"phase": "Running"}), "Running");
        check(&json!({"phase": "Succeeded"}), "CrashLoopBackOff");
        let ran = json!([{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}]);
        check(&json!({"phase": "Succeeded", "phaseTransitionTimestamps": ran}), "Stopped");
        check(&fails("Scheduling", "PodScheduled", "Unschedulable"), "ErrorUnschedulable");
        check(&fails("Pending", "Synchronized", "FailedPvcNotFound"), "ErrorPvcNotFound");
        check(&fails("Scheduling", "Synchronized", "ImagePullBackOff"), "ImagePullBackOff");
        assert_eq!(seen(&machine(), None).status().printable_status, "Stopped");
    }

    #[test]
    fn readiness_is_the_instances() {
        let without = seen(&machine(), None).status();
        assert_eq!((without.ready, &*without.conditions[0].reason), (false, "VMINotExists"));
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let with = instance(&ready);
        let with = seen(&machine(), Some(&with)).status();
        assert_eq!((with.ready, with.created, with.observed_generation), (true, true, Some(3)));
    }

    #[test]
    fn a_changed_template_needs_a_restart() {
        let mut machine = machine();
        machine.spec.template.spec.domain = json!({"devices": {}, "cpu": {"cores": 2}});
        let instance = instance(&json!({"phase": "Running"}));
        let status = seen(&machine, Some(&instance)).status();
        assert!(status.conditions.iter().any(|it| it.type_ == "RestartRequired" && it.is_true()));
        assert_eq!((status.observed_generation, status.desired_generation), (Some(2), Some(3)));
    }

    #[test]
    fn each_instance_that_never_ran_is_counted_once_and_the_wait_grows() {
        let mut machine = machine();
        let mut waits = Vec::new();
        for uid in ["u1", "u1", "u2", "u3", "u4", "u5", "u6"] {
            let mut instance = instance(&json!({"phase": "Failed"}));
            instance.metadata.uid = Some(uid.to_owned());
            let status = seen(&machine, Some(&instance)).status();
            let failure = status.start_failure.clone().unwrap();
            waits.push(failure.retry_after_timestamp.unwrap().0.as_second());
            machine.status = Some(status);
        }
        assert_eq!(waits, [10, 10, 40, 90, 160, 250, 300]);
    }
}
