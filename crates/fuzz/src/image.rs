//! Image files as a source serves them: the first look, and the disk that is made of them.

mod bench;
mod second_reader;

use disk_importer::failure::Failure;
use disk_importer::look::{Beginning, LOOK_BYTES, fits};
use disk_importer::settings::{Limits, VolumeMode};
use otctl_types::import::{FailureClass, ImageFormat, SourceFacts};

use bench::Bench;

/// Size of the disk in bytes: room for the disks of the seeds, and little to hash.
const DISK: u64 = 256 << 10;

/// A look and a conversion end in a disk or in a reason that no retry changes. The disk is what a second reader sees in
/// the image, the same in a file and on a device, with nothing beyond its end; of what failed nothing has a name.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let size = input.len() as u64;
    let bytes = &input[..input.len().min(usize::try_from(LOOK_BYTES).expect("it is small"))];
    let beginning = Beginning { bytes, size, etag: None, accepts_ranges: true, is_page: false };
    let facts = match beginning.facts() {
        Ok(facts) => facts,
        Err(failure) => return is_terminal(&failure),
    };
    let limits = Limits { image_size: None, disk_size: Some(DISK) };
    let does_fit = fits(&facts, &limits);
    Bench::with(input, |bench| {
        let file = bench.convert(&facts, VolumeMode::Filesystem);
        let device = bench.convert(&facts, VolumeMode::Block);
        match (file, device) {
            (Ok(file), Ok(device)) => {
                assert_eq!(file, device, "a file and a device got different disks");
                assert!(does_fit.is_ok(), "{does_fit:?}, and yet it fits");
                check_disk(&facts, input, &bench.disk());
            }
            (Err(file), Err(device)) => {
                is_terminal(&file);
                assert_eq!(file.reason, device.reason, "{file}; {device}");
                assert!(!bench.has_disk(), "{file}, and there is a disk");
            }
            (file, device) => panic!("of a file {file:?}, of a device {device:?}"),
        }
    });
}

fn is_terminal(failure: &Failure) {
    assert_eq!(failure.reason.class(), FailureClass::Terminal, "{failure}");
    assert!(!failure.message.contains("unforeseen"), "{failure}");
}

/// What the disk must hold, where a second reader knows.
fn check_disk(facts: &SourceFacts, input: &[u8], disk: &[u8]) {
    let content = match (facts.compression, facts.format) {
        (None, ImageFormat::Raw) => Some(input.to_vec()),
        (None, ImageFormat::Qcow2) => second_reader::read(input),
        (Some(_), _) => None,
    };
    let Some(content) = content else { return };
    assert!(disk.starts_with(&content), "the disk is not what is in the image");
    assert!(
        disk[content.len()..].iter().all(|byte| *byte == 0),
        "there is something after the image's end"
    );
}
