//! Time that moves only when a test says so.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use otctl_kit::clock::Clock;

/// A clock that stands still. Clones show the same time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    face: Arc<Mutex<Face>>,
}

#[derive(Debug)]
struct Face {
    now: Timestamp,
    sleepers: Vec<Waker>,
}

impl VirtualClock {
    /// The time it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.lock().now
    }

    /// Shows `time` from now on; may go back, as wall clocks do.
    pub fn set(&self, time: Timestamp) {
        let mut face = self.lock();
        face.now = time;
        face.sleepers.drain(..).for_each(Waker::wake);
    }

    /// Moves forward.
    ///
    /// # Panics
    /// When the sum is beyond the year 9999.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().checked_add(by).expect("tests stay within the calendar"));
    }

    fn lock(&self) -> MutexGuard<'_, Face> {
        self.face.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for VirtualClock {
    /// Noon of a day, so that the minutes in goldens are easy to read.
    fn default() -> Self {
        let noon = "2026-01-01T12:00:00Z".parse().expect("a constant timestamp parses");
        Self { face: Arc::new(Mutex::new(Face { now: noon, sleepers: Vec::new() })) }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        VirtualClock::now(self)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(poll_fn(move |context| {
            let mut face = self.lock();
            if face.now >= at {
                return Poll::Ready(());
            }
            face.sleepers.push(context.waker().clone());
            Poll::Pending
        }))
    }
}
