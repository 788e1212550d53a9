//! How the container of a pod ended: exit code, reason, message.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;

/// What kubelet keeps of a termination message, in bytes; of a longer one it keeps the end.
const MESSAGE_LIMIT: usize = 4096;
/// What stands in for the message of a failed container that wrote none, if its policy asks for it.
const LOG_LIMIT: usize = 2048;
const SIGKILLED: i32 = 128 + 9;

/// The end of one run of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) exit_code: i32,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Timestamp,
}

impl Termination {
    /// A process that ended by itself or by a signal.
    pub(super) fn exited(status: ExitStatus, started_at: Timestamp, message: String) -> Self {
        let by_signal = || status.signal().map_or(SIGKILLED, |signal| 128 + signal);
        let exit_code = status.code().unwrap_or_else(by_signal);
        Self::with_code(exit_code, Some(started_at), message)
    }

    /// An end with a known exit code.
    pub(super) fn with_code(
        exit_code: i32,
        started_at: Option<Timestamp>,
        message: String,
    ) -> Self {
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        Self { exit_code, reason, message, started_at, finished_at: Timestamp::now() }
    }

    /// A container that was never started, or that the node has lost sight of.
    pub(super) fn unknown() -> Self {
        Self {
            reason: "ContainerStatusUnknown",
            ..Self::with_code(
                SIGKILLED,
                None,
                "The container could not be located when the pod was terminated".into(),
            )
        }
    }

    /// A container whose program could not be started at all.
    pub(super) fn not_started(error: &std::io::Error) -> Self {
        Self { reason: "StartError", ..Self::with_code(128, None, error.to_string()) }
    }

    pub(super) fn succeeded(&self) -> bool {
        self.exit_code == 0
    }

    /// How long it ran.
    pub(super) fn lasted(&self) -> Duration {
        let ran = self.started_at.map(|started| self.finished_at.duration_since(started));
        ran.map_or(Duration::ZERO, |ran| ran.unsigned_abs())
    }
}

/// The termination message of a run that ended with `status`: what the process wrote, else, where
/// the container asks for it, the end of its output.
pub(super) fn termination_message(
    container: &Container,
    status: ExitStatus,
    written: &Path,
    log: &Path,
) -> String {
    let message = end_of(written, MESSAGE_LIMIT);
    let falls_back =
        container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if message.is_empty() && falls_back && !status.success() {
        end_of(log, LOG_LIMIT)
    } else {
        message
    }
}

/// The last `limit` bytes of a file; empty if it cannot be read.
fn end_of(path: &Path, limit: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(limit)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(policy: &str, raw_status: i32, written: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let (message, log) = (dir.path().join("message"), dir.path().join("log"));
        std::fs::write(&message, written).expect("written");
        std::fs::write(&log, "the last words").expect("written");
        let container = Container {
            termination_message_policy: Some(policy.to_owned()),
            ..Container::default()
        };
        termination_message(&container, ExitStatus::from_raw(raw_status), &message, &log)
    }

    #[test]
    fn a_long_message_keeps_its_last_4096_bytes() {
        let written = format!("{}{}", "a".repeat(10), "b".repeat(4096));
        assert_eq!(message_of("File", 0, &written), "b".repeat(4096));
    }

    #[test]
    fn only_a_failed_container_without_a_message_falls_back_to_its_log() {
        let failed = 1 << 8;
        assert_eq!(message_of("FallbackToLogsOnError", failed, ""), "the last words");
        assert_eq!(message_of("FallbackToLogsOnError", failed, "own"), "own");
        assert_eq!(message_of("FallbackToLogsOnError", 0, ""), "");
        assert_eq!(message_of("File", failed, ""), "");
    }

    #[test]
    fn a_signal_becomes_128_and_its_number() {
        let killed = Termination::exited(ExitStatus::from_raw(9), Timestamp::now(), String::new());
        assert_eq!((killed.exit_code, killed.reason), (137, "Error"));
    }
}
