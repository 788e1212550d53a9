//! The Job that looks at the first bytes of the source, without claims: what is wrong there costs no volume.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Container;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::VMDiskImageSpec;

use crate::children::Facts;
use crate::children::errand::Errand;
use crate::children::job::{Deadline, Task, job as build, named_source, source_arguments};
use crate::names::JobRole;

/// Longest a probe may take, from the start of its Job.
const DEADLINE: Deadline = Deadline::OfJob(120);

/// The probe of an attempt.
pub fn job(facts: &Facts<'_>) -> Job {
    let mut arguments = vec!["probe".to_owned()];
    arguments.extend(source_arguments(facts));
    arguments.extend(asked_size(&facts.image.spec));
    let task = Task {
        role: JobRole::Probe,
        arguments,
        environment: Vec::new(),
        container: Container::default(),
        volumes: Vec::new(),
        deadline: DEADLINE,
        ttl_seconds: Some(facts.settings.job_ttl_seconds),
        is_suspended: false,
    };
    build(facts, task)
}

/// Whether a Job with a name and an owner reference of ours does what a probe of this spec does.
pub fn is_made_here(job: &Job, image: &VMDiskImage) -> bool {
    let mut arguments = named_source(&image.spec);
    arguments.extend(asked_size(&image.spec));
    Errand { role: JobRole::Probe, arguments, claims: Vec::new() }.is_of(job)
}

fn asked_size(spec: &VMDiskImageSpec) -> Option<String> {
    let asked = spec.disk_size.as_deref().and_then(|text| policy::quantity::parse(text).ok());
    asked.map(|bytes| format!("--disk-size={bytes}"))
}
