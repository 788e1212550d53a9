//! What an image owns: Jobs with their pods, claims, snapshots.

use std::time::Duration;

use diskimage_controller::jobs;
use diskimage_controller::names::{JobRole, attempt_number};
use diskimage_controller::snapshots::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use policy::Policy;

use super::Teller;
use crate::kind::told::seen_at;
use crate::out::{self, when};
use crate::tree::Node;

impl Teller<'_> {
    pub(super) fn children(&self) -> Vec<Node> {
        let facts = self.facts;
        let jobs = by_age(&facts.jobs).into_iter().map(|job| self.job(job));
        let claims = by_age(&facts.claims).into_iter().map(|claim| self.claim(claim));
        let snapshots = by_age(&facts.snapshots).into_iter().map(|it| self.snapshot(it));
        jobs.chain(claims).chain(snapshots).collect()
    }

    fn job(&self, job: &Job) -> Node {
        let uid = job.uid();
        let pods = self.facts.pods.iter().filter(|pod| jobs::made_by(pod) == uid.as_deref());
        let pods: Vec<Node> = pods.map(|pod| self.pod(pod)).collect();
        let state = match (jobs::job_has_ended(job), jobs::is_suspended(job)) {
            (true, _) if jobs::is_complete(job) => "Complete".to_owned(),
            (true, _) => format!("Failed ({})", jobs::failure_reason(job).unwrap_or_default()),
            (false, true) => "not started yet".to_owned(),
            (false, false) if pods.is_empty() => "started, has no pod yet".to_owned(),
            (false, false) => "started".to_owned(),
        };
        let name = job.name_any();
        Node::new(format!("Job {name} ({}): {state}{}", errand(&name), leaving(&job.metadata)))
            .notes(self.trouble(&job.metadata))
            .parts(pods)
    }

    fn pod(&self, pod: &Pod) -> Node {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let node = node.map(|node| format!(" on node '{node}'")).unwrap_or_default();
        let since = jobs::running_since(pod).map(|at| format!(" since {}", when(at, self.now)));
        let phase = jobs::phase(pod).unwrap_or("Pending");
        let title = format!(
            "Pod {}: {phase}{node}{}{}",
            pod.name_any(),
            since.unwrap_or_default(),
            leaving(&pod.metadata)
        );
        let waits = jobs::unscheduled_reason(pod).or_else(|| jobs::waiting_reason(pod));
        let waits = waits.filter(|_| !jobs::pod_has_ended(pod));
        Node::new(title)
            .notes(waits.as_ref().map(|why| format!("waits for: {why}")))
            .notes(self.trouble(&pod.metadata).filter(|_| waits.is_none()))
            .notes(ended(pod))
            .notes(self.must_end(pod))
    }

    /// When its node ends it.
    fn must_end(&self, pod: &Pod) -> Option<String> {
        let since = jobs::running_since(pod)?;
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        let limit = Duration::from_secs(u64::try_from(seconds).ok()?);
        let at = since.checked_add(limit).ok()?;
        Some(format!("next: ended by its node at {} at the latest", when(at, self.now)))
    }

    fn claim(&self, claim: &PersistentVolumeClaim) -> Node {
        let (name, spec) = (claim.name_any(), claim.spec.as_ref());
        let what = if name.ends_with("-scratch") { "the download" } else { "the disk" };
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let class = spec.and_then(|spec| spec.storage_class_name.as_ref());
        let class = class.map(|class| format!(", class '{class}'")).unwrap_or_default();
        let size = size(claim).map(|size| format!(", {size}")).unwrap_or_default();
        let phase = phase.unwrap_or("Pending");
        let node = Node::new(format!(
            "PersistentVolumeClaim {name} ({what}): {phase}{size}{class}{}",
            leaving(&claim.metadata)
        ));
        if jobs::is_bound(claim) {
            return node;
        }
        node.note("waits for: a volume")
            .notes(self.trouble(&claim.metadata))
            .notes(self.not_binding(claim))
    }

    /// When a claim that does not bind ends its attempt, as the controller counts it.
    fn not_binding(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let running = self.facts.jobs.iter().filter(|job| !jobs::job_has_ended(job));
        let started = running.filter_map(jobs::start_time).max()?;
        let since = claim.creation_timestamp().map_or(started, |at| at.0.max(started));
        self.limit(since, "the attempt is given up", |policy| policy.bind_timeout)
    }

    fn snapshot(&self, snapshot: &VolumeSnapshot) -> Node {
        let status = snapshot.status.clone().unwrap_or_default();
        let is_ready = status.ready_to_use == Some(true);
        let size = status.restore_size.map(|size| format!(", {}", for_people(&size)));
        let size = size.unwrap_or_default();
        let class = snapshot.spec.volume_snapshot_class_name.as_ref();
        let class = class.map(|class| format!(", class '{class}'")).unwrap_or_default();
        let state = if is_ready { "ready" } else { "not ready" };
        let (name, leaving) = (snapshot.name_any(), leaving(&snapshot.metadata));
        let node = Node::new(format!("VolumeSnapshot {name}: {state}{size}{class}{leaving}"));
        if is_ready {
            return node;
        }
        let error = status.error.and_then(|error| error.message);
        let asked = snapshot.creation_timestamp().map(|at| at.0);
        let late = asked.and_then(|at| {
            self.limit(at, "replaced if it is not ready", |policy| policy.snapshot_timeout)
        });
        node.note("waits for: its driver")
            .notes(error.or_else(|| self.trouble(&snapshot.metadata)))
            .notes(late)
    }

    /// What happens when the policy's patience ends.
    fn limit(
        &self,
        since: Timestamp,
        what: &str,
        limit: fn(&Policy) -> Duration,
    ) -> Option<String> {
        let at = since.checked_add(limit(&self.policy()?)).ok()?;
        Some(format!("next: {what} at {}", when(at, self.now)))
    }

    /// What the last Event about a child warns of.
    fn trouble(&self, metadata: &ObjectMeta) -> Option<String> {
        let events = self.facts.events.get(metadata.uid.as_ref()?)?;
        let warnings = events.iter().filter(|event| event.type_.as_deref() == Some("Warning"));
        let last = warnings.max_by_key(|event| seen_at(event))?;
        let [reason, message] = [&last.reason, &last.message].map(|text| text.as_deref());
        Some(format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default()))
    }
}

