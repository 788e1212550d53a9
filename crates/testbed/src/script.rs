//! How import pods end: per image, the result of each probe and of each import in order. What is not scripted succeeds.

use std::collections::{BTreeMap, VecDeque};

use otctl_kit::store::Key;
use otctl_types::import::{ImageFormat, ImportOutcome, ImportReason, ImportReport, SourceFacts};

/// How one run of the importer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a report in the termination message; exit code 0 when complete, else 1.
    Report(ImportReport),
    /// Without a report, exit code 137: killed from outside.
    Killed,
    /// Thrown off its node before it could report.
    Evicted,
    /// Not by itself: it runs until it is deleted.
    Never,
}

impl Ending {
    /// All went well. A probe says what it saw; an import has the checksums too.
    #[must_use]
    pub fn complete(role: Role) -> Self {
        let import = role == Role::Import;
        Self::Report(ImportReport {
            outcome: ImportOutcome::Complete,
            reason: None,
            message: "complete".to_owned(),
            download_started: import,
            bytes: if import { SOURCE_SIZE } else { 65536 },
            source: Some(source()),
            checksum: import.then(|| format!("sha256:{}", "a".repeat(64))),
            disk_checksum: import.then(|| format!("sha256:{}", "d".repeat(64))),
            retry_after_seconds: None,
        })
    }

    /// Failed for `reason`; for an import after it asked for data, for a probe before.
    #[must_use]
    pub fn failed(role: Role, reason: ImportReason) -> Self {
        let import = role == Role::Import;
        Self::Report(ImportReport {
            outcome: ImportOutcome::Failed,
            reason: Some(reason),
            message: format!("scripted {reason}"),
            download_started: import,
            bytes: if import { SOURCE_SIZE / 2 } else { 0 },
            source: import.then(source),
            checksum: None,
            disk_checksum: None,
            retry_after_seconds: None,
        })
    }
}

/// Length in bytes of every source that is not scripted otherwise.
pub const SOURCE_SIZE: u64 = 64 * 1024 * 1024;

/// What every source says of itself that is not scripted otherwise: a qcow2 of 1 GiB.
#[must_use]
pub fn source() -> SourceFacts {
    SourceFacts {
        size: Some(SOURCE_SIZE),
        etag: Some("\"v1\"".to_owned()),
        accepts_ranges: true,
        format: ImageFormat::Qcow2,
        compression: None,
        virtual_size: Some(1 << 30),
    }
}

/// What a pod of the importer is there for, by its label `pelotech.ot/role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A look at the source.
    Probe,
    /// The download.
    Import,
}

impl Role {
    pub(crate) fn parse(label: &str) -> Self {
        if label == "probe" { Self::Probe } else { Self::Import }
    }
}

/// The scripted endings that were not used yet.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    once: BTreeMap<(Key, Role), VecDeque<Ending>>,
    always: BTreeMap<(Key, Role), Ending>,
}

impl Scripts {
    /// `ending` comes after those already scripted.
    pub(crate) fn push(&mut self, image: Key, role: Role, ending: Ending) {
        self.once.entry((image, role)).or_default().push_back(ending);
    }

    /// `ending` comes whenever none is left.
    pub(crate) fn fall_back(&mut self, image: Key, role: Role, ending: Ending) {
        self.always.insert((image, role), ending);
    }

    pub(crate) fn peek(&self, image: &Key, role: Role) -> Ending {
        let at = (image.clone(), role);
        let next = self.once.get(&at).and_then(VecDeque::front).or_else(|| self.always.get(&at));
        next.cloned().unwrap_or_else(|| Ending::complete(role))
    }

    /// The next ending of that image; used up by this.
    pub(crate) fn take(&mut self, image: &Key, role: Role) -> Ending {
        let ending = self.peek(image, role);
        if let Some(left) = self.once.get_mut(&(image.clone(), role)) {
            left.pop_front();
        }
        ending
    }
}
