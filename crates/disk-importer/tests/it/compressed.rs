//! Images that are compressed as a whole, packed by the encoders of the reference libraries.

use std::fs;
use std::io::Write as _;

use disk_importer::sha256::Sum;
use flate2::write::GzEncoder;
use image_server::{Behaviour, Content, Fault, fixtures};
use liblzma::write::XzEncoder;
use otctl_types::import::{Compression, ImageFormat, ImportOutcome, ImportReason, ImportReport};

use crate::lab::{Lab, MIB, assert_complete, assert_failed, run_import, run_probe, sha256_of};

const ALL: [Compression; 3] = [Compression::Gzip, Compression::Xz, Compression::Zstd];

pub(crate) fn pack(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let mut encoder = XzEncoder::new(Vec::new(), 1);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
            // As the program does that people use.
            encoder.include_checksum(true).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

fn bytes_of(content: &Content) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(content.size()).unwrap()];
    let mut read = 0;
    while read < bytes.len() {
        read += content.read_at(read as u64, &mut bytes[read..]).unwrap();
    }
    bytes
}

async fn serving(bytes: Vec<u8>) -> Lab {
    Lab::serving(Content::bytes(bytes)).await
}

#[track_caller]
fn assert_nothing_left(lab: &Lab) {
    assert!(!lab.disk().exists());
    assert!(!lab.scratch().join("unpacked").exists());
}

#[tokio::test]
async fn each_compression_of_each_format_becomes_the_same_disk() {
    let images = [&fixtures::PLAIN, &fixtures::ZLIB, &fixtures::CLUSTERS_512, &fixtures::VERSION_2];
    for compression in ALL {
        for fixture in images {
            let packed = pack(compression, fixture.bytes);
            let lab = serving(packed.clone()).await;
            let mut target = lab.target(fixture.virtual_size);
            target.checksum = Some(Sum::of(&packed));
            let report = run_import(&lab.source(), target).await;
            assert_complete(&report, fixture.raw_sha256().unwrap());
            assert_eq!(sha256_of(&lab.disk()), fixture.raw_sha256().unwrap());
            assert_eq!(report.checksum, Some(Sum::of(&packed).to_string()));
            let source = report.source.unwrap();
            assert_eq!(source.compression, Some(compression));
            assert_eq!(source.format, ImageFormat::Qcow2);
            assert_eq!(source.virtual_size, Some(fixture.virtual_size));
            assert_eq!(source.size, Some(packed.len() as u64));
            assert!(!lab.scratch().join("unpacked").exists());
        }
        let content = Content::generated(3 * MIB + 512, 17);
        let lab = serving(pack(compression, &bytes_of(&content))).await;
        let report = lab.import(4 * MIB).await;
        assert_complete(&report, &content.disk_hash(4 * MIB).unwrap().hex());
        let source = report.source.unwrap();
        assert_eq!((source.format, source.virtual_size), (ImageFormat::Raw, None));
    }
}

/// Members, streams and frames one after the other, with the padding and the frames to skip that
/// the formats allow.
#[tokio::test]
async fn files_of_several_parts_are_read_to_their_end() {
    let content = Content::generated(2 * MIB, 23);
    let bytes = bytes_of(&content);
    let parts: Vec<&[u8]> = bytes.chunks(700_000).collect();
    for compression in ALL {
        let between: &[u8] = match compression {
            Compression::Gzip => b"",
            Compression::Xz => &[0; 8],
            Compression::Zstd => b"\x50\x2a\x4d\x18\x04\0\0\0skip",
        };
        let packed: Vec<Vec<u8>> = parts.iter().map(|part| pack(compression, part)).collect();
        let lab = serving(packed.join(between)).await;
        assert_complete(&lab.import(2 * MIB).await, &content.disk_hash(2 * MIB).unwrap().hex());
    }
    let skippable_first = [b"\x5f\x2a\x4d\x18\0\0\0\0".as_slice(), &pack(ALL[2], &bytes)].concat();
    let lab = serving(skippable_first).await;
    assert_complete(&lab.import(2 * MIB).await, &content.disk_hash(2 * MIB).unwrap().hex());
}

