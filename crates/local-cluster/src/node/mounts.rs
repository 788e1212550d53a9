//! Volumes of a pod as directories and files of the host, and paths rewritten to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::ResourceExt;

use super::NodeContext;
use super::sources::SourceVolume;
use crate::storage::VolumePlace;

/// Why a pod cannot start yet, as kubelet tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotYet {
    /// The reason of the waiting container.
    pub(super) waiting: &'static str,
    /// The reason of the Event.
    pub(super) event: &'static str,
    pub(super) message: String,
}

impl NotYet {
    /// A volume is not there.
    pub(super) fn volume(message: impl Into<String>) -> Self {
        Self { waiting: "ContainerCreating", event: "FailedMount", message: message.into() }
    }

    /// The message of the waiting container. While a volume is missing kubelet shows none: only the Event has it.
    pub(super) fn shown(&self) -> String {
        if self.event == "FailedMount" { String::new() } else { self.message.clone() }
    }

    /// The container's configuration refers to something that is not there.
    pub(super) fn config(message: impl Into<String>) -> Self {
        Self { waiting: "CreateContainerConfigError", event: "Failed", message: message.into() }
    }
}

/// A path of the container and what stands for it on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) at: String,
    pub(super) host: PathBuf,
}

/// Where the volumes of a pod are on this host, by their names.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// Finds or makes every volume of `pod`; what has no place of its own goes below `dir`.
pub(super) async fn volumes(
    context: &NodeContext,
    pod: &Pod,
    dir: &Path,
) -> Result<Volumes, NotYet> {
    let mut volumes = Volumes::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let path = volume_path(context, pod, volume, dir).await?;
        volumes.insert(volume.name.clone(), path);
    }
    Ok(volumes)
}

/// The mounts and devices of `container`.
pub(super) fn mounts(container: &Container, volumes: &Volumes) -> Vec<Mount> {
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let host = volumes.get(&mount.name)?.join(mount.sub_path.as_deref().unwrap_or_default());
        Some(Mount { at: mount.mount_path.clone(), host })
    });
    let devices = container.volume_devices.iter().flatten().filter_map(|device| {
        let host = volumes.get(&device.name)?.clone();
        Some(Mount { at: device.device_path.clone(), host })
    });
    mounts.chain(devices).collect()
}

async fn volume_path(
    context: &NodeContext,
    pod: &Pod,
    volume: &Volume,
    dir: &Path,
) -> Result<PathBuf, NotYet> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return claim_path(context, pod, claim).await;
    }
    let path = dir.join("volumes").join(&volume.name);
    std::fs::create_dir_all(&path).map_err(|error| NotYet::volume(error.to_string()))?;
    if let Some(secret) = &volume.secret {
        SourceVolume::from(secret).fill(context, pod, &path).await?;
    } else if let Some(map) = &volume.config_map {
        SourceVolume::from(map).fill(context, pod, &path).await?;
    } else if volume.empty_dir.is_none() && volume.projected.is_none() {
        let message =
            format!("the kind of volume {} is not supported by process nodes", volume.name);
        return Err(NotYet::volume(message));
    }
    Ok(path)
}

async fn claim_path(
    context: &NodeContext,
    pod: &Pod,
    claim: &PersistentVolumeClaimVolumeSource,
) -> Result<PathBuf, NotYet> {
    let namespace = pod.namespace().unwrap_or_default();
    let place = VolumePlace::of_claim(&context.client, &namespace, &claim.claim_name)
        .await
        .map_err(|error| NotYet::volume(error.to_string()))?;
    place.below(&context.storage_root).map_err(|error| NotYet::volume(error.to_string()))
}

/// Replaces a mount path at the start of `value`, or of the value of a flag, by its host path.
pub(super) fn rewrite(value: &str, mounts: &[Mount]) -> String {
    let (flag, path) = match value.find('=') {
        Some(at) if value.starts_with('-') => value.split_at(at + 1),
        _ => ("", value),
    };
    let covering = |mount: &&Mount| {
        path.strip_prefix(&mount.at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match mounts.iter().filter(covering).max_by_key(|mount| mount.at.len()) {
        Some(mount) => format!("{flag}{}{}", mount.host.display(), &path[mount.at.len()..]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_path_is_rewritten_only_as_a_whole_and_at_the_start() {
        let mount = |at: &str, host: &str| Mount { at: at.to_owned(), host: host.into() };
        let mounts =
            [mount("/disk", "/h/d"), mount("/disk/inner", "/h/i"), mount("/dev/vda", "/h/v")];
        let cases = [
            ("/disk", "/h/d"),
            ("/disk/disk.img", "/h/d/disk.img"),
            ("/disk/inner/x", "/h/i/x"),
            ("--output=/disk/disk.img", "--output=/h/d/disk.img"),
            ("--output=/dev/vda", "--output=/h/v"),
            ("/disks/x", "/disks/x"),
            ("see /disk/x", "see /disk/x"),
            ("A=/disk/x", "A=/disk/x"),
            ("--url=http://a/disk?x=/disk", "--url=http://a/disk?x=/disk"),
        ];
        for (value, wanted) in cases {
            assert_eq!(rewrite(value, &mounts), wanted, "{value}");
        }
    }
}
