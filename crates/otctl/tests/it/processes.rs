//! Processes as the kernel tells of them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::otctl;

/// Wide: a machine may be busy with compilers.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A process among all that ever had its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) id: i32,
    parent: i32,
    started: String,
    /// Its command line, with spaces.
    pub(crate) command: String,
}

/// An `otctl` that a test has started. It ends with the test, however that goes, and its guards end what it started.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it; what it prints is read from here.
    pub(crate) fn start(command: &str) -> Self {
        Self::start_with(&[command])
    }

    /// The same with flags.
    pub(crate) fn start_with(words: &[&str]) -> Self {
        Self(otctl().args(words).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors say that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything that `root` started, and what that started, and so on.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    let all: BTreeMap<i32, Process> = running().map(|process| (process.id, process)).collect();
    let is_below = |process: &&Process| {
        let ancestors = std::iter::successors(Some(*process), |process| all.get(&process.parent));
        ancestors.take(32).any(|ancestor| ancestor.parent == root)
    };
    all.values().filter(is_below).cloned().collect()
}

/// Whether it runs. A zombie has ended; not every machine's first process buries orphans.
pub(crate) fn is_running(process: &Process) -> bool {
    read(process.id).is_some_and(|now| now.started == process.started)
}

/// Waits until `found` gives something, and panics with `what` if that takes too long.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All that run.
pub(crate) fn running() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
}

fn read(id: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let (state, parent, started) = (fields[0], fields[1].parse().ok()?, fields[19].to_owned());
    (!matches!(state, "Z" | "X")).then_some(Process { id, parent, started, command })
}
