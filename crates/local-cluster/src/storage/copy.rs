//! Copies of volumes: sparse, complete or absent, and off the threads that serve tasks.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::StorageError;

const CHUNK: usize = 1 << 20;

/// Copies trees, until it is told to stop.
#[derive(Clone, Default)]
pub(super) struct Copier {
    stopped: Arc<AtomicBool>,
}

impl Copier {
    /// Makes copies under way fail soon, and later ones at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Copies a file or a directory. `to` appears only once the copy is complete.
    pub(super) async fn copy(&self, from: PathBuf, to: PathBuf) -> Result<(), StorageError> {
        let (copier, source, target) = (self.clone(), from.clone(), to.clone());
        let copying = tokio::task::spawn_blocking(move || copier.copy_whole(&source, &target));
        let copied = copying.await.map_err(io::Error::other).flatten();
        copied.map_err(|source| StorageError::CopyBytes { from, to, source })
    }

    fn copy_whole(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = to.with_file_name(name);
        remove_tree(&part)?;
        self.copy_tree(from, &part).inspect_err(|_| {
            // The error that is reported is the copy's.
            let _ = remove_tree(&part);
        })?;
        fs::rename(&part, to)
    }

    fn copy_tree(&self, from: &Path, to: &Path) -> io::Result<()> {
        let metadata = fs::symlink_metadata(from)?;
        if metadata.is_dir() {
            fs::create_dir(to)?;
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                match self.copy_tree(&from.join(&name), &to.join(&name)) {
                    // A writer that is still at work may remove what was listed.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    other => other?,
                }
            }
        } else if metadata.is_file() {
            self.copy_file(&File::open(from)?, &File::create(to)?)?;
        } else {
            return Ok(()); // Sockets, pipes and links are no part of a disk.
        }
        fs::set_permissions(to, metadata.permissions())
    }

    fn copy_file(&self, from: &File, to: &File) -> io::Result<()> {
        let length = from.metadata()?.len();
        to.set_len(length)?;
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while let Some((start, end)) = next_extent(from, offset, length)? {
            self.copy_range((from, to), (start, end), &mut buffer)?;
            offset = end;
        }
        Ok(())
    }

    fn copy_range(
        &self,
        (from, to): (&File, &File),
        (mut at, end): (u64, u64),
        buffer: &mut [u8],
    ) -> io::Result<()> {
        while at < end {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(io::Error::new(ErrorKind::Interrupted, "storage is shutting down"));
            }
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(buffer.len());
            match from.read_at(&mut buffer[..wanted], at)? {
                0 => return Ok(()), // Cut short by a writer that is still at work.
                read => {
                    to.write_all_at(&buffer[..read], at)?;
                    at += read as u64;
                }
            }
        }
        Ok(())
    }
}

/// The next run of data at or after `offset`; none if only a hole is left.
fn next_extent(file: &File, offset: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| {
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        let found = lseek(file, offset, whence);
        found.map(|at| u64::try_from(at).unwrap_or(length)).map_err(io::Error::from)
    };
    if offset >= length {
        return Ok(None);
    }
    match seek(offset, Whence::SeekData) {
        Ok(start) if start >= length => Ok(None),
        Ok(start) => Ok(Some((start, seek(start, Whence::SeekHole)?.min(length)))),
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(None),
        // A file system that knows no holes: all of it is data.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            Ok(Some((offset, length)))
        }
        Err(error) => Err(error),
    }
}

/// Removes a file or a directory, if it is there.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn a_copy_has_the_same_bytes_and_the_same_holes() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("inner"))?;
        let disk = File::create(from.join("disk.img"))?;
        disk.set_len(64 << 20)?;
        disk.write_all_at(b"head", 0)?;
        disk.write_all_at(&vec![7; 3 << 20], 40 << 20)?;
        fs::write(from.join("inner/small"), "x")?;

        Copier::default().copy(from.clone(), to.clone()).await?;

        assert_eq!(fs::read(from.join("disk.img"))?, fs::read(to.join("disk.img"))?);
        assert_eq!(fs::read(to.join("inner/small"))?, b"x");
        let allocated = fs::metadata(to.join("disk.img"))?.blocks() * 512;
        assert!(allocated < 8 << 20, "{allocated} bytes are allocated");
        Ok(())
    }

    #[tokio::test]
    async fn a_stopped_copy_leaves_nothing() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let from = dir.path().join("from");
        fs::write(&from, vec![1; 4 << 20])?;
        let copier = Copier::default();
        copier.stop();
        assert!(copier.copy(from, dir.path().join("to")).await.is_err());
        let left: Vec<_> =
            fs::read_dir(dir.path())?.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["from"]);
        Ok(())
    }
}
