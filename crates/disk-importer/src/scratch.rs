//! The scratch volume: the source's bytes as far as they came, and the record of what they are.
//!
//! | file | content |
//! |---|---|
//! | `lock` | held while a run uses the volume; its text is the pod's UID |
//! | `source` | the first bytes of the source |
//! | `checkpoint.json` | how many of them are safely on disk, of which version of the source |
//!
//! The record never claims what is not on disk: `source` is synced before the record is replaced,
//! and a reader takes the smaller of the record's offset and the file's length.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use otctl_types::import::{ImportReason, SourceFacts};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::settings::Expected;
use crate::sha256::Hasher;

/// New bytes after which the record is replaced. With the socket's and the parser's buffers it
/// keeps what a kill costs below 1 MiB.
const KEEP_EVERY_BYTES: u64 = 384 * 1024;

const READ_CHUNK_BYTES: usize = 1024 * 1024;

/// Which version of the source the kept bytes are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The entity tag, when the server gives one.
    pub etag: Option<String>,
    /// When it was last modified, as the server writes it; says something only without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The source's length in bytes.
    pub size: u64,
    /// Whether the server answered a range request with a range.
    pub accepts_ranges: bool,
}

/// What is safely on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Of which version of the source.
    pub version: Version,
    /// How many of its first bytes.
    pub offset: u64,
    /// The result, once the disk is in place. The bytes themselves are gone then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<Completion>,
}

/// The result of a finished import, kept so that a result nobody read costs no second download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// Sum of the source's bytes.
    pub checksum: String,
    /// Sum of the disk's bytes.
    pub disk_checksum: String,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// What the source was.
    pub source: SourceFacts,
}

/// The volume, locked for this run.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    _lock: File,
}

/// The source's bytes on the volume, open for more.
#[derive(Debug)]
pub struct Spool {
    scratch: Scratch,
    file: File,
    version: Option<Version>,
    offset: u64,
    kept: u64,
    hasher: Hasher,
}

impl Version {
    /// Whether this is what the probe saw; what either does not say is not compared.
    #[must_use]
    pub fn is(&self, expected: &Expected) -> bool {
        let same_etag = both_say_the_same(self.etag.as_ref(), expected.etag.as_ref());
        same_etag.unwrap_or(true) && expected.size.is_none_or(|size| size == self.size)
    }

    /// Whether both are answers about the same bytes. Dates differ between the servers behind
    /// one name, so they are asked only where there is no tag.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let same_etag = both_say_the_same(self.etag.as_ref(), other.etag.as_ref());
        let same_date =
            || both_say_the_same(self.last_modified.as_ref(), other.last_modified.as_ref());
        same_etag.or_else(same_date).unwrap_or(true) && self.size == other.size
    }
}

fn both_say_the_same(ours: Option<&String>, theirs: Option<&String>) -> Option<bool> {
    Some(ours? == theirs?)
}

