//! Process nodes: a small stand-in for kubelet that needs no root and no container runtime.
//!
//! A node registers itself, keeps its lease, and carries the pods bound to it. A container runs as a
//! real process of the host if its image is the importer's or one that the node was told of
//! ([`Images`]); any other is only reported Running, or its image is not found. A node can fail the
//! ways a kubelet does: see the fault methods of [`ProcessNode`].
//!
//! There is no network namespace. Instead, the program of an image is told its pod's address, which
//! is one of 127/8, the ports that its container names, and a file that stands for `/etc/hosts`
//! ([`ADDRESS_VARIABLE`], [`PORTS_VARIABLE`], [`HOSTS_VARIABLE`]). Endpoints in 127/8 are refused by
//! the API server, so a Service has none of such pods.
//!
//! What does not live here: users, groups and limits of a container (there is no root to set them),
//! init containers, hooks, logs and exec through the API server.

mod addresses;
mod backoff;
mod cluster_io;
mod conditions;
mod container_report;
mod container_run;
mod container_state;
mod environment;
mod heartbeat;
mod holds;
mod hosts;
mod images;
mod inbox;
mod launch;
mod link;
mod mounts;
mod orders;
mod pod_events;
mod pod_name;
mod pod_run;
mod pod_status;
mod preparation;
mod probes;
mod pull;
mod room;
mod roster;
mod running;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::task::JoinSet;

pub use addresses::AddressPool;
pub use images::{Image, Images};
pub use launch::{ADDRESS_VARIABLE, HOSTS_VARIABLE, PORTS_VARIABLE};
pub use pod_name::PodName;
pub use room::Room;

use holds::Holds;
use inbox::Ending;
use link::Link;
use pod_events::PodEvents;
use roster::Roster;
use running::Groups;

use crate::guard::Guard;

/// The program name by which the importer is known.
pub const IMPORTER: &str = "disk-importer";

/// How a node is started.
pub struct NodeOptions {
    /// A client that may write nodes, leases and pod statuses.
    pub client: Client,
    /// The node's name.
    pub name: String,
    /// What runs instead of the importer's `command[0]`: a program and its first arguments.
    pub program: Vec<String>,
    /// What other images there are.
    pub images: Images,
    /// What pods may ask for.
    pub room: Room,
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
    /// How long a failed container waits before its second restart, and an image that was not found before it is
    /// pulled again; doubles, and is at most 30 times as long.
    pub backoff: Duration,
}

impl NodeOptions {
    /// Options with kubelet's own times; everything on disk is below `root`.
    pub fn new(client: Client, guard: Arc<Guard>, name: &str, root: &Path) -> Self {
        Self {
            client,
            program: vec![IMPORTER.to_owned()],
            images: Images::any(),
            room: Room::default(),
            state_dir: root.join("nodes").join(name),
            storage_root: root.join("storage"),
            name: name.to_owned(),
            guard,
            addresses: AddressPool::new(),
            heartbeat: Duration::from_secs(10),
            backoff: Duration::from_secs(10),
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
    images: Images,
    room: Mutex<Room>,
    state_dir: PathBuf,
    storage_root: PathBuf,
    addresses: AddressPool,
    heartbeat: Duration,
    backoff: Duration,
    link: Link,
    holds: Holds,
    groups: Groups,
    roster: Roster,
    events: PodEvents,
}

impl NodeContext {
    fn new(options: NodeOptions, events: PodEvents) -> Self {
        Self {
            events,
            client: options.client,
            name: options.name,
            program: options.program,
            images: options.images,
            room: Mutex::new(options.room),
            state_dir: options.state_dir,
            storage_root: options.storage_root,
            addresses: options.addresses,
            heartbeat: options.heartbeat,
            backoff: options.backoff,
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
        let (events, writer) = PodEvents::channel();
        let context = Arc::new(NodeContext::new(options, events));
        heartbeat::register(&context)
            .await
            .map_err(|source| NodeError::Register { name: context.name.clone(), source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeat::keep(context.clone()));
        tasks.spawn(writer.run(context.clone()));
        tasks.spawn(roster::follow(context.clone()));
        Ok(Self { context, tasks })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Where the output of a pod's first container goes; exists while the pod does.
    pub fn log(&self, uid: &str) -> PathBuf {
        launch::log_file(&launch::pod_dir(&self.context.state_dir, uid))
    }

    /// Where the same output stays for as long as the cluster does.
    pub fn kept_log(&self, pod: &Pod) -> PathBuf {
        launch::kept_log_file(&self.context.state_dir, pod)
    }

    /// Changes what pods may ask for, as a machine that is resized. Pods that run stay.
    pub async fn resize(&self, room: Room) -> Result<(), NodeError> {
        self.context.set_room(room);
        let name = self.context.name.clone();
        let reported = heartbeat::report_ready(&self.context).await;
        reported.map_err(|source| NodeError::Register { name, source })
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
