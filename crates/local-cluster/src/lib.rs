//! A real Kubernetes control plane on one machine, without root and without a container runtime.
//!
//! [`LocalCluster::start`] finds or builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler
//! ([`programs`]), makes keys ([`certificates`]), starts them as processes, and adds process nodes ([`node`]) and a
//! provisioner and snapshotter of directories ([`storage`]), and on demand a stand-in for KubeVirt ([`kubevirt`]). Everything listens on loopback or on sockets in the state
//! directory, and ends with its owner, also when that is killed ([`guard`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use local_cluster::{LocalCluster, Options};
//!
//! let cluster = LocalCluster::start(Options::default()).await?;
//! println!("export KUBECONFIG={}", cluster.kubeconfig_path().display());
//! let version = cluster.admin().apiserver_version().await?;
//! assert_eq!(version.minor, "34");
//! cluster.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! What does not live here: anything of otctl's own kinds, and containers.

pub mod audit;
pub mod certificates;
mod cluster;
pub mod container;
mod control_plane;
pub mod guard;
mod kinds;
pub mod kubeconfig;
pub mod kubevirt;
pub mod node;
mod options;
mod ports;
pub mod programs;
mod progress;
mod state_dir;
pub mod storage;

pub use self::{
    cluster::{Error, LocalCluster},
    control_plane::ControlPlaneError,
    kinds::KindError,
    options::{NodeTimes, Options},
    progress::Progress,
};
