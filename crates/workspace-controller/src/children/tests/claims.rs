//! Copies of disks: of what, how large, and what they are held to.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use otctl_types::diskimage::{AccessMode, VolumeMode};

use super::*;
use crate::images::Origin;

fn claimed(change: impl FnOnce(&mut otctl_types::VMDiskImage)) -> serde_json::Value {
    let whole = full().with(|it| it.policy.default_storage_class = Some("slow".to_owned()));
    let mut image = whole.image("attacker", current());
    change(&mut image);
    let made = claim(&whole.facts(), whole.machine("attacker"), &image);
    made.map_or(serde_json::Value::Null, |made| serde_json::to_value(made.spec).unwrap())
}

#[test]
fn a_claim_is_a_copy_of_what_the_image_has() {
    let of_volume = claimed(|image| {
        let current = image.status.as_mut().unwrap().current.as_mut().unwrap();
        (current.snapshot, current.volume) = (None, Some("attacker-1".to_owned()));
        image.spec.storage_class = None;
        image.spec.volume_mode = VolumeMode::Block;
        image.spec.access_modes = vec![AccessMode::ReadWriteMany];
    });
    let expected = serde_json::json!({
        "accessModes": ["ReadWriteMany"],
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "attacker-1"},
        "resources": {"requests": {"storage": "24Gi"}},
        "storageClassName": "slow",
        "volumeMode": "Block",
    });
    assert_eq!(of_volume, expected);
}

#[test]
fn nothing_is_claimed_of_an_image_that_has_nothing() {
    let empty = claimed(|image| image.status.as_mut().unwrap().current = None);
    assert!(empty.is_null());
    let vanished = claimed(|image| {
        image.status.as_mut().unwrap().current.as_mut().unwrap().snapshot = None;
    });
    assert!(vanished.is_null());
    assert!(claimed(|image| image.status = None).is_null());
}

#[test]
fn a_claim_has_the_room_that_its_image_says_and_that_its_disk_needs() {
    let size = |minimum: Option<i64>, disk: Option<&str>, mode| {
        let claim = claimed(|image| {
            let status = image.status.as_mut().unwrap();
            status.current.as_mut().unwrap().minimum_size = minimum;
            status.disk_size = disk.map(str::to_owned);
            (image.spec.volume_mode, image.spec.disk_size) = (mode, None);
        });
        claim["resources"]["requests"]["storage"].as_str().unwrap().to_owned()
    };
    let gib = 1 << 30;
    assert_eq!(size(Some(3 * gib), Some("2Gi"), VolumeMode::Block), "3Gi");
    assert_eq!(size(Some(gib), Some("2Gi"), VolumeMode::Block), "2Gi");
    assert_eq!(size(Some(2 * gib), Some("2Gi"), VolumeMode::Filesystem), "2179Mi");
    assert_eq!(size(Some(2 * gib), None, VolumeMode::Block), "2Gi");
}

#[test]
fn a_claim_that_is_there_is_held_to_its_metadata() {
    let whole = full();
    let entry = whole.machine("attacker");
    let made = claim(&whole.facts(), entry, &whole.image("attacker", current())).unwrap();
    let mut observed = made.clone();
    observed.metadata = ObjectMeta::default();
    let spec = observed.spec.as_mut().unwrap();
    spec.volume_name = Some("pv-1".to_owned());
    let requests = spec.resources.as_mut().unwrap().requests.as_mut().unwrap();
    requests.insert("storage".to_owned(), Quantity("40Gi".to_owned()));
    let image = entry.spec.vm_disk_image_name.clone();
    let origin = Origin { image, revision: current().revision };
    let kept = claim::kept(&whole.facts(), entry, &origin, &observed);
    assert_eq!(kept.metadata, made.metadata);
    let spec = kept.spec.unwrap();
    let size = &spec.resources.unwrap().requests.unwrap()["storage"];
    assert_eq!((size.0.as_str(), spec.volume_name), ("40Gi", None), "a person may enlarge it");
}
