//! Copies that prove complete data, whatever the status has forgotten: asked by the image before it calls anything lost,
//! and by the queue before it admits anybody to fetch it again.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use otctl_kit::store::Key;
use otctl_types::VMDiskImage;

use crate::children::claim::is_finished;
use crate::jobs;
use crate::names;
use crate::snapshots::VolumeSnapshot;
use crate::views::Views;

/// Whether one of these, both the image's own, proves that its data is complete. A snapshot is asked for only then:
/// beside the volume it was asked of, even an unready one proves it.
pub fn is_proven(claim: Option<&PersistentVolumeClaim>, snapshot: Option<&VolumeSnapshot>) -> bool {
    let has_volume = claim.is_some_and(|claim| !is_going(&claim.metadata) && !is_hollow(claim));
    let has_snapshot = snapshot
        .is_some_and(|snapshot| is_ready(snapshot) || has_volume && !is_going(&snapshot.metadata));
    has_snapshot || has_volume && claim.is_some_and(is_finished)
}

/// The same, of what the watches have seen of this image's children.
pub fn of_views(views: &Views, image: &VMDiskImage, revision: &str) -> bool {
    let name = names::data_name(&image.name_any(), revision);
    let key = Key::new(&image.namespace().unwrap_or_default(), &name);
    let is_ours = |meta: &ObjectMeta| jobs::controller_uid(meta) == image.uid().as_deref();
    let claim = views.claims.get(&key).filter(|claim| is_ours(&claim.metadata));
    let snapshot = views.snapshots.get(&key).filter(|snapshot| is_ours(&snapshot.metadata));
    is_proven(claim.as_deref(), snapshot.as_deref())
}

/// There is no data behind it: its volume is gone (`Lost`), or it is to be restored from a snapshot and is not yet.
pub fn is_hollow(claim: &PersistentVolumeClaim) -> bool {
    let is_restored = claim.spec.as_ref().is_some_and(|spec| spec.data_source.is_some());
    is_lost(claim) || is_restored && !jobs::is_bound(claim)
}

/// Its volume is gone, and all data with it, in the words of Kubernetes.
pub fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
}

/// It is being deleted.
pub fn is_going(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// A claim can be made from it.
pub fn is_ready(snapshot: &VolumeSnapshot) -> bool {
    snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
}
