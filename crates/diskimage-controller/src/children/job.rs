//! What probe and import Jobs have in common: one pod that is never restarted, in a restricted security context, with
//! no credentials of the API. What tells them from a Job that only bears a name and an owner of ours is in `errand`.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSecurityContext,
    PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecretVolumeSource,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;
use otctl_types::diskimage::VMDiskImageSpec;
use otctl_types::names::{ATTEMPT_ANNOTATION, ROLE_LABEL};

use crate::children::Facts;
use crate::names::{JobRole, job_name};

/// User and group that own a disk, as KubeVirt and CDI expect.
const DISK_OWNER: i64 = 107;
/// Where the Secret of the source is mounted.
const SECRET_PATH: &str = "/secret";
/// The program of the importer's image.
pub(super) const PROGRAM: &str = "/disk-importer";

/// What differs between a probe and an import.
pub(super) struct Task {
    /// Which of the two.
    pub(super) role: JobRole,
    /// Arguments.
    pub(super) arguments: Vec<String>,
    /// Environment besides the pod's own name.
    pub(super) environment: Vec<EnvVar>,
    /// The container, with mounts and devices.
    pub(super) container: Container,
    /// Volumes besides the Secret.
    pub(super) volumes: Vec<Volume>,
    /// Longest it may take.
    pub(super) deadline: Deadline,
    /// How long it stays once it has ended, in seconds; for ever, if none: until it is deleted here.
    pub(super) ttl_seconds: Option<i32>,
    /// Created unstarted.
    pub(super) is_suspended: bool,
}

/// What the time of a task is counted from, in seconds.
#[derive(Clone, Copy)]
pub(super) enum Deadline {
    /// The start of its Job.
    OfJob(i64),
    /// The moment a node has taken its pod: waiting for room or for a volume does not count.
    OfPod(i64),
}

impl Deadline {
    fn of_job(self) -> Option<i64> {
        match self {
            Self::OfJob(seconds) => Some(seconds),
            Self::OfPod(_) => None,
        }
    }

    fn of_pod(self) -> Option<i64> {
        match self {
            Self::OfPod(seconds) => Some(seconds),
            Self::OfJob(_) => None,
        }
    }
}

/// The Job of a task.
pub(super) fn job(facts: &Facts<'_>, task: Task) -> Job {
    let role = task.role;
    let name = job_name(&facts.name(), &facts.uid(), facts.revision, role, facts.number);
    let mut metadata = facts.meta(name, role.as_str());
    metadata.labels.get_or_insert_default().insert(ROLE_LABEL.to_owned(), role.as_str().to_owned());
    metadata
        .annotations
        .get_or_insert_default()
        .insert(ATTEMPT_ANNOTATION.to_owned(), facts.number.to_string());
    let template = ObjectMeta {
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    Job {
        metadata,
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            pod_replacement_policy: Some("Failed".to_owned()),
            active_deadline_seconds: task.deadline.of_job(),
            ttl_seconds_after_finished: task.ttl_seconds,
            suspend: Some(task.is_suspended),
            template: PodTemplateSpec { metadata: Some(template), spec: Some(pod(facts, task)) },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod(facts: &Facts<'_>, task: Task) -> PodSpec {
    let mut volumes = task.volumes;
    volumes.extend(secret_volume(facts));
    let mut container = task.container;
    container.name = "importer".to_owned();
    container.image = Some(facts.settings.importer_image.clone());
    container.image_pull_policy = Some(facts.settings.importer_pull_policy.clone());
    container.command = Some(vec![PROGRAM.to_owned()]);
    container.args = Some(task.arguments);
    container.env = Some(task.environment.into_iter().chain(own_fields()).collect());
    container.resources = Some(resources(facts));
    container.security_context = Some(restricted());
    container.termination_message_policy = Some("File".to_owned());
    container.volume_mounts.get_or_insert_default().extend(secret_mount(facts));
    PodSpec {
        containers: vec![container],
        volumes: Some(volumes),
        restart_policy: Some("Never".to_owned()),
        active_deadline_seconds: task.deadline.of_pod(),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(10),
        security_context: Some(pod_context()),
        ..PodSpec::default()
    }
}

/// The arguments that name the source in spec.
pub(super) fn named_source(spec: &VMDiskImageSpec) -> Vec<String> {
    vec![format!("--url={}", spec.url), format!("--source-type={}", spec.source_type.as_str())]
}

/// The arguments that say where the source is and what may be reached.
pub(super) fn source_arguments(facts: &Facts<'_>) -> Vec<String> {
    let spec = &facts.image.spec;
    let refused: Vec<String> =
        facts.settings.refused_addresses.iter().map(ToString::to_string).collect();
    let mut arguments = named_source(spec);
    arguments.extend([
        format!("--allowed-source-hosts={}", facts.policy.allowed_source_hosts),
        format!("--refused-addresses={}", refused.join(",")),
        format!("--stall-timeout={}", facts.policy.stall_timeout.as_secs()),
        // Said although it is the default: whoever runs the pod finds its paths in its arguments.
        "--termination-log=/dev/termination-log".to_owned(),
    ]);
    arguments.extend(facts.policy.max_image_size.map(|bytes| format!("--max-image-size={bytes}")));
    arguments.extend(spec.secret_ref.as_ref().map(|_| format!("--secret-dir={SECRET_PATH}")));
    arguments
}

/// The Secret is optional to the kubelet, so that the importer, not an event, says that it is missing.
fn secret_volume(facts: &Facts<'_>) -> Option<Volume> {
    let name = facts.image.spec.secret_ref.clone()?;
    let secret = SecretVolumeSource {
        secret_name: Some(name),
        optional: Some(true),
        default_mode: Some(0o440),
        items: None,
    };
    Some(Volume { name: "secret".to_owned(), secret: Some(secret), ..Volume::default() })
}

fn secret_mount(facts: &Facts<'_>) -> Option<VolumeMount> {
    facts.image.spec.secret_ref.as_ref()?;
    Some(VolumeMount {
        name: "secret".to_owned(),
        mount_path: SECRET_PATH.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    })
}

fn own_fields() -> [EnvVar; 2] {
    [("POD_UID", "metadata.uid"), ("POD_IP", "status.podIP")].map(|(name, path)| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
    })
}

fn resources(facts: &Facts<'_>) -> ResourceRequirements {
    let memory = Quantity(facts.settings.importer_memory.clone());
    let requests = [
        ("cpu".to_owned(), Quantity(facts.settings.importer_cpu.clone())),
        ("memory".to_owned(), memory.clone()),
    ];
    let limits = [
        ("memory".to_owned(), memory),
        ("ephemeral-storage".to_owned(), Quantity("64Mi".to_owned())),
    ];
    ResourceRequirements {
        requests: Some(requests.into()),
        limits: Some(limits.into()),
        claims: None,
    }
}

fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}

fn pod_context() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(DISK_OWNER),
        run_as_group: Some(DISK_OWNER),
        fs_group: Some(DISK_OWNER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}
