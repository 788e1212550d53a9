//! Small qcow2 files made by the real `qemu-img`, and the raw disks they were
//! made from. `fixtures/make.sh` makes them again; the hashes were taken of the
//! raw disks before `qemu-img` saw them.

use crate::content::DiskHash;

const SECTOR: u64 = 512;
const DISK_RAW: &[u8] = include_bytes!("../fixtures/disk.raw");
const HASHES: &str = include_str!("../fixtures/SHA256SUMS");

/// A raw disk as the virtual machine sees it.
#[derive(Debug)]
pub struct RawDisk {
    /// Its name in `SHA256SUMS`.
    pub name: &'static str,
    /// In bytes.
    pub size: u64,
    extents: &'static [Extent],
}

/// Sectors of `disk.raw` and where they are in a disk that is zero elsewhere.
#[derive(Debug)]
struct Extent {
    from: u64,
    count: u64,
    to: u64,
}

/// 387 sectors of text, noise, repeated bytes and zeros.
pub static DISK: RawDisk = RawDisk {
    name: "disk.raw",
    size: 387 * SECTOR,
    extents: &[Extent { from: 0, count: 387, to: 0 }],
};

/// 5 GiB, zero but for a few sectors at the start, after 1 GiB and at the very end.
pub static LARGE_DISK: RawDisk = RawDisk {
    name: "large.raw",
    size: 5 << 30,
    extents: &[
        Extent { from: 0, count: 24, to: 0 },
        Extent { from: 128, count: 16, to: 2_097_160 },
        Extent { from: 384, count: 1, to: 10_485_759 },
    ],
};

impl RawDisk {
    /// The SHA-256 of the disk at its own size, as `sha256sum` computed it.
    #[must_use]
    pub fn sha256(&self) -> &'static str {
        let mut lines = HASHES.lines().filter_map(|line| line.split_once("  "));
        let (hash, _) =
            lines.find(|(_, name)| *name == self.name).expect("make.sh hashes every raw disk");
        hash
    }

    /// The SHA-256 of the disk on a volume of `disk_size` bytes, zero after its end.
    /// It hashes that many bytes: seconds for many GiB.
    #[must_use]
    pub fn sha256_at(&self, disk_size: u64) -> String {
        let mut hash = DiskHash::new(disk_size);
        for Extent { from, count, to } in self.extents {
            let [start, end] = [from, &(from + count)].map(|sector| sector * SECTOR);
            let in_memory = |offset| usize::try_from(offset).expect("it is in memory");
            hash.write_at(to * SECTOR, &DISK_RAW[in_memory(start)..in_memory(end)]);
        }
        hash.hex()
    }

    /// The bytes, where they are few enough to be kept.
    #[must_use]
    pub fn bytes(&self) -> Option<&'static [u8]> {
        (self.size == DISK_RAW.len() as u64).then_some(DISK_RAW)
    }
}

/// A qcow2 file.
#[derive(Debug)]
pub struct Fixture {
    /// Its file name.
    pub name: &'static str,
    /// The whole file.
    pub bytes: &'static [u8],
    /// The size of the disk inside, in bytes.
    pub virtual_size: u64,
    /// The disk inside; none where the file does not hold it and must be refused.
    pub disk: Option<&'static RawDisk>,
}

impl Fixture {
    /// The SHA-256 of the disk inside, at its virtual size.
    #[must_use]
    pub fn raw_sha256(&self) -> Option<&'static str> {
        self.disk.map(RawDisk::sha256)
    }
}

/// What `qemu-img convert` makes by default: version 3, clusters of 64 KiB.
pub static PLAIN: Fixture =
    complete("plain.qcow2", include_bytes!("../fixtures/plain.qcow2"), &DISK);

/// Clusters compressed with zlib.
pub static ZLIB: Fixture = complete("zlib.qcow2", include_bytes!("../fixtures/zlib.qcow2"), &DISK);

/// Clusters of 32 KiB compressed with zstd, which older readers cannot read.
pub static ZSTD: Fixture = complete("zstd.qcow2", include_bytes!("../fixtures/zstd.qcow2"), &DISK);

/// The smallest clusters there are: the most tables.
pub static CLUSTERS_512: Fixture =
    complete("clusters-512.qcow2", include_bytes!("../fixtures/clusters-512.qcow2"), &DISK);

