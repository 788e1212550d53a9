//! What must exist around an image before it can be imported: its storage class and its snapshot class. Facts, and the
//! named checks over them. The queue asks them before it admits, the image before it starts: the same checks, so that
//! what would be refused holds no slot.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use otctl_types::condition::Reason;
use otctl_types::diskimage::VMDiskImageSpec;
use policy::Policy;

use crate::source;
use crate::views::Views;

/// Annotation by which Kubernetes marks the default storage class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The classes of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Storage classes: name and provisioner.
    pub storage: BTreeMap<String, String>,
    /// The default storage class.
    pub default_storage: Option<String>,
    /// Snapshot classes: name and driver; none when the kind is not installed.
    pub snapshot: Option<BTreeMap<String, String>>,
    /// Snapshot classes that keep content and bytes when their snapshots are deleted.
    pub retaining: BTreeSet<String>,
}

impl Surroundings {
    /// Reads them from the stores.
    pub fn of(views: &Views) -> Self {
        let mut seen = Self::default();
        for class in views.storage_classes.all() {
            if class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true") {
                seen.default_storage = Some(class.name_any());
            }
            seen.storage.insert(class.name_any(), class.provisioner.clone());
        }
        if views.snapshot_classes.is_synced() {
            let classes = views.snapshot_classes.all();
            let retains = classes.iter().filter(|class| class.deletion_policy == "Retain");
            seen.retaining = retains.filter_map(|class| class.metadata.name.clone()).collect();
            seen.snapshot = Some(
                classes
                    .iter()
                    .map(|class| {
                        (class.metadata.name.clone().unwrap_or_default(), class.driver.clone())
                    })
                    .collect(),
            );
        }
        seen
    }
}

/// Something that keeps an image from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Which kind.
    pub reason: Reason,
    /// What to change, for a person.
    pub message: String,
}

/// What is wrong with the spec itself: only an edit helps.
pub fn spec_problem(spec: &VMDiskImageSpec) -> Option<Obstacle> {
    let invalid = |message| Obstacle { reason: Reason::InvalidSpec, message };
    if let Some(why) = source::problem(&spec.url) {
        return Some(invalid(format!("url cannot be asked: {why}")));
    }
    let is_unreadable = |size: &str| policy::quantity::parse(size).is_err();
    spec.disk_size
        .as_deref()
        .is_some_and(is_unreadable)
        .then(|| invalid("diskSize cannot be read; write a size such as 24Gi".to_owned()))
}

/// The name of the storage class that the volume will have.
pub fn storage_class<'a>(
    spec: &'a VMDiskImageSpec,
    policy: &'a Policy,
    around: &'a Surroundings,
) -> Option<&'a str> {
    spec.storage_class
        .as_deref()
        .or(policy.default_storage_class.as_deref())
        .or(around.default_storage.as_deref())
}

/// The name of the snapshot class, if a snapshot is to be taken. The cluster's default plays no part.
pub fn snapshot_class<'a>(spec: &'a VMDiskImageSpec, policy: &'a Policy) -> Option<&'a str> {
    spec.snapshot_class.as_deref().or(policy.default_snapshot_class.as_deref())
}

/// What is missing around it: goes on by itself when it appears.
pub fn obstacle(
    spec: &VMDiskImageSpec,
    policy: &Policy,
    around: &Surroundings,
) -> Option<Obstacle> {
    match storage_obstacle(spec, policy, around) {
        Ok(provisioner) => snapshot_obstacle(spec, policy, around, provisioner),
        Err(obstacle) => Some(obstacle),
    }
}

fn storage_obstacle<'a>(
    spec: &VMDiskImageSpec,
    policy: &Policy,
    around: &'a Surroundings,
) -> Result<&'a str, Obstacle> {
    let Some(name) = storage_class(spec, policy, around) else {
        let message = "no storage class: set storageClass, defaultStorageClass of the policy, or make one the cluster's default";
        return Err(Obstacle { reason: Reason::StorageClassNotFound, message: message.to_owned() });
    };
    around.storage.get(name).map(String::as_str).ok_or_else(|| Obstacle {
        reason: Reason::StorageClassNotFound,
        message: format!(
            "storage class '{name}' does not exist; create it or set storageClass to one that does"
        ),
    })
}

