//! Attempts that do not come to an end by themselves: a claim that does not bind, a pod that does not start, an importer
//! that is frozen, one that takes too long. Times are the policy's; each timer begins with what it measures.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use otctl_types::condition::Reason;
use otctl_types::diskimage::Cut;
use otctl_types::import::ImportReason;

use crate::image::ending;
use crate::image::observe::{Observed, Work};
use crate::jobs;
use policy::duration;

/// An importer ends itself when no byte arrives for `stallTimeout`, and a node ends a pod that runs for longer than
/// `attemptTimeout`; each is given so much longer to say so.
const SLACK: Duration = Duration::from_secs(30);
/// Longest message, in characters: schedulers of large clusters say a lot.
const MESSAGE_LIMIT: usize = 500;

/// Why the attempt of this Job is ended from outside, if it must be.
pub(super) fn stuck(observed: &Observed, work: &Work, now: Timestamp) -> Option<Cut> {
    if work.pods.iter().any(|pod| jobs::pod_has_run(pod)) {
        return frozen(observed).or_else(|| overlong(work, now));
    }
    let started = jobs::start_time(&work.job)?;
    match unbound(observed) {
        Some(claim) => not_binding(observed, work, claim, started, now),
        None => not_starting(observed, work, started, now),
    }
}

/// A claim of the attempt that has no volume.
fn unbound(observed: &Observed) -> Option<&PersistentVolumeClaim> {
    let claims = [observed.claim.object(), observed.scratch.object()];
    claims.into_iter().flatten().map(|claim| &**claim).find(|claim| !jobs::is_bound(claim))
}

/// Not charged: nothing was asked for. A claim that waits for its first consumer begins to bind with the Job.
fn not_binding(
    observed: &Observed,
    work: &Work,
    claim: &PersistentVolumeClaim,
    started: Timestamp,
    now: Timestamp,
) -> Option<Cut> {
    let limit = observed.policy.bind_timeout;
    let made = claim.creation_timestamp().map_or(started, |at| at.0.max(started));
    has_passed(made, limit, now).then(|| {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let scheduler = work.pods.iter().find_map(|pod| jobs::unscheduled_reason(pod));
        let message = format!(
            "claim {} of storage class '{}' did not bind within {}{}; see kubectl describe pvc {0}",
            claim.name_any(),
            class.unwrap_or_default(),
            duration::format(limit),
            scheduler.map(|words| format!(" (the scheduler says: {words})")).unwrap_or_default(),
        );
        cut(Reason::NotBinding, &message, false)
    })
}

/// Its claims are bound, and no container of it runs: the image, the node, or room. Not charged either.
fn not_starting(
    observed: &Observed,
    work: &Work,
    started: Timestamp,
    now: Timestamp,
) -> Option<Cut> {
    let limit = observed.policy.stall_timeout;
    let since = work.pods.iter().find_map(|pod| jobs::scheduled_at(pod)).unwrap_or(started);
    has_passed(since.max(started), limit, now).then(|| {
        let kubelet = work.pods.iter().find_map(|pod| jobs::waiting_reason(pod));
        let scheduler = || work.pods.iter().find_map(|pod| jobs::unscheduled_reason(pod));
        let why = kubelet.or_else(scheduler);
        let message = format!(
            "its pod was not started within {}: {}",
            duration::format(limit),
            why.unwrap_or_else(|| "see the Events of its Job".to_owned())
        );
        cut(Reason::PodNotStarted, &message, false)
    })
}

/// It runs and cannot say that it does not move. Charged: it may have asked for data. One that is only out of reach is
/// left alone: losing the talk changes no outcome.
fn frozen(observed: &Observed) -> Option<Cut> {
    let talk = observed.talk.as_ref()?;
    let limit = observed.policy.stall_timeout;
    let message = if talk.mute_for.is_some_and(|mute| mute >= limit) {
        format!("the import takes connections and has said nothing for {}", duration::format(limit))
    } else if talk.still_for >= limit.saturating_add(SLACK) {
        format!(
            "no byte arrived for {}, and the import did not end itself",
            duration::format(limit)
        )
    } else {
        return None;
    };
    Some(cut(Reason::Import(ImportReason::NoProgress), &message, true))
}

/// It ran for longer than its pod may. Its node should have ended it: it is given so much longer to do so.
fn overlong(work: &Work, now: Timestamp) -> Option<Cut> {
    let limit = jobs::time_of_pod(&work.job)?.saturating_add(SLACK);
    let since = work.pods.iter().find_map(|pod| jobs::running_since(pod))?;
    let reason = Reason::Import(ImportReason::AttemptTimeout);
    has_passed(since, limit, now).then(|| cut(reason, ending::OVERLONG, true))
}

fn cut(reason: Reason, message: &str, charged: bool) -> Cut {
    Cut {
        reason: reason.to_string(),
        message: message.chars().take(MESSAGE_LIMIT).collect(),
        charged,
    }
}

fn has_passed(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    since.checked_add(limit).is_ok_and(|end| end <= now)
}
