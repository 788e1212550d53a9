//! What is the case, read from the stores when it is asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use otctl_kit::clock::Clock;
use otctl_types::condition::{self, Reason};
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::queue::AdmissionQueueStatus;
use prometheus::IntGaugeVec;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::families::{
    ACTIVE, IMAGES, LIMIT, OLDEST, POLICY_VALID, SNAPSHOT_LIMIT, SNAPSHOTS, UNREADY, WAITING,
};
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
pub struct Gauges {
    views: Views,
    clock: Arc<dyn Clock>,
    /// Emptied and filled at each reading, which one at a time makes.
    families: Mutex<[IntGaugeVec; 9]>,
    described: [IntGaugeVec; 9],
}

impl Gauges {
    /// Gauges over these views.
    pub fn new(views: Views, clock: Arc<dyn Clock>) -> Self {
        let described = [
            IMAGES,
            UNREADY,
            WAITING,
            OLDEST,
            ACTIVE,
            LIMIT,
            SNAPSHOTS,
            SNAPSHOT_LIMIT,
            POLICY_VALID,
        ]
        .map(|family| family.gauges());
        Self { views, clock, families: Mutex::new(described.clone()), described }
    }

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
        let is_valid = condition::is_true(&status.conditions, condition::POLICY_VALID);
        [
            status.waiting_count.unwrap_or(0).into(),
            self.oldest_age(status),
            status.active_count.unwrap_or(0).into(),
            status.limit.unwrap_or(0).into(),
            i64::try_from(status.snapshots.len()).unwrap_or(i64::MAX),
            effective_policy(Some(status)).snapshot_concurrency.into(),
            is_valid.into(),
        ]
    }

    fn oldest_age(&self, status: &AdmissionQueueStatus) -> i64 {
        let Some(oldest) = &status.oldest_waiting_ticket else { return 0 };
        let images = self.views.images.all();
        let mut told = images.iter().filter_map(|image| image.status.as_ref());
        let waits = told.find(|status| status.ticket.as_ref() == Some(oldest));
        let since = waits.and_then(|status| status.queued_at.as_ref());
        since.map_or(0, |since| self.clock.now().duration_since(since.0).as_secs().max(0))
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

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.iter().for_each(IntGaugeVec::reset);
        self.fill(&families);
        families.iter().flat_map(Collector::collect).collect()
    }
}
