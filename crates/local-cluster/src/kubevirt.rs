//! A stand-in for KubeVirt: its kinds, and what its controllers make of a VirtualMachine as far as others can see it.
//!
//! A machine whose run strategy says so gets a VirtualMachineInstance, and that a virt-launcher pod, which carries the
//! labels of the machine's template and mounts the claims of its volumes. The pod's program reads the disks to their
//! ends and says what they hash to ([`crate::container`]); then the instance is Running. Status, conditions and reasons
//! are worded as KubeVirt 1.9 does, under the account that its controllers have.
//!
//! ```text
//! VirtualMachine ─▶ VirtualMachineInstance ─▶ Pod virt-launcher-NAME-xxxxx
//!   run_strategy       instance_status           launcher
//! ```
//!
//! What does not live here: a guest, instance types and preferences (kept, and without effect), data volumes that CDI
//! would fill, migration, the admission webhooks, start and stop by subresource.

mod account;
mod instance;
mod instance_status;
mod launcher;
mod machine;
mod machine_status;
mod objects;
mod run_strategy;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;

pub use self::launcher::LAUNCHER_IMAGE;
pub use self::objects::{
    Condition, InstanceSpec, InstanceStatus, InstanceTemplate, MachineStatus, StartFailure,
    StateChangeRequest, VirtualMachine, VirtualMachineInstance, VirtualMachineSpec,
};
use crate::kinds::{self, KindError, KindFile};
use crate::kubeconfig::AccessError;

/// Where KubeVirt is installed.
pub const NAMESPACE: &str = "kubevirt";
/// The account of its controllers, in [`NAMESPACE`].
pub const ACCOUNT: &str = "kubevirt-controller";

/// How soon what failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

const FILES: [KindFile; 2] = [
    ("virtualmachines.yaml", include_str!("kubevirt/crds/virtualmachines.yaml")),
    ("virtualmachineinstances.yaml", include_str!("kubevirt/crds/virtualmachineinstances.yaml")),
];

/// Why KubeVirt's stand-in could not be installed, or could not do something.
#[derive(Debug, thiserror::Error)]
pub enum KubeVirtError {
    /// The API server refused something.
    #[error("ask the API server: {0}")]
    AskServer(#[from] kube::Error),
    /// Its kinds are not served.
    #[error(transparent)]
    InstallKinds(#[from] KindError),
    /// Its account has no way in.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// Installs KubeVirt's kinds, without anything that acts on them.
pub async fn install_kinds(client: &Client) -> Result<(), KubeVirtError> {
    Ok(kinds::install(client, &FILES).await?)
}

/// Installs everything: kinds, namespace, account and rights.
pub(crate) async fn install(client: &Client) -> Result<(), KubeVirtError> {
    install_kinds(client).await?;
    account::install(client).await
}

/// What both controllers share.
struct Context {
    client: Client,
    /// How long a machine whose instance failed before it ran waits for the next one; longer each time.
    backoff: Duration,
}

impl Context {
    fn machines(&self, beside: &impl ResourceExt) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    fn instances(&self, beside: &impl ResourceExt) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }
}

/// The running stand-in. Dropping it ends its controllers; what they made stays as it is.
pub struct KubeVirt {
    _tasks: JoinSet<()>,
}

impl KubeVirt {
    /// Starts the controllers on the current runtime. `client` has the account's rights.
    pub(crate) fn start(client: Client, backoff: Duration) -> Self {
        let context = Arc::new(Context { client, backoff });
        let mut tasks = JoinSet::new();
        tasks.spawn(machine::serve_all(context.clone()));
        tasks.spawn(instance::serve_all(context));
        Self { _tasks: tasks }
    }
}

/// What to do about an object over which a pass failed.
fn try_again(object: &impl ResourceExt, error: &KubeVirtError) -> Action {
    match error {
        // Somebody else wrote first: the newer version is on its way.
        KubeVirtError::AskServer(kube::Error::Api(answer)) if answer.is_conflict() => {}
        error => tracing::warn!(%error, object = object.name_any(), "will look at it again"),
    }
    Action::requeue(RETRY)
}
