//! What stands in the way of an image without a slot: a final failure, a backoff, something missing, or others before it.

use jiff::Timestamp;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::import::{FailureClass, ImportReason};
use otctl_types::names::LAST_ATTEMPT;

use super::Wait;
use crate::image::observe::Observed;
use crate::record;
use crate::surroundings::{Obstacle, obstacle};

pub(super) fn given_up(observed: &Observed) -> Option<Obstacle> {
    let record = &observed.record;
    if let Some(last) = record.final_attempt() {
        let reason = record::reason_of(last.reason.as_deref().unwrap_or_default());
        let cause = last.message.clone().unwrap_or_default();
        let is_spent =
            matches!(reason, Reason::Import(import) if import.class() == FailureClass::Transient);
        let is_repeated = reason == Reason::Import(ImportReason::LengthMismatch)
            && !record.is_spent(observed.policy.retry_limit);
        return Some(if is_spent && !is_repeated {
            spent(record, &cause)
        } else {
            Obstacle { reason, message: cause }
        });
    }
    if record.is_spent(observed.policy.retry_limit) {
        let cause = record.last_ended().and_then(|last| last.message.clone()).unwrap_or_default();
        return Some(spent(record, &cause));
    }
    (!record.can_count_on()).then(|| Obstacle {
        reason: Reason::RetriesExhausted,
        message: format!(
            "status.lastAttempt is {}, and no attempt has a higher number than {LAST_ATTEMPT}; create the image again",
            record.last()
        ),
    })
}

fn spent(record: &record::Record, cause: &str) -> Obstacle {
    let last = record.last_ended().and_then(|last| last.reason.as_deref()).unwrap_or_default();
    let message = format!(
        "{} of the budget's downloads failed, the last with {last}: {cause}",
        record.charged()
    );
    Obstacle { reason: Reason::RetriesExhausted, message }
}

/// What a queued image waits for: its backoff, what is missing around it, or a slot.
pub(super) fn wait(image: &VMDiskImage, observed: &Observed, now: Timestamp) -> Wait {
    let record = &observed.record;
    if let Some(until) = record.backoff_until(now) {
        return backoff(record, until);
    }
    if let Some(obstacle) = obstacle(&image.spec, &observed.policy, &observed.around) {
        return Wait { reason: obstacle.reason, message: obstacle.message, until: None };
    }
    if observed.policy.concurrency == 0 {
        let message = "the policy's concurrency is 0: nothing is admitted until it is raised";
        return Wait { reason: Reason::Paused, message: message.to_owned(), until: None };
    }
    if observed.hall.is_host_busy {
        let message = "slots are free, but as many images as concurrencyPerHost of the policy allows sync from its host; \
                       see otctl queue";
        return Wait { reason: Reason::HostBusy, message: message.to_owned(), until: None };
    }
    let message = match observed.ahead {
        0 => "waits for a slot; see kubectl get admissionqueues".to_owned(),
        ahead => format!(
            "waits for a slot, at most {ahead} ahead of it when it was queued; see kubectl get admissionqueues"
        ),
    };
    Wait { reason: Reason::SlotsBusy, message, until: None }
}

/// A missing thing is named itself; a failure in passing is a backoff.
fn backoff(record: &record::Record, until: Timestamp) -> Wait {
    let (text, cause) = record.waits_for().unwrap_or(("", ""));
    let reason = record::reason_of(text);
    let is_waiting =
        !matches!(reason, Reason::Import(import) if import.class() != FailureClass::Waiting);
    if is_waiting {
        return Wait {
            reason,
            message: format!("{cause}; looked at again at {until:.0}"),
            until: Some(until),
        };
    }
    let message = format!(
        "attempt {} failed with {text}: {cause}; the next starts at {until:.0} or later",
        record.last()
    );
    Wait { reason: Reason::Backoff, message, until: Some(until) }
}
