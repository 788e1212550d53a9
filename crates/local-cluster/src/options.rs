//! What a cluster is started with. The defaults are a test's.

use std::{path::PathBuf, time::Duration};

use crate::node::{Images, Room};
use crate::progress::Progress;

/// What a cluster is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where lines about long work go.
    pub progress: Progress,
    /// How many process nodes. With a single node that is lost Kubernetes evicts nothing.
    pub nodes: usize,
    /// Whether there are a provisioner and a snapshotter, and the snapshot kinds that they need.
    pub storage: bool,
    /// The program, with its first arguments, that import pods run as.
    pub importer: Vec<String>,
    /// What other images nodes find.
    pub images: Images,
    /// What pods may ask for on each node.
    pub room: Room,
    /// Where everything is kept, and stays: a directory that is empty or absent. Without one it is temporary.
    pub state_dir: Option<PathBuf>,
    /// How soon a lost node is noticed.
    pub node_times: NodeTimes,
    /// How long a failed container waits before its second restart, and an image that was not found before it is
    /// pulled again; doubles, and is at most 30 times as long.
    pub backoff: Duration,
    /// How long a process may take to end before it is killed.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            progress: Progress::default(),
            nodes: 2,
            storage: true,
            importer: vec!["disk-importer".to_owned()],
            images: Images::any(),
            room: Room::default(),
            state_dir: None,
            node_times: NodeTimes::default(),
            backoff: Duration::from_secs(10),
            grace: Duration::from_secs(3),
        }
    }
}

/// How soon a lost node is noticed. The defaults are Kubernetes' own.
#[derive(Debug, Clone, Copy)]
pub struct NodeTimes {
    /// How often a node renews its lease.
    pub heartbeat: Duration,
    /// How long a node may be silent before it is not ready.
    pub monitor_grace: Duration,
    /// How long a pod stays on a node that is not ready; whole seconds.
    pub eviction_delay: Duration,
}

impl NodeTimes {
    /// For tests that lose nodes: pods are evicted about 10 s later, and a busy machine does not look like a lost node.
    pub fn short() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            monitor_grace: Duration::from_secs(8),
            eviction_delay: Duration::from_secs(1),
        }
    }
}

impl Default for NodeTimes {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            monitor_grace: Duration::from_secs(50),
            eviction_delay: Duration::from_secs(300),
        }
    }
}
