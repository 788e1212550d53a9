//! Installs the snapshot kinds.

use kube::Client;

use super::StorageError;
use crate::kinds::{self, KindFile};

const FILES: [KindFile; 3] = [
    ("volumesnapshotclasses.yaml", include_str!("crds/volumesnapshotclasses.yaml")),
    ("volumesnapshotcontents.yaml", include_str!("crds/volumesnapshotcontents.yaml")),
    ("volumesnapshots.yaml", include_str!("crds/volumesnapshots.yaml")),
];

/// Installs the kinds of `snapshot.storage.k8s.io/v1` and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<(), StorageError> {
    Ok(kinds::install(client, &FILES).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_file_parses() {
        let names = FILES.map(|file| kinds::parse(file).map(|kind| kind.spec.names.kind).ok());
        let wanted = ["VolumeSnapshotClass", "VolumeSnapshotContent", "VolumeSnapshot"];
        assert_eq!(names, wanted.map(|name| Some(name.to_owned())));
    }
}
