//! From the verified image on the scratch volume to the disk.

use std::fs::File;
use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use imago::qcow2::Qcow2;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder as _, Mapping, Storage as _,
    StorageOpenOptions,
};
use otctl_types::import::{ImageFormat, ImportReason};
use tokio_util::sync::CancellationToken;

use crate::disk::Disk;
use crate::failure::Failure;
use crate::look::LOOK_BYTES;
use crate::qcow2::{Header, check_tables};
use crate::settings::Target;
use crate::sha256::Sum;

const CHUNK_BYTES: usize = 1024 * 1024;

/// Holes are taken in stretches of this, so that being told to stop is noticed in between.
const LONGEST_STRETCH: u64 = 512 * 1024 * 1024;

type Image = FormatAccess<imago::file::File>;

/// Writes the image at `source` as the disk of `target`; gives the disk's sum. Blocks.
///
/// # Errors
/// When the image is damaged, a volume fails, or `Interrupted`. A file that is not whole has no
/// name yet; a device is to be written again from its start.
pub fn convert(
    source: &Path,
    format: ImageFormat,
    target: &Target,
    cancel: &CancellationToken,
) -> Result<Sum, Failure> {
    let mut file = File::open(source).map_err(unreadable)?;
    let image = match format {
        ImageFormat::Raw => None,
        ImageFormat::Qcow2 => Some(open_checked(&file, source)?),
    };
    let mut disk = Disk::open(target)?;
    match &image {
        None => copy_raw(&mut file, &mut disk, cancel)?,
        Some(image) => guarded(|| copy_image(image, &mut disk, cancel))?,
    }
    disk.finish()
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
    let mut start = Vec::new();
    file.take(LOOK_BYTES).read_to_end(&mut start).map_err(unreadable)?;
    let header = Header::parse(&start, size)?;
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
