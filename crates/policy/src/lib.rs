//! Every decision about limits, order and retries, as a pure library.
//!
//! A policy is one ConfigMap that a platform admin edits. This crate turns its text into a
//! [`Policy`] and answers four questions, with no IO and with the time as an argument:
//!
//! 1. [`document`](document::document): what does the ConfigMap say, and what is wrong with it?
//! 2. [`admission`]: who may start now, in which order, and why does everyone else wait?
//! 3. [`retry`]: an attempt failed; when is the next one, if there is one?
//! 4. [`bandwidth`]: how much of the limit may each running import use?
//!
//! [`source_hosts`] is the rule for where an import may connect to. What to write to the cluster,
//! and when, is not decided here. Nothing here reads a clock: the crate's `clippy.toml` forbids it.

#![warn(missing_docs)]

pub mod admission;
pub mod backoff;
pub mod bandwidth;
pub mod document;
pub mod duration;
pub mod limits;
pub mod quantity;
pub mod retry;
pub mod source_hosts;
pub mod ticket;

mod address;
mod keys;
mod spelling;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use address::AddressClass;
pub use document::{Problem, Severity, document};
pub use keys::{KeyReference, NOT_ACTED_ON, keys};
pub use limits::{BackoffRange, RetryLimits};
pub use retry::{FailureClass, Retry};
pub use source_hosts::SourceHosts;
pub use ticket::Ticket;

/// The effective value of every key of the policy ConfigMap.
///
/// Field names follow the keys. A `None` is a key that has no default and is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Images syncing at once; 0 pauses admission.
    pub concurrency: u32,
    /// Retries after a failed first attempt: at most this many plus one downloads per budget.
    pub retry_limit: u32,
    /// Wait before the first retry; doubles for each further one.
    pub retry_backoff_duration: Duration,
    /// Cap of that wait. One below `retry_backoff_duration` counts as equal to it.
    pub retry_backoff_max: Duration,
    /// Workspaces being stood up at once; 0 pauses admission.
    pub workspace_concurrency: u32,
    /// A Workspace not ready by then gives its slot back and goes on without one.
    pub provisioning_timeout: Duration,
    /// Images syncing at once from one source host.
    pub concurrency_per_host: Option<u32>,
    /// Bytes per second over all running imports together.
    pub bandwidth_limit: Option<u64>,
    /// Longest an attempt may run.
    pub attempt_timeout: Duration,
    /// No byte moved for this long ends an attempt.
    pub stall_timeout: Duration,
    /// How long a claim may take to bind, apart from the stall timer.
    pub bind_timeout: Duration,
    /// Snapshots being taken at once, apart from the sync slots.
    pub snapshot_concurrency: u32,
    /// A snapshot not ready by then is replaced without a new download.
    pub snapshot_timeout: Duration,
    /// Bytes; a larger source is refused before it is downloaded.
    pub max_image_size: Option<u64>,
    /// Where imports may connect to.
    pub allowed_source_hosts: SourceHosts,
    /// What runs an import; in this version always `pod`.
    pub import_engine: ImportEngine,
    /// Remove prunable images that nothing has used for this long; `None` is never.
    pub prune_unused_after: Option<Duration>,
    /// StorageClass of images that name none; `None` is the cluster's default.
    pub default_storage_class: Option<String>,
    /// VolumeSnapshotClass of images that name none; `None` takes no snapshot.
    pub default_snapshot_class: Option<String>,
    /// StorageClass of scratch volumes; `None` is the image's.
    pub scratch_storage_class: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            concurrency: 4,
            retry_limit: 2,
            retry_backoff_duration: duration::minutes(5),
            retry_backoff_max: duration::hours(1),
            workspace_concurrency: 4,
            provisioning_timeout: duration::minutes(15),
            concurrency_per_host: None,
            bandwidth_limit: None,
            attempt_timeout: duration::hours(6),
            stall_timeout: duration::minutes(10),
            bind_timeout: duration::minutes(10),
            snapshot_concurrency: 10,
            snapshot_timeout: duration::minutes(30),
            max_image_size: None,
            allowed_source_hosts: SourceHosts::default(),
            import_engine: ImportEngine::Pod,
            prune_unused_after: None,
            default_storage_class: None,
            default_snapshot_class: None,
            scratch_storage_class: None,
        }
    }
}

impl Policy {
    /// The limits under which images are admitted.
    #[must_use]
    pub fn admission_limits(&self) -> admission::Limits {
        admission::Limits { concurrency: self.concurrency, per_host: self.concurrency_per_host }
    }

    /// The limits under which workspaces are admitted.
    #[must_use]
    pub fn workspace_limits(&self) -> admission::Limits {
        admission::Limits { concurrency: self.workspace_concurrency, per_host: None }
    }

    /// The limits under which snapshots are taken.
    #[must_use]
    pub fn snapshot_limits(&self) -> admission::Limits {
        admission::Limits { concurrency: self.snapshot_concurrency, per_host: None }
    }

    /// How often, and how soon, a failed attempt is followed by another.
    #[must_use]
    pub fn retry_limits(&self) -> RetryLimits {
        let backoff = BackoffRange::new(self.retry_backoff_duration, self.retry_backoff_max);
        RetryLimits { retry_limit: self.retry_limit, backoff }
    }
}

/// What runs an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportEngine {
    /// Our importer in a Job.
    Pod,
    /// A DataVolume of the Containerized Data Importer.
    Cdi,
}

impl ImportEngine {
    /// The value as it is written in the policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Cdi => "cdi",
        }
    }
}

impl fmt::Display for ImportEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ImportEngine {
    type Err = ImportEngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Pod, Self::Cdi]
            .into_iter()
            .find(|engine| engine.as_str() == text)
            .ok_or_else(|| ImportEngineError::ReadEngine { found: text.to_owned() })
    }
}

/// Why a text names no import engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportEngineError {
    /// The text is no engine's name.
    #[error("{found:?} is not an import engine; accepted is pod or cdi")]
    ReadEngine {
        /// What was found.
        found: String,
    },
}
