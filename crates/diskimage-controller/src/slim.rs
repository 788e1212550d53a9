//! What of a child is kept in memory: with ten thousand images, whole Jobs and pods would be most of the controller.
//! A decision that reads one more field takes it off the list here; the tests of this file say which are read.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, Pod, PodSpec, PodStatus, PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use otctl_types::import::PROGRESS_KEY_VARIABLE;

/// Of a Job: what it does, whether it was started, how it ended, and how its import is reached.
pub fn job(job: &mut Job) {
    job.metadata.annotations = None;
    let Some(spec) = job.spec.take() else { return };
    job.spec = Some(JobSpec {
        suspend: spec.suspend,
        backoff_limit: spec.backoff_limit,
        parallelism: spec.parallelism,
        completions: spec.completions,
        pod_replacement_policy: spec.pod_replacement_policy,
        template: PodTemplateSpec { metadata: None, spec: spec.template.spec.map(carried_out) },
        ..JobSpec::default()
    });
}

/// What it does, and for how long at most.
fn carried_out(pod: PodSpec) -> PodSpec {
    let claims = pod.volumes.map(|all| {
        all.into_iter().filter(|volume| volume.persistent_volume_claim.is_some()).collect()
    });
    PodSpec {
        containers: pod.containers.into_iter().take(1).map(told_apart).collect(),
        volumes: claims,
        restart_policy: pod.restart_policy,
        active_deadline_seconds: pod.active_deadline_seconds,
        ..PodSpec::default()
    }
}

/// What it runs, and the key of an import.
fn told_apart(container: Container) -> Container {
    let is_key = |name: &str| name == PROGRESS_KEY_VARIABLE;
    Container {
        command: container.command,
        args: container.args,
        env: container.env.map(|all| all.into_iter().filter(|it| is_key(&it.name)).collect()),
        ..Container::default()
    }
}

/// Of a pod: where it is reached, whether it ran, and how it ended.
pub fn pod(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        node_name: spec.node_name,
        containers: spec
            .containers
            .into_iter()
            .take(1)
            .map(|container| Container { ports: container.ports, ..Container::default() })
            .collect(),
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        pod_ip: status.pod_ip,
        conditions: status.conditions.map(|all| {
            all.into_iter().filter(|condition| condition.type_ == "PodScheduled").collect()
        }),
        container_statuses: status.container_statuses.map(|all| {
            all.into_iter()
                .map(|it| ContainerStatus { state: it.state, ..ContainerStatus::default() })
                .collect()
        }),
        ..PodStatus::default()
    });
}

/// Of a claim: whose it is, whether it is bound, and the proof that it is finished.
pub fn claim(claim: &mut PersistentVolumeClaim) {
    keep_our_annotations(&mut claim.metadata);
    claim.spec = claim.spec.take().map(|spec| PersistentVolumeClaimSpec {
        storage_class_name: spec.storage_class_name,
        data_source: spec.data_source,
        ..PersistentVolumeClaimSpec::default()
    });
    claim.status = claim.status.take().map(|status| PersistentVolumeClaimStatus {
        phase: status.phase,
        ..PersistentVolumeClaimStatus::default()
    });
}

