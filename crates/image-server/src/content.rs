//! What a path serves, readable at any offset so that no connection holds more
//! than one slice of it, and the hashes of disks made from it.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// How much is read, hashed or written at once, in bytes.
pub(crate) const SLICE: usize = 64 * 1024;

/// Generated content is zero in the last quarter of each stretch of this many bytes.
const STRETCH: u64 = 256 * 1024;

/// Bytes served at a path. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Content {
    source: Source,
    size: u64,
    identity: Arc<str>,
}

#[derive(Debug, Clone)]
enum Source {
    Bytes(Arc<[u8]>),
    File(Arc<File>),
    Generated { seed: u64 },
}

impl Content {
    /// These bytes, held in memory once for all connections.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let identity = hex::encode(Sha256::digest(&bytes)).into();
        Self { size: bytes.len() as u64, source: Source::Bytes(bytes), identity }
    }

    /// The file at `path`, read once here for its entity tag and then as it is
    /// asked for. It must not change while it is served.
    ///
    /// # Errors
    /// When the file cannot be opened or read to its end.
    pub fn file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::open(path).map_err(|source| Error::ReadContent { path: path.to_owned(), source })
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut content = Self { source: Source::File(Arc::new(file)), size, identity: "".into() };
        content.identity = content.disk_hash(size)?.hex().into();
        Ok(content)
    }

    /// `size` bytes that depend on `seed` and their offset only, made when they
    /// are asked for. A quarter of them are zeros, in runs of 64 KiB; the rest
    /// does not compress.
    #[must_use]
    pub fn generated(size: u64, seed: u64) -> Self {
        let identity = format!("generated-{size:x}-{seed:x}").into();
        Self { source: Source::Generated { seed }, size, identity }
    }

    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills as much of `buffer` as there is content from `offset` on; the
    /// number of bytes, 0 at the end.
    ///
    /// # Errors
    /// When the file below cannot be read or has become shorter.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let buffer = &mut buffer[..wanted];
        match &self.source {
            Source::Bytes(bytes) if wanted > 0 => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                buffer.copy_from_slice(&bytes[start..start + wanted]);
            }
            Source::Bytes(_) => {}
            Source::File(file) => file.read_exact_at(buffer, offset)?,
            Source::Generated { seed } => generate(*seed, offset, buffer),
        }
        Ok(wanted)
    }

    /// The SHA-256 of a raw disk of `disk_size` bytes that begins with this
    /// content and is zero after it: what an importer must report for it.
    ///
    /// # Errors
    /// When the content cannot be read.
    pub fn disk_hash(&self, disk_size: u64) -> io::Result<DiskHash> {
        let mut hash = DiskHash::new(disk_size);
        let mut buffer = vec![0; SLICE];
        let mut offset = 0;
        while offset < self.size.min(disk_size) {
            let count = self.read_at(offset, &mut buffer)?;
            hash.write_at(offset, &buffer[..count]);
            offset += count as u64;
        }
        Ok(hash)
    }

    /// What tells this content from any other, as text fit for an entity tag.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }
}

/// The SHA-256 of a raw disk that is zero wherever nothing was written.
#[derive(Debug, Clone)]
pub struct DiskHash {
    hasher: Sha256,
    size: u64,
    offset: u64,
}

impl DiskHash {
    /// A disk of `size` bytes, all zero so far.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { hasher: Sha256::new(), size, offset: 0 }
    }

    /// Places `bytes` at `offset`, which must not lie before what was written
    /// last. What reaches beyond the disk's end is left out.
    ///
    /// # Panics
    /// When `offset` goes backwards.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset >= self.offset, "a disk is hashed from front to back");
        self.zeros_until(offset.min(self.size));
        let room = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
    }

    /// 64 lower-case hexadecimal digits, the zeros to the disk's end included.
    #[must_use]
    pub fn hex(mut self) -> String {
        self.zeros_until(self.size);
        hex::encode(self.hasher.finalize())
    }

    fn zeros_until(&mut self, offset: u64) {
        static ZEROS: [u8; SLICE] = [0; SLICE];
        while self.offset < offset {
            let count = (offset - self.offset).min(SLICE as u64);
            self.hasher.update(&ZEROS[..usize::try_from(count).expect("at most one slice")]);
            self.offset += count;
        }
    }
}

