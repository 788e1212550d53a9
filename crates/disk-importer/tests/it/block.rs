//! Block volumes, with a file in the place of the device: never made, cut or extended, and
//! whatever its last user left is gone where the disk is.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use disk_importer::settings::{Target, VolumeMode};
use disk_importer::sha256::Sum;
use image_server::{Behaviour, Content, Fault, fixtures};
use otctl_types::import::{Compression, ImportReason};

use crate::compressed::pack;
use crate::lab::{Lab, MIB, assert_complete, assert_failed, run_import};

/// What the last user of the device left.
const OLD: u8 = 0xee;

fn device_of(lab: &Lab, size: u64) -> PathBuf {
    let device = lab.directory.path().join("disk/device");
    fs::write(&device, vec![OLD; usize::try_from(size).unwrap()]).unwrap();
    device
}

fn target_of(lab: &Lab, device: &Path, disk_size: u64) -> Target {
    let mut target = lab.target(disk_size);
    (target.output, target.volume_mode) = (device.to_owned(), VolumeMode::Block);
    target
}

/// The disk is `expected`, what is behind it is what was there, and the device is the same one.
#[track_caller]
fn assert_filled(device: &Path, inode: u64, disk_size: u64, expected: &str) {
    let bytes = fs::read(device).unwrap();
    let (disk, behind) = bytes.split_at(usize::try_from(disk_size).unwrap());
    assert_eq!(Sum::of(disk).to_string(), format!("sha256:{expected}"));
    assert!(behind.iter().all(|byte| *byte == OLD), "bytes behind the disk were touched");
    assert_eq!(fs::metadata(device).unwrap().ino(), inode);
}

#[tokio::test]
async fn a_device_is_filled_where_it_lies_and_not_behind_the_disk() {
    let raw = Content::generated(2 * MIB + 512, 41);
    let raw_bytes = {
        let mut bytes = vec![0; usize::try_from(raw.size()).unwrap()];
        raw.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let raw_hash = raw.disk_hash(3 * MIB).unwrap().hex();
    let qcow2_hash = fixtures::DISK.sha256_at(3 * MIB);
    let images = [
        (fixtures::ZLIB.bytes.to_vec(), &qcow2_hash),
        (fixtures::PLAIN.bytes.to_vec(), &qcow2_hash),
        (pack(Compression::Xz, fixtures::CLUSTERS_512.bytes), &qcow2_hash),
        (raw_bytes.clone(), &raw_hash),
        (pack(Compression::Gzip, &raw_bytes), &raw_hash),
    ];
    for (image, expected) in images {
        let lab = Lab::serving(Content::bytes(image)).await;
        let device = device_of(&lab, 4 * MIB);
        let inode = fs::metadata(&device).unwrap().ino();
        let report = run_import(&lab.source(), target_of(&lab, &device, 3 * MIB)).await;
        assert_complete(&report, expected);
        assert_filled(&device, inode, 3 * MIB, expected);
    }
}

#[tokio::test]
async fn a_device_that_is_not_there_or_too_short_costs_no_request() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let absent = lab.directory.path().join("disk/absent");
    let report = run_import(&lab.source(), target_of(&lab, &absent, MIB)).await;
    assert_failed(&report, ImportReason::BlockDeviceDenied);
    assert!(!absent.exists());
    let short = device_of(&lab, MIB - 1);
    let report = run_import(&lab.source(), target_of(&lab, &short, MIB)).await;
    assert_failed(&report, ImportReason::BlockDeviceDenied);
    assert_eq!(fs::read(&short).unwrap(), vec![OLD; usize::try_from(MIB - 1).unwrap()]);
    let directory = lab.directory.path().join("disk");
    let report = run_import(&lab.source(), target_of(&lab, &directory, MIB)).await;
    assert_failed(&report, ImportReason::BlockDeviceDenied);
    assert_eq!((lab.counts().requests, report.download_started), (0, false));
}

#[tokio::test]
async fn an_image_larger_than_the_disk_is_not_written_behind_it() {
    let packed = pack(Compression::Gzip, &vec![7; usize::try_from(2 * MIB).unwrap()]);
    let lab = Lab::serving(Content::bytes(packed)).await;
    let device = device_of(&lab, 4 * MIB);
    let report = run_import(&lab.source(), target_of(&lab, &device, MIB)).await;
    assert_failed(&report, ImportReason::TooSmall);
    let bytes = fs::read(&device).unwrap();
    assert_eq!(bytes.len() as u64, 4 * MIB);
    assert!(bytes[usize::try_from(MIB).unwrap()..].iter().all(|byte| *byte == OLD));
}

#[tokio::test]
async fn a_device_half_written_is_written_again_from_its_start() {
    let content = Content::generated(2 * MIB, 43);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(500));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    let device = device_of(&lab, 2 * MIB);
    let inode = fs::metadata(&device).unwrap().ino();
    let first = run_import(&lab.source(), target_of(&lab, &device, 2 * MIB)).await;
    assert_failed(&first, ImportReason::ServerError);
    // Whoever had the device in between.
    fs::write(&device, vec![0xdd; usize::try_from(2 * MIB).unwrap()]).unwrap();
    let expected = content.disk_hash(2 * MIB).unwrap().hex();
    let second = run_import(&lab.source(), target_of(&lab, &device, 2 * MIB)).await;
    assert_complete(&second, &expected);
    assert_filled(&device, inode, 2 * MIB, &expected);
    assert_eq!(lab.counts().bytes, 2 * MIB);
}

#[tokio::test]
async fn a_finished_device_is_believed_only_by_its_bytes() {
    let lab = Lab::serving(Content::bytes(fixtures::ZLIB.bytes)).await;
    let device = device_of(&lab, MIB);
    let expected = fixtures::DISK.sha256_at(MIB);
    for _ in 0..2 {
        let report = run_import(&lab.source(), target_of(&lab, &device, MIB)).await;
        assert_complete(&report, &expected);
    }
    assert_eq!(lab.counts().requests, 1);
    fs::write(&device, vec![0xdd; usize::try_from(MIB).unwrap()]).unwrap();
    assert_complete(&run_import(&lab.source(), target_of(&lab, &device, MIB)).await, &expected);
    assert_eq!(lab.counts().requests, 2);
}