/// What an import pod said at its end.
fn ended(pod: &Pod) -> Option<String> {
    if let Some(report) = jobs::report(pod) {
        let reason = report.reason?;
        return Some(format!("{reason}: {}", report.message));
    }
    let end = jobs::termination(pod)?;
    Some(format!("ended with exit code {}, and reported nothing", end.exit_code))
}

/// What a Job does, by its name.
fn errand(name: &str) -> String {
    if let Some(number) = attempt_number(name, JobRole::Import) {
        return format!("download of attempt {number}");
    }
    match attempt_number(name, JobRole::Probe) {
        Some(number) => format!("first look of attempt {number}"),
        None => "of another make".to_owned(),
    }
}

/// What it has, else what it asks for.
fn size(claim: &PersistentVolumeClaim) -> Option<String> {
    let has = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    let asks = || claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref();
    has.or_else(asks)?.get("storage").map(for_people)
}

fn for_people(size: &Quantity) -> String {
    policy::quantity::parse(&size.0).map_or_else(|_| size.0.clone(), out::size)
}

fn leaving(metadata: &ObjectMeta) -> String {
    if metadata.deletion_timestamp.is_none() {
        return String::new();
    }
    let held = metadata.finalizers.clone().unwrap_or_default().join(", ");
    if held.is_empty() {
        ", being deleted".to_owned()
    } else {
        format!(", being deleted, held by {held}")
    }
}

fn by_age<K: Resource>(all: &[K]) -> Vec<&K> {
    let mut sorted: Vec<&K> = all.iter().collect();
    sorted.sort_by_key(|it| {
        (it.meta().creation_timestamp.as_ref().map(|at| at.0), it.meta().name.clone())
    });
    sorted
}
