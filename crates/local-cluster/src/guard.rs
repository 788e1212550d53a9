//! Makes every process of a cluster end with its owner, also when the owner is killed.
//!
//! A guard process holds one end of a pipe and knows every process group. When the owner is gone, however it went, the
//! kernel closes the pipe and the guard ends the groups. The guard is a page of POSIX shell (`guard.sh`) rather than a
//! subcommand of ours: a test binary has no subcommands, and a guard from another build would be the wrong one.
//!
//! A process is started through a launcher that waits for a word from the owner before it becomes the program. The
//! word is sent after the guard knows the group, so there is no moment at which a process runs unguarded.

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{Child, Command};

const SHELL: &str = "/bin/sh";
const GUARD: &str = include_str!("guard.sh");
/// Becomes the program named by its arguments once a line arrives; ends when the pipe closes before one does.
const LAUNCHER: &str = r#"read -r word && exec "$@" </dev/null"#;

/// The guard of one cluster. Dropping it ends everything it guards.
#[derive(Debug)]
pub struct Guard {
    pipe: Mutex<Option<ChildStdin>>,
    process: Mutex<std::process::Child>,
}

impl Guard {
    /// Starts a guard that gives groups `grace` between SIGTERM and SIGKILL, then removes the directory `remove`.
    pub fn start(grace: Duration, remove: Option<&Path>) -> io::Result<Self> {
        let mut process = std::process::Command::new(SHELL)
            .args(["-c", GUARD, "local-cluster-guard"])
            .arg((grace.as_millis() / 100).to_string())
            .arg(remove.map_or(OsStr::new(""), Path::as_os_str))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take();
        Ok(Self { pipe: Mutex::new(pipe), process: Mutex::new(process) })
    }

    /// A command for [`Guard::spawn`]. Environment, directory, stdout and stderr are the caller's to set; standard
    /// input is empty. A program that cannot be run shows as exit code 126 or 127, with the reason on stderr.
    pub fn command<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(SHELL);
        command.args(["-c", LAUNCHER, "local-cluster-launcher"]).arg(program).args(arguments);
        command
    }

    /// Starts a command made by [`Guard::command`] in a process group of its own.
    pub fn spawn(self: &Arc<Self>, mut command: Command) -> io::Result<GuardedProcess> {
        let mut child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Pid::from_raw(id.expect("a child that nobody waited for has an id"));
        let start = child.stdin.take().expect("standard input is a pipe").into_owned_fd()?;
        self.tell("add", group)?;
        std::fs::File::from(start).write_all(b"start\n")?;
        Ok(GuardedProcess { child, group, guard: Arc::clone(self) })
    }

    /// Ends every group, removes the directory and waits until that is done. Blocks for up to the grace and a second.
    pub fn end(&self) -> io::Result<()> {
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.process.lock().unwrap_or_else(PoisonError::into_inner).wait().map(drop)
    }

    /// The guard's own process id.
    pub fn id(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    fn forget(&self, group: Pid) {
        // During a shutdown the guard ends first, and forgets by that.
        if let Err(error) = self.tell("forget", group) {
            tracing::debug!(%error, %group, "the guard was not told of an ended group");
        }
    }

    fn tell(&self, verb: &str, group: Pid) -> io::Result<()> {
        match self.pipe.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(pipe) => pipe.write_all(format!("{verb} {group}\n").as_bytes()),
            None => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the guard has ended")),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "could not wait for the guard");
        }
    }
}

/// A process, and the group it leads. Dropping it kills the group.
#[derive(Debug)]
pub struct GuardedProcess {
    child: Child,
    group: Pid,
    guard: Arc<Guard>,
}

impl GuardedProcess {
    /// The process id, which is the id of its group too.
    pub fn id(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(killpg(self.group, signal)?)
    }

    /// Waits until the process has ended, and ends what it left behind in its group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // Most groups are empty by now, which is an error of killpg that says what we want to hear.
        let _ = killpg(self.group, Signal::SIGKILL);
        self.guard.forget(self.group);
        Ok(status)
    }

    /// Asks the group to end, kills it after `grace`, and waits for the process.
    pub async fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        // An error means that it is gone already; `wait` says with which status.
        let _ = self.signal(Signal::SIGTERM);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            let _ = self.signal(Signal::SIGKILL);
        }
        self.wait().await
    }

    /// The status, if the process has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        if matches!(self.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::SIGKILL);
            self.guard.forget(self.group);
        }
    }
}
