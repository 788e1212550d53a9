//! The process whose requests pass: signals to it, and the gate that closes when one kills it.

use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// What a sender needs at least to read an answer. Nothing that it sends meanwhile passes.
const READ_AFTER: Duration = Duration::from_millis(20);
/// One that sends nothing more in this time rests, and has read what it was sent.
const READ_WITHIN: Duration = Duration::from_millis(300);

/// The sender.
#[derive(Debug)]
pub(super) struct Process {
    state: Mutex<State>,
    kills: watch::Sender<usize>,
    /// A request came that does not pass.
    knocks: Notify,
}

#[derive(Debug, Default)]
struct State {
    id: Option<Pid>,
    /// Killed, or about to be: what it still sends does not pass.
    is_doomed: bool,
}

impl Default for Process {
    fn default() -> Self {
        Self { state: Mutex::default(), kills: watch::Sender::new(0), knocks: Notify::new() }
    }
}

impl Process {
    pub(super) fn attach(&self, id: i32) {
        *self.lock() = State { id: Some(Pid::from_raw(id)), is_doomed: false };
    }

    pub(super) fn kills(&self) -> usize {
        *self.kills.borrow()
    }

    pub(super) async fn killed(&self, times: usize) {
        let waited = self.kills.subscribe().wait_for(|kills| *kills >= times).await.map(drop);
        waited.expect("the sender lives in self");
    }

    /// Passes at once, or never: a dead sender's requests are dropped with its connection.
    pub(super) async fn pass(&self) {
        if self.lock().is_doomed {
            self.knocks.notify_waiters();
            pending::<()>().await;
        }
    }

    /// SIGKILL, now.
    pub(super) fn kill(&self) {
        self.lock().is_doomed = true;
        self.signal(Signal::SIGKILL);
        self.kills.send_modify(|kills| *kills += 1);
    }

    /// SIGKILL, after it has read its answer, which its next request shows, and before anything else of it passes.
    pub(super) async fn kill_after_reading(&self) {
        let mut knocked = pin!(self.knocks.notified());
        knocked.as_mut().enable();
        sleep(READ_AFTER).await;
        // Either way it has read it.
        let _ = timeout(READ_WITHIN, knocked).await;
        self.kill();
    }

    /// From here on nothing of it passes.
    pub(super) fn doom(&self) {
        self.lock().is_doomed = true;
    }

    /// SIGSTOP, and SIGCONT after that time.
    pub(super) async fn stop(&self, time: Duration) {
        self.signal(Signal::SIGSTOP);
        sleep(time).await;
        self.resume();
    }

    /// SIGCONT.
    pub(super) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// A process that is gone needs no signal; none attached gets none, which shows by its living on.
    fn signal(&self, signal: Signal) {
        let id = self.lock().id;
        if let Some(id) = id
            && let Err(error) = kill(id, signal)
        {
            tracing::debug!(%id, %signal, %error, "the process is gone");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
