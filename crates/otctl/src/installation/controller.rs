//! The disk image controller as a process of its own, under its own account: what runs in a cluster, without the pod.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use local_cluster::LocalCluster;
use local_cluster::guard::{Guard, GuardedProcess};
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER};

/// Between SIGTERM and SIGKILL: it gives its lease back in less.
const GRACE: Duration = Duration::from_secs(3);

/// A running controller. Dropping it kills the process; so does the end of its owner, by the guard.
pub(crate) struct ControllerProcess {
    process: GuardedProcess,
    log: PathBuf,
}

impl ControllerProcess {
    /// Starts it on this cluster.
    pub(crate) async fn start(cluster: &LocalCluster) -> anyhow::Result<Self> {
        let kubeconfig =
            cluster.service_account_kubeconfig(DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER).await?;
        let log = cluster.state_dir().join("logs").join("diskimage-controller.log");
        let guard = Arc::new(
            Guard::start(GRACE, None).context("the controller's guard cannot be started")?,
        );
        let mut command = Guard::command(own_program()?, arguments(&kubeconfig));
        let output =
            File::create(&log).with_context(|| format!("'{}' cannot be written", log.display()))?;
        command.stdout(output.try_clone()?).stderr(output);
        let process = guard.spawn(command).context("the controller cannot be started")?;
        Ok(Self { process, log })
    }

    /// Waits until it ends, which it should not.
    pub(crate) async fn ends(&mut self) -> anyhow::Error {
        let ended = self.process.wait().await;
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        anyhow::anyhow!("the controller ended ({status}):\n{}", last_lines(&self.log))
    }

    /// Where its log is.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.process.end(GRACE).await.map(drop).context("the controller did not end")
    }
}

/// This program: it holds every other one.
pub(crate) fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this program is not known")
}

fn arguments(kubeconfig: &Path) -> Vec<String> {
    let mut arguments = vec!["run-controller".to_owned(), "diskimage".to_owned()];
    arguments.extend([
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={DEFAULT_NAMESPACE}"),
        "--identity=otctl".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        "--log-format=json".to_owned(),
    ]);
    arguments
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
