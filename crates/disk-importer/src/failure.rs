//! Why a run ended early: a reason the controller acts on and a sentence for a person.

use std::io;
use std::time::Duration;

use otctl_types::import::ImportReason;

/// The end of a run that did not do what it was started for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the controller acts on.
    pub reason: ImportReason,
    /// One sentence for a person.
    pub message: String,
    /// How long the source asked us to stay away.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of this reason.
    #[must_use]
    pub fn new(reason: ImportReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }

    /// A volume that failed while we tried to `action`, such as "write the disk".
    #[must_use]
    pub fn of_volume(action: &str, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImportReason::VolumeFull,
            // A file system has a longest file: no retry changes that.
            io::ErrorKind::FileTooLarge => ImportReason::TooLarge,
            _ => ImportReason::Internal,
        };
        Self::new(reason, format!("cannot {action}: {error}"))
    }

    /// The end of a run that was told to stop.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(ImportReason::Interrupted, "told to stop; what was received is kept")
    }

    /// Whether what was received is useless, so that the next run must begin at byte 0.
    ///
    /// Kept bytes that failed verification would fail it for ever, whatever the source serves
    /// then.
    #[must_use]
    pub fn spoils_download(&self) -> bool {
        matches!(
            self.reason,
            ImportReason::SourceChanged
                | ImportReason::ChecksumMismatch
                | ImportReason::BadFormat
                | ImportReason::UnsupportedFormat
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_fails_says_what_that_asks_for() {
        for (code, reason) in [
            (nix::libc::ENOSPC, ImportReason::VolumeFull),
            (nix::libc::EDQUOT, ImportReason::VolumeFull),
            (nix::libc::EFBIG, ImportReason::TooLarge),
            (nix::libc::EIO, ImportReason::Internal),
            (nix::libc::EROFS, ImportReason::Internal),
        ] {
            let failure = Failure::of_volume("write the disk", &io::Error::from_raw_os_error(code));
            assert_eq!(failure.reason, reason, "{failure}");
            assert!(failure.message.starts_with("cannot write the disk: "), "{failure}");
        }
    }
}