fn snapshot_obstacle(
    spec: &VMDiskImageSpec,
    policy: &Policy,
    around: &Surroundings,
    provisioner: &str,
) -> Option<Obstacle> {
    let name = snapshot_class(spec, policy)?;
    let missing =
        |message: String| Some(Obstacle { reason: Reason::SnapshotClassNotFound, message });
    let Some(classes) = &around.snapshot else {
        return missing(format!(
            "snapshot class '{name}' cannot be seen: the kinds of snapshot.storage.k8s.io are not installed or not readable"
        ));
    };
    match classes.get(name) {
        None => missing(format!(
            "snapshot class '{name}' does not exist; create it or set snapshotClass to one that does"
        )),
        Some(driver) if driver != provisioner => Some(Obstacle {
            reason: Reason::SnapshotClassMismatch,
            message: format!(
                "snapshot class '{name}' is of driver '{driver}', the volume of '{provisioner}'; set a snapshotClass of the volume's driver"
            ),
        }),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        Surroundings {
            storage: pairs(&[("fast", "csi.one")]),
            default_storage: None,
            snapshot: Some(pairs(&[("snap", "csi.one"), ("other", "csi.two")])),
            retaining: BTreeSet::new(),
        }
    }

    fn check(storage: Option<&str>, snapshot: Option<&str>, expected: Option<Reason>) {
        let spec = VMDiskImageSpec {
            url: "http://host/a".to_owned(),
            storage_class: storage.map(str::to_owned),
            snapshot_class: snapshot.map(str::to_owned),
            ..VMDiskImageSpec::default()
        };
        let found = obstacle(&spec, &Policy::default(), &around());
        assert_eq!(found.map(|obstacle| obstacle.reason), expected, "{storage:?} {snapshot:?}");
    }

    #[test]
    fn classes_are_checked_before_anything_is_downloaded() {
        check(Some("fast"), None, None);
        check(Some("fast"), Some("snap"), None);
        check(Some("gone"), None, Some(Reason::StorageClassNotFound));
        check(None, None, Some(Reason::StorageClassNotFound));
        check(Some("fast"), Some("gone"), Some(Reason::SnapshotClassNotFound));
        check(Some("fast"), Some("other"), Some(Reason::SnapshotClassMismatch));
    }

    #[test]
    fn a_spec_that_cannot_be_acted_on_says_which_field_and_why() {
        let check = |url: &str, disk_size: Option<&str>, expected: Option<&str>| {
            let spec = VMDiskImageSpec {
                url: url.to_owned(),
                disk_size: disk_size.map(str::to_owned),
                ..VMDiskImageSpec::default()
            };
            let found = spec_problem(&spec).map(|found| (found.reason, found.message));
            let expected = expected.map(|message| (Reason::InvalidSpec, message.to_owned()));
            assert_eq!(found, expected, "{url} {disk_size:?}");
        };
        check("http://host/a", Some("24Gi"), None);
        let port = "url cannot be asked: port 99999 is above 65535";
        check("http://127.0.0.1:99999/x", None, Some(port));
        check("http://[::1/x", None, Some("url cannot be asked: invalid IPv6 address"));
        let size = "diskSize cannot be read; write a size such as 24Gi";
        check("http://host/a", Some("much"), Some(size));
    }

    #[test]
    fn no_snapshot_is_taken_whatever_the_cluster_has() {
        let spec = VMDiskImageSpec::default();
        assert_eq!(snapshot_class(&spec, &Policy::default()), None);
    }

    #[test]
    fn without_the_snapshot_kinds_an_image_that_needs_one_waits() {
        let around = Surroundings { snapshot: None, ..around() };
        let spec = VMDiskImageSpec {
            storage_class: Some("fast".to_owned()),
            snapshot_class: Some("snap".to_owned()),
            ..VMDiskImageSpec::default()
        };
        let found = obstacle(&spec, &Policy::default(), &around);
        assert_eq!(found.map(|obstacle| obstacle.reason), Some(Reason::SnapshotClassNotFound));
    }
}
