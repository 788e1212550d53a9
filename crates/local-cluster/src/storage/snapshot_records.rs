//! What the snapshotter reads and writes: classes, claims, contents, statuses.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::classes::{ChosenClass, DEFAULT_SNAPSHOT_CLASS, DRIVER, snapshot_class_resource};
use super::snapshot_problem::SnapshotProblem;
use super::{
    StorageContext, StorageError, VolumePlace, VolumeSnapshot, VolumeSnapshotContent,
    VolumeSnapshotContentSource, VolumeSnapshotContentSpec, finalizers,
};

/// Why a step did not succeed: the snapshot is wrong, or the step failed.
pub(super) enum Setback {
    Refused(SnapshotProblem),
    Failed(StorageError),
}

impl From<SnapshotProblem> for Setback {
    fn from(problem: SnapshotProblem) -> Self {
        Self::Refused(problem)
    }
}

impl From<StorageError> for Setback {
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for Setback {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The name of a snapshot's content.
pub(super) fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", snapshot.uid().unwrap_or_default())
}

impl StorageContext {
    pub(super) fn snapshots(&self, beside: &VolumeSnapshot) -> Api<VolumeSnapshot> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    pub(super) fn contents(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client.clone())
    }

    fn claims(&self, beside: &VolumeSnapshot) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    /// The class a snapshot names, else the only default class of the driver, which is written into its spec.
    pub(super) async fn class_of(&self, snapshot: &VolumeSnapshot) -> Result<ChosenClass, Setback> {
        let classes: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &snapshot_class_resource());
        if let Some(name) = &snapshot.spec.volume_snapshot_class_name {
            let class = classes.get_opt(name).await?;
            return Ok(class.ok_or_else(|| SnapshotProblem::FindClass(name.clone()))?.into());
        }
        let all = classes.list(&ListParams::default()).await?;
        let is_default = |class: &DynamicObject| {
            let marked = class.annotations().get(DEFAULT_SNAPSHOT_CLASS);
            marked.is_some_and(|value| value == "true") && class.data["driver"] == DRIVER
        };
        let mut defaults: Vec<_> = all.items.into_iter().filter(is_default).collect();
        let class = match (defaults.len(), defaults.pop()) {
            (1, Some(class)) => ChosenClass::from(class),
            (0, _) => {
                let cause = "cannot find default snapshot class".to_owned();
                return Err(SnapshotProblem::ChooseDefaultClass(cause).into());
            }
            (count, _) => {
                let cause = format!("{count} default snapshot classes were found");
                return Err(SnapshotProblem::ChooseDefaultClass(cause).into());
            }
        };
        let patch = Patch::Merge(json!({"spec": {"volumeSnapshotClassName": class.name}}));
        self.snapshots(snapshot)
            .patch(&snapshot.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(class)
    }

