//! Why a snapshot cannot be taken, in the words of the real controllers.

/// What stands in `status.error.message`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SnapshotProblem {
    #[error("Failed to set default snapshot class with error {0}")]
    ChooseDefaultClass(String),
    #[error(
        "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"{0}\" not found"
    )]
    FindClass(String),
    #[error(
        "Failed to create snapshot content with error snapshot controller failed to update {claim} on API server: {cause}"
    )]
    ProtectClaim { claim: String, cause: &'static str },
    #[error(
        "Failed to create snapshot content with error failed to get input parameters to create snapshot {snapshot}: {cause:?}"
    )]
    UseClaim { snapshot: String, cause: String },
    #[error(
        "snapshot {0} requests an non-existing content: contents made by hand are not served here"
    )]
    UseContent(String),
    #[error(
        "Failed to check and update snapshot content: failed to take snapshot of the volume {volume}: {cause:?}"
    )]
    TakeSnapshot { volume: String, cause: String },
}

impl SnapshotProblem {
    /// A volume that the driver of the class does not know.
    pub(super) fn foreign_driver(volume: &str, driver: &str) -> Self {
        let cause = format!(
            "rpc error: code = NotFound desc = volume {volume} is not known to driver {driver}"
        );
        Self::TakeSnapshot { volume: volume.to_owned(), cause }
    }

    /// A refusal of the driver itself.
    pub(super) fn refused(volume: &str, message: &str) -> Self {
        let cause = format!("rpc error: code = ResourceExhausted desc = {message}");
        Self::TakeSnapshot { volume: volume.to_owned(), cause }
    }

    /// True if the driver's sidecar says it, which writes it on the content first.
    pub(super) fn is_of_driver(&self) -> bool {
        matches!(self, Self::TakeSnapshot { .. })
    }
}
