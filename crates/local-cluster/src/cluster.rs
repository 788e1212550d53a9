//! A running cluster: what it hands out, and how it begins and ends. Its parts live in modules of their own.

mod boot;
mod starting;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    runtime::{conditions::Condition, wait::await_condition},
};
use tokio::{runtime::Runtime, sync::OnceCell, task::JoinError, time::Instant};

use self::starting::Starting;
use crate::{
    audit::{AuditLog, service_account_user},
    certificates::Subject,
    control_plane::ControlPlaneError,
    kubeconfig::{Access, AccessError, Credentials, service_account_token},
    kubevirt::{self, KubeVirt, KubeVirtError},
    node::{NodeError, ProcessNode},
    options::Options,
    programs::{Program, ProgramsError},
    storage::{Storage, StorageError},
};

/// How long the cluster may take to act on a new namespace or role. Usually well below a second.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Why a cluster did not start, or could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program cannot be had.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// The state directory cannot be used.
    #[error("cannot use '{}' as the state directory, which must be empty or absent", path.display())]
    CreateState {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The guard cannot be started.
    #[error("cannot start the guard process")]
    StartGuard(#[source] io::Error),
    /// There is no free port.
    #[error("cannot reserve a port")]
    ReservePort(#[source] io::Error),
    /// The cluster's own runtime cannot be started.
    #[error("cannot start a runtime")]
    StartRuntime(#[source] io::Error),
    /// The starting task was lost.
    #[error("the task that starts the cluster did not end")]
    AwaitStart(#[source] JoinError),
    /// The control plane did not start.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// There is no way in.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A client certificate cannot be made.
    #[error("cannot make a client certificate")]
    MakeIdentity(#[source] rcgen::Error),
    /// A process node did not start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Storage did not start.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// KubeVirt cannot be installed.
    #[error(transparent)]
    KubeVirt(#[from] KubeVirtError),
    /// A namespace cannot be created.
    #[error("cannot create a namespace")]
    CreateNamespace(#[source] kube::Error),
    /// The controllers did not take up a new namespace.
    #[error("namespace '{0}' has no service account after {SETTLED_WITHIN:?}")]
    AwaitNamespace(String),
    /// The API server did not review a right.
    #[error("cannot ask the API server for a right")]
    ReviewRight(#[source] kube::Error),
    /// A right was not granted.
    #[error("'{:?}' is not granted after {SETTLED_WITHIN:?}", .0)]
    AwaitRight(Box<SubjectAccessReviewSpec>),
}

/// A control plane with nodes and storage, on loopback only. Dropping it ends all of it and blocks until that is done.
pub struct LocalCluster {
    parts: boot::Parts,
    /// Nodes and storage run here and not on the caller's runtime, which in a test ends with the first test.
    background: Background,
}

impl LocalCluster {
    /// Starts a cluster and returns when it works. The first start on a machine may have to build programs.
    ///
    /// Dropping this before it is done ends what it has started, and blocks until that has ended, as dropping the
    /// cluster does.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let background = Background::start()?;
        let finding = boot::find_or_build(options.progress.clone());
        let programs = background.runtime().spawn(finding).await.map_err(Error::AwaitStart)??;
        Starting::begin(background, programs, options)?.finish().await
    }

    /// The cluster that all tests of one binary share; the first to ask starts it. Each test uses namespaces of its own
    /// ([`LocalCluster::namespace`]). It ends when the test binary does.
    pub async fn shared(options: impl FnOnce() -> Options) -> Result<&'static Self, Error> {
        static SHARED: OnceCell<LocalCluster> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(options())).await
    }

    /// A client that may do everything, as `admin` of group `system:masters`. Lives as long as the current runtime.
    pub fn admin(&self) -> Client {
        Client::try_from(self.admin_config()).expect("it built a client when the cluster started")
    }

    /// What [`LocalCluster::admin`] is built from. Requests are not retried.
    pub fn admin_config(&self) -> Config {
        self.parts.admin.clone()
    }

    /// A kubeconfig for programs, with the rights of [`LocalCluster::admin`].
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.parts.state.kubeconfig("admin")
    }

    /// A client for any user or group, by a client certificate.
    pub async fn client_as(&self, subject: Subject<'_>) -> Result<Client, Error> {
        let access = self.parts.gate.access(subject).map_err(Error::MakeIdentity)?;
        Ok(access.client().await?)
    }

    /// A client with the rights of a service account that exists. Its requests are not retried.
    pub async fn service_account_client(&self, ns: &str, name: &str) -> Result<Client, Error> {
        Ok(self.service_account_access(ns, name).await?.client().await?)
    }

    /// What [`LocalCluster::service_account_client`] is built from.
    pub async fn service_account_config(&self, ns: &str, name: &str) -> Result<Config, Error> {
        Ok(self.service_account_access(ns, name).await?.config().await?)
    }

    /// A kubeconfig for programs, with the rights of a service account that exists.
    pub async fn service_account_kubeconfig(&self, ns: &str, name: &str) -> Result<PathBuf, Error> {
        let path = self.parts.state.kubeconfig(&format!("{ns}.{name}"));
        self.service_account_access(ns, name).await?.write(&path)?;
        Ok(path)
    }

    /// A new namespace whose name begins with `prefix`, once pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let admin = self.admin();
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let created = Api::all(admin.clone()).create(&PostParams::default(), &namespace).await;
        let name = created.map_err(Error::CreateNamespace)?.metadata.name.unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, &name);
        let appears = await_condition(accounts, "default", is_present());
        match tokio::time::timeout(SETTLED_WITHIN, appears).await {
            Ok(Ok(_)) => Ok(name),
            Ok(Err(_)) | Err(_) => Err(Error::AwaitNamespace(name)),
        }
    }

    /// Waits until the API server grants what the review asks for.
    ///
    /// It learns of new roles and bindings through watches, and refuses for a moment what they grant already.
    pub async fn await_right(&self, spec: SubjectAccessReviewSpec) -> Result<(), Error> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.admin());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let deadline = Instant::now() + SETTLED_WITHIN;
        while Instant::now() < deadline {
            let answer = reviews.create(&PostParams::default(), &review).await;
            if answer.map_err(Error::ReviewRight)?.status.is_some_and(|status| status.allowed) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Error::AwaitRight(Box::new(review.spec)))
    }

    /// What was asked of the API server.
    pub fn audit(&self) -> AuditLog {
        AuditLog::at(self.parts.state.audit_log())
    }

    /// Installs KubeVirt's kinds and runs a stand-in for its controllers, under their own account, until the result is
    /// dropped. Its machines run on nodes that know [`LAUNCHER_IMAGE`](crate::kubevirt::LAUNCHER_IMAGE).
    pub async fn install_kubevirt(&self) -> Result<KubeVirt, Error> {
        kubevirt::install(&self.admin()).await?;
        self.await_right(launchers()).await?;
        let config = self.service_account_config(kubevirt::NAMESPACE, kubevirt::ACCOUNT).await?;
        let backoff = self.parts.backoff;
        // A client lives as long as the runtime it is built on.
        let starting = self.background.runtime().spawn(async move {
            Ok(KubeVirt::start(
                Client::try_from(config).map_err(AccessError::BuildClient)?,
                backoff,
            ))
        });
        starting.await.map_err(Error::AwaitStart)?
    }

    /// The API server's URL.
    pub fn apiserver_url(&self) -> &str {
        self.parts.gate.server()
    }

    /// The process nodes.
    pub fn nodes(&self) -> &[ProcessNode] {
        &self.parts.nodes
    }

    /// Provisioner and snapshotter, if the cluster has them.
    pub fn storage(&self) -> Option<&Storage> {
        self.parts.storage.as_ref()
    }

    /// Where keys, logs, kubeconfigs and volumes are.
    pub fn state_dir(&self) -> &Path {
        self.parts.state.root()
    }

    /// The control plane's programs with their process ids.
    pub fn process_ids(&self) -> impl Iterator<Item = (Program, i32)> {
        self.parts.plane.process_ids()
    }

    /// Kills a program of the control plane as a crash would, and starts it again. It may take a moment until it works.
    pub async fn restart(&mut self, program: Program) -> Result<(), Error> {
        Ok(self.parts.plane.restart(program).await?)
    }

    /// The process id of the guard, which ends everything when this process is gone.
    pub fn guard_id(&self) -> u32 {
        self.parts.guard.id()
    }

    /// Ends everything and removes a temporary state directory, without blocking the runtime.
    pub async fn shutdown(self) {
        if let Err(error) = tokio::task::spawn_blocking(move || drop(self)).await {
            tracing::warn!(%error, "could not wait for the cluster's end");
        }
    }

    async fn service_account_access(&self, ns: &str, name: &str) -> Result<Access, Error> {
        let token = service_account_token(self.admin(), ns, name).await?;
        Ok(self.parts.gate.with(Credentials::Token(token)))
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.parts.nodes.clear();
        drop(self.parts.storage.take());
        if let Err(error) = self.parts.guard.end() {
            tracing::warn!(%error, "could not wait for the guard");
        }
        self.parts.plane.reap();
        self.background.stop();
    }
}

/// The right that KubeVirt's controllers are given last.
fn launchers() -> SubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        verb: Some("create".to_owned()),
        resource: Some("pods".to_owned()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(service_account_user(kubevirt::NAMESPACE, kubevirt::ACCOUNT)),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

fn is_present<K>() -> impl Condition<K> {
    |object: Option<&K>| object.is_some()
}

/// A runtime that may be dropped anywhere: dropping a plain one inside another panics.
struct Background(Option<Runtime>);

impl Background {
    fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("local-cluster")
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(Error::StartRuntime)?)))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken by stop only")
    }

    fn stop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}
