//! The disk in a qcow2 image, read in the most direct way: cluster by cluster, all of it in memory. It knows what
//! `qcow2(5)` says and shares nothing with the importer. What is not sound it does not judge.

use flate2::{Decompress, FlushDecompress, Status};

const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// More than any disk that fits.
const LARGEST: u64 = super::DISK;

/// The disk, where it can be told.
pub(super) fn read(image: &[u8]) -> Option<Vec<u8>> {
    let reader = Reader { image, cluster_bits: u32_at(image, 20)? };
    let size = u64_at(image, 24).filter(|size| *size <= LARGEST)?;
    let cluster = 1_u64 << reader.cluster_bits;
    let mut disk = Vec::new();
    for at in (0..size).step_by(usize::try_from(cluster).ok()?) {
        let mut bytes = reader.cluster(at)?;
        bytes.truncate(usize::try_from(size - at).ok()?);
        disk.extend(bytes);
    }
    Some(disk)
}

struct Reader<'a> {
    image: &'a [u8],
    cluster_bits: u32,
}

impl Reader<'_> {
    /// The cluster of the disk that begins at `offset`.
    fn cluster(&self, offset: u64) -> Option<Vec<u8>> {
        let size = 1_usize << self.cluster_bits;
        let entry_bits = self.cluster_bits - 3;
        let index = offset >> self.cluster_bits;
        let (l1_index, l2_index) = (index >> entry_bits, index & ((1 << entry_bits) - 1));
        let l1_table = u64_at(self.image, 40)?;
        let l2_table = self.entry(l1_table, l1_index)? & OFFSET;
        let entry = if l2_table == 0 { 0 } else { self.entry(l2_table, l2_index)? };
        if entry & COMPRESSED != 0 {
            return self.compressed(entry);
        }
        let is_zero = entry & ZERO != 0;
        // Version 2 has no such mark.
        if is_zero && u32_at(self.image, 4)? < 3 {
            return None;
        }
        let start = usize::try_from(entry & OFFSET).ok()?;
        if is_zero || start == 0 {
            return Some(vec![0; size]);
        }
        // The last cluster of a file may be cut short.
        let mut bytes = self.image[start..self.image.len().min(start + size)].to_vec();
        bytes.resize(size, 0);
        Some(bytes)
    }

    fn entry(&self, table: u64, index: u64) -> Option<u64> {
        u64_at(self.image, usize::try_from(table + index * 8).ok()?)
    }

    fn compressed(&self, entry: u64) -> Option<Vec<u8>> {
        let bits = 62 - (self.cluster_bits - 8);
        let start = usize::try_from(entry & ((1 << bits) - 1)).ok()?;
        let sectors = usize::try_from((entry & (COMPRESSED - 1)) >> bits).ok()?;
        let end = (start & !511) + (sectors + 1) * 512;
        let packed = self.image.get(start..self.image.len().min(end))?;
        let mut bytes = vec![0; 1 << self.cluster_bits];
        let mut inflater = Decompress::new(false);
        let status = inflater.decompress(packed, &mut bytes, FlushDecompress::Finish);
        let is_whole = inflater.total_out() == bytes.len() as u64;
        matches!(status, Ok(Status::Ok | Status::StreamEnd | Status::BufError))
            .then_some(bytes)
            .filter(|_| is_whole)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
