//! The disk image that an entry brings along. It may serve other workspaces as well, so no Workspace controls it: it says
//! that it was made by one, and Workspaces that want it deleted with them own it in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use otctl_types::diskimage::VMDiskImageSpec;
use otctl_types::names::{MADE_BY_ANNOTATION, MADE_BY_WORKSPACE, MANAGED_BY, PART_OF};
use otctl_types::workspace::{ImageRetention, VirtualMachine};
use otctl_types::{VMDiskImage, Workspace};
use policy::quantity;

use super::{Facts, owner};

/// Labels of an image that a Workspace made.
pub const LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/part-of", PART_OF), ("app.kubernetes.io/managed-by", MANAGED_BY)];

/// The image of an entry, if it says what to make it from.
pub fn image(facts: &Facts<'_>, entry: &VirtualMachine) -> Option<VMDiskImage> {
    let owners = match facts.workspace.spec.image_retention {
        ImageRetention::Retain => None,
        ImageRetention::Delete => Some(vec![owner_reference(facts.workspace)]),
    };
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Some(VMDiskImage {
        metadata: ObjectMeta {
            name: Some(entry.spec.vm_disk_image_name.clone()),
            namespace: Some(facts.namespace.to_owned()),
            owner_references: owners,
            labels: Some(LABELS.map(text).into()),
            annotations: Some([text((MADE_BY_ANNOTATION, MADE_BY_WORKSPACE))].into()),
            ..ObjectMeta::default()
        },
        spec: entry.spec.image.clone()?,
        status: None,
    })
}

/// The reference by which a Workspace keeps the images alive that were made by a Workspace and that it uses. It is no
/// controller's: garbage collection takes the image with the last of them.
pub fn owner_reference(workspace: &Workspace) -> OwnerReference {
    owner(workspace)
}

/// Whether an image was made by a Workspace. Others are never owned, and so never deleted.
pub fn is_made_by_workspace(image: &VMDiskImage) -> bool {
    let annotations = image.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(MADE_BY_ANNOTATION))
        .is_some_and(|it| it == MADE_BY_WORKSPACE)
}

/// The first field in which two images are made from something else: those that make the data, and no others.
pub fn differs(asked: &VMDiskImageSpec, existing: &VMDiskImageSpec) -> Option<&'static str> {
    let modes = |spec: &VMDiskImageSpec| {
        let mut modes: Vec<_> = spec.access_modes.iter().map(|mode| mode.as_str()).collect();
        modes.sort_unstable();
        modes.dedup();
        modes
    };
    let fields = [
        ("url", asked.url == existing.url),
        ("sourceType", asked.source_type == existing.source_type),
        ("checksum", asked.checksum == existing.checksum),
        ("diskSize", is_same_size(asked.disk_size.as_deref(), existing.disk_size.as_deref())),
        ("storageClass", asked.storage_class == existing.storage_class),
        ("snapshotClass", asked.snapshot_class == existing.snapshot_class),
        ("volumeMode", asked.volume_mode == existing.volume_mode),
        ("accessModes", modes(asked) == modes(existing)),
        ("refresh", asked.refresh == existing.refresh),
    ];
    fields.into_iter().find(|(_, is_same)| !is_same).map(|(field, _)| field)
}

/// `1Gi` and `1024Mi` are one size.
fn is_same_size(one: Option<&str>, other: Option<&str>) -> bool {
    let bytes = |text: Option<&str>| text.and_then(|text| quantity::parse(text).ok());
    one == other || bytes(one).is_some() && bytes(one) == bytes(other)
}

#[cfg(test)]
mod tests {
    use otctl_types::diskimage::{AccessMode, SourceType, VolumeMode};

    use super::*;

    fn spec() -> VMDiskImageSpec {
        VMDiskImageSpec {
            url: "https://host/a".to_owned(),
            disk_size: Some("1Gi".to_owned()),
            access_modes: vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany],
            ..VMDiskImageSpec::default()
        }
    }

    fn check(expected: Option<&str>, change: fn(&mut VMDiskImageSpec)) {
        let (asked, mut existing) = (spec(), spec());
        change(&mut existing);
        assert_eq!(differs(&asked, &existing), expected);
        assert_eq!(differs(&existing, &asked), expected);
    }

    fn text() -> Option<String> {
        Some("x".to_owned())
    }

    #[test]
    fn another_source_is_named_by_its_field() {
        check(Some("url"), |spec| spec.url.push('b'));
        check(Some("sourceType"), |spec| spec.source_type = SourceType::S3);
        check(Some("checksum"), |spec| spec.checksum = text());
        check(Some("diskSize"), |spec| spec.disk_size = Some("2Gi".to_owned()));
        check(Some("diskSize"), |spec| spec.disk_size = None);
        check(Some("storageClass"), |spec| spec.storage_class = text());
        check(Some("snapshotClass"), |spec| spec.snapshot_class = text());
        check(Some("volumeMode"), |spec| spec.volume_mode = VolumeMode::Block);
        check(Some("accessModes"), |spec| spec.access_modes.truncate(1));
        check(Some("refresh"), |spec| spec.refresh = text());
    }

    #[test]
    fn what_does_not_make_the_data_makes_no_other_source() {
        check(None, |_| {});
        check(None, |spec| spec.disk_size = Some("1024Mi".to_owned()));
        check(None, |spec| spec.access_modes.reverse());
        check(None, |spec| spec.suspend = true);
        check(None, |spec| spec.name = text());
        check(None, |spec| spec.secret_ref = text());
        check(None, |spec| spec.keep_volume = Some(true));
    }
}
