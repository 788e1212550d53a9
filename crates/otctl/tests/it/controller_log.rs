//! What a controller says before each write, read while it says it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::PATIENCE;

/// The log of a controller while it is written.
pub(crate) struct Log {
    path: PathBuf,
    read: u64,
    rest: String,
    /// Number and total of every `write n of m`.
    writes: Vec<(usize, usize)>,
}

impl Log {
    /// Waits until so many writes were told of, and if wanted for the next one after which its pass has more to write.
    pub(crate) async fn await_moment(path: &Path, lines: usize, between_writes: bool) -> Self {
        let mut log =
            Self { path: path.to_owned(), read: 0, rest: String::new(), writes: Vec::new() };
        let following = tokio::task::spawn_blocking(move || {
            log.follow_until(lines, between_writes);
            log
        });
        following.await.unwrap()
    }

    /// Blocks. It looks a thousand times a second: a write takes a few milliseconds, and who waits wants to act before
    /// the next one is told.
    fn follow_until(&mut self, lines: usize, between_writes: bool) {
        let deadline = Instant::now() + PATIENCE;
        while self.writes.len() < lines || between_writes && !self.is_mid_pass() {
            assert!(
                Instant::now() < deadline,
                "the controller rests after {} writes, before the moment has come",
                self.writes.len()
            );
            std::thread::sleep(Duration::from_millis(1));
            self.read();
        }
    }

    /// Reads on.
    pub(crate) fn read(&mut self) {
        let text = text_from(&self.path, self.read);
        self.read += text.len() as u64;
        self.rest.push_str(&text);
        while let Some((line, rest)) = self.rest.split_once('\n') {
            self.writes.extend(write_told(line));
            self.rest = rest.to_owned();
        }
    }

    /// Whether the last write that was told of is not the last of its pass.
    pub(crate) fn is_mid_pass(&self) -> bool {
        self.writes.last().is_some_and(|(number, total)| number < total)
    }
}

fn text_from(path: &Path, offset: u64) -> String {
    let mut file = File::open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

/// `write 2 of 5` as (2, 5).
fn write_told(line: &str) -> Option<(usize, usize)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let (number, total) = line["message"].as_str()?.strip_prefix("write ")?.split_once(" of ")?;
    Some((number.parse().ok()?, total.parse().ok()?))
}
