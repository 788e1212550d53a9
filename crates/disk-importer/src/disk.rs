//! The disk that a VM will see: written front to back, hashed as it is written, holes left where
//! nothing but zeroes is.
//!
//! A file gets its name when it is complete and synced. A block device is opened as it is, never
//! created, truncated or extended, and what is to read as zeroes is written as zeroes, since a
//! device holds whatever its last user left.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use otctl_types::import::ImportReason;

use crate::failure::Failure;
use crate::settings::{Target, VolumeMode};
use crate::sha256::{Hasher, Sum};

/// Zeroes are looked for in blocks of this size, the usual one of file systems.
const BLOCK_BYTES: usize = 4096;

/// The mode CDI and KubeVirt expect: the pod's group is the VM's.
const MODE: u32 = 0o660;

static ZEROES: [u8; 1024 * 1024] = [0; 1024 * 1024];

/// A disk being written.
pub struct Disk {
    file: File,
    size: u64,
    position: u64,
    hasher: Hasher,
    /// Where a file is made, and what it is called once it is whole; none for a device.
    names: Option<Names>,
}

struct Names {
    partial: PathBuf,
    output: PathBuf,
}

impl Disk {
    /// Makes or opens the disk of `target`.
    ///
    /// # Errors
    /// `BlockDeviceDenied`, `TooLarge`, `VolumeFull` or `Internal`.
    pub fn open(target: &Target) -> Result<Self, Failure> {
        let (file, names) = match target.volume_mode {
            VolumeMode::Filesystem => {
                let names = Names::of(&target.output);
                (create(&names.partial, target.disk_size)?, Some(names))
            }
            VolumeMode::Block => (open_device(&target.output, target.disk_size)?, None),
        };
        let hasher = Hasher::default();
        Ok(Self { file, size: target.disk_size, position: 0, hasher, names })
    }

