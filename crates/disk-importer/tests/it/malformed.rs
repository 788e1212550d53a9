//! Damaged qcow2 images: an error that says so, never a panic, never a disk.

use std::fs;

use disk_importer::convert::{Packed, convert};
use disk_importer::failure::Failure;
use disk_importer::settings::{Expected, Target, VolumeMode};
use disk_importer::sha256::Sum;
use image_server::fixtures::{CLUSTERS_512, Fixture, PLAIN, VERSION_2, ZLIB};
use otctl_types::import::{ImageFormat, ImportReason, SourceFacts};
use tokio_util::sync::CancellationToken;

const L1_ENTRIES: usize = 36;
const L1_OFFSET: usize = 40;
const REFCOUNT_OFFSET: usize = 48;

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn disk(&self) -> std::path::PathBuf {
        self.directory.path().join("disk.img")
    }

    fn convert(&self, image: &[u8]) -> Result<Sum, Failure> {
        let path = self.directory.path().join("source");
        fs::write(&path, image).unwrap();
        let _ = fs::remove_file(self.disk());
        let target = Target {
            output: self.disk(),
            volume_mode: VolumeMode::Filesystem,
            disk_size: 1024 * 1024,
            scratch: self.directory.path().to_owned(),
            pod_uid: String::new(),
            checksum: None,
            expected: Expected::default(),
        };
        let facts = SourceFacts {
            size: Some(image.len() as u64),
            etag: None,
            accepts_ranges: true,
            format: ImageFormat::Qcow2,
            compression: None,
            virtual_size: None,
        };
        let unpacked = self.directory.path().join("unpacked");
        convert(&Packed { path, unpacked, facts }, &target, &CancellationToken::new())
    }

    /// The image is refused as damaged, by a check and not by a caught panic.
    #[track_caller]
    fn assert_damaged(&self, what: &str, image: &[u8]) {
        let failure = self.convert(image).expect_err(what);
        assert_eq!(failure.reason, ImportReason::BadFormat, "{what}: {failure}");
        assert!(!failure.message.contains("unforeseen"), "{what}: {failure}");
        assert!(!self.disk().exists(), "{what}");
    }
}

