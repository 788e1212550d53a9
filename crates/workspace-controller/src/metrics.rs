//! Gauges of this domain, read from the stores when they are asked for: nothing is counted twice, and series go with the
//! objects.

use std::collections::HashMap;

use otctl_types::condition;
use otctl_types::workspace::Phase;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};

use crate::views::Views;

const PHASES: [Phase; 4] = [Phase::Provisioning, Phase::Ready, Phase::Suspended, Phase::Failed];

/// Workspaces by phase, and the ledger.
pub struct WorkspaceMetrics {
    views: Views,
    objects: IntGaugeVec,
    active: IntGauge,
    limit: IntGauge,
    waiting: IntGauge,
    policy_valid: IntGauge,
}

impl WorkspaceMetrics {
    /// Gauges over these views.
    ///
    /// # Panics
    /// Never: names and labels are valid constants.
    pub fn new(views: Views) -> Self {
        let gauge = |name: &str, help: &str| {
            IntGauge::new(name, help).expect("the name is a valid constant")
        };
        let objects = Opts::new("otctl_workspaces", "Workspaces by phase.");
        Self {
            views,
            objects: IntGaugeVec::new(objects, &["phase"]).expect("the name is a valid constant"),
            active: gauge("otctl_workspace_slots_active", "Slots of the workspace queue in use."),
            limit: gauge(
                "otctl_workspace_slots_limit",
                "Slots of the workspace queue, as the policy sets them.",
            ),
            waiting: gauge("otctl_workspaces_waiting", "Workspaces that wait for a slot."),
            policy_valid: gauge(
                "otctl_policy_valid",
                "1 when every key of the policy ConfigMap could be read.",
            ),
        }
    }

    fn gauges(&self) -> [&IntGauge; 4] {
        [&self.active, &self.limit, &self.waiting, &self.policy_valid]
    }

    fn read(&self) {
        let mut phases: HashMap<Phase, i64> = HashMap::new();
        for workspace in self.views.workspaces.all() {
            let phase = workspace.status.as_ref().and_then(|status| status.phase);
            *phases.entry(phase.unwrap_or(Phase::Provisioning)).or_default() += 1;
        }
        for phase in PHASES {
            let count = phases.get(&phase).copied().unwrap_or(0);
            self.objects.with_label_values(&[phase.as_str()]).set(count);
        }
        let Some(status) = self.views.queue().and_then(|queue| queue.status.clone()) else {
            return;
        };
        self.active.set(status.active_count.unwrap_or(0).into());
        self.limit.set(status.limit.unwrap_or(0).into());
        self.waiting.set(status.waiting_count.unwrap_or(0).into());
        let is_valid = condition::is_true(&status.conditions, condition::POLICY_VALID);
        self.policy_valid.set(is_valid.into());
    }
}

impl Collector for WorkspaceMetrics {
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
