//! The two levels of tables that map the disk to the file.
//!
//! Every entry that the disk's size makes reachable is judged before a byte of data is read:
//! nothing may lie behind the file's end, and no data may overlap the metadata we saw, so tables
//! that contain themselves are refused. At most one second-level table is in memory at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{Header, damaged};
use crate::failure::Failure;

/// Bits of an entry that hold an offset of a table or an uncompressed cluster.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
/// Reads as zeroes, wherever the entry points.
const ZERO: u64 = 1;

/// Judges the tables of the complete image in `file`, of `file_size` bytes.
///
/// # Errors
/// `BadFormat`, or `Internal` when the file cannot be read.
pub fn check_tables(file: &File, file_size: u64, header: &Header) -> Result<(), Failure> {
    let used_entries = header.virtual_size.div_ceil(header.l2_coverage());
    let l1 = read_entries(file, header.l1_offset, used_entries)?;
    let layout = Layout::of(&l1, file_size, header)?;
    for (index, entry) in l1.iter().enumerate() {
        let l2_offset = entry & OFFSET_MASK;
        if l2_offset == 0 {
            continue;
        }
        let start = index as u64 * header.l2_coverage();
        let mapped = (header.virtual_size - start).min(header.l2_coverage());
        let entries = mapped.div_ceil(header.cluster_size());
        for entry in read_entries(file, l2_offset, entries)? {
            layout.check_cluster(entry)?;
        }
    }
    Ok(())
}

/// Where the metadata is.
struct Layout<'a> {
    header: &'a Header,
    /// The file's size, rounded up to whole clusters: the last one may be cut short.
    end: u64,
    /// Offsets of the second-level tables, sorted.
    l2_tables: Vec<u64>,
}

impl<'a> Layout<'a> {
    fn of(l1: &[u64], file_size: u64, header: &'a Header) -> Result<Self, Failure> {
        let tables = l1.iter().map(|entry| entry & OFFSET_MASK).filter(|offset| *offset != 0);
        let mut layout = Self {
            header,
            end: file_size.next_multiple_of(header.cluster_size()),
            l2_tables: tables.collect(),
        };
        layout.l2_tables.sort_unstable();
        let repeated = layout.l2_tables.windows(2).any(|pair| pair[0] == pair[1]);
        let outside = layout.l2_tables.iter().any(|table| {
            !layout.is_free_cluster(*table) || table + header.cluster_size() > file_size
        });
        if repeated || outside {
            return Err(damaged("a second-level table is where none can be"));
        }
        Ok(layout)
    }

    fn check_cluster(&self, entry: u64) -> Result<(), Failure> {
        if entry & COMPRESSED != 0 {
            return self.check_compressed(entry);
        }
        let offset = entry & OFFSET_MASK;
        if entry & ZERO != 0 || offset == 0 {
            return Ok(());
        }
        if self.is_free_cluster(offset) && self.l2_tables.binary_search(&offset).is_err() {
            return Ok(());
        }
        Err(damaged("a cluster of data is where none can be"))
    }

    /// A compressed cluster has its offset and its length, in sectors behind the first, in one
    /// entry; how many bits each has depends on the cluster's size.
    fn check_compressed(&self, entry: u64) -> Result<(), Failure> {
        let offset_bits = 62 - (self.header.cluster_bits - 8);
        let offset = entry & ((1 << offset_bits) - 1);
        let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
        let end = (offset & !511) + (sectors + 1) * 512;
        if offset < self.header.cluster_size() || end > self.end {
            return Err(damaged("a compressed cluster is where none can be"));
        }
        Ok(())
    }

    /// Whether a whole cluster may be at `offset`: aligned, inside the file, and neither the
    /// header's nor the first-level table's.
    fn is_free_cluster(&self, offset: u64) -> bool {
        let cluster = self.header.cluster_size();
        let l1_start = self.header.l1_offset;
        let l1_end = l1_start + self.header.l1_bytes();
        offset.is_multiple_of(cluster)
            && offset >= cluster
            && offset < self.end
            && !(offset < l1_end && l1_start < offset + cluster)
    }
}

fn read_entries(file: &File, offset: u64, count: u64) -> Result<Vec<u64>, Failure> {
    let bytes = usize::try_from(count * 8).expect("tables are bounded by the header's checks");
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends within a table"),
        _ => Failure::of_volume("read the scratch volume", &error),
    })?;
    let (entries, _) = buffer.as_chunks::<8>();
    Ok(entries.iter().map(|entry| u64::from_be_bytes(*entry)).collect())
}
