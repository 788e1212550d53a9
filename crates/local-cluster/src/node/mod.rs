//! Process nodes: a small stand-in for kubelet that needs no root and no container runtime.
//!
//! A node registers itself, keeps its lease, and carries the pods bound to it. A pod whose first
//! container starts `disk-importer` runs as a real process of the host; any other pod is only
//! reported Running. A node can fail the ways a kubelet does: see the fault methods of
//! [`ProcessNode`].
//!
//! What does not live here: users, groups and limits of a container (there is no root to set them),
//! probes, init containers, logs and exec through the API server.

mod addresses;
mod cluster_io;
mod container_state;
mod environment;
mod heartbeat;
mod holds;
mod inbox;
mod launch;
mod link;
mod mounts;
mod pod_name;
mod pod_run;
mod pod_status;
mod preparation;
mod roster;
mod running;
mod secrets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

pub use addresses::AddressPool;
pub use pod_name::PodName;

use cluster_io::PodEvents;
use holds::Holds;
use inbox::Ending;
use link::Link;
use roster::Roster;
use running::Groups;

use crate::guard::Guard;

/// The program name that makes a pod run as a real process.
pub const IMPORTER: &str = "disk-importer";

/// How a node is started.
pub struct NodeOptions {
    /// A client that may write nodes, leases and pod statuses.
    pub client: Client,
    /// The node's name.
    pub name: String,
    /// What runs instead of a container's `command[0]`: a program and its first arguments.
    pub program: Vec<String>,
    /// Scratch directories, Secret files, termination messages and logs of pods live below.
    pub state_dir: PathBuf,
    /// Only volumes below this directory are given to pods.
    pub storage_root: PathBuf,
    /// Knows every process group, so that none outlives its owner.
    pub guard: Arc<Guard>,
    /// Where pod addresses come from. Nodes of one cluster share a pool.
    pub addresses: AddressPool,
    /// How often the lease is renewed.
    pub heartbeat: Duration,
    /// How long a failed container waits before its second restart; doubles, at most 5 minutes.
    pub restart_backoff: Duration,
}

impl NodeOptions {
    /// Options with kubelet's own times; everything on disk is below `root`.
    pub fn new(client: Client, guard: Arc<Guard>, name: &str, root: &Path) -> Self {
        Self {
            client,
            program: vec![IMPORTER.to_owned()],
            state_dir: root.join("nodes").join(name),
            storage_root: root.join("storage"),
            name: name.to_owned(),
            guard,
            addresses: AddressPool::new(),
            heartbeat: Duration::from_secs(10),
            restart_backoff: Duration::from_secs(10),
        }
    }
}

/// Why a node could not start, or could not do what a test asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("prepare the node's directory {}: {source}", path.display())]
    PrepareDirectory { path: PathBuf, source: std::io::Error },
    #[error("register node {name}: {source}")]
    Register { name: String, source: kube::Error },
    #[error("find pod {0} on this node: it is not bound here")]
    FindPod(PodName),
    #[error("signal pod {0}: no process of it is running")]
    SignalPod(PodName),
}

/// What happens to the processes of a node that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostProcesses {
    /// The network is cut: they go on, and nobody hears of it.
    KeepRunning,
    /// The power is cut: they die, and nobody hears of it.
    Die,
}

/// What all tasks of one node share.
struct NodeContext {
    client: Client,
    name: String,
    program: Vec<String>,
    state_dir: PathBuf,
    storage_root: PathBuf,
    addresses: AddressPool,
    heartbeat: Duration,
    restart_backoff: Duration,
    link: Link,
    holds: Holds,
    groups: Groups,
    roster: Roster,
    events: PodEvents,
}

impl NodeContext {
    fn new(options: NodeOptions) -> Self {
        Self {
            events: PodEvents::new(&options.client, &options.name),
            client: options.client,
            name: options.name,
            program: options.program,
            state_dir: options.state_dir,
            storage_root: options.storage_root,
            addresses: options.addresses,
            heartbeat: options.heartbeat,
            restart_backoff: options.restart_backoff,
            link: Link::new(),
            holds: Holds::default(),
            groups: Groups::new(options.guard),
            roster: Roster::default(),
        }
    }
}

/// A running node. Dropping it ends its tasks and kills the processes of its pods; the Node object
/// stays, as that of a machine that was switched off.
pub struct ProcessNode {
    context: Arc<NodeContext>,
    tasks: JoinSet<()>,
}

impl ProcessNode {
    /// Registers the node, reports it Ready and begins to carry its pods.
    pub async fn start(options: NodeOptions) -> Result<Self, NodeError> {
        let path = options.state_dir.join("logs");
        tokio::fs::create_dir_all(&path)
            .await
            .map_err(|source| NodeError::PrepareDirectory { path, source })?;
        let context = Arc::new(NodeContext::new(options));
        heartbeat::register(&context)
            .await
            .map_err(|source| NodeError::Register { name: context.name.clone(), source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeat::keep(context.clone()));
        tasks.spawn(roster::follow(context.clone()));
        Ok(Self { context, tasks })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Where the output of a pod's process goes; exists while the pod does.
    pub fn log(&self, uid: &str) -> PathBuf {
        launch::log_file(&launch::pod_dir(&self.context.state_dir, uid))
    }

    /// Stops the node and waits until its tasks are gone.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Faults that a test can command.
impl ProcessNode {
    /// Evicts a pod as under disk pressure: its process is killed, then it is Failed/Evicted.
    pub fn evict(&self, pod: &PodName) -> Result<(), NodeError> {
        self.end(pod, &Ending::Evict)
    }

    /// Ends a pod that is only reported Running, as if its containers had exited.
    pub fn finish(&self, pod: &PodName, exit_code: i32, message: &str) -> Result<(), NodeError> {
        self.end(pod, &Ending::Finish { exit_code, message: message.to_owned() })
    }

    fn end(&self, pod: &PodName, ending: &Ending) -> Result<(), NodeError> {
        let known = self.context.roster.end(pod, ending);
        known.then_some(()).ok_or_else(|| NodeError::FindPod(pod.clone()))
    }

    /// Kills a pod's process group without notice, as the kernel does when memory is short.
    pub fn kill(&self, pod: &PodName) -> Result<(), NodeError> {
        let uid = self.context.roster.uid(pod).ok_or_else(|| NodeError::FindPod(pod.clone()))?;
        let killed = self.context.groups.kill(&uid);
        killed.then_some(()).ok_or_else(|| NodeError::SignalPod(pod.clone()))
    }

    /// Keeps pods from starting: those of `held.namespace` whose name begins with `held.name`.
    pub fn hold(&self, held: PodName) {
        self.context.holds.hold(held);
    }

    /// Lets pods start again that [`ProcessNode::hold`] kept.
    pub fn release(&self, held: &PodName) {
        self.context.holds.release(held);
    }

    /// Cuts the node off: no heartbeat, no report, no order received until [`Self::recover`].
    pub fn lose(&self, processes: LostProcesses) {
        self.context.link.cut();
        if processes == LostProcesses::Die {
            self.context.groups.kill_all();
        }
    }

    /// Brings a lost node back: it registers again if its object has gone, and catches up.
    pub async fn recover(&self) -> Result<(), NodeError> {
        let name = self.context.name.clone();
        heartbeat::register(&self.context)
            .await
            .map_err(|source| NodeError::Register { name, source })?;
        self.context.link.restore();
        Ok(())
    }
}
