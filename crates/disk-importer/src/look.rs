//! The first look: what the image's first bytes say, and whether it fits. Made before anything
//! is paid for, by the probe and again by the import on what it receives.

use otctl_types::import::{Compression, ImageFormat, ImportReason, SourceFacts};

use crate::failure::Failure;
use crate::qcow2::Header;
use crate::settings::Limits;
use crate::unpack;

/// How many bytes a look takes at most. A qcow2 header, every signature below and the start of a
/// page are in the first few hundred; a compressed image may need all of it to show as much.
pub const LOOK_BYTES: u64 = 64 * 1024;

/// How many bytes an import looks at, which has them anyway: more than the longest block of a
/// compressed image, so that what a probe could not unpack is seen after all.
pub const IMPORT_LOOK_BYTES: u64 = 4 * LOOK_BYTES;

/// How many bytes of a compressed image are unpacked for a look: more than every signature takes.
const UNPACKED_BYTES: usize = 4096;

/// The start of a source and what its server said of it.
pub struct Beginning<'a> {
    /// The first bytes: [`LOOK_BYTES`], or all of a shorter source.
    pub bytes: &'a [u8],
    /// Length of the source in bytes.
    pub size: u64,
    /// The entity tag.
    pub etag: Option<String>,
    /// Whether the server answered a range request with a range.
    pub accepts_ranges: bool,
    /// Whether the server calls it an HTML page.
    pub is_page: bool,
}

impl Beginning<'_> {
    /// What the source is.
    ///
    /// # Errors
    /// `BadFormat` for what is no disk image, `UnsupportedFormat` for one we do not read.
    pub fn facts(&self) -> Result<SourceFacts, Failure> {
        let compression = unpack::compression(self.bytes);
        let (format, virtual_size) = match compression {
            None => self.inside(self.bytes, Some(self.size))?,
            Some(compression) => {
                let is_whole = self.bytes.len() as u64 == self.size;
                let unpacked =
                    unpack::beginning(compression, self.bytes, is_whole, UNPACKED_BYTES)?;
                check_unpacked(compression, &unpacked)?;
                // Only of a whole source nothing is nothing.
                self.inside(&unpacked, (is_whole && unpacked.is_empty()).then_some(0))?
            }
        };
        Ok(SourceFacts {
            size: Some(self.size),
            etag: self.etag.clone(),
            accepts_ranges: self.accepts_ranges,
            format,
            compression,
            virtual_size,
        })
    }

    /// What an image of `size` bytes that begins with `bytes` is, and how large its disk.
    fn inside(
        &self,
        bytes: &[u8],
        size: Option<u64>,
    ) -> Result<(ImageFormat, Option<u64>), Failure> {
        match signature(bytes) {
            Some(Signature::Qcow2) => {
                let header = Header::parse(bytes, size)?;
                Ok((ImageFormat::Qcow2, Some(header.virtual_size)))
            }
            Some(Signature::Unread { name, way_out }) => Err(unread(name, way_out)),
            None if size == Some(0) => {
                Err(Failure::new(ImportReason::BadFormat, "the source is empty"))
            }
            None if self.is_page || is_markup(bytes) => {
                let message = "the source serves a page or an error document, not a disk image";
                Err(Failure::new(ImportReason::BadFormat, message))
            }
            None => Ok((ImageFormat::Raw, size)),
        }
    }
}

/// What must not be in a compressed image: one that is compressed again.
fn check_unpacked(compression: Compression, unpacked: &[u8]) -> Result<(), Failure> {
    match unpack::compression(unpacked) {
        None => Ok(()),
        Some(inner) => {
            let message = format!(
                "the source is a {compression} file with a {inner} file in it; \
                 publish the image compressed once"
            );
            Err(Failure::new(ImportReason::UnsupportedFormat, message))
        }
    }
}

/// Judges the first unpacked bytes of what the look took for a raw image: where a compressed image
/// begins with frames to skip, this is the first that is seen of it.
///
/// # Errors
/// `BadFormat` or `UnsupportedFormat`, when it is something else after all.
pub fn check_unpacked_raw(compression: Compression, unpacked: &[u8]) -> Result<(), Failure> {
    check_unpacked(compression, unpacked)?;
    if unpacked.is_empty() {
        let message = format!("the {compression} file is empty");
        return Err(Failure::new(ImportReason::BadFormat, message));
    }
    let (name, way_out) = match signature(unpacked) {
        Some(Signature::Unread { name, way_out }) => (name, way_out),
        Some(Signature::Qcow2) => (
            "a qcow2 image that its first bytes do not show",
            "publish it as it is, or compressed by other means",
        ),
        None => return Ok(()),
    };
    Err(unread(name, way_out))
}

/// Judges whether the image fits.
///
/// # Errors
/// `TooLarge` or `TooSmall`, naming both sizes; `SizeUnknown` when nothing tells how large the disk
/// is.
pub fn fits(facts: &SourceFacts, limits: &Limits) -> Result<(), Failure> {
    if let (Some(compression), None, None) =
        (facts.compression, facts.virtual_size, limits.disk_size)
    {
        let message = format!(
            "the source is a raw image compressed with {compression}: its first bytes do not tell \
             how large the disk is; set diskSize"
        );
        return Err(Failure::new(ImportReason::SizeUnknown, message));
    }
    if let (Some(size), Some(limit)) = (facts.size, limits.image_size)
        && size > limit
    {
        let message = format!("the source is {size} bytes, maxImageSize in the policy is {limit}");
        return Err(Failure::new(ImportReason::TooLarge, message));
    }
    if let (Some(size), Some(disk)) = (facts.virtual_size, limits.disk_size)
        && size > disk
    {
        let message = format!("diskSize is {disk} bytes, the disk in the image is {size}");
        return Err(Failure::new(ImportReason::TooSmall, message));
    }
    Ok(())
}

