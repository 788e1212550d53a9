//! Pods that a test keeps from starting.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::PodName;

/// The names held, each a prefix.
#[derive(Default)]
pub(super) struct Holds {
    held: watch::Sender<BTreeSet<PodName>>,
}

impl Holds {
    pub(super) fn hold(&self, pods: PodName) {
        self.held.send_if_modified(|held| held.insert(pods));
    }

    pub(super) fn release(&self, pods: &PodName) {
        self.held.send_if_modified(|held| held.remove(pods));
    }

    /// Returns once nothing holds `pod`.
    pub(super) async fn released(&self, pod: &PodName) {
        let mut held = self.held.subscribe();
        let free = |held: &BTreeSet<PodName>| !held.iter().any(|prefix| prefix.covers(pod));
        held.wait_for(free).await.expect("the sender lives as long as self");
    }
}
