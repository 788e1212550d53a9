//! The fixed header, versions 2 and 3.

use super::{damaged, unread};
use crate::failure::Failure;

/// The first bytes of every qcow2 image.
pub const MAGIC: [u8; 4] = *b"QFI\xfb";

const V2_LENGTH: usize = 72;
const V3_LENGTH: usize = 104;

/// QEMU's own bound for the first-level table: 32 MiB of entries.
const MOST_L1_ENTRIES: u64 = 4 * 1024 * 1024;

const CONVERT: &str = "convert it with `qemu-img convert -O qcow2`";
const CONVERT_ZLIB: &str =
    "convert it with `qemu-img convert -c -O qcow2 -o compression_type=zlib`";

/// What the header says, once it has been judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Logarithm of the cluster's size in bytes: 9 to 21.
    pub cluster_bits: u32,
    /// Offset of the first-level table in the file.
    pub l1_offset: u64,
    /// Entries of the first-level table; enough for the disk.
    pub l1_entries: u64,
}

impl Header {
    /// Judges the header at the start of `bytes`, the beginning of a file of `file_size` bytes; that
    /// is not known while the file is still packed.
    ///
    /// # Errors
    /// `BadFormat` or `UnsupportedFormat`, with what to do about it.
    pub fn parse(bytes: &[u8], file_size: Option<u64>) -> Result<Self, Failure> {
        let fields = Fields::of(bytes)?;
        fields.check_features()?;
        fields.check_sources()?;
        let header = Self {
            virtual_size: fields.u64(24),
            cluster_bits: fields.u32(20),
            l1_offset: fields.u64(40),
            l1_entries: u64::from(fields.u32(36)),
        };
        header.check_geometry()?;
        header.check_range(
            "its first-level table",
            header.l1_offset,
            header.l1_bytes(),
            file_size,
        )?;
        let refcount_bytes = u64::from(fields.u32(56)) << header.cluster_bits;
        header.check_range("its refcount table", fields.u64(48), refcount_bytes, file_size)?;
        fields.check_refcounts()?;
        Ok(header)
    }

    /// Size of a cluster in bytes.
    #[must_use]
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of the disk that one second-level table maps.
    #[must_use]
    pub fn l2_coverage(&self) -> u64 {
        1 << (2 * self.cluster_bits - 3)
    }

    /// Size of the first-level table in bytes.
    #[must_use]
    pub fn l1_bytes(&self) -> u64 {
        self.l1_entries * 8
    }

    fn check_geometry(&self) -> Result<(), Failure> {
        if !(9..=21).contains(&self.cluster_bits) {
            return Err(damaged("its cluster size is none"));
        }
        if self.virtual_size == 0 || self.virtual_size > i64::MAX as u64 {
            return Err(damaged("its disk size is none"));
        }
        let needed = self.virtual_size.div_ceil(self.l2_coverage());
        if self.l1_entries < needed || self.l1_entries > MOST_L1_ENTRIES {
            return Err(damaged("its first-level table does not fit its disk size"));
        }
        Ok(())
    }

    /// A table is where it says: aligned, behind the header, inside the file.
    fn check_range(
        &self,
        what: &str,
        start: u64,
        bytes: u64,
        file: Option<u64>,
    ) -> Result<(), Failure> {
        let end = start.checked_add(bytes);
        let inside = end.is_some_and(|end| file.is_none_or(|file| end <= file));
        if bytes == 0 || start == 0 || !start.is_multiple_of(self.cluster_size()) || !inside {
            return Err(damaged(&format!("{what} is not inside the file")));
        }
        Ok(())
    }
}

/// The raw fields, at the offsets the specification gives them.
struct Fields<'a> {
    bytes: &'a [u8],
    version: u32,
}

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, Failure> {
        if bytes.len() < V2_LENGTH || !bytes.starts_with(&MAGIC) {
            return Err(damaged("it ends within its header"));
        }
        let fields = Self { bytes, version: u32_at(bytes, 4) };
        match fields.version {
            2 => Ok(fields),
            3 if bytes.len() >= V3_LENGTH => Ok(fields),
            3 => Err(damaged("it ends within its header")),
            _ => Err(unread("is of a version other than 2 and 3", CONVERT)),
        }
    }

    fn u32(&self, offset: usize) -> u32 {
        u32_at(self.bytes, offset)
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from(self.u32(offset)) << 32 | u64::from(self.u32(offset + 4))
    }

    /// The incompatible feature bits, each with what becomes of it.
    fn check_features(&self) -> Result<(), Failure> {
        let features = if self.version == 3 { self.u64(72) } else { 0 };
        let has = |bit: u32| features & (1 << bit) != 0;
        if has(1) {
            return Err(damaged("it is marked as corrupt"));
        }
        if has(0) {
            return Err(unread("was not closed cleanly", "repair it with `qemu-img check -r all`"));
        }
        if has(2) {
            return Err(unread("keeps its data in another file", CONVERT));
        }
        if has(3) {
            return Err(unread("has clusters compressed by other means than zlib", CONVERT_ZLIB));
        }
        if has(4) {
            let way_out = "convert it with `qemu-img convert -O qcow2 -o extended_l2=off`";
            return Err(unread("has extended second-level entries", way_out));
        }
        if features != 0 {
            return Err(unread("has features this importer does not know", CONVERT));
        }
        Ok(())
    }

    /// Data that is elsewhere, or that needs a key.
    fn check_sources(&self) -> Result<(), Failure> {
        if self.u64(8) != 0 || self.u32(16) != 0 {
            return Err(unread("has a backing file, which an import never reads", CONVERT));
        }
        if self.u32(32) != 0 {
            return Err(unread("is encrypted", "decrypt it with `qemu-img convert`"));
        }
        Ok(())
    }

    /// Refcounts are not needed to read; nonsense there says that the rest cannot be trusted.
    fn check_refcounts(&self) -> Result<(), Failure> {
        if self.version == 3 && self.u32(96) > 6 {
            return Err(damaged("its refcounts have no possible width"));
        }
        if self.version == 3 && (self.u32(100) as usize) < V3_LENGTH {
            return Err(damaged("its header has no possible length"));
        }
        Ok(())
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes[offset..offset + 4].try_into().expect("a range of four bytes");
    u32::from_be_bytes(field)
}
