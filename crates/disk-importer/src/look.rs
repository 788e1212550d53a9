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

/// What a disk is made of, in bytes: no disk ends within a sector.
const SECTOR_BYTES: u64 = 512;

/// The start of a source and what its server said of it.
pub struct Beginning<'a> {
    /// The first bytes: [`LOOK_BYTES`] or, in an import, [`IMPORT_LOOK_BYTES`]; all of a shorter source.
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
                let message = "the source serves a page or an error document, not a disk image: \
                               look at what the url serves";
                Err(Failure::new(ImportReason::BadFormat, message))
            }
            None => {
                check_no_text(bytes)?;
                size.map_or(Ok(()), check_sectors)?;
                Ok((ImageFormat::Raw, size))
            }
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
        None => return check_no_text(unpacked),
    };
    Err(unread(name, way_out))
}

/// Judges the length of a raw disk in bytes. What a server sends in place of an image hardly ever
/// has the length of one, whatever it is.
///
/// # Errors
/// `BadFormat` when it is no whole number of sectors.
pub fn check_sectors(size: u64) -> Result<(), Failure> {
    if size.is_multiple_of(SECTOR_BYTES) {
        return Ok(());
    }
    let message = format!(
        "the source is neither qcow2 nor a raw disk: {size} bytes are no whole number of \
         {SECTOR_BYTES}-byte sectors; `truncate -s %{SECTOR_BYTES}` completes a raw disk"
    );
    Err(Failure::new(ImportReason::BadFormat, message))
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
        let [size, disk] = [size, disk].map(policy::quantity::format);
        let message = format!("diskSize is {disk}, the disk in the image is {size}");
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

const TAKE_OUT: &str = "publish the disk that is in it";

/// Formats by their first bytes; what is in no line is taken as raw, whatever it is called.
const UNREAD: [(&[u8], &str, &str); 9] = [
    (b"BZh", "a bzip2 file", UNPACK),
    (b"\x04\x22\x4d\x18", "an lz4 file", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z file", UNPACK),
    (b"PK\x03\x04", "a zip file", TAKE_OUT),
    (b"QED\0", "a qed image", CONVERT),
    (b"KDMV", "a vmdk image", CONVERT),
    (b"# Disk DescriptorFile", "a vmdk descriptor", CONVERT),
    (b"vhdxfile", "a vhdx image", CONVERT),
    (b"conectix", "a vhd image", CONVERT),
];

/// Formats by what stands further in. An appliance in one file (.ova) is a tar archive.
const UNREAD_FURTHER_IN: [(usize, &[u8], &str, &str); 2] = [
    (0x40, b"\x7f\x10\xda\xbe", "a vdi image", CONVERT),
    (257, b"ustar", "a tar archive", TAKE_OUT),
];

fn signature(bytes: &[u8]) -> Option<Signature> {
    if bytes.starts_with(&crate::qcow2::MAGIC) {
        return Some(Signature::Qcow2);
    }
    let at_start = UNREAD.into_iter().map(|(magic, name, way_out)| (0, magic, name, way_out));
    let (.., name, way_out) = at_start.chain(UNREAD_FURTHER_IN).find(|(offset, magic, ..)| {
        bytes.get(*offset..).is_some_and(|rest| rest.starts_with(magic))
    })?;
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

/// Error messages and pointers to the real file arrive with status 200 too. Every disk that can be
/// used has bytes that are no text near its start.
fn check_no_text(bytes: &[u8]) -> Result<(), Failure> {
    if !is_text(bytes) {
        return Ok(());
    }
    let what = if bytes.starts_with(b"version https://git-lfs") {
        "a pointer of git-lfs, not the file it stands for: use the url of the file itself"
    } else {
        "a text, such as an error message, not a disk image: look at what the url serves"
    };
    Err(Failure::new(ImportReason::BadFormat, format!("the source serves {what}")))
}

fn is_text(bytes: &[u8]) -> bool {
    let (text, ends_within) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, true),
        // The look may have cut a character in two.
        Err(error) => {
            let (text, _) = bytes.split_at(error.valid_up_to());
            (std::str::from_utf8(text).unwrap_or_default(), error.error_len().is_none())
        }
    };
    let is_shown = |character: char| !character.is_control() || "\t\n\r".contains(character);
    ends_within && !text.is_empty() && text.chars().all(is_shown)
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
        let facts = look(&[0; 1024], false).unwrap();
        assert_eq!((facts.format, facts.virtual_size), (ImageFormat::Raw, Some(1024)));
    }

    #[test]
    fn what_ends_within_a_sector_is_no_disk() {
        for size in [1, 511, 513, 700] {
            assert_eq!(look(&vec![0; size], false), Err(ImportReason::BadFormat), "{size}");
        }
    }

    #[test]
    fn texts_are_no_disks_whatever_their_length() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n";
        for text in [r#"{"error":"not found"}"#, "gone\r\n", pointer, "é"] {
            for bytes in [text.as_bytes(), text.repeat(512).as_bytes()] {
                assert_eq!(look(bytes, false), Err(ImportReason::BadFormat), "{text}");
            }
        }
        assert!(is_text(&"éé".as_bytes()[..3]), "the look ends within a character");
        let bytes = ["x".repeat(1023).as_bytes(), b"\0"].concat();
        assert!(look(&bytes, false).is_ok(), "one byte that is no text");
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
        for (offset, magic, ..) in UNREAD_FURTHER_IN {
            let bytes = [&vec![0; offset], magic, &[0; 600]].concat();
            assert_eq!(look(&bytes, false), Err(ImportReason::UnsupportedFormat), "{magic:?}");
        }
    }

    #[test]
    fn a_compressed_raw_image_needs_a_disk_size() {
        let mut facts = look(&[0; 1024], false).unwrap();
        (facts.compression, facts.virtual_size) = (Some(Compression::Xz), None);
        let limits = |disk_size| Limits { image_size: None, disk_size };
        assert_eq!(fits(&facts, &limits(None)).unwrap_err().reason, ImportReason::SizeUnknown);
        assert_eq!(fits(&facts, &limits(Some(1))), Ok(()));
    }

    #[test]
    fn limits_are_inclusive() {
        let facts = look(&[0; 1024], false).unwrap();
        let fits = |image_size, disk_size| {
            fits(&facts, &Limits { image_size, disk_size }).map_err(|failure| failure.reason)
        };
        assert_eq!(fits(None, None), Ok(()));
        assert_eq!(fits(Some(1024), Some(1024)), Ok(()));
        assert_eq!(fits(Some(1023), Some(1024)), Err(ImportReason::TooLarge));
        assert_eq!(fits(Some(1024), Some(1023)), Err(ImportReason::TooSmall));
    }
}
