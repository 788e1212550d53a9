//! Processes of containers: each in a process group of its own that the cluster's guard knows.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::launch::Launch;
use crate::guard::{Guard, GuardedProcess};

/// A container: the UID of its pod, and its name.
pub(super) type Key = (String, String);

/// The process groups of one node by their containers.
#[derive(Clone)]
pub(super) struct Groups {
    running: Arc<Mutex<HashMap<Key, Pid>>>,
    guard: Arc<Guard>,
}

impl Groups {
    pub(super) fn new(guard: Arc<Guard>) -> Self {
        Self { running: Arc::default(), guard }
    }

    /// What keeps processes from outliving the node.
    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Kills the groups of a pod; false if it has none.
    pub(super) fn kill(&self, pod_uid: &str) -> bool {
        let of_pod = |running: &mut HashMap<Key, Pid>| {
            let groups = running.iter().filter(|((uid, _), _)| uid == pod_uid);
            groups.map(|(_, group)| *group).collect::<Vec<_>>()
        };
        let killed =
            self.with(of_pod).into_iter().map(|group| killpg(group, Signal::SIGKILL).is_ok());
        killed.fold(false, |any, killed| any | killed)
    }

    /// Kills the groups of all pods.
    pub(super) fn kill_all(&self) {
        for group in self.with(|running| running.values().copied().collect::<Vec<_>>()) {
            // An error means that it has ended by itself.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<Key, Pid>) -> T) -> T {
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

/// The process of a container. Dropping it kills its whole group.
pub(super) struct RunningProcess {
    process: GuardedProcess,
    groups: Groups,
    key: Key,
}

impl RunningProcess {
    /// Starts what `launch` says for this container.
    pub(super) fn spawn(launch: &Launch, key: Key, groups: &Groups) -> std::io::Result<Self> {
        std::fs::write(&launch.termination_log, b"")?;
        let log = std::fs::File::options().create(true).append(true).open(&launch.log)?;
        keep(&launch.log, &launch.kept_log)?;
        let mut command = Guard::command(&launch.program, &launch.arguments);
        command.env_clear().envs(&launch.environment).current_dir(&launch.directory);
        command.stdout(log.try_clone()?).stderr(log);
        let process = groups.guard.spawn(command)?;
        groups.with(|running| running.insert(key.clone(), process.id()));
        Ok(Self { process, groups: groups.clone(), key })
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
        self.groups.with(|running| running.remove(&self.key));
    }
}
