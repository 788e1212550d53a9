//! A scratch volume, a file system and a device, kept from one input to the next.

use std::fs;
use std::path::{Path, PathBuf};

use disk_importer::convert::{Packed, convert};
use disk_importer::failure::Failure;
use disk_importer::settings::{Expected, Target, VolumeMode};
use disk_importer::sha256::Hasher;
use otctl_types::import::SourceFacts;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::DISK;

/// What the device holds before, and behind the disk's end for ever.
const LEFTOVER: u8 = 0xa5;
/// How much longer the device is than the disk.
const BEHIND: usize = 4096;

pub(super) struct Bench {
    directory: TempDir,
}

impl Bench {
    /// Writes `image` to the scratch volume and lets `act` do something with it.
    pub(super) fn with(image: &[u8], act: impl FnOnce(&Self)) {
        thread_local! {
            static BENCH: Bench = Bench::new();
        }
        BENCH.with(|bench| {
            let _ = fs::remove_file(bench.path("disk.img"));
            fs::write(bench.path("source"), image).expect("the scratch volume takes an image");
            act(bench);
        });
    }

    /// In memory where there is such a file system: nothing here is worth waiting for a disk.
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self { directory: TempDir::new_in(parent).expect("there is room for a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The disk's sum. It is that of its bytes, and a device keeps its length and what is behind the disk.
    pub(super) fn convert(&self, facts: &SourceFacts, mode: VolumeMode) -> Result<String, Failure> {
        let is_device = mode == VolumeMode::Block;
        let output = self.path(if is_device { "device" } else { "disk.img" });
        let length = usize::try_from(DISK).expect("it is small") + BEHIND;
        if is_device {
            fs::write(&output, vec![LEFTOVER; length]).expect("there is room for a device");
        }
        let target = Target {
            output: output.clone(),
            volume_mode: mode,
            disk_size: DISK,
            scratch: self.directory.path().to_owned(),
            pod_uid: String::new(),
            checksum: None,
            expected: Expected::default(),
        };
        let (path, unpacked) = (self.path("source"), self.path("unpacked"));
        let packed = Packed { path, unpacked, facts: facts.clone() };
        let made = convert(&packed, &target, &CancellationToken::new());
        assert!(!packed.unpacked.exists(), "the unpacked image was left behind");
        let sum = made.map(|sum| sum.to_string());
        if is_device {
            let device = fs::read(&output).expect("the device is there");
            let behind = device.get(device.len().saturating_sub(BEHIND)..).unwrap_or_default();
            assert_eq!(device.len(), length, "the device has another length");
            assert!(behind.iter().all(|byte| *byte == LEFTOVER), "written behind the disk's end");
            self.is_sum_of(sum.as_deref().ok(), &device[..length - BEHIND]);
        } else if sum.is_ok() {
            self.is_sum_of(sum.as_deref().ok(), &self.disk());
        }
        sum
    }

    fn is_sum_of(&self, sum: Option<&str>, disk: &[u8]) {
        let mut hasher = Hasher::default();
        hasher.update(disk);
        assert!(sum.is_none_or(|sum| sum == hasher.sum().to_string()), "the sum is another disk's");
    }

    pub(super) fn has_disk(&self) -> bool {
        self.path("disk.img").exists()
    }

    /// The disk as a file.
    pub(super) fn disk(&self) -> Vec<u8> {
        let disk = fs::read(self.path("disk.img")).expect("the disk has its name");
        assert_eq!(disk.len() as u64, DISK, "the disk has another size");
        disk
    }
}