#[tokio::test]
async fn the_probe_sees_what_is_inside() {
    for compression in ALL {
        let lab = serving(pack(compression, fixtures::LARGE.bytes)).await;
        let mut source = lab.source();
        let report = run_probe(&source).await;
        assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
        let facts = report.source.unwrap();
        assert_eq!(facts.virtual_size, Some(5 << 30));
        assert!(lab.counts().bytes <= 64 * 1024 && lab.counts().requests == 1);
        source.limits.disk_size = Some(1 << 30);
        assert_failed(&run_probe(&source).await, ImportReason::TooSmall);
    }
}

#[tokio::test]
async fn a_raw_image_inside_needs_a_disk_size() {
    for compression in ALL {
        let lab = serving(pack(compression, &bytes_of(&Content::generated(MIB, 3)))).await;
        let mut source = lab.source();
        let report = run_probe(&source).await;
        assert_failed(&report, ImportReason::SizeUnknown);
        assert!(report.message.contains("diskSize"), "{}", report.message);
        assert_eq!(report.source.unwrap().compression, Some(compression));
        source.limits.disk_size = Some(MIB);
        assert_eq!(run_probe(&source).await.outcome, ImportOutcome::Complete);
    }
}

#[tokio::test]
async fn a_cut_download_of_a_compressed_image_goes_on() {
    let content = Content::generated(4 * MIB, 29);
    let packed = pack(Compression::Zstd, &bytes_of(&content));
    let size = packed.len() as u64;
    let behaviour = Behaviour::new().then(Fault::cut(size / 2)).then(Fault::status(500));
    let lab = Lab::misbehaving(Content::bytes(packed), behaviour).await;
    assert_failed(&lab.import(4 * MIB).await, ImportReason::ServerError);
    assert_eq!(lab.kept(), size / 2);
    assert_complete(&lab.import(4 * MIB).await, &content.disk_hash(4 * MIB).unwrap().hex());
    assert_eq!((lab.counts().bytes, lab.counts().downloads), (size, 1));
}

#[tokio::test]
async fn a_raw_image_that_unpacks_to_more_than_the_disk_ends_where_the_disk_does() {
    for compression in ALL {
        // 16 GiB of zeroes, which would take a minute to unpack; and a MiB too much that is not.
        let zeroes = pack(compression, &vec![0; 16 << 20]).repeat(1024);
        let noise = pack(compression, &bytes_of(&Content::generated(2 * MIB, 31)));
        for bomb in [zeroes, noise] {
            let lab = serving(bomb).await;
            let report = lab.import(MIB).await;
            assert_failed(&report, ImportReason::TooSmall);
            assert_nothing_left(&lab);
            let partial = fs::metadata(lab.disk().with_extension("img.partial")).unwrap();
            assert_eq!(partial.len(), MIB);
        }
    }
}

/// A small image whose file goes on for ever is given up when an image of its size must have
/// ended.
#[tokio::test]
async fn a_qcow2_image_that_unpacks_to_more_than_one_can_take_is_none() {
    for compression in ALL {
        let tail = pack(compression, &vec![0xaa; 16 << 20]).repeat(16);
        let lab = serving([pack(compression, fixtures::PLAIN.bytes), tail].concat()).await;
        let report = lab.import(MIB).await;
        assert_failed(&report, ImportReason::BadFormat);
        assert!(report.message.contains("unpacks to more"), "{}", report.message);
        assert_nothing_left(&lab);
    }
}

#[tokio::test]
async fn damaged_or_cut_files_are_bad_and_leave_no_disk() {
    let content = bytes_of(&Content::generated(MIB, 37));
    for compression in ALL {
        for image in [&content, fixtures::ZLIB.bytes] {
            let packed = pack(compression, image);
            let mut flipped = packed.clone();
            let middle = packed.len() / 2;
            flipped[middle] ^= 0x40;
            let short = packed[..packed.len() - 1].to_vec();
            let half = packed[..middle].to_vec();
            let followed = [packed.as_slice(), b"more"].concat();
            for damaged in [flipped, short, half, followed, packed[..7].to_vec()] {
                let lab = serving(damaged).await;
                let report = lab.import(MIB).await;
                assert_failed(&report, ImportReason::BadFormat);
                assert_nothing_left(&lab);
                assert_eq!(lab.kept(), 0, "bytes of no use are kept");
            }
        }
    }
}