fn keep_our_annotations(metadata: &mut ObjectMeta) {
    let ours = |annotations: BTreeMap<String, String>| {
        annotations.into_iter().filter(|(name, _)| name.starts_with("pelotech.ot/")).collect()
    };
    metadata.annotations = metadata.annotations.take().map(ours);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerPort, ContainerState, ContainerStateTerminated, EnvVar, PodCondition,
    };

    use super::*;
    use crate::imports::Import;
    use crate::jobs;

    fn read<K: serde::de::DeserializeOwned>(json: serde_json::Value) -> K {
        serde_json::from_value(json).expect("the test's own object")
    }

    /// A pod template as a mesh might have blown it up.
    fn big_pod() -> PodSpec {
        let variable = |name: &str| EnvVar {
            name: name.to_owned(),
            value: Some("secret".to_owned()),
            value_from: None,
        };
        let container = Container {
            name: "importer".to_owned(),
            args: Some(vec!["--url=http://host/a".to_owned(), "--bandwidth-share=7".to_owned()]),
            env: Some(vec![variable(PROGRESS_KEY_VARIABLE), variable("OTHER")]),
            ports: Some(vec![ContainerPort { container_port: 8080, ..ContainerPort::default() }]),
            ..Container::default()
        };
        PodSpec {
            containers: vec![container.clone(), container],
            active_deadline_seconds: Some(60),
            ..PodSpec::default()
        }
    }

    #[test]
    fn a_job_keeps_what_is_read_of_it() {
        let mut whole: Job = read(serde_json::json!({
            "metadata": {"name": "a-1-a1", "uid": "u", "generation": 2, "labels": {"l": "v"},
                "annotations": {"a": "v"}, "finalizers": ["f"]},
            "spec": {"suspend": false, "template": {"spec": big_pod(), "metadata": {"labels": {"l": "v"}}}},
            "status": {"startTime": "2026-05-01T12:00:00Z", "conditions": [
                {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
        }));
        let (import, failure) =
            (Import::of(&whole), jobs::failure_reason(&whole).map(str::to_owned));
        job(&mut whole);
        assert_eq!(Import::of(&whole), import);
        assert_eq!(import.fallback, Some(7));
        assert_eq!(jobs::failure_reason(&whole).map(str::to_owned), failure);
        assert!(jobs::start_time(&whole).is_some());
        assert!(whole.metadata.finalizers.is_some() && whole.metadata.labels.is_some());
        let pod = whole.spec.unwrap().template.spec.unwrap();
        assert_eq!((pod.containers.len(), pod.containers[0].env.as_ref().unwrap().len()), (1, 1));
        assert_eq!(pod.active_deadline_seconds, Some(60));
    }

    #[test]
    fn a_pod_keeps_what_is_read_of_it() {
        let end = ContainerStateTerminated {
            exit_code: 1,
            message: Some("{}".to_owned()),
            ..ContainerStateTerminated::default()
        };
        let ended = ContainerStatus {
            name: "importer".to_owned(),
            image: "x".repeat(1000),
            state: Some(ContainerState { terminated: Some(end), ..ContainerState::default() }),
            ..ContainerStatus::default()
        };
        let condition =
            |kind: &str| PodCondition { type_: kind.to_owned(), ..PodCondition::default() };
        let mut whole = Pod { spec: Some(big_pod()), ..Pod::default() };
        whole.status = Some(PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some("Evicted".to_owned()),
            pod_ip: Some("10.0.0.1".to_owned()),
            conditions: Some(vec![condition("PodScheduled"), condition("Ready")]),
            container_statuses: Some(vec![ended]),
            ..PodStatus::default()
        });
        pod(&mut whole);
        assert!(jobs::pod_has_ended(&whole) && jobs::pod_has_run(&whole));
        assert_eq!(jobs::termination(&whole).unwrap().message.as_deref(), Some("{}"));
        let status = whole.status.as_ref().unwrap();
        assert_eq!(status.reason.as_deref(), Some("Evicted"));
        assert_eq!(status.conditions.as_ref().unwrap().len(), 1);
        let container = &whole.spec.as_ref().unwrap().containers[0];
        assert_eq!(container.ports.as_ref().unwrap()[0].container_port, 8080);
        assert!(container.env.is_none(), "the key is the Job's to tell");
    }

    #[test]
    fn a_claim_keeps_its_proof() {
        let mut whole: PersistentVolumeClaim = read(serde_json::json!({
            "metadata": {"name": "a", "annotations": {
                otctl_types::names::DISK_CHECKSUM_ANNOTATION: "sha256:d", "pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"storageClassName": "fast", "volumeName": "pvc-1"}, "status": {"phase": "Pending"},
        }));
        claim(&mut whole);
        assert!(crate::children::claim::is_finished(&whole));
        assert!(!jobs::is_bound(&whole));
        assert_eq!(whole.metadata.annotations.unwrap().len(), 1);
    }
}
