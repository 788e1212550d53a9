//! When to stop: SIGTERM and SIGINT drain, a second signal aborts. Tests and the demo stop a controller through the
//! same [`Shutdown`] without a signal.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The wish to stop, shared by everything that must stop.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// Not asked to stop yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks once to drain; asked again, to abort. This is what a signal does.
    pub fn ask(&self) {
        if self.drain.is_cancelled() {
            self.abort.cancel();
        }
        self.drain.cancel();
    }

    /// Waits until asked to drain: finish the pass at hand, give the lease back, end.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until asked to abort: end now.
    pub async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// Whether it was asked to drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Asks whenever SIGTERM or SIGINT arrives, from now on and as long as the runtime lives.
    ///
    /// # Errors
    /// When the signals cannot be listened to.
    pub fn listen(&self) -> io::Result<()> {
        let (term, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::spawn(relay(self.clone(), term, interrupt));
        Ok(())
    }
}

async fn relay(shutdown: Shutdown, mut term: Signal, mut interrupt: Signal) {
    loop {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        let again = shutdown.is_draining();
        tracing::info!(
            signal = name,
            "{}",
            if again { "told to abort" } else { "told to stop; draining" }
        );
        shutdown.ask();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, ExitStatus, Stdio};

    use futures::FutureExt;
    use nix::sys::signal::{Signal as Sent, kill};
    use nix::unistd::Pid;

    use super::*;

    #[tokio::test]
    async fn the_first_ask_drains_and_the_second_aborts() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_draining());
        assert!(shutdown.draining().now_or_never().is_none());
        shutdown.ask();
        shutdown.draining().await;
        assert!(shutdown.aborted().now_or_never().is_none());
        shutdown.clone().ask();
        shutdown.aborted().await;
    }

    /// Set in the process that [`signals`] starts: this test binary again, with this test alone.
    const IS_CHILD: &str = "OTCTL_TEST_SHUTDOWN_CHILD";
    const DRAINED: i32 = 10;
    const ABORTED: i32 = 20;

    /// Tells on stderr how far it is; drains for ever when told to be stubborn.
    #[tokio::main(flavor = "current_thread")]
    async fn child(manner: &str) -> i32 {
        let shutdown = Shutdown::new();
        shutdown.listen().unwrap();
        eprintln!("ready");
        shutdown.draining().await;
        eprintln!("draining");
        if manner == "stubborn" {
            shutdown.aborted().await;
            return ABORTED;
        }
        DRAINED
    }

    fn start(manner: &str) -> (Child, impl Iterator<Item = String> + use<>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shutdown::tests::signals", "--nocapture"])
            .env(IS_CHILD, manner)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        (child, lines.map_while(Result::ok))
    }

    fn signalled(manner: &str, first: Sent, second: Option<Sent>) -> ExitStatus {
        let (mut child, mut lines) = start(manner);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(lines.any(|line| line == "ready"));
        kill(pid, first).unwrap();
        assert!(lines.any(|line| line == "draining"));
        if let Some(second) = second {
            kill(pid, second).unwrap();
        }
        child.wait().unwrap()
    }

    #[test]
    fn signals() {
        if let Ok(manner) = std::env::var(IS_CHILD) {
            std::process::exit(child(&manner));
        }
        assert_eq!(signalled("prompt", Sent::SIGTERM, None).code(), Some(DRAINED));
        assert_eq!(signalled("prompt", Sent::SIGINT, None).code(), Some(DRAINED));
        assert_eq!(signalled("stubborn", Sent::SIGTERM, Some(Sent::SIGTERM)).code(), Some(ABORTED));
        assert_eq!(signalled("stubborn", Sent::SIGINT, Some(Sent::SIGTERM)).code(), Some(ABORTED));
    }
}
