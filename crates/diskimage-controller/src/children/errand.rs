//! What a Job carries out, as far as it follows from the spec alone: by it a Job that was made here is told from one that
//! somebody gave a name and an owner reference of ours. Not told is a Job that copies all of it: whoever may create Jobs
//! in a namespace can run the same import there without us.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::job::PROGRAM;
use crate::names::JobRole;

/// What a Job is sent to do.
pub(super) struct Errand {
    /// The importer's word for it.
    pub(super) role: JobRole,
    /// The arguments that follow from the spec. Those that policy, settings and the source decide may have changed since.
    pub(super) arguments: Vec<String>,
    /// The claims that its pod mounts.
    pub(super) claims: Vec<String>,
}

impl Errand {
    /// Whether this is what `job` does, once. What was added to its pod (by a mesh, by a policy engine) does not count.
    pub(super) fn is_of(&self, job: &Job) -> bool {
        let spec = job.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let container = pod.and_then(|pod| pod.containers.first());
        match (spec, pod, container) {
            (Some(spec), Some(pod), Some(container)) => {
                runs_once(spec, pod) && self.is_run_by(container) && self.claims == claims(pod)
            }
            _ => false,
        }
    }

    fn is_run_by(&self, container: &Container) -> bool {
        let told = container.args.as_deref().unwrap_or_default();
        let is_command = container.command.as_deref() == Some(&[PROGRAM.to_owned()]);
        let is_role = told.first().map(String::as_str) == Some(self.role.as_str());
        is_command && is_role && self.arguments.iter().all(|argument| is_said(argument, told))
    }
}

/// That one, and no other value of the same flag.
fn is_said(argument: &str, told: &[String]) -> bool {
    let flag = argument.split_once('=').map_or(argument, |(flag, _)| flag);
    let is_of_flag = |it: &&String| it.as_str() == flag || it.starts_with(&format!("{flag}="));
    let mut values = told.iter().filter(is_of_flag);
    values.next().is_some_and(|it| it == argument) && values.next().is_none()
}

/// One pod, that is not restarted and not replaced.
fn runs_once(spec: &JobSpec, pod: &PodSpec) -> bool {
    let at_most_one = |count: Option<i32>| count.is_none_or(|count| count <= 1);
    spec.backoff_limit == Some(0)
        && at_most_one(spec.parallelism)
        && at_most_one(spec.completions)
        && spec.pod_replacement_policy.as_deref() == Some("Failed")
        && pod.restart_policy.as_deref() == Some("Never")
}

fn claims(pod: &PodSpec) -> Vec<String> {
    let volumes = pod.volumes.iter().flatten();
    volumes.filter_map(|it| Some(it.persistent_volume_claim.as_ref()?.claim_name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::import;
    use crate::image::fixture::{image, made_import};
    use crate::slim;

    fn check(is_ours: bool, change: impl FnOnce(&mut JobSpec)) {
        let image = image().build();
        let mut job = made_import(&image);
        change(job.spec.as_mut().expect("it was just made"));
        let revision = crate::names::revision(&image.spec);
        assert_eq!(import::is_made_here(&job, &image, &revision), is_ours);
        slim::job(&mut job);
        assert_eq!(import::is_made_here(&job, &image, &revision), is_ours, "as it is kept");
    }

    fn pod(spec: &mut JobSpec) -> &mut PodSpec {
        spec.template.spec.as_mut().expect("it was just made")
    }

    fn arguments(spec: &mut JobSpec) -> &mut Vec<String> {
        pod(spec).containers[0].args.as_mut().expect("it was just made")
    }

    #[test]
    fn what_the_server_fills_in_and_what_others_add_makes_no_stranger() {
        check(true, |_| {});
        check(true, |spec| (spec.parallelism, spec.completions) = (Some(1), Some(1)));
        check(true, |spec| pod(spec).containers.push(Container::default()));
        check(true, |spec| pod(spec).containers[0].image = Some("mirror/importer".to_owned()));
        check(true, |spec| arguments(spec).push("--stall-timeout=7".to_owned()));
    }

    #[test]
    fn what_does_something_else_is_a_stranger() {
        check(false, |spec| pod(spec).containers[0].command = Some(vec!["sleep".to_owned()]));
        check(false, |spec| arguments(spec)[0] = "probe".to_owned());
        check(false, |spec| arguments(spec).push("--url=http://other/disk".to_owned()));
        check(false, |spec| arguments(spec).retain(|it| !it.starts_with("--output=")));
        check(false, |spec| spec.parallelism = Some(9));
        check(false, |spec| spec.backoff_limit = None);
        check(false, |spec| pod(spec).restart_policy = Some("OnFailure".to_owned()));
        check(false, |spec| pod(spec).volumes = None);
        check(false, |spec| spec.template.spec = None);
    }
}
