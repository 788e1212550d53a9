//! Where the volume of a claim is on this machine.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Api;
use kube::{Client, ResourceExt};

use super::{StorageError, quantity};

/// A bound volume of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePlace {
    /// The PersistentVolume's name.
    pub volume: String,
    /// A directory; for a Block volume a file.
    pub path: PathBuf,
    /// The volume's capacity in bytes.
    pub capacity: u64,
    /// `Filesystem` or `Block`.
    pub mode: String,
}

/// Where the volume of a bound claim is.
pub async fn read_volume(
    client: &Client,
    namespace: &str,
    claim: &str,
) -> Result<PathBuf, StorageError> {
    VolumePlace::of_claim(client, namespace, claim).await.map(|place| place.path)
}

impl VolumePlace {
    /// The volume a claim is bound to.
    pub async fn of_claim(
        client: &Client,
        namespace: &str,
        claim: &str,
    ) -> Result<Self, StorageError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let found = claims
            .get_opt(claim)
            .await?
            .ok_or_else(|| StorageError::FindClaim(claim.to_owned()))?;
        Self::of(client, &found).await
    }

    /// The volume a claim is bound to.
    pub(super) async fn of(
        client: &Client,
        claim: &PersistentVolumeClaim,
    ) -> Result<Self, StorageError> {
        let name =
            bound_volume(claim).ok_or_else(|| StorageError::UseUnboundClaim(claim.name_any()))?;
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let volume = volumes
            .get_opt(name)
            .await?
            .ok_or_else(|| StorageError::FindVolume(name.to_owned()))?;
        Self::try_from(&volume)
    }

    /// The path, if it is below `root`: nothing else on the machine is touched.
    pub(crate) fn below(self, root: &Path) -> Result<PathBuf, StorageError> {
        let climbs = self.path.components().any(|part| part == std::path::Component::ParentDir);
        if self.path.starts_with(root) && !climbs {
            return Ok(self.path);
        }
        Err(StorageError::LeaveRoot { volume: self.volume, path: self.path, root: root.to_owned() })
    }
}

fn bound_volume(claim: &PersistentVolumeClaim) -> Option<&str> {
    let bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
    claim.spec.as_ref()?.volume_name.as_deref().filter(|_| bound)
}

impl TryFrom<&PersistentVolume> for VolumePlace {
    type Error = StorageError;

    fn try_from(volume: &PersistentVolume) -> Result<Self, StorageError> {
        let name = volume.name_any();
        let spec = volume.spec.as_ref();
        let Some(host_path) = spec.and_then(|spec| spec.host_path.as_ref()) else {
            return Err(StorageError::UseForeignVolume(name));
        };
        let storage = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
        let mode = spec.and_then(|spec| spec.volume_mode.clone());
        Ok(Self {
            path: PathBuf::from(&host_path.path),
            capacity: storage.map_or(Ok(0), quantity::bytes)?,
            mode: mode.unwrap_or_else(|| "Filesystem".to_owned()),
            volume: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> VolumePlace {
        VolumePlace {
            volume: "v".into(),
            path: path.into(),
            capacity: 0,
            mode: "Filesystem".into(),
        }
    }

    #[test]
    fn only_paths_below_the_root_are_used() {
        let root = Path::new("/tmp/root");
        assert!(place("/tmp/root/volumes/v").below(root).is_ok());
        for outside in ["/", "/tmp/rootless", "/tmp/root/../x", "/etc"] {
            assert!(place(outside).below(root).is_err(), "{outside}");
        }
    }
}
