//! The report of a run, and where it goes.

use std::fs;
use std::io;
use std::path::Path;

use otctl_types::import::{ImportOutcome, ImportReport};

use crate::failure::Failure;
use crate::import::Imported;
use crate::progress::Tally;

/// What a run that did what it was started for leaves; `imported` is none for a probe.
#[must_use]
pub fn complete(tally: &Tally, imported: Option<Imported>) -> ImportReport {
    let message = match imported {
        Some(_) => "the disk is complete and verified",
        None => "the source can be imported, as far as its first bytes tell",
    };
    let (checksum, disk_checksum) = match imported {
        Some(Imported { checksum, disk_checksum }) => (Some(checksum), Some(disk_checksum)),
        None => (None, None),
    };
    ImportReport {
        outcome: ImportOutcome::Complete,
        message: message.to_owned(),
        checksum,
        disk_checksum,
        ..so_far(tally)
    }
}

/// What a run that failed leaves.
#[must_use]
pub fn failed(tally: &Tally, failure: &Failure) -> ImportReport {
    ImportReport {
        reason: Some(failure.reason),
        message: failure.message.clone(),
        retry_after_seconds: failure.retry_after.map(|wait| wait.as_secs()),
        ..so_far(tally)
    }
}

/// Writes the report to where the kubelet reads it, and nowhere else.
///
/// # Errors
/// When the file cannot be written.
pub fn write(report: &ImportReport, path: &Path) -> io::Result<()> {
    fs::write(path, report.to_termination_message())
}

fn so_far(tally: &Tally) -> ImportReport {
    ImportReport {
        outcome: ImportOutcome::Failed,
        reason: None,
        message: String::new(),
        download_started: tally.download_started(),
        bytes: tally.received(),
        source: tally.source(),
        checksum: None,
        disk_checksum: None,
        retry_after_seconds: None,
    }
}
