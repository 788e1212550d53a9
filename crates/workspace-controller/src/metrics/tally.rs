//! What has happened to Workspaces, counted by the leader.

use std::sync::Arc;

use otctl_kit::metrics::{Leads, Lives, Metrics};
use otctl_kit::store::Key;
use otctl_types::Workspace;
use prometheus::{Histogram, HistogramVec, IntCounterVec};

use super::families::{READY, RECOVERY, TURNS, WAIT};
use super::milestones::{End, Milestone, Seen, Wish};

/// Counts milestones.
pub struct Tally {
    turns: IntCounterVec,
    wait: Histogram,
    ready: HistogramVec,
    recovery: Histogram,
    leads: Leads,
    lives: Lives<Seen>,
}

impl Tally {
    /// Nothing was seen yet. Every series is there from the start: one that appears with its first event has no growth.
    pub fn new(leads: Leads) -> Self {
        let (turns, ready) = (TURNS.counters(), READY.histograms());
        for end in End::ALL {
            turns.with_label_values(&[end.label()]);
        }
        for wish in Wish::ALL {
            ready.with_label_values(&[wish.label()]);
        }
        let [wait, recovery] =
            [WAIT, RECOVERY].map(|family| family.histograms().with_label_values::<&str>(&[]));
        Self { turns, wait, ready, recovery, leads, lives: Lives::default() }
    }

    pub(super) fn register(&self, registry: &Metrics) {
        registry.register(self.turns.clone());
        registry.register(self.ready.clone());
        for histogram in [&self.wait, &self.recovery] {
            registry.register(histogram.clone());
        }
    }

    /// The Workspace of that key as it is seen now; none when it is gone.
    pub fn note(&self, key: &Key, workspace: Option<Arc<Workspace>>) {
        let met = self.lives.note(key, workspace);
        if (self.leads)() {
            met.into_iter().for_each(|milestone| self.count(milestone));
        }
    }

    fn count(&self, milestone: Milestone) {
        match milestone {
            Milestone::Admitted { waited } => self.wait.observe(waited.as_secs_f64()),
            Milestone::Ended(end) => self.turns.with_label_values(&[end.label()]).inc(),
            Milestone::Ready { wish, took } => {
                self.ready.with_label_values(&[wish.label()]).observe(took.as_secs_f64());
            }
            Milestone::Recovered { took } => self.recovery.observe(took.as_secs_f64()),
        }
    }
}
