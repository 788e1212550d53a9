//! Does an image want a slot, and could it use one now? Pure; asked by the queue for every image.

use jiff::Timestamp;
pub use otctl_queue::{Place, Want};
use otctl_types::VMDiskImage;
use policy::Policy;
use policy::admission::Eligibility;

use crate::record::Record;
use crate::surroundings::{Surroundings, obstacle, spec_problem};

/// What `image` wants.
pub fn want(image: &VMDiskImage, policy: &Policy, around: &Surroundings, now: Timestamp) -> Want {
    want_of(image, &Record::of(image), (policy, around), now)
}

/// The same, with a record that is at hand.
pub fn want_of(
    image: &VMDiskImage,
    record: &Record,
    (policy, around): (&Policy, &Surroundings),
    now: Timestamp,
) -> Want {
    if image.metadata.deletion_timestamp.is_some() || !is_unfinished(image, record, policy) {
        return Want::Nothing;
    }
    if image.spec.suspend {
        return if record.status.ticket.is_some() { Want::GiveUpPlace } else { Want::Nothing };
    }
    Want::Slot {
        place: place(record, now),
        eligibility: eligibility(image, record, policy, around, now),
    }
}

fn is_unfinished(image: &VMDiskImage, record: &Record, policy: &Policy) -> bool {
    let is_done = record.is_current() || record.has_fetched();
    let is_final = record.final_attempt().is_some()
        || record.is_spent(policy.retry_limit)
        || !record.can_count_on();
    let awaits_its_budget = !record.has_its_budget();
    let is_running = record.status.open_attempt.is_some();
    !(is_done || is_final || awaits_its_budget || is_running) && spec_problem(&image.spec).is_none()
}

fn place(record: &Record, now: Timestamp) -> Place {
    let held = record.status.ticket.as_deref().and_then(|text| text.parse().ok());
    match held {
        None => Place::First,
        Some(_) if record.has_used_its_ticket() => {
            let due = record.status.next_retry_at.as_ref().map_or(now, |at| at.0.max(now));
            Place::Retry(due)
        }
        Some(ticket) => Place::Held(ticket),
    }
}

fn eligibility(
    image: &VMDiskImage,
    record: &Record,
    policy: &Policy,
    around: &Surroundings,
    now: Timestamp,
) -> Eligibility {
    if record.backoff_until(now).is_some() {
        return Eligibility::Backoff;
    }
    match obstacle(&image.spec, policy, around) {
        Some(obstacle) => Eligibility::Blocked { why: obstacle.reason.to_string() },
        None => Eligibility::Eligible,
    }
}
