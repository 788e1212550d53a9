//! What has happened to images, counted by the leader.

use std::sync::Arc;

use otctl_kit::metrics::{Leads, Lives, Metrics};
use otctl_kit::store::Key;
use otctl_types::VMDiskImage;
use otctl_types::condition::Reason;
use otctl_types::import::FailureClass;
use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::families::{ATTEMPTS, LATE, READY, SYNC, WAIT};
use super::milestones::{Milestone, Seen};
use super::traffic::Traffic;
use crate::record;

/// Counts milestones.
pub struct Tally {
    attempts: IntCounterVec,
    wait: Histogram,
    sync: Histogram,
    ready: Histogram,
    late: IntCounter,
    traffic: Traffic,
    leads: Leads,
    lives: Lives<Seen>,
}

impl Tally {
    /// Nothing was seen yet. Every series is there from the start: one that appears with its first event has no growth.
    pub fn new(traffic: Traffic, leads: Leads) -> Self {
        let attempts = ATTEMPTS.counters();
        for reason in record::endings() {
            attempts.with_label_values(&labels(reason));
        }
        let [wait, sync, ready] =
            [WAIT, SYNC, READY].map(|family| family.histograms().with_label_values::<&str>(&[]));
        let late = LATE.counters().with_label_values::<&str>(&[]);
        Self { attempts, wait, sync, ready, late, traffic, leads, lives: Lives::default() }
    }

    pub(super) fn register(&self, registry: &Metrics) {
        registry.register(self.attempts.clone());
        for histogram in [&self.wait, &self.sync, &self.ready] {
            registry.register(histogram.clone());
        }
        registry.register(self.late.clone());
    }

    /// The image of that key as it is seen now; none when it is gone.
    pub fn note(&self, key: &Key, image: Option<Arc<VMDiskImage>>) {
        let leads = (self.leads)();
        for milestone in self.lives.note(key, image) {
            match milestone {
                Milestone::Closed { job_uid, .. } if !leads => self.traffic.forget(&job_uid),
                milestone if leads => self.count(milestone),
                _ => {}
            }
        }
    }

    fn count(&self, milestone: Milestone) {
        match milestone {
            Milestone::Admitted { waited } => self.wait.observe(waited.as_secs_f64()),
            Milestone::Opened { job_uid } => self.traffic.opened(&job_uid),
            Milestone::Closed { job_uid, bytes } => self.traffic.closed(&job_uid, bytes),
            Milestone::Ended(reason) => self.attempts.with_label_values(&labels(reason)).inc(),
            Milestone::SnapshotLate => self.late.inc(),
            Milestone::Synced { since_admission, since_creation } => {
                since_admission.iter().for_each(|took| self.sync.observe(took.as_secs_f64()));
                since_creation.iter().for_each(|took| self.ready.observe(took.as_secs_f64()));
            }
        }
    }
}

/// What an attempt's end asks for: nothing, or what the class of its failure does.
pub const CLASSES: [&str; 4] = ["succeeded", "terminal", "transient", "waiting"];

/// Class and reason of an attempt's end. What is neither the data nor the importer's own reason waits for something.
fn labels(reason: Reason) -> [&'static str; 2] {
    let [succeeded, terminal, transient, waiting] = CLASSES;
    let class = match reason {
        Reason::Succeeded => succeeded,
        Reason::Import(import) => match import.class() {
            FailureClass::Terminal => terminal,
            FailureClass::Transient => transient,
            FailureClass::Waiting => waiting,
        },
        _ => waiting,
    };
    [class, reason.as_str()]
}
