//! Gauges of this domain, read from the stores when they are asked for: nothing is counted twice, and series go with the
//! objects.

use std::collections::HashMap;

use otctl_types::diskimage::Phase;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};

use crate::views::{Views, effective_policy};

const PHASES: [(Phase, &str); 5] = [
    (Phase::Queued, "Queued"),
    (Phase::Syncing, "Syncing"),
    (Phase::Snapshotting, "Snapshotting"),
    (Phase::Succeeded, "Succeeded"),
    (Phase::Failed, "Failed"),
];

/// Images by phase, and the ledger.
pub struct ImageMetrics {
    views: Views,
    objects: IntGaugeVec,
    active: IntGauge,
    limit: IntGauge,
    waiting: IntGauge,
    snapshots: IntGauge,
    snapshot_limit: IntGauge,
    policy_valid: IntGauge,
}

impl ImageMetrics {
    /// Gauges over these views.
    ///
    /// # Panics
    /// Never: names and labels are valid constants.
    pub fn new(views: Views) -> Self {
        let gauge = |name: &str, help: &str| {
            IntGauge::new(name, help).expect("the name is a valid constant")
        };
        let objects = Opts::new("otctl_images", "VMDiskImages by phase.");
        Self {
            views,
            objects: IntGaugeVec::new(objects, &["phase"]).expect("the name is a valid constant"),
            active: gauge("otctl_image_slots_active", "Slots of the image queue in use."),
            limit: gauge(
                "otctl_image_slots_limit",
                "Slots of the image queue, as the policy sets them.",
            ),
            waiting: gauge(
                "otctl_images_waiting",
                "VMDiskImages that wait for a slot or for the end of their backoff.",
            ),
            snapshots: gauge(
                "otctl_image_snapshots_active",
                "Snapshots of images that are being taken, or may be.",
            ),
            snapshot_limit: gauge(
                "otctl_image_snapshots_limit",
                "Snapshots of images at once, as the policy sets them.",
            ),
            policy_valid: gauge(
                "otctl_policy_valid",
                "1 when every key of the policy ConfigMap could be read.",
            ),
        }
    }

    fn gauges(&self) -> [&IntGauge; 6] {
        let (snapshots, limit) = (&self.snapshots, &self.snapshot_limit);
        [&self.active, &self.limit, &self.waiting, snapshots, limit, &self.policy_valid]
    }

    fn read(&self) {
        let mut phases: HashMap<Option<Phase>, i64> = HashMap::new();
        for image in self.views.images.all() {
            *phases.entry(image.status.as_ref().and_then(|status| status.phase)).or_default() += 1;
        }
        for (phase, label) in PHASES {
            self.objects
                .with_label_values(&[label])
                .set(phases.get(&Some(phase)).copied().unwrap_or(0));
        }
        let Some(status) = self.views.queue().and_then(|queue| queue.status.clone()) else {
            return;
        };
        self.active.set(status.active_count.unwrap_or(0).into());
        self.limit.set(status.limit.unwrap_or(0).into());
        self.waiting.set(status.waiting_count.unwrap_or(0).into());
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.snapshots.set(count(status.snapshots.len()));
        self.snapshot_limit.set(effective_policy(Some(&status)).snapshot_concurrency.into());
        let is_valid = otctl_types::condition::is_true(
            &status.conditions,
            otctl_types::condition::POLICY_VALID,
        );
        self.policy_valid.set(is_valid.into());
    }
}

impl Collector for ImageMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges().into_iter().flat_map(Collector::desc);
        self.objects.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        let gauges = self.gauges().into_iter().flat_map(Collector::collect);
        self.objects.collect().into_iter().chain(gauges).collect()
    }
}