/// Fills `buffer` with the bytes from `offset` on, eight from each mixed word.
fn generate(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let word = word(seed, at / 8).to_le_bytes();
        let skip = usize::try_from(at % 8).expect("less than eight");
        let count = rest.len().min(8 - skip);
        let (head, tail) = rest.split_at_mut(count);
        head.copy_from_slice(&word[skip..skip + count]);
        at += count as u64;
        rest = tail;
    }
}

/// The first word: the jump that boot code begins with. Noise would begin as a file of another format for one seed in
/// some thousands.
const BOOT_CODE: u64 = u64::from_le_bytes(*b"\xeb\x63\x90\x10\x8e\xd0\xbc\x00");

/// SplitMix64's output function, whose input may be any counter: any offset is
/// as cheap as the first, and no crate's next version changes the bytes.
fn word(seed: u64, index: u64) -> u64 {
    if index == 0 {
        return BOOT_CODE;
    }
    if (index * 8) % STRETCH >= STRETCH / 4 * 3 {
        return 0;
    }
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &Content, offset: u64, count: usize) -> Vec<u8> {
        let mut buffer = vec![0; count];
        let count = content.read_at(offset, &mut buffer).unwrap();
        buffer.truncate(count);
        buffer
    }

    #[test]
    fn generated_bytes_depend_on_their_offset_only() {
        let content = Content::generated(1 << 20, 7);
        let whole = read(&content, 0, 1 << 20);
        for (offset, count) in [(0, 1), (3, 17), (65_533, 70_000), ((1 << 20) - 5, 5)] {
            assert_eq!(read(&content, offset as u64, count), whole[offset..offset + count]);
        }
        assert_ne!(read(&Content::generated(64, 8), 0, 64), whole[..64]);
    }

    #[test]
    fn generated_bytes_begin_as_a_disk_whatever_the_seed() {
        for seed in [0, 149, u64::MAX] {
            assert_eq!(read(&Content::generated(64, seed), 0, 8), BOOT_CODE.to_le_bytes());
        }
    }

    #[test]
    fn generated_content_has_zero_runs_and_noise() {
        let whole = read(&Content::generated(512 * 1024, 7), 0, 512 * 1024);
        assert!(whole[192 * 1024..256 * 1024].iter().all(|byte| *byte == 0));
        let zeros = whole[..192 * 1024].iter().filter(|byte| **byte == 0).count();
        assert!(zeros < 192 * 1024 / 128, "{zeros} zero bytes in what should be noise");
    }

    #[test]
    fn content_ends_where_it_ends() {
        let content = Content::bytes(*b"abcdef");
        assert_eq!(read(&content, 4, 10), b"ef");
        assert_eq!(read(&content, 6, 10), b"");
        assert_eq!(read(&content, u64::MAX, 10), b"");
        assert_eq!(read(&Content::generated(10, 1), 8, 10).len(), 2);
    }

    #[test]
    fn a_file_serves_the_same_as_its_bytes() {
        let bytes = read(&Content::generated(200_000, 3), 0, 200_000);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let from_file = Content::file(file.path()).unwrap();
        let from_bytes = Content::bytes(bytes);
        assert_eq!(from_file.size(), 200_000);
        assert_eq!(read(&from_file, 65_000, 70_000), read(&from_bytes, 65_000, 70_000));
        assert_eq!(from_file.identity(), from_bytes.identity());
    }

    #[test]
    fn a_missing_file_names_its_path() {
        let error = Content::file("/nowhere/at/all.qcow2").unwrap_err();
        assert_eq!(error.to_string(), "cannot read '/nowhere/at/all.qcow2'");
    }

    /// The reference is the plain hash of the bytes with the zeros in place.
    #[test]
    fn a_disk_hash_is_that_of_the_zero_extended_bytes() {
        let content = Content::bytes(*b"some disk");
        for size in [0_usize, 4, 9, 10, 65_536, 200_001] {
            let mut disk = b"some disk".to_vec();
            disk.resize(size, 0);
            let expected = hex::encode(Sha256::digest(&disk));
            assert_eq!(content.disk_hash(size as u64).unwrap().hex(), expected, "size {size}");
        }
    }

    #[test]
    fn a_disk_hash_fills_holes_with_zeros() {
        let mut hash = DiskHash::new(100_000);
        hash.write_at(10, b"ab");
        hash.write_at(70_000, b"cd");
        let mut disk = vec![0; 100_000];
        disk[10..12].copy_from_slice(b"ab");
        disk[70_000..70_002].copy_from_slice(b"cd");
        assert_eq!(hash.hex(), hex::encode(Sha256::digest(&disk)));
    }
}
