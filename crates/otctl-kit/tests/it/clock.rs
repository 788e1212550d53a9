//! The time of day, as virtual as tokio's.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use otctl_kit::clock::{Clock, after, until};
use tokio::time::{Instant, sleep};

/// Goes as tokio's clock goes; begins at the epoch.
pub(crate) struct VirtualClock(Instant);

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, self.0.elapsed())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(left) = until(self.now(), at) {
                sleep(left).await;
            }
        })
    }
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
