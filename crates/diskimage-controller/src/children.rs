//! What an image owns: one file per kind, each a pure function from facts to the whole object. What is common to them,
//! owner, labels, sizes and the rules of pods, is here.

pub mod claim;
mod errand;
pub mod import;
mod job;
pub mod probe;
pub mod scratch;
pub mod snapshot;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::Target;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Current;
use otctl_types::import::{ImportReport, SUM_LIMIT, SourceFacts};
use otctl_types::names::{
    CHECKSUM_ANNOTATION, DISK_CHECKSUM_ANNOTATION, MANAGED_BY, OWNER_LABEL, REVISION_ANNOTATION,
};
use policy::{Policy, quantity};

use crate::config::Settings;
use crate::image::observe::Observed;
use crate::jobs;
use crate::names;
use crate::snapshots::VolumeSnapshot;
use crate::surroundings::Surroundings;

/// A whole GiB.
const GIB: u64 = 1 << 30;

/// Everything that a child is made from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The owner.
    pub image: &'a VMDiskImage,
    /// Revision of its spec.
    pub revision: &'a str,
    /// Settings of the Deployment.
    pub settings: &'a Settings,
    /// The policy in effect.
    pub policy: &'a Policy,
    /// Classes of the cluster.
    pub around: &'a Surroundings,
    /// What is known of the source.
    pub source: Option<SourceFacts>,
    /// Number of the attempt.
    pub number: i64,
    /// Key of `/progress` for a new Job.
    pub progress_key: &'a str,
    /// sha256 of the bytes at the source.
    pub checksum: Option<String>,
    /// sha256 of the raw disk.
    pub disk_checksum: Option<String>,
    /// Class of the snapshot, if one is wanted.
    pub snapshot_class: Option<String>,
    /// Bytes that a claim made from the snapshot must have.
    pub restore_size: Option<u64>,
    /// The claim with the disk, if it is there.
    pub claim: Option<&'a PersistentVolumeClaim>,
}

impl Facts<'_> {
    /// The image's name.
    pub fn name(&self) -> String {
        self.image.name_any()
    }

    /// The image's UID.
    pub fn uid(&self) -> String {
        self.image.uid().unwrap_or_default()
    }

    /// Name of the claim with the disk, and of the snapshot.
    pub fn data_name(&self) -> String {
        names::data_name(&self.name(), self.revision)
    }

    /// Bytes of the disk that the VM sees: `diskSize`, else the virtual size rounded up to a whole GiB.
    pub fn disk_size(&self) -> Option<u64> {
        let asked =
            self.image.spec.disk_size.as_deref().and_then(|text| quantity::parse(text).ok());
        let virtual_size = self.source.as_ref().and_then(|source| source.virtual_size);
        asked.or_else(|| virtual_size.map(|size| size.div_ceil(GIB).max(1).saturating_mul(GIB)))
    }

    /// Name, namespace, owner and labels of a child of that name.
    pub fn meta(&self, name: String, component: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: self.image.namespace(),
            owner_references: Some(vec![owner(self.image)]),
            labels: Some(labels(self.image, component)),
            annotations: Some([(REVISION_ANNOTATION.to_owned(), self.revision.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    /// The annotations that prove finished data.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        let pairs = [
            (CHECKSUM_ANNOTATION, &self.checksum),
            (DISK_CHECKSUM_ANNOTATION, &self.disk_checksum),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
            .collect()
    }
}

/// The controller owner reference. It blocks a foreground deletion of the image until the child is gone.
fn owner(image: &VMDiskImage) -> OwnerReference {
    OwnerReference {
        api_version: VMDiskImage::api_version(&()).into_owned(),
        kind: VMDiskImage::kind(&()).into_owned(),
        name: image.name_any(),
        uid: image.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Labels for people and selectors. Watches and lists go by them, so what has lost its labels is not seen there; whose an
/// object is, its owner reference says.
fn labels(image: &VMDiskImage, component: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "disk-image"),
        ("app.kubernetes.io/component", component),
        ("app.kubernetes.io/part-of", "otctl"),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        (OWNER_LABEL, &image.uid().unwrap_or_default()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Names an object that was read.
pub fn target<K: Resource<DynamicType = ()>>(object: &K) -> Target {
    let meta = object.meta();
    Target::new::<K>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// What consumers may use, as it stands after the data is complete.
pub fn current(facts: &Facts<'_>, snapshot: Option<&VolumeSnapshot>, now: Timestamp) -> Current {
    let minimum = facts.disk_size().into_iter().chain(snapshot.and_then(restore_size)).max();
    Current {
        revision: facts.revision.to_owned(),
        volume: Some(facts.data_name()),
        snapshot: snapshot.map(|_| facts.data_name()),
        snapshot_uid: snapshot.and_then(|snapshot| snapshot.uid()),
        snapshot_class: facts.snapshot_class.clone(),
        minimum_size: minimum.and_then(|bytes| i64::try_from(bytes).ok()),
        checksum: facts.checksum.clone(),
        disk_checksum: facts.disk_checksum.clone(),
        synced_at: Some(Time(now)),
    }
}

/// Bytes of the smallest claim that can be made from a snapshot, as its driver says.
pub fn restore_size(snapshot: &VolumeSnapshot) -> Option<u64> {
    let size = snapshot.status.as_ref()?.restore_size.as_ref()?;
    quantity::parse(&size.0).ok()
}

/// The hash that a child carries in this annotation. What is too long to be one is none: a status could not take it.
pub fn hash_in<'a>(metadata: &'a ObjectMeta, annotation: &str) -> Option<&'a str> {
    let text = metadata.annotations.as_ref()?.get(annotation)?;
    Some(text.as_str()).filter(|text| text.len() <= SUM_LIMIT)
}

/// The hashes that `current`, the snapshot, the claim or the attempt remembers, or the importer's last report.
pub fn kept_hashes(observed: &Observed) -> (Option<String>, Option<String>) {
    let current = observed.record.status.current.as_ref();
    let report = last_report(observed);
    let known = |annotation: &str| {
        let of_snapshot =
            observed.snapshot.object().and_then(|object| hash_in(&object.metadata, annotation));
        let of_claim =
            observed.claim.object().and_then(|object| hash_in(&object.metadata, annotation));
        of_snapshot.or(of_claim).map(str::to_owned)
    };
    let ended = observed.record.last_ended().filter(|_| observed.record.has_fetched());
    let checksum = current
        .and_then(|current| current.checksum.clone())
        .or_else(|| known(CHECKSUM_ANNOTATION))
        .or_else(|| ended?.checksum.clone())
        .or_else(|| report.as_ref()?.checksum.clone());
    let disk = current
        .and_then(|current| current.disk_checksum.clone())
        .or_else(|| known(DISK_CHECKSUM_ANNOTATION))
        .or_else(|| ended?.disk_checksum.clone())
        .or_else(|| report.as_ref()?.disk_checksum.clone());
    (checksum, disk)
}

/// The report of the attempt that ended last, while its pod is there.
fn last_report(observed: &Observed) -> Option<ImportReport> {
    let mut imports = observed.imports.iter();
    let last = imports.find(|work| work.number == observed.record.last())?;
    last.ended_pod().and_then(|pod| jobs::report(pod))
}