/// Compressed clusters of 4 KiB, several of them in one host cluster.
pub static CLUSTERS_4K: Fixture =
    complete("clusters-4k.qcow2", include_bytes!("../fixtures/clusters-4k.qcow2"), &DISK);

/// The old header, and compressed.
pub static VERSION_2: Fixture =
    complete("version-2.qcow2", include_bytes!("../fixtures/version-2.qcow2"), &DISK);

/// Extended L2 entries, an incompatible feature.
pub static SUBCLUSTERS: Fixture =
    complete("subclusters.qcow2", include_bytes!("../fixtures/subclusters.qcow2"), &DISK);

/// 68 KiB that are 5 GiB: too large for most disks, and nearly all holes.
pub static LARGE: Fixture =
    complete("large.qcow2", include_bytes!("../fixtures/large.qcow2"), &LARGE_DISK);

/// Its disk is on top of `/etc/passwd` of whoever opens it.
pub static BACKING_FILE: Fixture =
    refused("backing-file.qcow2", include_bytes!("../fixtures/backing-file.qcow2"));

/// Its disk is in a file named `outside.raw`.
pub static DATA_FILE: Fixture =
    refused("data-file.qcow2", include_bytes!("../fixtures/data-file.qcow2"));

const fn complete(name: &'static str, bytes: &'static [u8], disk: &'static RawDisk) -> Fixture {
    Fixture { name, bytes, virtual_size: disk.size, disk: Some(disk) }
}

const fn refused(name: &'static str, bytes: &'static [u8]) -> Fixture {
    Fixture { name, bytes, virtual_size: 387 * SECTOR, disk: None }
}

/// All that hold a disk.
pub static COMPLETE: [&Fixture; 8] =
    [&PLAIN, &ZLIB, &ZSTD, &CLUSTERS_512, &CLUSTERS_4K, &VERSION_2, &SUBCLUSTERS, &LARGE];

/// All that refer to bytes elsewhere.
pub static REFUSED: [&Fixture; 2] = [&BACKING_FILE, &DATA_FILE];

#[cfg(test)]
mod tests {
    use super::*;

    fn be64(bytes: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn headers_say_what_the_list_says() {
        for fixture in COMPLETE.iter().chain(&REFUSED) {
            assert_eq!(&fixture.bytes[..4], b"QFI\xfb", "{}", fixture.name);
            assert_eq!(be64(fixture.bytes, 24), fixture.virtual_size, "{}", fixture.name);
        }
        let has_backing_file = |fixture: &Fixture| be64(fixture.bytes, 8) != 0;
        assert!(has_backing_file(&BACKING_FILE) && !has_backing_file(&PLAIN));
        let incompatible = |fixture: &Fixture| be64(fixture.bytes, 72);
        assert_eq!(incompatible(&PLAIN), 0);
        assert_eq!(incompatible(&DATA_FILE), 1 << 2);
        assert_eq!(incompatible(&ZSTD), 1 << 3);
        assert_eq!(incompatible(&SUBCLUSTERS), 1 << 4);
        assert_eq!(VERSION_2.bytes[7], 2);
    }

    /// The expected hashes are `sha256sum`'s; ours only says that both mean the
    /// same disk, holes included.
    #[test]
    fn raw_disks_have_the_hashes_sha256sum_took() {
        assert_eq!(DISK.sha256_at(DISK.size), DISK.sha256());
        assert_eq!(LARGE_DISK.sha256_at(LARGE_DISK.size), LARGE_DISK.sha256());
    }

    #[test]
    fn a_larger_disk_is_zero_after_the_raw_one() {
        let mut larger = DISK.bytes().unwrap().to_vec();
        larger.resize(1 << 20, 0);
        let mut expected = DiskHash::new(1 << 20);
        expected.write_at(0, &larger);
        assert_eq!(DISK.sha256_at(1 << 20), expected.hex());
        assert_ne!(DISK.sha256_at(1 << 20), DISK.sha256());
    }

    #[test]
    fn they_stay_small() {
        let files = COMPLETE.iter().chain(&REFUSED);
        let total: usize = files.map(|fixture| fixture.bytes.len()).sum();
        assert!(total + DISK_RAW.len() <= 2 << 20, "{total} bytes");
    }
}
