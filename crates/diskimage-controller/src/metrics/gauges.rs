//! What is the case, read from the stores when it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use otctl_kit::clock::Clock;
use otctl_kit::metrics::Scraped;
use otctl_queue::metrics::{POLICY_VALID, ledger};
use otctl_types::condition::{self, Reason};
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::queue::AdmissionQueueStatus;
use prometheus::IntGaugeVec;

use super::families::{ACTIVE, IMAGES, LIMIT, OLDEST, SNAPSHOT_LIMIT, SNAPSHOTS, UNREADY, WAITING};
use crate::views::{Views, effective_policy};

const PHASES: [(Phase, &str); 5] = [
    (Phase::Queued, "Queued"),
    (Phase::Syncing, "Syncing"),
    (Phase::Snapshotting, "Snapshotting"),
    (Phase::Succeeded, "Succeeded"),
    (Phase::Failed, "Failed"),
];
/// A word that no version of this controller has written.
const OTHER: &str = "other";

/// Images by phase and reason, and the ledger.
pub fn gauges(views: Views, clock: Arc<dyn Clock>) -> Scraped<9> {
    let families =
        [IMAGES, UNREADY, WAITING, OLDEST, ACTIVE, LIMIT, POLICY_VALID, SNAPSHOTS, SNAPSHOT_LIMIT];
    let sight = Sight { views, clock };
    Scraped::new(families, move |families| sight.fill(families))
}

/// What is read.
struct Sight {
    views: Views,
    clock: Arc<dyn Clock>,
}

impl Sight {
    fn fill(&self, families: &[IntGaugeVec; 9]) {
        let [images, unready, ledger @ ..] = families;
        self.fill_images(images, unready);
        // Before there is a ledger nothing is known of it, and nothing is better than zeros.
        let Some(status) = self.views.queue().and_then(|queue| queue.status.clone()) else {
            return;
        };
        for (family, value) in ledger.iter().zip(self.ledger(&status)) {
            family.with_label_values::<&str>(&[]).set(value);
        }
    }

    fn fill_images(&self, images: &IntGaugeVec, unready: &IntGaugeVec) {
        let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for image in self.views.images.all() {
            *counts.entry(standing(image.status.as_ref())).or_default() += 1;
        }
        for (_, phase) in PHASES {
            let of_phase = counts.iter().filter(|((each, _), _)| *each == phase);
            images.with_label_values(&[phase]).set(of_phase.map(|(_, count)| count).sum());
        }
        let is_unready = |phase: &str| phase != "Succeeded";
        for ((phase, reason), count) in counts.iter().filter(|((phase, _), _)| is_unready(phase)) {
            unready.with_label_values(&[phase, reason]).set(*count);
        }
    }

    /// In the order of the families.
    fn ledger(&self, status: &AdmissionQueueStatus) -> [i64; 7] {
        let queued_at = |ticket: &str| self.queued_at(ticket);
        let [waiting, oldest, active, limit, is_valid] =
            ledger(status, queued_at, self.clock.now());
        let snapshots = i64::try_from(status.snapshots.len()).unwrap_or(i64::MAX);
        let snapshot_limit = effective_policy(Some(status)).snapshot_concurrency.into();
        [waiting, oldest, active, limit, is_valid, snapshots, snapshot_limit]
    }

    fn queued_at(&self, ticket: &str) -> Option<Timestamp> {
        let images = self.views.images.all();
        let mut told = images.iter().filter_map(|image| image.status.as_ref());
        let waits = told.find(|status| status.ticket.as_deref() == Some(ticket))?;
        waits.queued_at.as_ref().map(|at| at.0)
    }
}

/// Phase and reason of an image as labels. One that nothing was told of yet waits for its ticket.
fn standing(status: Option<&VMDiskImageStatus>) -> (&'static str, &'static str) {
    let phase = status.and_then(|status| status.phase).unwrap_or(Phase::Queued);
    let (_, label) = PHASES[PHASES.iter().position(|(each, _)| *each == phase).unwrap_or(0)];
    let ready = status.and_then(|status| condition::find(&status.conditions, condition::READY));
    let reason = ready.map_or(Some(Reason::Queued), |ready| Reason::named(&ready.reason));
    (label, reason.map_or(OTHER, Reason::as_str))
}