enum Signature {
    Qcow2,
    Unread { name: &'static str, way_out: &'static str },
}

const UNPACK: &str = "publish it unpacked, or as .gz, .xz or .zst";
const CONVERT: &str = "convert it with `qemu-img convert -O qcow2`";

/// Formats by their first bytes; what is in no line is taken as raw, whatever it is called.
const UNREAD: [(&[u8], &str, &str); 9] = [
    (b"BZh", "a bzip2 file", UNPACK),
    (b"\x04\x22\x4d\x18", "an lz4 file", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z file", UNPACK),
    (b"PK\x03\x04", "a zip file", UNPACK),
    (b"QED\0", "a qed image", CONVERT),
    (b"KDMV", "a vmdk image", CONVERT),
    (b"# Disk DescriptorFile", "a vmdk descriptor", CONVERT),
    (b"vhdxfile", "a vhdx image", CONVERT),
    (b"conectix", "a vhd image", CONVERT),
];

fn signature(bytes: &[u8]) -> Option<Signature> {
    const VDI_SIGNATURE: (usize, &[u8]) = (0x40, b"\x7f\x10\xda\xbe");
    if bytes.starts_with(&crate::qcow2::MAGIC) {
        return Some(Signature::Qcow2);
    }
    if bytes.get(VDI_SIGNATURE.0..).is_some_and(|rest| rest.starts_with(VDI_SIGNATURE.1)) {
        return Some(Signature::Unread { name: "a vdi image", way_out: CONVERT });
    }
    let (_, name, way_out) = UNREAD.into_iter().find(|(magic, ..)| bytes.starts_with(magic))?;
    Some(Signature::Unread { name, way_out })
}

/// Whether the bytes begin as HTML or XML does. Login pages and error documents arrive with
/// status 200; no disk begins like this.
fn is_markup(bytes: &[u8]) -> bool {
    const STARTS: [&[u8]; 6] = [b"<!doctype", b"<html", b"<?xml", b"<!--", b"<head", b"<error"];
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    STARTS
        .into_iter()
        .any(|start| text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)))
}

fn unread(name: &str, way_out: &str) -> Failure {
    let message = format!("the source is {name}; this importer reads qcow2 and raw: {way_out}");
    Failure::new(ImportReason::UnsupportedFormat, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(bytes: &[u8], is_page: bool) -> Result<SourceFacts, ImportReason> {
        let size = bytes.len() as u64;
        Beginning { bytes, size, etag: None, accepts_ranges: true, is_page }
            .facts()
            .map_err(|failure| failure.reason)
    }

    #[test]
    fn unknown_bytes_are_a_raw_disk_of_their_length() {
        let facts = look(&[0; 700], false).unwrap();
        assert_eq!((facts.format, facts.virtual_size), (ImageFormat::Raw, Some(700)));
    }

    #[test]
    fn pages_are_no_images() {
        for page in ["<!DOCTYPE html><p>", "\u{feff} \n<HTML>", "<?xml version='1.0'?><Error>"] {
            assert_eq!(look(page.as_bytes(), false), Err(ImportReason::BadFormat), "{page}");
        }
        assert_eq!(look(b"please log in", true), Err(ImportReason::BadFormat));
        assert_eq!(look(b"", false), Err(ImportReason::BadFormat));
    }

    #[test]
    fn formats_we_do_not_read_are_named() {
        for (magic, ..) in UNREAD {
            let bytes = [magic, &[0; 600]].concat();
            assert_eq!(look(&bytes, false), Err(ImportReason::UnsupportedFormat), "{magic:?}");
        }
        let mut vdi = [0; 600];
        vdi[0x40..0x44].copy_from_slice(b"\x7f\x10\xda\xbe");
        assert_eq!(look(&vdi, false), Err(ImportReason::UnsupportedFormat));
    }

    #[test]
    fn a_compressed_raw_image_needs_a_disk_size() {
        let mut facts = look(&[0; 700], false).unwrap();
        (facts.compression, facts.virtual_size) = (Some(Compression::Xz), None);
        let limits = |disk_size| Limits { image_size: None, disk_size };
        assert_eq!(fits(&facts, &limits(None)).unwrap_err().reason, ImportReason::SizeUnknown);
        assert_eq!(fits(&facts, &limits(Some(1))), Ok(()));
    }

    #[test]
    fn limits_are_inclusive() {
        let facts = look(&[0; 700], false).unwrap();
        let fits = |image_size, disk_size| {
            fits(&facts, &Limits { image_size, disk_size }).map_err(|failure| failure.reason)
        };
        assert_eq!(fits(None, None), Ok(()));
        assert_eq!(fits(Some(700), Some(700)), Ok(()));
        assert_eq!(fits(Some(699), Some(700)), Err(ImportReason::TooLarge));
        assert_eq!(fits(Some(700), Some(699)), Err(ImportReason::TooSmall));
    }
}
