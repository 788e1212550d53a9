//! From image to disk: the bytes a VM sees, against hashes taken before qemu-img saw them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use disk_importer::settings::VolumeMode;
use image_server::Content;
use image_server::fixtures::{self, Fixture};
use otctl_types::import::ImportReason;

use crate::lab::{Lab, MIB, assert_complete, assert_failed, run_import, sha256_of};

const READ: [&Fixture; 5] = [
    &fixtures::PLAIN,
    &fixtures::ZLIB,
    &fixtures::CLUSTERS_512,
    &fixtures::CLUSTERS_4K,
    &fixtures::VERSION_2,
];

#[tokio::test]
async fn every_kind_of_qcow2_becomes_the_same_disk() {
    for fixture in READ {
        let lab = Lab::serving(Content::bytes(fixture.bytes)).await;
        let report = lab.import(fixture.virtual_size).await;
        let expected = fixture.raw_sha256().unwrap();
        assert_complete(&report, expected);
        assert_eq!(sha256_of(&lab.disk()), expected, "{}", fixture.name);
    }
}

#[tokio::test]
async fn a_larger_disk_ends_in_zeroes() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let report = lab.import(3 * MIB).await;
    let expected = fixtures::DISK.sha256_at(3 * MIB);
    assert_complete(&report, &expected);
    assert_eq!(sha256_of(&lab.disk()), expected);
}

#[tokio::test]
async fn raw_is_copied_with_holes() {
    let content = Content::generated(8 * MIB, 9);
    let lab = Lab::serving(content.clone()).await;
    let report = lab.import(20 * MIB).await;
    let expected = content.disk_hash(20 * MIB).unwrap().hex();
    assert_complete(&report, &expected);
    assert_eq!(sha256_of(&lab.disk()), expected);
    // A quarter of the content is zeroes, and everything behind it.
    assert!(lab.allocated() < 7 * MIB, "{} bytes allocated", lab.allocated());
}

#[tokio::test]
async fn a_disk_of_5_gib_takes_what_its_data_takes() {
    let lab = Lab::serving(Content::bytes(fixtures::LARGE.bytes)).await;
    let report = lab.import(fixtures::LARGE.virtual_size).await;
    assert_complete(&report, fixtures::LARGE.raw_sha256().unwrap());
    assert_eq!(fs::metadata(lab.disk()).unwrap().len(), 5 * 1024 * MIB);
    assert!(lab.allocated() < MIB, "{} bytes allocated", lab.allocated());
}

#[tokio::test]
async fn the_file_is_for_its_group_and_nothing_is_left_beside_it() {
    let lab = Lab::serving(Content::bytes(fixtures::PLAIN.bytes)).await;
    lab.import(MIB).await;
    let metadata = fs::metadata(lab.disk()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o660);
    assert_eq!(metadata.len(), MIB);
    assert_eq!(fs::read_dir(lab.disk().parent().unwrap()).unwrap().count(), 1);
    assert!(!lab.scratch().join("source").exists());
}

#[tokio::test]
async fn a_device_is_filled_where_it_lies_and_not_behind_the_disk() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let device = lab.directory.path().join("disk/device");
    fs::write(&device, vec![0xee; 4 * 1024 * 1024]).unwrap();
    let inode = fs::metadata(&device).unwrap().ino();
    let mut target = lab.target(3 * MIB);
    (target.output, target.volume_mode) = (device.clone(), VolumeMode::Block);
    assert_complete(&run_import(&lab.source(), target).await, &fixtures::DISK.sha256_at(3 * MIB));
    let bytes = fs::read(&device).unwrap();
    let (disk, behind) = bytes.split_at(3 * 1024 * 1024);
    let sum = disk_importer::sha256::Sum::of(disk).to_string();
    assert_eq!(sum, format!("sha256:{}", fixtures::DISK.sha256_at(3 * MIB)));
    assert!(behind.len() == 1024 * 1024 && behind.iter().all(|byte| *byte == 0xee));
    assert_eq!(fs::metadata(&device).unwrap().ino(), inode);
}

#[tokio::test]
async fn a_device_is_never_made_or_extended() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let device = lab.directory.path().join("disk/device");
    let target = || {
        let mut target = lab.target(3 * MIB);
        (target.output, target.volume_mode) = (device.clone(), VolumeMode::Block);
        target
    };
    assert_failed(&run_import(&lab.source(), target()).await, ImportReason::BlockDeviceDenied);
    assert!(!device.exists());
    fs::write(&device, [0xee; 1000]).unwrap();
    assert_failed(&run_import(&lab.source(), target()).await, ImportReason::BlockDeviceDenied);
    assert_eq!(fs::read(&device).unwrap(), [0xee; 1000]);
    assert_eq!(lab.counts().downloads, 1);
}

#[tokio::test]
async fn a_finished_device_is_believed_only_by_its_bytes() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let device = lab.directory.path().join("disk/device");
    fs::write(&device, vec![0xee; 1024 * 1024]).unwrap();
    let target = || {
        let mut target = lab.target(MIB);
        (target.output, target.volume_mode) = (device.clone(), VolumeMode::Block);
        target
    };
    let expected = fixtures::DISK.sha256_at(MIB);
    assert_complete(&run_import(&lab.source(), target()).await, &expected);
    assert_complete(&run_import(&lab.source(), target()).await, &expected);
    assert_eq!(lab.counts().requests, 1);
    fs::write(&device, vec![0xdd; 1024 * 1024]).unwrap();
    assert_complete(&run_import(&lab.source(), target()).await, &expected);
    assert_eq!(lab.counts().requests, 2);
}
