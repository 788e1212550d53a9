//! What can go wrong with volumes and snapshots.

use std::path::PathBuf;

use crate::kinds::KindError;

/// An error of the provisioner or the snapshotter.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("ask the API server: {0}")]
    AskServer(#[from] kube::Error),
    #[error(transparent)]
    InstallKinds(#[from] KindError),
    #[error("prepare directory {}: {source}", path.display())]
    PrepareDirectory { path: PathBuf, source: std::io::Error },
    #[error("copy {} to {}: {source}", from.display(), to.display())]
    CopyBytes { from: PathBuf, to: PathBuf, source: std::io::Error },
    #[error("remove {}: {source}", path.display())]
    RemoveBytes { path: PathBuf, source: std::io::Error },
    #[error("persistentvolumeclaim \"{0}\" not found")]
    FindClaim(String),
    #[error("persistentvolumeclaim \"{0}\" is not bound")]
    UseUnboundClaim(String),
    #[error("persistentvolume \"{0}\" not found")]
    FindVolume(String),
    #[error("use volume {0}: it is no directory volume")]
    UseForeignVolume(String),
    #[error("use volume {volume}: {} is not below {}", path.display(), root.display())]
    LeaveRoot { volume: String, path: PathBuf, root: PathBuf },
    #[error("read quantity {0:?} as a number of bytes")]
    ReadQuantity(String),
}

impl StorageError {
    /// True if somebody else wrote first: the newer version is already on its way here.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::AskServer(kube::Error::Api(answer)) if answer.is_conflict())
    }
}
