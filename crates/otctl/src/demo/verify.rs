//! Reads the disk that a consumer would get: the snapshot restored into a new claim, every byte of it hashed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use local_cluster::storage::{IMMEDIATE_CLASS, read_volume};
use otctl_types::VMDiskImage;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::scenario::NAMESPACE;

/// A restored claim is bound by then, or something is wrong.
const BOUND_WITHIN: Duration = Duration::from_secs(60);
/// Read at once, in bytes.
const SLICE: usize = 1 << 20;

/// A disk as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// In bytes.
    pub size: u64,
    /// 64 hexadecimal digits.
    pub sha256: String,
}

/// Restores the snapshot of this image into a new claim and reads the disk in it.
pub async fn restored_disk(client: &Client, image: &VMDiskImage) -> anyhow::Result<Disk> {
    let current = image
        .status
        .as_ref()
        .and_then(|status| status.current.as_ref())
        .context("it has no usable disk")?;
    let snapshot = current.snapshot.as_deref().context("it has no snapshot")?;
    let size = current.minimum_size.context("it does not say how large a claim must be")?;
    let claim = restore(client, snapshot, size).await?;
    let volume = read_volume(client, NAMESPACE, &claim).await?;
    let reading = tokio::task::spawn_blocking(move || read(&volume.join("disk.img")));
    reading.await?.context("the restored disk cannot be read")
}

/// Makes the claim and waits until it is bound; its name.
async fn restore(client: &Client, snapshot: &str, size: i64) -> anyhow::Result<String> {
    let name = format!("restored-{snapshot}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let claim = claim(&name, snapshot, size)?;
    claims.create(&PostParams::default(), &claim).await.context("the claim cannot be created")?;
    let bound = await_condition(claims, &name, |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(is_bound)
    });
    tokio::time::timeout(BOUND_WITHIN, bound)
        .await
        .with_context(|| format!("claim '{name}' is not bound"))??;
    Ok(name)
}

fn claim(name: &str, snapshot: &str, size: i64) -> serde_json::Result<PersistentVolumeClaim> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": IMMEDIATE_CLASS,
            "resources": {"requests": {"storage": size.to_string()}},
            "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot},
        },
    }))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Every byte, holes included. It blocks.
fn read(path: &Path) -> io::Result<Disk> {
    let mut file = File::open(path)?;
    let (mut hasher, mut slice, mut size) = (Sha256::new(), vec![0; SLICE], 0);
    loop {
        let count = file.read(&mut slice)?;
        if count == 0 {
            return Ok(Disk { size, sha256: hex::encode(hasher.finalize()) });
        }
        hasher.update(&slice[..count]);
        size += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_read_as_the_zeros_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        std::fs::write(&path, b"start").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(3 << 20).unwrap();
        let mut whole = b"start".to_vec();
        whole.resize(3 << 20, 0);
        let expected = Disk { size: 3 << 20, sha256: hex::encode(Sha256::digest(&whole)) };
        assert_eq!(read(&path).unwrap(), expected);
    }
}
