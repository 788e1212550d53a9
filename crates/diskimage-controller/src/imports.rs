//! The imports that hold a slot, as the watches show them: which run or are about to, and how each is reached.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use otctl_kit::store::Key;
use otctl_types::import::PROGRESS_KEY_VARIABLE;
use otctl_types::queue::ActiveEntry;
use policy::bandwidth::lender;

use crate::jobs;
use crate::views::Views;

/// The argument with the fallback of an import, in bytes per second.
pub const SHARE_ARGUMENT: &str = "--bandwidth-share=";

/// An import on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// UID of its Job.
    pub job_uid: String,
    /// The fallback it was made with, in bytes per second; none is no limit.
    pub fallback: Option<u64>,
    /// Whether its Job was started, as far as seen.
    pub is_started: bool,
    /// Where it tells its progress; none while no pod of it runs.
    pub address: Option<SocketAddr>,
    /// What it must be shown.
    pub key: String,
}

impl Import {
    /// As the lender of bandwidth knows it.
    pub fn borrower(&self) -> lender::Import<'_> {
        lender::Import { id: &self.job_uid, fallback: self.fallback, is_started: self.is_started }
    }

    /// As its Job tells.
    pub fn of(job: &Job) -> Self {
        Self {
            job_uid: job.uid().unwrap_or_default(),
            fallback: fallback(job),
            is_started: !jobs::is_suspended(job),
            address: None,
            key: key(job).unwrap_or_default(),
        }
    }
}

/// Every import on record that has not ended, of images that hold a slot.
pub fn on_record(views: &Views) -> Vec<Import> {
    let queue = views.queue();
    let active = queue.iter().filter_map(|queue| queue.status.as_ref()).flat_map(|it| &it.active);
    active.filter_map(|entry| import(views, entry)).collect()
}

fn import(views: &Views, entry: &ActiveEntry) -> Option<Import> {
    let image = views.images.get(&Key::new(&entry.namespace, &entry.name))?;
    let status = image.status.as_ref().filter(|_| image.uid().as_ref() == Some(&entry.uid))?;
    let open = status.open_attempt.as_ref()?;
    let jobs = views.jobs.owned_by(&entry.uid);
    let job = jobs.iter().find(|job| job.uid().as_ref() == Some(&open.job_uid));
    let pods = views.pods.owned_by(&open.job_uid);
    let has_ended = job.is_some_and(|job| jobs::job_has_ended(job))
        && pods.iter().all(|pod| jobs::pod_has_ended(pod));
    if has_ended {
        return None;
    }
    // A Job that is not seen may have a pod that runs all the same.
    let unseen = || Import {
        job_uid: open.job_uid.clone(),
        fallback: None,
        is_started: true,
        address: None,
        key: String::new(),
    };
    let import = job.map_or_else(unseen, |job| Import::of(job));
    let running = pods.iter().find(|pod| jobs::phase(pod) == Some("Running"));
    Some(Import { address: running.and_then(|pod| address(pod)), ..import })
}

fn address(pod: &Pod) -> Option<SocketAddr> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let port = pod.spec.as_ref()?.containers.first()?.ports.as_ref()?.first()?.container_port;
    Some(SocketAddr::new(address, u16::try_from(port).ok()?))
}

fn container(job: &Job) -> Option<&Container> {
    job.spec.as_ref()?.template.spec.as_ref()?.containers.first()
}

/// The key is read back from the Job, so that it survives a restart of the controller.
fn key(job: &Job) -> Option<String> {
    let mut variables = container(job)?.env.iter().flatten();
    variables.find(|variable| variable.name == PROGRESS_KEY_VARIABLE)?.value.clone()
}

fn fallback(job: &Job) -> Option<u64> {
    let mut arguments = container(job)?.args.iter().flatten();
    arguments.find_map(|argument| argument.strip_prefix(SHARE_ARGUMENT))?.parse().ok()
}

#[cfg(test)]
mod tests;
