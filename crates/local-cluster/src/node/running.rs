//! Processes of pods: each in a process group of its own that the cluster's guard knows.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::launch::Launch;
use crate::guard::{Guard, GuardedProcess};

/// The process groups of one node by the UID of their pod.
#[derive(Clone)]
pub(super) struct Groups {
    running: Arc<Mutex<HashMap<String, Pid>>>,
    guard: Arc<Guard>,
}

impl Groups {
    pub(super) fn new(guard: Arc<Guard>) -> Self {
        Self { running: Arc::default(), guard }
    }

    /// Kills the group of a pod; false if it has none.
    pub(super) fn kill(&self, pod_uid: &str) -> bool {
        let group = self.with(|running| running.get(pod_uid).copied());
        group.is_some_and(|group| killpg(group, Signal::SIGKILL).is_ok())
    }

    /// Kills the groups of all pods.
    pub(super) fn kill_all(&self) {
        for group in self.with(|running| running.values().copied().collect::<Vec<_>>()) {
            // An error means that it has ended by itself.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, Pid>) -> T) -> T {
        change(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One more name for a log, which stays when the pod's directory goes. A container that starts again writes on in it.
fn keep(log: &Path, kept: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(log, kept) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// The process of a pod. Dropping it kills its whole group.
pub(super) struct RunningProcess {
    process: GuardedProcess,
    groups: Groups,
    pod_uid: String,
}

impl RunningProcess {
    /// Starts what `launch` says for the pod with this UID.
    pub(super) fn spawn(launch: &Launch, pod_uid: &str, groups: &Groups) -> std::io::Result<Self> {
        std::fs::write(&launch.termination_log, b"")?;
        let log = std::fs::File::options().create(true).append(true).open(&launch.log)?;
        keep(&launch.log, &launch.kept_log)?;
        let mut command = Guard::command(&launch.program, &launch.arguments);
        command.env_clear().envs(&launch.environment).current_dir(&launch.directory);
        command.stdout(log.try_clone()?).stderr(log);
        let process = groups.guard.spawn(command)?;
        groups.with(|running| running.insert(pod_uid.to_owned(), process.id()));
        Ok(Self { process, groups: groups.clone(), pod_uid: pod_uid.to_owned() })
    }

    /// Waits for the end of the process, and ends what it leaves behind. Can be given up and called again.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Asks the group to end.
    pub(super) fn terminate(&self) {
        // An error means that it has ended by itself.
        let _ = self.process.signal(Signal::SIGTERM);
    }

    /// Ends the group.
    pub(super) fn kill(&self) {
        let _ = self.process.signal(Signal::SIGKILL);
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.groups.with(|running| running.remove(&self.pod_uid));
    }
}
