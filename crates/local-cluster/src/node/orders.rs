//! What the containers of a pod are told to do: run, or end by a time.

use std::process::ExitStatus;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::inbox::Interruption;
use super::running::RunningProcess;

/// Longer than any process is waited for.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The newest order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    /// Processes are asked to end, and killed at this time.
    End {
        by: Instant,
    },
    Kill,
}

impl Order {
    /// What an interruption asks for: deletion has its grace, everything else has none.
    pub(super) fn of(cause: &Interruption) -> Self {
        match cause {
            Interruption::Deleted { grace } => Self::End { by: Instant::now() + *grace },
            Interruption::Gone | Interruption::Commanded(_) => Self::Kill,
        }
    }

    /// The order after one more interruption. A second deletion may shorten the grace, never lengthen it.
    pub(super) fn hurried_by(self, asked: Instant, cause: &Interruption) -> Self {
        match (self, cause) {
            (Self::End { by }, Interruption::Deleted { grace }) => {
                Self::End { by: by.min(asked + *grace) }
            }
            (Self::Run, cause) => Self::of(cause),
            (Self::End { .. } | Self::Kill, _) => Self::Kill,
        }
    }
}

/// The receiving side of a pod's orders.
#[derive(Clone)]
pub(super) struct Orders(watch::Receiver<Order>);

impl Orders {
    pub(super) fn channel() -> (watch::Sender<Order>, Self) {
        let (sender, receiver) = watch::channel(Order::Run);
        (sender, Self(receiver))
    }

    /// Returns once the pod is to end.
    pub(super) async fn until_end(&mut self) {
        // A pod whose task is gone is ended with it.
        let _ = self.0.wait_for(|order| *order != Order::Run).await;
    }

    fn current(&self) -> Order {
        *self.0.borrow()
    }

    /// Ends a process that has as long as the orders leave it, and no longer than `grace`.
    pub(super) async fn end(
        &mut self,
        process: &mut RunningProcess,
        grace: Option<Duration>,
    ) -> std::io::Result<ExitStatus> {
        if self.current() != Order::Kill {
            process.terminate();
        }
        let mut deadline = Instant::now() + grace.unwrap_or(NO_LIMIT);
        loop {
            deadline = deadline.min(self.deadline());
            tokio::select! {
                status = process.wait() => return status,
                () = tokio::time::sleep_until(deadline) => {
                    process.kill();
                    return process.wait().await;
                }
                changed = self.0.changed() => if changed.is_err() {
                    deadline = Instant::now();
                },
            }
        }
    }

    fn deadline(&self) -> Instant {
        match self.current() {
            Order::Run => Instant::now() + NO_LIMIT,
            Order::End { by } => by,
            Order::Kill => Instant::now(),
        }
    }
}
