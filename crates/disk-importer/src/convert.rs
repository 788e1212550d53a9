//! From the verified image on the scratch volume to the disk.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use imago::qcow2::Qcow2;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder as _, Mapping, Storage as _,
    StorageOpenOptions,
};
use otctl_types::import::{Compression, ImageFormat, ImportReason, SourceFacts, largest_qcow2};
use tokio_util::sync::CancellationToken;

use crate::disk::{Disk, runs};
use crate::failure::Failure;
use crate::look::{LOOK_BYTES, check_sectors, check_unpacked_raw};
use crate::qcow2::{Header, check_tables};
use crate::scratch::drop_unpacked;
use crate::settings::Target;
use crate::sha256::Sum;
use crate::unpack::Unpacked;

const CHUNK_BYTES: usize = 1024 * 1024;

/// Holes are taken in stretches of this, so that being told to stop is noticed in between.
const LONGEST_STRETCH: u64 = 512 * 1024 * 1024;

type Image = FormatAccess<imago::file::File>;

/// An image as it came, compressed or not.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Its bytes.
    pub path: PathBuf,
    /// Where a compressed qcow2 image may be unpacked to; nothing is left there.
    pub unpacked: PathBuf,
    /// What the look at it told.
    pub facts: SourceFacts,
}

/// Writes `image` as the disk of `target`; gives the disk's sum. Blocks.
///
/// # Errors
/// When the image is damaged, a volume fails, or `Interrupted`. A file that is not whole has no
/// name yet; a device is to be written again from its start.
pub fn convert(
    image: &Packed,
    target: &Target,
    cancel: &CancellationToken,
) -> Result<Sum, Failure> {
    let mut file = File::open(&image.path).map_err(unreadable)?;
    match (image.facts.compression, image.facts.format) {
        (None, ImageFormat::Raw) => {
            let mut disk = Disk::open(target)?;
            copy_raw(&mut file, &mut disk, cancel)?;
            disk.finish()
        }
        (Some(compression), ImageFormat::Raw) => {
            let mut disk = Disk::open(target)?;
            copy_packed_raw(compression, file, &mut disk, cancel)?;
            disk.finish()
        }
        (None, ImageFormat::Qcow2) => convert_qcow2(&file, &image.path, target, cancel),
        (Some(compression), ImageFormat::Qcow2) => {
            let unpacked = unpack_qcow2(compression, file, image, cancel);
            let made =
                unpacked.and_then(|file| convert_qcow2(&file, &image.unpacked, target, cancel));
            drop_unpacked(&image.unpacked)?;
            made
        }
    }
}

fn convert_qcow2(
    file: &File,
    path: &Path,
    target: &Target,
    cancel: &CancellationToken,
) -> Result<Sum, Failure> {
    let image = open_checked(file, path)?;
    let mut disk = Disk::open(target)?;
    guarded(|| copy_image(&image, &mut disk, cancel))?;
    disk.finish()
}

