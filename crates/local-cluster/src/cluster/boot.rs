//! The way from nothing to a working cluster, in order.

use std::{path::Path, sync::Arc, time::Duration};

use kube::{Client, Config};

use super::Error;
use crate::{
    certificates::Subject,
    control_plane::{self, ControlPlane, Gate, Settings},
    guard::Guard,
    node::{AddressPool, NodeOptions, ProcessNode},
    options::Options,
    ports::ReservedPort,
    programs::{Program, Programs, Sources},
    progress::Progress,
    state_dir::StateDir,
    storage::{self, Storage, StorageOptions},
};

/// What a running cluster consists of. Fields are dropped in this order: each before what it stands on.
pub(super) struct Parts {
    pub(super) nodes: Vec<ProcessNode>,
    pub(super) storage: Option<Storage>,
    pub(super) plane: ControlPlane,
    pub(super) guard: Arc<Guard>,
    pub(super) gate: Gate,
    pub(super) admin: Config,
    pub(super) state: StateDir,
    pub(super) backoff: Duration,
    _port: ReservedPort,
}

/// What must be there before the first process: where it writes, and who ends it.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) state: StateDir,
    pub(super) guard: Arc<Guard>,
}

impl Ground {
    pub(super) fn lay(options: &Options) -> Result<Self, Error> {
        let chosen = options.state_dir.as_deref();
        let state = StateDir::create(chosen).map_err(|source| Error::CreateState {
            path: chosen.map_or_else(std::env::temp_dir, Path::to_owned),
            source,
        })?;
        let guard = Guard::start(options.grace, state.disposable()).map_err(Error::StartGuard)?;
        Ok(Self { state, guard: Arc::new(guard) })
    }
}

pub(super) async fn boot(
    ground: Ground,
    programs: Programs,
    options: Options,
) -> Result<Parts, Error> {
    let Ground { state, guard } = ground;
    let port = ReservedPort::on_loopback().map_err(Error::ReservePort)?;
    let settings = Settings { programs, address: port.address(), node_times: options.node_times };

    options.progress.say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler");
    let gate = control_plane::prepare(&state, settings.address)?;
    let admin = Subject { user: "admin", group: Some("system:masters") };
    let admin = gate.access(admin).map_err(Error::MakeIdentity)?;
    admin.write(&state.kubeconfig("admin"))?;
    let client = admin.client().await?;
    let plane = ControlPlane::start(&state, &settings, &guard, &client).await?;

    let storage = if options.storage { Some(start_storage(&gate, &state).await?) } else { None };
    let nodes = start_nodes(&options, &gate, &state, &guard).await?;
    options.progress.say(&format!("the cluster is ready at {}", gate.server()));
    Ok(Parts {
        nodes,
        storage,
        plane,
        guard,
        gate,
        admin: admin.config().await?,
        state,
        backoff: options.backoff,
        _port: port,
    })
}

pub(super) async fn find_or_build(progress: Progress) -> Result<Programs, Error> {
    let finding = tokio::task::spawn_blocking(move || {
        Sources::from_env()?.find_or_build(&Program::CONTROL_PLANE, &progress)
    });
    Ok(finding.await.map_err(Error::AwaitStart)??)
}

/// Installs the snapshot kinds, a class of each sort, and what serves them.
async fn start_storage(gate: &Gate, state: &StateDir) -> Result<Storage, Error> {
    let subject = Subject { user: "local-cluster:storage", group: Some("system:masters") };
    let client = gate.access(subject).map_err(Error::MakeIdentity)?.client().await?;
    let storage = storage::start(StorageOptions::new(client.clone(), state.storage())).await?;
    storage::create_classes(&client).await?;
    Ok(storage)
}

async fn start_nodes(
    options: &Options,
    gate: &Gate,
    state: &StateDir,
    guard: &Arc<Guard>,
) -> Result<Vec<ProcessNode>, Error> {
    let addresses = AddressPool::new();
    let mut nodes = Vec::new();
    for number in 1..=options.nodes {
        let name = format!("node-{number}");
        let client = node_client(gate, &name).await?;
        let mut node = NodeOptions::new(client, guard.clone(), &name, state.root());
        node.program.clone_from(&options.importer);
        node.images.clone_from(&options.images);
        node.room.clone_from(&options.room);
        node.backoff = options.backoff;
        node.addresses = addresses.clone();
        node.heartbeat = options.node_times.heartbeat;
        nodes.push(ProcessNode::start(node).await?);
    }
    Ok(nodes)
}

/// A node has a node's rights and no more.
async fn node_client(gate: &Gate, name: &str) -> Result<Client, Error> {
    let user = format!("system:node:{name}");
    let subject = Subject { user: &user, group: Some("system:nodes") };
    Ok(gate.access(subject).map_err(Error::MakeIdentity)?.client().await?)
}