#[tokio::test]
async fn what_is_inside_is_judged_as_if_it_were_outside() {
    let page = b"<!DOCTYPE html><p>please log in</p>".repeat(100);
    let twice = pack(Compression::Xz, &pack(Compression::Gzip, fixtures::PLAIN.bytes));
    let vmdk = [b"KDMV".as_slice(), &[0; 4096]].concat();
    let table = [
        (pack(Compression::Gzip, &page), ImportReason::BadFormat),
        (twice, ImportReason::UnsupportedFormat),
        (pack(Compression::Zstd, &vmdk), ImportReason::UnsupportedFormat),
        (pack(Compression::Gzip, fixtures::BACKING_FILE.bytes), ImportReason::UnsupportedFormat),
        (pack(Compression::Gzip, fixtures::DATA_FILE.bytes), ImportReason::UnsupportedFormat),
        (pack(Compression::Xz, b""), ImportReason::BadFormat),
    ];
    for (packed, reason) in table {
        let lab = serving(packed).await;
        assert_failed(&run_with_size(&lab).await, reason);
        assert_failed(&lab.import(MIB).await, reason);
        assert_nothing_left(&lab);
    }
}

async fn run_with_size(lab: &Lab) -> ImportReport {
    let mut source = lab.source();
    source.limits.disk_size = Some(MIB);
    run_probe(&source).await
}

/// Frames to skip may hide what is inside from every look; a long first block only from the probe.
#[tokio::test]
async fn what_no_look_could_show_is_judged_when_it_is_unpacked() {
    let hidden = |image: &[u8]| {
        let length = 300_000u32;
        let skip = [b"\x50\x2a\x4d\x18", length.to_le_bytes().as_slice(), &[7; 300_000]].concat();
        [skip, pack(Compression::Zstd, image)].concat()
    };
    let raw = Content::generated(MIB, 47);
    let lab = serving(hidden(&bytes_of(&raw))).await;
    assert_complete(&lab.import(MIB).await, &raw.disk_hash(MIB).unwrap().hex());
    let lab = serving(hidden(fixtures::PLAIN.bytes)).await;
    let report = lab.import(MIB).await;
    assert_failed(&report, ImportReason::UnsupportedFormat);
    assert!(report.message.contains("do not show"), "{}", report.message);
    assert_nothing_left(&lab);
    let lab = serving(pack(Compression::Zstd, fixtures::CLUSTERS_512.bytes)).await;
    let facts = run_with_size(&lab).await.source.unwrap();
    assert_eq!((facts.format, facts.virtual_size), (ImageFormat::Raw, None));
    assert_complete(&lab.import(MIB).await, &fixtures::DISK.sha256_at(MIB));
}

#[tokio::test]
async fn what_asks_for_more_memory_than_it_gets_is_refused() {
    let mut xz = pack(Compression::Xz, &[7; 100_000]);
    // The block header: its length, its flags, LZMA2 with one byte of properties, the dictionary.
    assert_eq!(xz[14..16], [0x21, 1]);
    xz[16] = 40;
    let mut crc = flate2::Crc::new();
    crc.update(&xz[12..20]);
    xz[20..24].copy_from_slice(&crc.sum().to_le_bytes());
    let lab = serving(xz).await;
    let report = lab.import(MIB).await;
    assert_failed(&report, ImportReason::UnsupportedFormat);
    assert!(report.message.contains("memory"), "{}", report.message);
    let mut zstd = pack(Compression::Zstd, &[7; 100_000]);
    // No single segment, so a window follows the frame's descriptor: 2 GiB.
    assert_eq!(zstd[4] & 0x20, 0);
    zstd[5] = (31 - 10) << 3;
    let lab = serving(zstd).await;
    assert_failed(&lab.import(MIB).await, ImportReason::BadFormat);
}