/// The disk ends it: what unpacks to more than fits on it is too large, however small it came.
fn copy_packed_raw(
    compression: Compression,
    packed: File,
    disk: &mut Disk,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let mut unpacked = Unpacked::new(compression, packed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut count = unpacked.fill(&mut chunk)?;
    check_unpacked_raw(compression, &chunk[..count])?;
    let mut size = 0;
    while count > 0 {
        go_on(cancel)?;
        disk.data(&chunk[..count])?;
        size += count as u64;
        count = unpacked.fill(&mut chunk)?;
    }
    check_sectors(size)
}

/// Unpacks a qcow2 image beside the packed one, with holes, up to what an image of its disk size
/// can take.
fn unpack_qcow2(
    compression: Compression,
    packed: File,
    image: &Packed,
    cancel: &CancellationToken,
) -> Result<File, Failure> {
    let limit = largest_qcow2(image.facts.virtual_size.unwrap_or_default());
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&image.unpacked).map_err(unwritable)?;
    let mut unpacked = Unpacked::new(compression, packed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut size = 0;
    loop {
        go_on(cancel)?;
        let count = unpacked.fill(&mut chunk)?;
        if count == 0 {
            break;
        }
        for run in runs(&chunk[..count]) {
            if !run.zero {
                file.write_all_at(run.bytes, size).map_err(unwritable)?;
            }
            size += run.bytes.len() as u64;
        }
        if size > limit {
            return Err(unpacks_too_far(compression, limit));
        }
    }
    file.set_len(size).map_err(unwritable)?;
    Ok(file)
}

fn unpacks_too_far(compression: Compression, limit: u64) -> Failure {
    let message = format!(
        "the {compression} file unpacks to more than {limit} bytes, the most that a qcow2 image of \
         its disk size takes; snapshots inside an image are dropped by `qemu-img convert -O qcow2`"
    );
    Failure::new(ImportReason::BadFormat, message)
}

fn copy_raw(file: &mut File, disk: &mut Disk, cancel: &CancellationToken) -> Result<(), Failure> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        go_on(cancel)?;
        let count = file.read(&mut chunk).map_err(unreadable)?;
        if count == 0 {
            return Ok(());
        }
        disk.data(&chunk[..count])?;
    }
}

/// Opens a qcow2 image after everything we know to check was checked.
fn open_checked(file: &File, path: &Path) -> Result<Image, Failure> {
    let size = file.metadata().map_err(unreadable)?.len();
    let length = usize::try_from(size.min(LOOK_BYTES)).expect("LOOK_BYTES are few");
    let mut start = vec![0; length];
    file.read_exact_at(&mut start, 0).map_err(unreadable)?;
    let header = Header::parse(&start, Some(size))?;
    check_tables(file, size, &header)?;
    guarded(|| {
        let storage = imago::file::File::open(StorageOpenOptions::new().filename(path));
        let image = storage.and_then(|storage| {
            // The gate refuses any other file, in case the image names one after all.
            Qcow2::<imago::file::File>::builder(storage)
                .write(false)
                .open(DenyImplicitOpenGate::default())
        });
        image.map(FormatAccess::new).map_err(|error| damaged(&error))
    })
}

fn copy_image(image: &Image, disk: &mut Disk, cancel: &CancellationToken) -> Result<(), Failure> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < image.size() {
        go_on(cancel)?;
        let left = (image.size() - offset).min(LONGEST_STRETCH);
        let (mapping, length) = image.get_mapping(offset, left).map_err(|error| damaged(&error))?;
        if length == 0 {
            return Err(damaged(&io::ErrorKind::UnexpectedEof.into()));
        }
        if matches!(mapping, Mapping::Zero { .. }) {
            disk.zeroes(length)?;
            offset += length;
            continue;
        }
        let end = offset + length;
        while offset < end {
            go_on(cancel)?;
            let count = CHUNK_BYTES.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            image.read(&mut chunk[..count], offset).map_err(|error| damaged(&error))?;
            disk.data(&chunk[..count])?;
            offset += count as u64;
        }
    }
    Ok(())
}

/// Foreign bytes must not end the process. The checks before are meant to leave nothing that
/// panics; this holds when they do.
fn guarded<T>(read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let message = "the qcow2 image is damaged: reading it failed in an unforeseen way";
        Err(Failure::new(ImportReason::BadFormat, message))
    })
}

fn go_on(cancel: &CancellationToken) -> Result<(), Failure> {
    if cancel.is_cancelled() { Err(Failure::interrupted()) } else { Ok(()) }
}

fn damaged(error: &io::Error) -> Failure {
    if error.raw_os_error().is_some() {
        return Failure::of_volume("read the scratch volume", error);
    }
    Failure::new(ImportReason::BadFormat, format!("the qcow2 image is damaged: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err passes")]
fn unreadable(error: io::Error) -> Failure {
    Failure::of_volume("read the scratch volume", &error)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err passes")]
fn unwritable(error: io::Error) -> Failure {
    Failure::of_volume("write the scratch volume", &error)
}
