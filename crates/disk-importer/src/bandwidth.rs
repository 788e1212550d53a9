//! The share of the bandwidth at a socket: a stream that takes no byte before its turn, and the
//! one place that the share is changed at. When a turn comes is `pacer`'s matter.
//!
//! Bytes are counted as they leave the socket, TLS and headers included. What the kernel holds
//! for us is bounded by the receive buffer; a sender that finds it full waits.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use otctl_types::import;
use policy::bandwidth::gate::{Fence, Gate, Stale, Told};
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::pacer::{Pacer, Turn};

/// A wait is looked at again after this, since the share may have changed: at once, to a person.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The share of one run, known to its connections and to whoever changes it.
#[derive(Clone, Debug)]
pub struct Bandwidth(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    gate: Gate,
    clock: Clock,
    pacer: Pacer,
    /// Until when the last wait lasts, or lasted.
    held_until: Instant,
}

/// The clock by which shares end. No two processes' clocks agree, as far as can be: a share that was meant for one is
/// seen by another to be none of its own.
#[derive(Clone, Copy, Debug)]
struct Clock {
    begun: Instant,
    begun_at: Duration,
}

/// A stream from which bytes are taken at the pace of the share.
#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    bandwidth: Bandwidth,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Bandwidth {
    /// At most so many bytes per second until something else is granted; none: no limit.
    #[must_use]
    pub fn new(fallback: Option<u64>) -> Self {
        let now = Instant::now();
        let (gate, pacer) = (Gate::default(), Pacer::new(fallback, now));
        let state = State { gate, clock: Clock::begin(now), pacer, held_until: now };
        Self(Arc::new(Mutex::new(state)))
    }

    /// From now on `share` holds, for as long as it says.
    ///
    /// # Errors
    /// When a later one was taken before; nothing changes then.
    pub fn grant(&self, share: &import::Share) -> Result<(), Stale> {
        let mut state = self.state();
        // One look at the time for both: we may be stopped between any two.
        let now = Instant::now();
        let clock = state.clock.at(now);
        let holding = state.gate.take(&told(share), clock)?;
        state.pacer.grant(holding, now);
        Ok(())
    }

    /// What the clock by which shares end shows now.
    #[must_use]
    pub fn clock(&self) -> Duration {
        self.state().clock.at(Instant::now())
    }

    /// The highest fence that was taken.
    #[must_use]
    pub fn taken(&self) -> Option<import::Fence> {
        let taken = self.state().gate.taken();
        taken.map(|Fence { term, serial }| import::Fence { term, serial })
    }

    /// `stream`, read at this pace.
    pub fn pace<S>(&self, stream: S) -> Paced<S> {
        Paced { stream, bandwidth: self.clone(), wait: None }
    }

    /// Until when bytes were, or still are, kept waiting here. Silence before that says nothing
    /// of the other side.
    #[must_use]
    pub fn held_until(&self) -> Instant {
        self.state().held_until
    }

    fn turn(&self) -> Turn {
        let now = Instant::now();
        let mut state = self.state();
        let turn = state.pacer.turn(now);
        if let Turn::Wait(wait) = turn {
            // A wait of centuries is as good as one of a day: it is looked at again before that.
            state.held_until = now + wait.min(Duration::from_secs(86_400));
        }
        turn
    }

    fn took(&self, bytes: usize) {
        self.state().pacer.took(bytes, Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock {
    fn begin(now: Instant) -> Self {
        let milliseconds = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        Self { begun: now, begun_at: Duration::from_millis(milliseconds) }
    }

    fn at(self, now: Instant) -> Duration {
        self.begun_at + now.saturating_duration_since(self.begun)
    }
}

fn told(share: &import::Share) -> Told {
    Told {
        share: share.bytes_per_second,
        fallback: share.fallback_bytes_per_second,
        fence: share.fence.map(|import::Fence { term, serial }| Fence { term, serial }),
        until: share.until_ms.map(Duration::from_millis),
    }
}

impl<S> Paced<S> {
    /// How many bytes may be taken, once it is their turn.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            match self.bandwidth.turn() {
                Turn::Take(bytes) => return Poll::Ready(bytes),
                Turn::Wait(wait) => self.wait = Some(Box::pin(sleep(wait.min(LOOK_AGAIN)))),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.poll_turn(cx)).min(buffer.remaining());
        let mut slice = ReadBuf::new(buffer.initialize_unfilled_to(bytes));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut slice))?;
        let taken = slice.filled().len();
        buffer.advance(taken);
        self.bandwidth.took(taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Reads everything at a share of 64 KiB/s, and says how long that took.
    async fn time_to_read(bandwidth: &Bandwidth, bytes: usize) -> Duration {
        let begun = Instant::now();
        let mut stream = bandwidth.pace(tokio::io::repeat(7));
        let mut buffer = vec![0; bytes];
        stream.read_exact(&mut buffer).await.unwrap();
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_come_at_the_pace_of_the_share() {
        let bandwidth = Bandwidth::new(Some(64 * 1024));
        let time = time_to_read(&bandwidth, 640 * 1024).await;
        assert!(time >= Duration::from_millis(9_800), "{time:?}");
        assert!(time <= Duration::from_millis(10_200), "{time:?}");
        assert_eq!(time_to_read(&Bandwidth::default(), 640 * 1024).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_acts_on_a_reader_that_waits() {
        let bandwidth = Bandwidth::new(Some(8));
        let reader = time_to_read(&bandwidth, 1024 * 1024);
        let change = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            bandwidth.grant(&import::Share::default()).unwrap();
        };
        let (time, ()) = tokio::join!(reader, change);
        assert!(time <= Duration::from_millis(3_100), "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_kept_waiting_is_known_to_be() {
        let bandwidth = Bandwidth::new(Some(1));
        let begun = Instant::now();
        assert!(bandwidth.held_until() <= begun);
        let two_bytes = time_to_read(&bandwidth, 2).await;
        assert_eq!(two_bytes, Duration::from_secs(1));
        assert_eq!(bandwidth.held_until(), begun + Duration::from_secs(1));
    }
}
