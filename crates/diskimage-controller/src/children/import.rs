//! The Job that fetches the data. Created unstarted, put on record, and only then started.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PersistentVolumeClaimVolumeSource, Volume, VolumeDevice,
    VolumeMount,
};
use kube::ResourceExt;
use kube::core::DynamicObject;
use otctl_kit::cluster::erase;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{VMDiskImageSpec, VolumeMode};
use otctl_types::import::PROGRESS_KEY_VARIABLE;
use serde_json::json;

use crate::bandwidth;
use crate::children::Facts;
use crate::children::errand::Errand;
use crate::children::job::{Deadline, Task, job as build, named_source, source_arguments};
use crate::imports::SHARE_ARGUMENT;
use crate::names::{self, JobRole};

/// Where the disk's file system is mounted.
const DISK_PATH: &str = "/disk";
/// Where the disk's device is.
const DEVICE_PATH: &str = "/dev/disk";
/// Where the download is kept.
const SCRATCH_PATH: &str = "/scratch";

/// The import of an attempt, not started.
pub fn job(facts: &Facts<'_>) -> Job {
    let key = EnvVar {
        name: PROGRESS_KEY_VARIABLE.to_owned(),
        value: Some(facts.progress_key.to_owned()),
        value_from: None,
    };
    let task = Task {
        role: JobRole::Import,
        arguments: arguments(facts),
        environment: vec![key],
        container: container(facts),
        volumes: vec![
            volume("disk", facts.data_name()),
            volume("scratch", names::scratch_name(&facts.name(), facts.revision)),
        ],
        deadline: Deadline::OfPod(
            i64::try_from(facts.policy.attempt_timeout.as_secs()).unwrap_or(i64::MAX),
        ),
        // Its pod alone knows how it ended, and whoever should read that may be away for longer than any time to live.
        ttl_seconds: None,
        is_suspended: true,
    };
    build(facts, task)
}

/// The change that starts a Job that was read.
pub fn started(job: &Job) -> Box<DynamicObject> {
    let mut object = erase(&Job::default());
    object.metadata.name = Some(job.name_any());
    object.metadata.namespace = job.namespace();
    object.metadata.uid = job.uid();
    object.data = json!({"spec": {"suspend": false}});
    object
}

/// Whether a Job with a name and an owner reference of ours does what an import of this spec does.
pub fn is_made_here(job: &Job, image: &VMDiskImage, revision: &str) -> bool {
    let (spec, name) = (&image.spec, image.name_any());
    let mut arguments = named_source(spec);
    arguments.extend(targets(spec));
    let asked = spec.disk_size.as_deref().and_then(|text| policy::quantity::parse(text).ok());
    arguments.extend(asked.map(|bytes| format!("--disk-size={bytes}")));
    arguments.extend(spec.checksum.as_ref().map(|checksum| format!("--checksum={checksum}")));
    let claims = vec![names::data_name(&name, revision), names::scratch_name(&name, revision)];
    Errand { role: JobRole::Import, arguments, claims }.is_of(job)
}

/// Where the disk and the download go.
fn targets(spec: &VMDiskImageSpec) -> [String; 3] {
    let output = match spec.volume_mode {
        VolumeMode::Filesystem => format!("{DISK_PATH}/disk.img"),
        VolumeMode::Block => DEVICE_PATH.to_owned(),
    };
    [
        format!("--output={output}"),
        format!("--volume-mode={}", spec.volume_mode.as_str()),
        format!("--scratch={SCRATCH_PATH}"),
    ]
}

fn arguments(facts: &Facts<'_>) -> Vec<String> {
    let spec = &facts.image.spec;
    let mut arguments = vec!["import".to_owned()];
    arguments.extend(source_arguments(facts));
    arguments.extend(targets(spec));
    arguments.push(format!("--progress-address=$(POD_IP):{}", facts.settings.importer_port));
    arguments.extend(facts.disk_size().map(|bytes| format!("--disk-size={bytes}")));
    let share = bandwidth::fallback(facts.policy);
    arguments.extend(share.map(|bytes| format!("{SHARE_ARGUMENT}{bytes}")));
    arguments.extend(spec.checksum.as_ref().map(|checksum| format!("--checksum={checksum}")));
    let source = facts.source.as_ref();
    arguments.extend(
        source
            .and_then(|source| source.etag.as_ref())
            .map(|etag| format!("--expected-etag={etag}")),
    );
    arguments.extend(
        source.and_then(|source| source.size).map(|size| format!("--expected-size={size}")),
    );
    arguments
}

fn container(facts: &Facts<'_>) -> Container {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    let port = ContainerPort {
        name: Some("progress".to_owned()),
        container_port: facts.settings.importer_port.into(),
        ..ContainerPort::default()
    };
    let mut container = Container {
        ports: Some(vec![port]),
        volume_mounts: Some(vec![mount("scratch", SCRATCH_PATH)]),
        ..Container::default()
    };
    match facts.image.spec.volume_mode {
        VolumeMode::Filesystem => {
            container.volume_mounts.get_or_insert_default().push(mount("disk", DISK_PATH))
        }
        VolumeMode::Block => {
            container.volume_devices = Some(vec![VolumeDevice {
                name: "disk".to_owned(),
                device_path: DEVICE_PATH.to_owned(),
            }]);
        }
    }
    container
}

fn volume(name: &str, claim: String) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim, read_only: None };
    Volume { name: name.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() }
}
