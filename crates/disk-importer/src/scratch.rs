//! The scratch volume: the source's bytes as far as they came, and the record of what they are.
//!
//! | file | content |
//! |---|---|
//! | `lock` | held while a run uses the volume; its text is the pod's UID |
//! | `source` | the first bytes of the source |
//! | `unpacked` | a qcow2 image that came compressed, while it is converted |
//! | `checkpoint.json` | how many of them are safely on disk, of which version of the source |
//! | `progress.json` | how many were handed to this boot of this machine; says nothing after another |
//!
//! The record never claims what is not on disk: `source` is synced before the record is replaced,
//! and a reader takes the smaller of the record's offset and the file's length. A sync waits for
//! the disk, so there are few; what only a dead machine loses, a note remembers in between.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use otctl_types::import::{ImportReason, SourceFacts};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::sha256::Hasher;
use crate::version::Version;

/// New bytes after which they are noted. With the socket's and the parser's buffers it keeps what
/// a kill costs below 1 MiB.
const NOTE_EVERY_BYTES: u64 = 384 * 1024;

/// New bytes after which they are synced: what a machine that goes down costs at most.
const SYNC_EVERY_BYTES: u64 = 64 * 1024 * 1024;

/// Another text after each boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The most that is read of who holds the lock, in bytes.
const LONGEST_UID: u64 = 256;

const READ_CHUNK_BYTES: usize = 1024 * 1024;

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

/// What is in the file as long as the machine is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    boot: String,
    version: Version,
    offset: u64,
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
    noted: u64,
    synced: u64,
    /// This boot of the machine, if it can be told from others.
    boot: Option<String>,
    hasher: Hasher,
}

impl Scratch {
    /// Locks the volume at `directory` for the pod of this UID.
    ///
    /// # Errors
    /// `ScratchInUse` when another run holds it, which is then left as it is; `Internal` when it
    /// cannot be written.
    pub fn lock(directory: &Path, pod_uid: &str) -> Result<Self, Failure> {
        let path = directory.join("lock");
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut lock = open.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&lock).take(LONGEST_UID).read_to_string(&mut holder);
                let message = format!("the scratch volume is in use by pod {:?}", holder.trim());
                return Err(Failure::new(ImportReason::ScratchInUse, message));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).and_then(|()| lock.write_all(pod_uid.as_bytes())).map_err(failed)?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// What an earlier run left: its record, or its note if that knows of more and is of this boot.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let record: Option<Checkpoint> = read(&self.record_path());
        let note = read::<Note>(&self.note_path()).filter(|note| boot() == Some(note.boot.clone()));
        let is_more = |note: &Note| {
            record.as_ref().is_none_or(|record| {
                let is_same = record.complete.is_none() && record.version == note.version;
                is_same && record.offset < note.offset
            })
        };
        match note.filter(is_more) {
            Some(Note { version, offset, .. }) => {
                Some(Checkpoint { version, offset, complete: None })
            }
            None => record,
        }
    }

    /// Path of the source's bytes.
    #[must_use]
    pub fn source_path(&self) -> PathBuf {
        self.directory.join("source")
    }

    /// Path of what is unpacked of them.
    #[must_use]
    pub fn unpacked_path(&self) -> PathBuf {
        self.directory.join("unpacked")
    }

    /// Replaces the record, safely on disk before it gets its name.
    fn record(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let new = self.directory.join("checkpoint.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(checkpoint)?)?;
        file.sync_data()?;
        fs::rename(new, self.record_path())
    }

    /// Replaces the note. Whoever kills us finds the old one or the new one.
    fn note(&self, note: &Note) -> io::Result<()> {
        let new = self.directory.join("progress.json.new");
        fs::write(&new, serde_json::to_vec(note)?)?;
        fs::rename(new, self.note_path())
    }

    fn record_path(&self) -> PathBuf {
        self.directory.join("checkpoint.json")
    }

    fn note_path(&self) -> PathBuf {
        self.directory.join("progress.json")
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
        drop_unpacked(&scratch.unpacked_path())?;
        let mut spool = Self {
            scratch,
            file,
            version,
            offset,
            noted: offset,
            synced: 0,
            boot: boot(),
            hasher: Hasher::default(),
        };
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

    /// Path of what is unpacked of them.
    #[must_use]
    pub fn unpacked_path(&self) -> PathBuf {
        self.scratch.unpacked_path()
    }

    /// Drops all bytes, to begin with those of `version`; `None` leaves nothing to resume.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn restart(&mut self, version: Option<Version>) -> Result<(), Failure> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(failed)?;
        self.version = version;
        self.hasher = Hasher::default();
        (self.offset, self.noted, self.synced) = (0, 0, 0);
        remove(&self.scratch.note_path())?;
        remove(&self.scratch.record_path())
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
        if self.offset - self.synced >= SYNC_EVERY_BYTES {
            self.keep()
        } else if self.offset - self.noted >= NOTE_EVERY_BYTES {
            self.note()
        } else {
            Ok(())
        }
    }

    /// Makes everything received so far safe from a kill; where boots cannot be told apart, from
    /// everything.
    fn note(&mut self) -> Result<(), Failure> {
        let (Some(version), Some(boot)) = (self.version.clone(), self.boot.clone()) else {
            return self.keep();
        };
        let note = Note { boot, version, offset: self.offset };
        self.scratch.note(&note).map_err(failed)?;
        self.noted = self.offset;
        Ok(())
    }

    /// Makes everything received so far safe.
    ///
    /// # Errors
    /// When the volume fails.
    pub fn keep(&mut self) -> Result<(), Failure> {
        if self.synced == self.offset {
            return Ok(());
        }
        let Some(version) = self.version.clone() else { return Ok(()) };
        self.file.sync_data().map_err(failed)?;
        let checkpoint = Checkpoint { version, offset: self.offset, complete: None };
        self.scratch.record(&checkpoint).map_err(failed)?;
        (self.noted, self.synced) = (self.offset, self.offset);
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
        remove(&self.scratch.note_path())?;
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

/// Removes what an earlier conversion unpacked, if it was cut short.
///
/// # Errors
/// When the volume fails.
pub fn drop_unpacked(path: &Path) -> Result<(), Failure> {
    remove(path)
}

/// Removes a file that may be there.
fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// What a file says, if it is there and can be read.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = fs::read(path).ok()?;
    match serde_json::from_slice(&text) {
        Ok(told) => Some(told),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "what is kept there cannot be read");
            None
        }
    }
}