fn put_u32(image: &mut [u8], offset: usize, value: u32) {
    image[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_u64(image: &mut [u8], offset: usize, value: u64) {
    image[offset..offset + 8].copy_from_slice(&value.to_be_bytes());
}

fn get_u64(image: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(image[offset..offset + 8].try_into().unwrap())
}

/// Where the first L1 entry and the first used L2 entry are.
fn tables(image: &[u8]) -> (usize, usize) {
    let offset = |entry: u64| usize::try_from(entry & 0x00ff_ffff_ffff_fe00).unwrap();
    let l1 = offset(get_u64(image, L1_OFFSET));
    let l2 = offset(get_u64(image, l1));
    let used = (l2..).step_by(8).find(|at| get_u64(image, *at) != 0).unwrap();
    (l1, used)
}

/// The file's end as an offset a table could have, so that a table there has nothing to read.
fn last_sector(fixture: &Fixture) -> u64 {
    (fixture.bytes.len() as u64).next_multiple_of(65_536)
}

fn changed(fixture: &Fixture, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = fixture.bytes.to_vec();
    change(&mut image);
    image
}

#[test]
fn headers_that_cannot_be() {
    let bench = Bench::new();
    let fields: [(&str, usize, u32); 8] = [
        ("clusters of 256 bytes", 20, 8),
        ("clusters of 4 MiB", 20, 22),
        ("shift overflow", 20, 64),
        ("a disk of 8 EiB and more", 24, 0xffff_ffff),
        ("no first-level table", L1_ENTRIES, 0),
        ("a first-level table of 32 GiB", L1_ENTRIES, 0xffff_ffff),
        ("no refcount table", 56, 0),
        ("a refcount table of everything", 56, 0xffff_ffff),
    ];
    for (what, offset, value) in fields {
        bench.assert_damaged(what, &changed(&PLAIN, |image| put_u32(image, offset, value)));
    }
    for offset in [L1_OFFSET, REFCOUNT_OFFSET] {
        for value in [0, 1, 512, 1 << 40, u64::MAX, u64::MAX - 65_535] {
            let image = changed(&PLAIN, |image| put_u64(image, offset, value));
            bench.assert_damaged("a table that is nowhere", &image);
        }
    }
    let image = changed(&PLAIN, |image| put_u32(image, 96, 7));
    bench.assert_damaged("refcounts of 128 bits", &image);
    let image = changed(&PLAIN, |image| put_u64(image, 72, 2));
    bench.assert_damaged("marked as corrupt", &image);
}

#[test]
fn headers_that_ask_for_more_than_is_read() {
    let bench = Bench::new();
    for (offset, value) in [(4, 1), (4, 4), (32, 1), (76, 1), (76, 4), (76, 8), (76, 16), (72, 1)] {
        let image = changed(&PLAIN, |image| put_u32(image, offset, value));
        let failure = bench.convert(&image).unwrap_err();
        assert_eq!(failure.reason, ImportReason::UnsupportedFormat, "{offset}: {failure}");
    }
    let backing = changed(&PLAIN, |image| {
        image[1024..1035].copy_from_slice(b"/etc/passwd");
        put_u64(image, 8, 1024);
        put_u32(image, 16, 11);
    });
    assert_eq!(bench.convert(&backing).unwrap_err().reason, ImportReason::UnsupportedFormat);
}

#[test]
fn tables_that_point_where_nothing_can_be() {
    let bench = Bench::new();
    for fixture in [&PLAIN, &CLUSTERS_512] {
        let (l1, l2) = tables(fixture.bytes);
        let l2_table = get_u64(fixture.bytes, l1) & 0x00ff_ffff_ffff_fe00;
        let entries: [(&str, usize, u64); 7] = [
            ("second level behind the end", l1, 1 << 40),
            ("second level that ends behind the end", l1, last_sector(fixture)),
            ("second level is the first level", l1, l1 as u64),
            ("data behind the end", l2, 1 << 40),
            ("data is the second level itself", l2, l2_table),
            ("data is the first level", l2, l1 as u64),
            ("compressed data behind the end", l2, 1 << 62 | 1 << 40),
        ];
        for (what, offset, value) in entries {
            bench.assert_damaged(what, &changed(fixture, |image| put_u64(image, offset, value)));
        }
    }
}

#[test]
fn two_second_level_tables_in_one_place() {
    let (l1, _) = tables(CLUSTERS_512.bytes);
    let first = get_u64(CLUSTERS_512.bytes, l1);
    let image = changed(&CLUSTERS_512, |image| put_u64(image, l1 + 8, first));
    Bench::new().assert_damaged("a loop of tables", &image);
}

#[test]
fn compressed_bytes_that_are_no_deflate() {
    let (_, l2) = tables(ZLIB.bytes);
    let offset = usize::try_from(get_u64(ZLIB.bytes, l2) & ((1 << 54) - 1)).unwrap();
    let image = changed(&ZLIB, |image| image[offset..offset + 64].fill(0xff));
    Bench::new().assert_damaged("garbage instead of a compressed cluster", &image);
}

#[test]
fn images_cut_short_anywhere_in_their_metadata() {
    let bench = Bench::new();
    for fixture in [&PLAIN, &ZLIB, &CLUSTERS_512, &VERSION_2] {
        for length in [4, 71, 72, 103, 104, 512, 1023, 4096, fixture.bytes.len() / 2] {
            let length = length.min(fixture.bytes.len() / 2);
            bench.assert_damaged(fixture.name, &fixture.bytes[..length]);
        }
    }
}

/// Any change of any metadata either gives a disk or a reason; none is a caught panic.
#[test]
fn random_damage_never_panics() {
    let bench = Bench::new();
    let mut random = Random(0x5eed);
    let mut refused = 0;
    for round in 0..600 {
        let fixture = [&PLAIN, &ZLIB, &CLUSTERS_512, &VERSION_2][round % 4];
        let (l1, l2) = tables(fixture.bytes);
        let image = changed(fixture, |image| {
            for _ in 0..=random.below(3) {
                let start = [0, l1, l2][random.below(3)];
                let at = (start + random.below(128)).min(image.len() - 1);
                image[at] = [0, 0xff, 1 << random.below(8), image[at] ^ 1][random.below(4)];
            }
        });
        if let Err(failure) = bench.convert(&image) {
            refused += 1;
            assert!(!failure.message.contains("unforeseen"), "round {round}: {failure}");
            assert_ne!(failure.reason, ImportReason::Internal, "round {round}: {failure}");
        }
    }
    assert!(refused > 100, "only {refused} of 600 changes were noticed");
}

/// A seeded sequence, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}