    /// The volume that a snapshot is to be taken of. Its claim is kept from deletion meanwhile.
    pub(super) async fn source_of(
        &self,
        snapshot: &VolumeSnapshot,
    ) -> Result<VolumePlace, Setback> {
        let Some(name) = &snapshot.spec.source.persistent_volume_claim_name else {
            return Err(SnapshotProblem::UseContent(snapshot.name_any()).into());
        };
        let claims = self.claims(snapshot);
        let cannot_protect = |cause| SnapshotProblem::ProtectClaim { claim: name.clone(), cause };
        let claim = claims
            .get_opt(name)
            .await?
            .ok_or_else(|| cannot_protect("cannot get claim from snapshot"))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(cannot_protect("cannot add finalizer on claim being deleted").into());
        }
        finalizers::add(&claims, &claim, finalizers::CLAIM_AS_SOURCE).await?;
        let cannot_use = |cause| SnapshotProblem::UseClaim { snapshot: snapshot.name_any(), cause };
        match VolumePlace::of(&self.client, &claim).await {
            Ok(place) => Ok(place),
            Err(StorageError::UseUnboundClaim(name)) => Err(cannot_use(format!(
                "the PVC {name} is not yet bound to a PV, will not attempt to take a snapshot"
            ))
            .into()),
            Err(error @ (StorageError::UseForeignVolume(_) | StorageError::FindVolume(_))) => {
                Err(cannot_use(error.to_string()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the claim of a snapshot go, unless another snapshot of it is still being taken.
    pub(super) async fn free_claim(&self, snapshot: &VolumeSnapshot) -> Result<(), StorageError> {
        let Some(name) = &snapshot.spec.source.persistent_volume_claim_name else { return Ok(()) };
        let claims = self.claims(snapshot);
        let Some(claim) = claims.get_opt(name).await? else { return Ok(()) };
        if !claim.finalizers().iter().any(|finalizer| finalizer == finalizers::CLAIM_AS_SOURCE) {
            return Ok(());
        }
        let others = self.snapshots(snapshot).list(&ListParams::default()).await?;
        let needs_it = |other: &VolumeSnapshot| {
            other.uid() != snapshot.uid()
                && other.spec.source.persistent_volume_claim_name.as_ref() == Some(name)
                && other.metadata.deletion_timestamp.is_none()
                && !other.is_ready()
        };
        if others.items.iter().any(needs_it) {
            return Ok(());
        }
        finalizers::remove(&claims, &claim, finalizers::CLAIM_AS_SOURCE).await
    }

    /// The content of a snapshot, made if it is not there.
    pub(super) async fn content_of(
        &self,
        snapshot: &VolumeSnapshot,
        class: &ChosenClass,
        source: &VolumePlace,
    ) -> Result<VolumeSnapshotContent, StorageError> {
        let contents = self.contents();
        let name = content_name(snapshot);
        if let Some(content) = contents.get_opt(&name).await? {
            return Ok(content);
        }
        let content = new_content(snapshot, class, source);
        Ok(contents.create(&PostParams::default(), &content).await?)
    }

    /// Writes `status` of a snapshot, merged into what is there.
    pub(super) async fn write_snapshot(
        &self,
        snapshot: &VolumeSnapshot,
        status: Value,
    ) -> Result<(), StorageError> {
        let patch = Patch::Merge(json!({"status": status}));
        let name = snapshot.name_any();
        self.snapshots(snapshot).patch_status(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Writes `status` of a content, merged into what is there.
    pub(super) async fn write_content(
        &self,
        name: &str,
        status: Value,
    ) -> Result<(), StorageError> {
        let patch = Patch::Merge(json!({"status": status}));
        self.contents().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Shows a problem on the snapshot, and on its content if the driver said it. Written once.
    pub(super) async fn show_problem(
        &self,
        snapshot: &VolumeSnapshot,
        problem: &SnapshotProblem,
    ) -> Result<(), StorageError> {
        let message = problem.to_string();
        if snapshot.error_message() == Some(&message) {
            return Ok(());
        }
        let status = json!({
            "readyToUse": false,
            "error": {"message": message, "time": Time(Timestamp::now())},
        });
        if problem.is_of_driver() {
            self.write_content(&content_name(snapshot), status.clone()).await?;
        }
        self.write_snapshot(snapshot, status).await
    }
}

fn new_content(
    snapshot: &VolumeSnapshot,
    class: &ChosenClass,
    source: &VolumePlace,
) -> VolumeSnapshotContent {
    let reference = ObjectReference {
        resource_version: snapshot.resource_version(),
        ..snapshot.object_ref(&())
    };
    let spec = VolumeSnapshotContentSpec {
        deletion_policy: class.deletion_policy.clone(),
        driver: class.driver.clone(),
        source: VolumeSnapshotContentSource {
            volume_handle: Some(source.volume.clone()),
            snapshot_handle: None,
        },
        source_volume_mode: Some(source.mode.clone()),
        volume_snapshot_class_name: Some(class.name.clone()),
        volume_snapshot_ref: reference,
    };
    let mut content = VolumeSnapshotContent::new(&content_name(snapshot), spec);
    content.metadata.finalizers = Some(vec![finalizers::CONTENT_BOUND.to_owned()]);
    content
}
