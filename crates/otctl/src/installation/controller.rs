//! A controller as a process of its own, under its own account: what runs in a cluster, without the pod.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use local_cluster::LocalCluster;
use local_cluster::guard::{Guard, GuardedProcess};
use nix::sys::signal::Signal;
use otctl_kit::rbac::Rights;
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER, WORKSPACE_CONTROLLER};

use super::WORKSPACE_NAMESPACE;

/// Between SIGTERM and SIGKILL: it gives its lease back in less.
const GRACE: Duration = Duration::from_secs(3);

/// A controller that an installation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Of disk images.
    Diskimage,
    /// Of workspaces.
    Workspace,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Diskimage, Self::Workspace];

    /// Its account, after which its lease and its log are called too.
    #[must_use]
    pub fn account(self) -> &'static str {
        match self {
            Self::Diskimage => DISKIMAGE_CONTROLLER,
            Self::Workspace => WORKSPACE_CONTROLLER,
        }
    }

    pub(super) fn rights(self) -> &'static Rights {
        match self {
            Self::Diskimage => &diskimage_controller::rbac::RIGHTS,
            Self::Workspace => &workspace_controller::rbac::RIGHTS,
        }
    }

    /// What `run-controller` calls it, and the flags without which it does not start.
    fn command(self) -> Vec<String> {
        match self {
            Self::Diskimage => vec!["diskimage".to_owned()],
            Self::Workspace => {
                vec!["workspace".to_owned(), format!("--default-namespace={WORKSPACE_NAMESPACE}")]
            }
        }
    }
}

/// What a controller is started with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Which one.
    pub controller: Controller,
    /// The program that holds every other one: `otctl`.
    pub program: PathBuf,
    /// The way into the cluster, with the account's rights.
    pub kubeconfig: PathBuf,
    /// Where it logs to; what was there is overwritten.
    pub log: PathBuf,
    /// Flags besides those that every controller on a local cluster gets.
    pub flags: Vec<String>,
    /// Variables besides those of this process, such as where traces go.
    pub environment: Vec<(String, String)>,
}

impl Launch {
    /// The controller of disk images on this cluster, under its own account, which must exist.
    ///
    /// # Errors
    /// When the account gets no token.
    pub async fn on(cluster: &LocalCluster, program: PathBuf) -> anyhow::Result<Self> {
        Self::of(Controller::Diskimage, cluster, program).await
    }

    /// A controller on this cluster, under its own account, which must exist.
    ///
    /// # Errors
    /// When the account gets no token.
    pub async fn of(
        controller: Controller,
        cluster: &LocalCluster,
        program: PathBuf,
    ) -> anyhow::Result<Self> {
        let account = controller.account();
        let kubeconfig = cluster.service_account_kubeconfig(DEFAULT_NAMESPACE, account).await?;
        let log = cluster.state_dir().join("logs").join(format!("{account}.log"));
        let (flags, environment) = (Vec::new(), Vec::new());
        Ok(Self { controller, program, kubeconfig, log, flags, environment })
    }
}

/// A running controller. Dropping it kills the process; so does the end of its owner, by the guard.
pub struct ControllerProcess {
    process: GuardedProcess,
    log: PathBuf,
}

impl ControllerProcess {
    /// Starts it.
    ///
    /// # Errors
    /// When there is no such program, or its log cannot be written.
    pub fn start(launch: &Launch) -> anyhow::Result<Self> {
        let guard = Arc::new(
            Guard::start(GRACE, None).context("the controller's guard cannot be started")?,
        );
        let mut command = Guard::command(&launch.program, arguments(launch));
        command.envs(launch.environment.iter().cloned());
        let log = launch.log.clone();
        let output =
            File::create(&log).with_context(|| format!("'{}' cannot be written", log.display()))?;
        command.stdout(output.try_clone()?).stderr(output);
        let process = guard.spawn(command).context("the controller cannot be started")?;
        Ok(Self { process, log })
    }

    /// Waits until it ends, which it should not.
    pub async fn ends(&mut self) -> anyhow::Error {
        let ended = self.process.wait().await;
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        anyhow::anyhow!("the controller ended ({status}):\n{}", last_lines(&self.log))
    }

    /// Whether it has come so far that it answers requests.
    pub(crate) fn has_listened(&self) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains("\"listening\""))
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its process id.
    pub fn id(&self) -> i32 {
        self.process.id().as_raw()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> std::io::Result<()> {
        self.process.signal(signal)
    }

    /// Kills it as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// When it had ended by itself.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL).context("the controller was gone before it was killed")?;
        self.process.wait().await.map(drop).context("the controller did not end")
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.process.end(GRACE).await.map(drop).context("the controller did not end")
    }
}

/// This program: it holds every other one.
pub(crate) fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this program is not known")
}

fn arguments(launch: &Launch) -> Vec<String> {
    let mut arguments = vec!["run-controller".to_owned()];
    arguments.extend(launch.controller.command());
    arguments.extend([
        format!("--kubeconfig={}", launch.kubeconfig.display()),
        format!("--namespace={DEFAULT_NAMESPACE}"),
        "--identity=otctl".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        "--log-format=json".to_owned(),
    ]);
    arguments.extend(launch.flags.iter().cloned());
    arguments
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
