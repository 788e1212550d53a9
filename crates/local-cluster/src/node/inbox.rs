//! What is wanted of one pod: the newest version of the object, and what a test has commanded.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

/// How a test ends a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Evict,
    Finish { exit_code: i32, message: String },
}

/// The newest wish about a pod. Level-triggered: only the latest counts.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) pod: Arc<Pod>,
    pub(super) ending: Option<Ending>,
}

/// Why a pod must not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The object is gone from the API server.
    Gone,
    /// The pod is being deleted; its processes have this long.
    Deleted { grace: Duration },
    /// A test has commanded the end.
    Commanded(Ending),
}

/// The receiving side of one pod's wishes.
pub(super) struct Inbox {
    wishes: watch::Receiver<Wish>,
}

impl Inbox {
    pub(super) fn new(wishes: watch::Receiver<Wish>) -> Self {
        Self { wishes }
    }

    /// The newest version of the pod.
    pub(super) fn pod(&self) -> Arc<Pod> {
        self.wishes.borrow().pod.clone()
    }

    /// Waits for the first reason not to go on.
    pub(super) async fn interruption(&mut self) -> Interruption {
        loop {
            if let Some(interruption) = interruption_in(&self.wishes.borrow_and_update()) {
                return interruption;
            }
            if self.wishes.changed().await.is_err() {
                return Interruption::Gone;
            }
        }
    }

    /// Waits until the newest wish differs from the last one seen, and judges it again.
    pub(super) async fn next_interruption(&mut self) -> Interruption {
        match self.wishes.changed().await {
            Ok(()) => self.interruption().await,
            Err(_) => Interruption::Gone,
        }
    }

    /// Waits until the pod is to be deleted, or gone; a command means nothing any more.
    pub(super) async fn removal(&mut self) -> Interruption {
        loop {
            if let Some(grace) = deletion_grace(&self.wishes.borrow_and_update().pod) {
                return Interruption::Deleted { grace };
            }
            if self.wishes.changed().await.is_err() {
                return Interruption::Gone;
            }
        }
    }
}

fn interruption_in(wish: &Wish) -> Option<Interruption> {
    let deleted = deletion_grace(&wish.pod).map(|grace| Interruption::Deleted { grace });
    deleted.or_else(|| wish.ending.clone().map(Interruption::Commanded))
}

/// How long a pod that is being deleted has; none if it is not.
fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
