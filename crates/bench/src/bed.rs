//! A control plane of this machine with the installation on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use local_cluster::audit::{AuditEntry, Mark, service_account_user};
use local_cluster::programs::Program;
use local_cluster::{LocalCluster, Options, storage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl::installation::{self, Launch};
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{AccessMode, SourceType, VMDiskImageSpec};
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER};

use crate::programs;
use crate::waiting::until;

/// Where images are.
pub(crate) const NAMESPACE: &str = "labs";
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const QUIET_WITHIN: Duration = Duration::from_secs(900);

/// A control plane, and the way in as everybody and as the controller.
pub(crate) struct Bed {
    cluster: LocalCluster,
    pub(crate) client: Client,
    /// The controller's account.
    pub(crate) launch: Launch,
    paused: Vec<Pid>,
}

impl Bed {
    /// With two nodes and storage.
    pub(crate) async fn whole(policy: &[(&str, &str)]) -> anyhow::Result<Self> {
        let otctl = programs::ours("otctl")?.display().to_string();
        let importer = vec![otctl, "run-importer".to_owned()];
        let cluster = LocalCluster::start(Options { importer, ..Options::default() }).await?;
        Self::on(cluster, policy).await
    }

    /// With the API server alone at work: nobody touches what is put there.
    pub(crate) async fn still(policy: &[(&str, &str)]) -> anyhow::Result<Self> {
        let options = Options { nodes: 0, storage: false, ..Options::default() };
        let cluster = LocalCluster::start(options).await?;
        let client = cluster.admin();
        storage::install_crds(&client).await?;
        storage::create_classes(&client).await?;
        let mut bed = Self::on(cluster, policy).await?;
        bed.await_account().await?;
        let others = bed.cluster.process_ids().filter(|(program, _)| {
            matches!(program, Program::KubeControllerManager | Program::KubeScheduler)
        });
        bed.paused = others.map(|(_, id)| Pid::from_raw(id)).collect();
        bed.paused.iter().try_for_each(|process| kill(*process, Signal::SIGSTOP))?;
        Ok(bed)
    }

    async fn on(cluster: LocalCluster, policy: &[(&str, &str)]) -> anyhow::Result<Self> {
        let client = cluster.admin();
        let entries = policy.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        installation::apply(&client, entries.collect(), &[NAMESPACE]).await?;
        cluster.await_right(may_list_images()).await?;
        let launch = Launch::on(&cluster, programs::ours("otctl")?).await?;
        Ok(Self { cluster, client, launch, paused: Vec::new() })
    }

    /// Pods are refused in a namespace without its account.
    async fn await_account(&self) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("the namespace has its account", SETTLED_WITHIN, async || {
            Ok(accounts.get_opt("default").await?.map(drop))
        })
        .await
    }

    /// Waits until the controller has written nothing for so long, its lease left out.
    pub(crate) async fn await_quiet(&self, quiet: Duration) -> anyhow::Result<()> {
        let user = account();
        until("the controller writes no more", QUIET_WITHIN, async || {
            let mark = self.mark()?;
            tokio::time::sleep(quiet).await;
            let since = self.audit(mark)?;
            let mut writes = since.iter().filter(|it| it.user == user && it.is_write());
            Ok(writes.all(|write| write.resource == "leases").then_some(()))
        })
        .await
    }

    /// The end of the audit log.
    pub(crate) fn mark(&self) -> anyhow::Result<Mark> {
        Ok(self.cluster.audit().mark()?)
    }

    /// What everybody asked since then, in the order of the answers.
    pub(crate) fn audit(&self, since: Mark) -> anyhow::Result<Vec<AuditEntry>> {
        let mut entries = self.cluster.audit().since(since)?;
        entries.sort_by_key(|entry| entry.answered_at);
        Ok(entries)
    }

    /// The API server's process.
    pub(crate) fn apiserver(&self) -> Option<i32> {
        let mut processes = self.cluster.process_ids();
        processes.find(|(program, _)| *program == Program::KubeApiserver).map(|(_, id)| id)
    }

    /// A file for what a process says.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state().join("logs").join(format!("{name}.log"))
    }

    fn state(&self) -> &Path {
        self.cluster.state_dir()
    }

    /// Ends everything.
    pub(crate) async fn end(self) {
        for process in &self.paused {
            // One that has ended needs no waking.
            let _ = kill(*process, Signal::SIGCONT);
        }
        self.cluster.shutdown().await;
    }
}

/// The user name of the controller's account.
pub(crate) fn account() -> String {
    service_account_user(DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER)
}

/// A raw disk of 1 MiB without a snapshot, from that address.
pub(crate) fn image(name: &str, url: &str) -> VMDiskImage {
    let spec = VMDiskImageSpec {
        url: url.to_owned(),
        source_type: SourceType::Http,
        access_modes: vec![AccessMode::ReadWriteOnce],
        disk_size: Some("1Mi".to_owned()),
        storage_class: Some(storage::IMMEDIATE_CLASS.to_owned()),
        ..VMDiskImageSpec::default()
    };
    let mut image = VMDiskImage::new(name, spec);
    image.metadata.namespace = Some(NAMESPACE.to_owned());
    image
}

/// The same with a snapshot.
pub(crate) fn snapshotted(name: &str, url: &str) -> VMDiskImage {
    let mut image = image(name, url);
    image.spec.snapshot_class = Some(storage::SNAPSHOT_CLASS.to_owned());
    image
}

/// The API server learns of roles and bindings by watches.
fn may_list_images() -> SubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        group: Some("pelotech.ot".to_owned()),
        resource: Some("vmdiskimages".to_owned()),
        verb: Some("list".to_owned()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(account()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}