impl Scratch {
    /// Locks the volume at `directory` for the pod of this UID.
    ///
    /// # Errors
    /// `Internal` when another run uses it or it cannot be written.
    pub fn lock(directory: &Path, pod_uid: &str) -> Result<Self, Failure> {
        let path = directory.join("lock");
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut lock = open.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                let message = format!("the scratch volume is in use by pod {:?}", holder.trim());
                return Err(Failure::new(ImportReason::Internal, message));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).and_then(|()| lock.write_all(pod_uid.as_bytes())).map_err(failed)?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// The record of an earlier run, if there is one that can be read.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let text = fs::read(self.record_path()).ok()?;
        match serde_json::from_slice(&text) {
            Ok(checkpoint) => Some(checkpoint),
            Err(error) => {
                tracing::warn!(%error, "the checkpoint cannot be read; beginning at byte 0");
                None
            }
        }
    }

    /// Path of the source's bytes.
    #[must_use]
    pub fn source_path(&self) -> PathBuf {
        self.directory.join("source")
    }

    /// Replaces the record, safely on disk before it gets its name.
    fn record(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let new = self.directory.join("checkpoint.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(checkpoint)?)?;
        file.sync_data()?;
        fs::rename(new, self.record_path())
    }

    fn record_path(&self) -> PathBuf {
        self.directory.join("checkpoint.json")
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl Spool {
    /// Opens the bytes that `checkpoint` vouches for, hashing them again, and drops the rest.
    ///
    /// # Errors
    /// When the volume fails, or `Interrupted`.
    pub fn open(
        scratch: Scratch,
        checkpoint: Option<Checkpoint>,
        cancel: &CancellationToken,
    ) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(scratch.source_path()).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let offset = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.offset.min(length));
        let version = checkpoint.map(|checkpoint| checkpoint.version).filter(|_| offset > 0);
        file.set_len(offset).map_err(failed)?;
        let mut spool =
            Self { scratch, file, version, offset, kept: offset, hasher: Hasher::default() };
        spool.hash_kept(cancel)?;
        spool.file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        Ok(spool)
    }

    /// Which version of the source the bytes are of; none without bytes.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// How many of the source's bytes are here.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether all of them are.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.size == self.offset)
    }

    /// Sum of the bytes that are here.
    #[must_use]
    pub fn hasher(&self) -> Hasher {
        self.hasher.clone()
    }

    /// Path of the bytes.
    #[must_use]
    pub fn source_path(&self) -> PathBuf {
        self.scratch.source_path()
    }

    /// Drops all bytes, to begin with those of `version`; `None` leaves nothing to resume.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn restart(&mut self, version: Option<Version>) -> Result<(), Failure> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(failed)?;
        self.version = version;
        self.hasher = Hasher::default();
        (self.offset, self.kept) = (0, 0);
        match self.scratch.record_path() {
            path if path.exists() => fs::remove_file(path).map_err(failed),
            _ => Ok(()),
        }
    }

    /// Adds the source's next bytes. Small writes into the page cache; now
    /// and then they are made safe, which blocks the caller for a sync.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(failed)?;
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        if self.offset - self.kept >= KEEP_EVERY_BYTES {
            self.keep()?;
        }
        Ok(())
    }

    /// Makes everything received so far safe.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn keep(&mut self) -> Result<(), Failure> {
        if self.kept == self.offset {
            return Ok(());
        }
        let Some(version) = self.version.clone() else { return Ok(()) };
        self.file.sync_data().map_err(failed)?;
        let checkpoint = Checkpoint { version, offset: self.offset, complete: None };
        self.scratch.record(&checkpoint).map_err(failed)?;
        self.kept = self.offset;
        Ok(())
    }

    /// The first `count` bytes, or all when there are fewer.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn first_bytes(&self, count: u64) -> Result<Vec<u8>, Failure> {
        let count = usize::try_from(count.min(self.offset)).expect("callers ask for a few KiB");
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Ok(bytes)
    }

    /// Records the result and drops the bytes, which are not needed any more.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn finish(self, completion: Completion) -> Result<(), Failure> {
        let Some(version) = self.version else { return Ok(()) };
        let checkpoint = Checkpoint { version, offset: self.offset, complete: Some(completion) };
        self.scratch.record(&checkpoint).map_err(failed)?;
        self.scratch.sync_directory().map_err(failed)?;
        fs::remove_file(self.scratch.source_path()).map_err(failed)
    }

    fn hash_kept(&mut self, cancel: &CancellationToken) -> Result<(), Failure> {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        let mut hashed = 0;
        while hashed < self.offset {
            if cancel.is_cancelled() {
                return Err(Failure::interrupted());
            }
            let read = self.file.read_at(&mut chunk, hashed).map_err(failed)?;
            if read == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            self.hasher.update(&chunk[..read]);
            hashed += read as u64;
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err passes")]
fn failed(error: io::Error) -> Failure {
    Failure::of_volume("use the scratch volume", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: Option<&str>, date: Option<&str>) -> Version {
        Version {
            etag: etag.map(str::to_owned),
            last_modified: date.map(str::to_owned),
            size: 7,
            accepts_ranges: true,
        }
    }

    #[test]
    fn tags_decide_and_dates_only_without_them() {
        let same = |a: &Version, b: &Version| a.is_same_as(b);
        assert!(same(&version(Some("a"), Some("1")), &version(Some("a"), Some("2"))));
        assert!(!same(&version(Some("a"), Some("1")), &version(Some("b"), Some("1"))));
        assert!(!same(&version(None, Some("1")), &version(None, Some("2"))));
        assert!(!same(&version(Some("a"), Some("1")), &version(None, Some("2"))));
        assert!(same(&version(None, Some("1")), &version(Some("a"), None)));
        assert!(!same(&version(None, None), &Version { size: 8, ..version(None, None) }));
    }

    #[test]
    fn a_record_reads_back_and_says_no_more_than_it_knows() {
        let checkpoint =
            Checkpoint { version: version(Some("\"a\""), None), offset: 5, complete: None };
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert!(!text.contains("lastModified"), "{text}");
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
    }
}
