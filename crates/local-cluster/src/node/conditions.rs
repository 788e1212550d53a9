//! The conditions of a pod, as kubelet writes them. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::pod_status::{Phase, Report};

/// Since when each condition is what it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Transitions(BTreeMap<&'static str, (bool, Timestamp)>);

struct Condition {
    kind: &'static str,
    is_true: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Condition {
    fn new(kind: &'static str, is_true: bool) -> Self {
        Self { kind, is_true, reason: None, message: None }
    }
}

impl Transitions {
    /// The conditions as JSON; notes which have changed.
    pub(super) fn note(&mut self, pod: &Pod, report: &Report) -> Vec<Value> {
        conditions(pod, report).into_iter().map(|condition| self.told(condition)).collect()
    }

    fn told(&mut self, condition: Condition) -> Value {
        let Condition { kind, is_true, reason, message } = condition;
        let known = self.0.get(kind).filter(|(was_true, _)| *was_true == is_true);
        let since = known.map_or_else(Timestamp::now, |(_, since)| *since);
        self.0.insert(kind, (is_true, since));
        json!({
            "type": kind,
            "status": if is_true { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": since.to_string(),
        })
    }
}

fn conditions(pod: &Pod, report: &Report) -> Vec<Condition> {
    let mut conditions = vec![
        Condition::new("PodReadyToStartContainers", report.has_sandbox()),
        Condition::new("Initialized", true),
        ready("Ready", pod, report),
        ready("ContainersReady", pod, report),
    ];
    if !is_scheduled(pod) {
        conditions.push(Condition::new("PodScheduled", true));
    }
    if report.evicted {
        let reason = Some("TerminationByKubelet");
        conditions.push(Condition { reason, ..Condition::new("DisruptionTarget", true) });
    }
    conditions
}

/// The scheduler has said so of every pod that was not made with a node.
fn is_scheduled(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "PodScheduled")
}

fn ready(kind: &'static str, pod: &Pod, report: &Report) -> Condition {
    let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
    let names = containers.iter().zip(&report.containers);
    let unready: Vec<_> =
        names.filter(|(_, report)| !report.ready).map(|(it, _)| it.name.as_str()).collect();
    let (reason, message) = match report.phase() {
        Phase::Succeeded => ("PodCompleted", None),
        Phase::Failed => ("PodFailed", None),
        Phase::Pending | Phase::Running if unready.is_empty() => return Condition::new(kind, true),
        Phase::Pending | Phase::Running => {
            let names = unready.join(" ");
            ("ContainersNotReady", Some(format!("containers with unready status: [{names}]")))
        }
    };
    Condition { reason: Some(reason), message, ..Condition::new(kind, false) }
}
