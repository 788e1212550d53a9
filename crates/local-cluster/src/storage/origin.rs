//! What a new volume is filled from: nothing, a snapshot, or another claim's volume.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use super::{
    StorageContext, StorageError, VolumePlace, VolumeSnapshot, VolumeSnapshotContent, finalizers,
};

/// What a new volume holds.
pub(super) enum Origin {
    Nothing,
    Copy(PathBuf),
    /// What it is to hold is not there yet, or does not fit.
    NotYet(String),
}

/// What a claim is to be filled from.
enum Source<'a> {
    Nothing,
    Snapshot(&'a str),
    Claim(&'a str),
    Unknown,
}

impl<'a> Source<'a> {
    fn of(claim: &'a PersistentVolumeClaim) -> Self {
        let source = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
        let Some(TypedLocalObjectReference { kind, name, .. }) = source else {
            return Self::Nothing;
        };
        match kind.as_str() {
            "VolumeSnapshot" => Self::Snapshot(name),
            "PersistentVolumeClaim" => Self::Claim(name),
            _ => Self::Unknown,
        }
    }
}

/// True for a claim that is filled from this snapshot.
pub(super) fn restores(claim: &PersistentVolumeClaim, snapshot: &VolumeSnapshot) -> bool {
    matches!(Source::of(claim), Source::Snapshot(name) if snapshot.metadata.name.as_deref() == Some(name))
        && claim.metadata.namespace == snapshot.metadata.namespace
}

impl StorageContext {
    /// What a claim of `size` bytes is to be filled from.
    pub(super) async fn origin_of(
        &self,
        claim: &PersistentVolumeClaim,
        size: u64,
    ) -> Result<Origin, StorageError> {
        match Source::of(claim) {
            Source::Nothing => Ok(Origin::Nothing),
            Source::Snapshot(name) => self.snapshot_origin(claim, name, size).await,
            Source::Claim(name) => self.claim_origin(claim, name, size).await,
            Source::Unknown => {
                Ok(Origin::NotYet("only snapshots and claims can be copied".to_owned()))
            }
        }
    }

    async fn snapshot_origin(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
        size: u64,
    ) -> Result<Origin, StorageError> {
        let namespace = claim.namespace().unwrap_or_default();
        let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &namespace);
        let ready = snapshots.get_opt(name).await?.filter(VolumeSnapshot::is_ready);
        let Some(snapshot) = ready else {
            return Ok(Origin::NotYet(format!("snapshot {name} is not ready")));
        };
        let Some(content) = self.bound_content(&snapshot).await? else {
            return Ok(Origin::NotYet(format!("snapshot {name} is not bound to its content")));
        };
        let needed = content.status.as_ref().and_then(|status| status.restore_size).unwrap_or(0);
        if u64::try_from(needed).is_ok_and(|needed| needed > size) {
            let cause = format!(
                "requested volume size {size} is less than the size {needed} for the source snapshot {name}"
            );
            return Ok(Origin::NotYet(cause));
        }
        Ok(Origin::Copy(self.snapshot_path(&content.name_any())))
    }

    /// The content of a snapshot, if both name each other.
    async fn bound_content(
        &self,
        snapshot: &VolumeSnapshot,
    ) -> Result<Option<VolumeSnapshotContent>, StorageError> {
        let status = snapshot.status.as_ref();
        let Some(name) =
            status.and_then(|status| status.bound_volume_snapshot_content_name.as_ref())
        else {
            return Ok(None);
        };
        let content = self.contents().get_opt(name).await?;
        Ok(content.filter(|content| content.spec.volume_snapshot_ref.uid == snapshot.uid()))
    }

    /// The volume of another claim, which is kept from deletion while it is copied.
    async fn claim_origin(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
        size: u64,
    ) -> Result<Origin, StorageError> {
        let claims = self.claims_beside(claim);
        let Some(source) = claims.get_opt(name).await? else {
            return Ok(Origin::NotYet(format!("claim {name} is not found")));
        };
        let place = match VolumePlace::of(&self.client, &source).await {
            Ok(place) if source.metadata.deletion_timestamp.is_none() => place,
            Ok(_) => return Ok(Origin::NotYet(format!("claim {name} is being deleted"))),
            Err(StorageError::UseUnboundClaim(_)) => {
                return Ok(Origin::NotYet(format!("claim {name} is not bound")));
            }
            Err(error) => return Err(error),
        };
        if place.capacity > size {
            return Ok(Origin::NotYet(format!(
                "new PVC request must be greater than or equal in size to the specified PVC data source, requested {size} \
                 but source is {}",
                place.capacity
            )));
        }
        let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
        if mode.unwrap_or("Filesystem") != place.mode {
            return Ok(Origin::NotYet(format!("claim {name} is of another volume mode")));
        }
        finalizers::add(&claims, &source, finalizers::CLONED).await?;
        Ok(Origin::Copy(place.path))
    }

    /// Lets a claim go that others were filled from, once none is any more; true if it is free.
    pub(super) async fn free_source(
        &self,
        source: &PersistentVolumeClaim,
    ) -> Result<bool, StorageError> {
        if !source.finalizers().iter().any(|finalizer| finalizer == finalizers::CLONED) {
            return Ok(true);
        }
        let claims = self.claims_beside(source);
        let is_filled_from_it = |claim: &PersistentVolumeClaim| {
            matches!(Source::of(claim), Source::Claim(name) if source.metadata.name.as_deref() == Some(name))
                && claim.metadata.deletion_timestamp.is_none()
                && claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none())
        };
        if claims.list(&ListParams::default()).await?.items.iter().any(is_filled_from_it) {
            return Ok(false);
        }
        finalizers::remove(&claims, source, finalizers::CLONED).await?;
        Ok(true)
    }

    fn claims_beside(&self, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default())
    }
}
