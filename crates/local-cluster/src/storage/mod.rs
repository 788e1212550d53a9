//! Storage for a local cluster: directory volumes and snapshots of them.
//!
//! The provisioner makes a directory (for `volumeMode: Block`, a sparse file) per claim and deletes
//! it with the volume; binding is the business of the real controller-manager. The snapshotter
//! stands for the snapshot controller and a driver's sidecar in one: it copies the bytes present at
//! the moment it is asked, so that a snapshot taken too early shows. A new volume may be a copy of a
//! snapshot, or of another claim's volume.
//!
//! What does not live here: enforcement of a volume's size, topology (every node of the machine
//! reaches every volume), snapshots of pre-provisioned contents, groups of snapshots.

mod api_objects;
mod classes;
mod copy;
mod crds;
mod error;
mod faults;
mod finalizers;
mod origin;
mod place;
mod provisioner;
mod quantity;
mod snapshot_problem;
mod snapshot_records;
mod snapshotter;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

pub use api_objects::{
    SnapshotError, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSource,
    VolumeSnapshotContentSpec, VolumeSnapshotContentStatus, VolumeSnapshotSource,
    VolumeSnapshotSpec, VolumeSnapshotStatus,
};
pub use classes::{
    DRIVER, IMMEDIATE_CLASS, SNAPSHOT_CLASS, WAITING_CLASS, create_classes, snapshot_class,
    storage_classes,
};
pub use crds::install_crds;
pub use error::StorageError;
pub use place::{VolumePlace, read_volume};

use copy::Copier;
use faults::Faults;

/// How storage is started.
pub struct StorageOptions {
    /// A client that may do everything with volumes, claims and snapshots.
    pub client: Client,
    /// Volumes and snapshots live below.
    pub root: PathBuf,
    /// How long a snapshot or claim that cannot be served waits until it is looked at again.
    pub retry: Duration,
}

impl StorageOptions {
    /// Options with a retry that suits tests.
    pub fn new(client: Client, root: PathBuf) -> Self {
        Self { client, root, retry: Duration::from_secs(1) }
    }
}

/// What provisioner and snapshotter share.
struct StorageContext {
    client: Client,
    root: PathBuf,
    retry: Duration,
    faults: Faults,
    copier: Copier,
}

impl StorageContext {
    fn snapshot_path(&self, content: &str) -> PathBuf {
        self.root.join("snapshots").join(content)
    }

    fn volume_path(&self, volume: &str) -> PathBuf {
        self.root.join("volumes").join(volume)
    }
}

/// Running storage. Dropping it ends its tasks and copies under way; what is on disk stays.
pub struct Storage {
    context: Arc<StorageContext>,
    tasks: JoinSet<()>,
}

/// Installs the snapshot kinds and starts provisioner and snapshotter. Classes are the caller's
/// choice: see [`create_classes`].
pub async fn start(options: StorageOptions) -> Result<Storage, StorageError> {
    for dir in ["volumes", "snapshots"] {
        let path = options.root.join(dir);
        tokio::fs::create_dir_all(&path)
            .await
            .map_err(|source| StorageError::PrepareDirectory { path, source })?;
    }
    install_crds(&options.client).await?;
    let context = Arc::new(StorageContext {
        client: options.client,
        root: options.root,
        retry: options.retry,
        faults: Faults::default(),
        copier: Copier::default(),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(provisioner::provision(context.clone()));
    tasks.spawn(provisioner::reclaim(context.clone()));
    tasks.spawn(snapshotter::take_snapshots(context.clone()));
    tasks.spawn(snapshotter::release_contents(context.clone()));
    Ok(Storage { context, tasks })
}

impl Storage {
    /// The directory that holds every volume.
    pub fn root(&self) -> &Path {
        &self.context.root
    }

    /// Where the volume of a bound claim is: a directory, for a Block volume a file.
    pub async fn read_volume(&self, namespace: &str, claim: &str) -> Result<PathBuf, StorageError> {
        read_volume(&self.context.client, namespace, claim).await
    }

    /// Stops storage and waits until its tasks are gone.
    pub async fn shutdown(mut self) {
        self.context.copier.stop();
        self.tasks.shutdown().await;
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.context.copier.stop();
    }
}

/// Faults that a test can command, each for the snapshots of one namespace.
impl Storage {
    /// Snapshots become ready only this long after their bytes were copied.
    pub fn delay_ready(&self, namespace: &str, delay: Duration) {
        self.context.faults.delay_ready(namespace, delay);
    }

    /// The next `count` attempts to copy a snapshot's bytes fail with `message`.
    pub fn fail_next(&self, namespace: &str, count: usize, message: &str) {
        self.context.faults.fail_next(namespace, count, message);
    }

    /// Copied snapshots do not become ready until [`Storage::release_ready`].
    pub fn hold_ready(&self, namespace: &str) {
        self.context.faults.hold(namespace, true);
    }

    /// Ends [`Storage::hold_ready`].
    pub fn release_ready(&self, namespace: &str) {
        self.context.faults.hold(namespace, false);
    }
}
