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

    /// Waits for the first of them, and gives what a shell expects of a program that it ended.
    pub(crate) async fn arrives(&mut self) -> ExitCode {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        exit_code(kind)
    }
}

fn exit_code(kind: SignalKind) -> ExitCode {
    let number = u8::try_from(kind.as_raw_value()).expect("the numbers of signals are small");
    ExitCode::from(128 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signals_number_is_in_the_exit_code() {
        assert_eq!(exit_code(SignalKind::interrupt()), ExitCode::from(130));
        assert_eq!(exit_code(SignalKind::terminate()), ExitCode::from(143));
    }
}
