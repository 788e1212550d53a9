//! From image to disk: the bytes a VM sees, against hashes taken before qemu-img saw them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use image_server::Content;
use image_server::fixtures::{self, Fixture};

use crate::lab::{Lab, MIB, assert_complete, sha256_of};

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
