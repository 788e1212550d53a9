//! When the person at the terminal has had enough: Ctrl-C, SIGTERM, or the terminal going away.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a command, listened to from now on.
pub(crate) struct Interruption {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interruption {
    /// Listens from now on; the signals no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the first of them.
    pub(crate) async fn arrives(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }

    /// What a shell expects of a program that was interrupted.
    pub(crate) fn exit_code() -> ExitCode {
        ExitCode::from(130)
    }
}