/// This boot of the machine. Containers on it see the same.
fn boot() -> Option<String> {
    let text = fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err passes")]
fn failed(error: io::Error) -> Failure {
    Failure::of_volume("use the scratch volume", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str) -> Version {
        Version {
            etag: Some(etag.to_owned()),
            last_modified: None,
            size: 1 << 30,
            accepts_ranges: true,
        }
    }

    fn spool(directory: &Path) -> Spool {
        let scratch = Scratch::lock(directory, "pod").unwrap();
        let checkpoint = scratch.checkpoint();
        Spool::open(scratch, checkpoint, &CancellationToken::new()).unwrap()
    }

    /// As a kill leaves it: nothing is said at the end.
    fn killed_after(directory: &Path, bytes: u64) {
        let mut spool = spool(directory);
        spool.restart(Some(version("a"))).unwrap();
        let chunk = vec![7; 64 * 1024];
        (0..bytes / (64 * 1024)).for_each(|_| spool.append(&chunk).unwrap());
    }

    #[test]
    fn a_kill_costs_less_than_a_note_and_is_not_paid_for_with_syncs() {
        let directory = tempfile::tempdir().unwrap();
        killed_after(directory.path(), 8 << 20);
        assert!(!directory.path().join("checkpoint.json").exists(), "nothing was synced yet");
        let again = spool(directory.path());
        assert!((8 << 20) - again.offset() < NOTE_EVERY_BYTES, "{}", again.offset());
        let mut expected = Hasher::default();
        expected.update(&vec![7; usize::try_from(again.offset()).unwrap()]);
        assert!(again.hasher().sum() == expected.sum());
    }

    #[test]
    fn after_another_boot_only_what_was_synced_counts() {
        let directory = tempfile::tempdir().unwrap();
        killed_after(directory.path(), SYNC_EVERY_BYTES + (8 << 20));
        let path = directory.path().join("progress.json");
        let mut note: Note = read(&path).unwrap();
        note.boot = "another".to_owned();
        fs::write(&path, serde_json::to_vec(&note).unwrap()).unwrap();
        assert_eq!(spool(directory.path()).offset(), SYNC_EVERY_BYTES);
        fs::remove_file(directory.path().join("checkpoint.json")).unwrap();
        assert_eq!(spool(directory.path()).offset(), 0, "and nothing, when nothing was");
    }

    #[test]
    fn a_note_of_other_bytes_than_the_record_is_of_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = spool(directory.path());
        spool.restart(Some(version("a"))).unwrap();
        spool.append(&[7; 1024]).unwrap();
        spool.keep().unwrap();
        let boot = boot().unwrap();
        let other = Note { boot, version: version("b"), offset: 1 << 20 };
        spool.scratch.note(&other).unwrap();
        assert_eq!(spool.scratch.checkpoint().unwrap().offset, 1024);
    }

    #[test]
    fn a_record_reads_back_and_says_no_more_than_it_knows() {
        let checkpoint = Checkpoint { version: version("\"a\""), offset: 5, complete: None };
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert!(!text.contains("lastModified"), "{text}");
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
    }
}