    /// Adds `bytes` at the end of what is written.
    ///
    /// # Errors
    /// `TooSmall` behind the disk's end; when the volume fails.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.check_room(bytes.len() as u64)?;
        self.hasher.update(bytes);
        for run in runs(bytes) {
            if run.zero {
                self.clear(run.bytes.len() as u64)?;
            } else {
                self.file.write_all_at(run.bytes, self.position).map_err(failed)?;
                self.position += run.bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Adds so many zeroes.
    ///
    /// # Errors
    /// As [`Disk::data`].
    pub fn zeroes(&mut self, length: u64) -> Result<(), Failure> {
        self.check_room(length)?;
        let mut left = length;
        while left > 0 {
            let some = &ZEROES[..ZEROES.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            self.hasher.update(some);
            left -= some.len() as u64;
        }
        self.clear(length)
    }

    /// Fills the rest with zeroes, makes everything safe and gives the file its name. Gives the
    /// sum of the whole disk.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn finish(mut self) -> Result<Sum, Failure> {
        self.zeroes(self.size - self.position)?;
        self.file.sync_all().map_err(failed)?;
        if let Some(names) = &self.names {
            names.publish().map_err(failed)?;
        }
        Ok(self.hasher.sum())
    }

    /// So many bytes from here on read as zeroes; the sum has them already.
    fn clear(&mut self, length: u64) -> Result<(), Failure> {
        // A new file of full length reads as zeroes where nothing is written.
        if self.names.is_none() && length > 0 {
            clear_device(&self.file, self.position, length).map_err(failed)?;
        }
        self.position += length;
        Ok(())
    }

    fn check_room(&self, length: u64) -> Result<(), Failure> {
        if length <= self.size - self.position {
            return Ok(());
        }
        let message = format!("the image holds more than the {} bytes of diskSize", self.size);
        Err(Failure::new(ImportReason::TooSmall, message))
    }
}

/// Judges what can be judged before anything is fetched: a file system that takes a file of this size, a device that is
/// there and large enough.
///
/// # Errors
/// `TooLarge`, `VolumeFull`, `Internal` or `BlockDeviceDenied`.
pub fn check(target: &Target) -> Result<(), Failure> {
    match target.volume_mode {
        VolumeMode::Filesystem => {
            let partial = Names::of(&target.output).partial;
            let created = create(&partial, target.disk_size).map(drop);
            // What is left of it must not keep room from the download; it is made again when that is whole.
            let removed = fs::remove_file(&partial).map_err(failed);
            created.and(removed)
        }
        VolumeMode::Block => open_device(&target.output, target.disk_size).map(drop),
    }
}

/// Whether the disk of `target`, finished by an earlier run, is still there with these bytes.
///
/// A file has its name only since it was whole; a device has none, so its bytes are read.
///
/// # Errors
/// When it is there and cannot be read.
pub fn is_still_there(target: &Target, sum: &str) -> Result<bool, Failure> {
    match target.volume_mode {
        VolumeMode::Filesystem => {
            let metadata = fs::metadata(&target.output);
            Ok(metadata.is_ok_and(|file| file.is_file() && file.len() == target.disk_size))
        }
        VolumeMode::Block => {
            let device = open_device(&target.output, target.disk_size)?;
            Ok(sum_of(&device, target.disk_size)?.to_string() == sum)
        }
    }
}

impl Names {
    fn of(output: &Path) -> Self {
        let mut partial = output.as_os_str().to_owned();
        partial.push(".partial");
        Self { partial: partial.into(), output: output.to_owned() }
    }

    fn publish(&self) -> io::Result<()> {
        fs::rename(&self.partial, &self.output)?;
        let directory = self.output.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

fn create(path: &Path, size: u64) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(MODE);
    let file = options.open(path).map_err(failed)?;
    // The mode asked for above is subject to the process's mask.
    file.set_permissions(Permissions::from_mode(MODE)).map_err(failed)?;
    file.set_len(size).map_err(|error| unsizable(size, &error))?;
    Ok(file)
}

fn unsizable(size: u64, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::FileTooLarge {
        return Failure::of_volume("size the disk", error);
    }
    let message = format!(
        "a disk of {} (diskSize) is larger than the file system of the volume lets a file be; lower diskSize, or use \
         volumeMode Block or another storageClass",
        policy::quantity::format(size)
    );
    Failure::new(ImportReason::TooLarge, message)
}

fn open_device(path: &Path, size: u64) -> Result<File, Failure> {
    let denied = |why: &dyn std::fmt::Display| {
        let message = format!("the block device of the claim cannot be used: {why}");
        Failure::new(ImportReason::BlockDeviceDenied, message)
    };
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let mut device = opened.map_err(|error| denied(&error))?;
    let length = device.seek(SeekFrom::End(0)).map_err(|error| denied(&error))?;
    if length < size {
        return Err(denied(&format!("it has {length} bytes, diskSize is {size}")));
    }
    Ok(device)
}

/// Clears a range of a device: by the device itself where it can, else by writing.
fn clear_device(device: &File, start: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    if let (Ok(from), Ok(count)) = (start.try_into(), length.try_into())
        && fallocate(device, flags, from, count).is_ok()
    {
        return Ok(());
    }
    let mut written = 0;
    while written < length {
        let left = usize::try_from(length - written).unwrap_or(usize::MAX);
        let some = &ZEROES[..ZEROES.len().min(left)];
        device.write_all_at(some, start + written)?;
        written += some.len() as u64;
    }
    Ok(())
}

fn sum_of(device: &File, size: u64) -> Result<Sum, Failure> {
    let mut hasher = Hasher::default();
    let mut chunk = vec![0; ZEROES.len()];
    let mut position = 0;
    while position < size {
        let left = usize::try_from(size - position).unwrap_or(usize::MAX);
        let count = chunk.len().min(left);
        device.read_exact_at(&mut chunk[..count], position).map_err(failed)?;
        hasher.update(&chunk[..count]);
        position += count as u64;
    }
    Ok(hasher.sum())
}

/// Neighbouring blocks that are all zero, or all not.
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) zero: bool,
}

pub(crate) fn runs(mut rest: &[u8]) -> impl Iterator<Item = Run<'_>> {
    std::iter::from_fn(move || {
        let zero = is_zero(first_block(rest)?);
        let mut length = 0;
        while let Some(block) = first_block(&rest[length..])
            && is_zero(block) == zero
        {
            length += block.len();
        }
        let (bytes, tail) = rest.split_at(length);
        rest = tail;
        Some(Run { bytes, zero })
    })
}

fn first_block(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then(|| &bytes[..bytes.len().min(BLOCK_BYTES)])
}

fn is_zero(block: &[u8]) -> bool {
    block == &ZEROES[..block.len()]
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err passes")]
fn failed(error: io::Error) -> Failure {
    Failure::of_volume("write the disk", &error)
}
