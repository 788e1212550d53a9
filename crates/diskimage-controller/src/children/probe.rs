//! The Job that looks at the first bytes of the source, without claims: what is wrong there costs no volume.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Container;

use crate::children::Facts;
use crate::children::job::{Task, job as build, source_arguments};
use crate::names::JobRole;

/// Longest a probe may run, in seconds.
const DEADLINE_SECONDS: i64 = 120;

/// The probe of an attempt.
pub fn job(facts: &Facts<'_>) -> Job {
    let mut arguments = vec!["probe".to_owned()];
    arguments.extend(source_arguments(facts));
    let asked =
        facts.image.spec.disk_size.as_deref().and_then(|text| policy::quantity::parse(text).ok());
    arguments.extend(asked.map(|bytes| format!("--disk-size={bytes}")));
    let task = Task {
        role: JobRole::Probe,
        arguments,
        environment: Vec::new(),
        container: Container::default(),
        volumes: Vec::new(),
        deadline_seconds: DEADLINE_SECONDS,
        is_suspended: false,
    };
    build(facts, task)
}
