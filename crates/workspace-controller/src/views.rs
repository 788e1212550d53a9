//! What the controller watches: one store per kind, and for what is made in the listed namespaces one per namespace.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use otctl_kit::store::{Key, Scoped, Store};
use otctl_types::names::WORKSPACE_QUEUE;
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};

use crate::grounds::Grounds;
use crate::machines::VirtualMachine;

/// Every store of this controller. Clones share the stores.
#[derive(Clone)]
pub struct Views {
    /// All workspaces.
    pub workspaces: Store<Workspace>,
    /// The ledger of workspaces; no other queue.
    pub queues: Store<AdmissionQueue>,
    /// The policy ConfigMap; no other.
    pub policies: Store<ConfigMap>,
    /// Disk images.
    pub images: Scoped<VMDiskImage>,
    /// Network policies, also those of others: they may widen ours.
    pub networks: Scoped<NetworkPolicy>,
    /// Services.
    pub services: Scoped<Service>,
    /// Deployments.
    pub deployments: Scoped<Deployment>,
    /// Pods of workspaces, by label.
    pub pods: Scoped<Pod>,
    /// Claims.
    pub claims: Scoped<PersistentVolumeClaim>,
    /// KubeVirt's machines, where it is installed.
    pub machines: Scoped<VirtualMachine>,
    /// What was found out about namespaces.
    pub grounds: Grounds,
}

/// The key of the ledger of workspaces.
pub fn queue_key() -> Key {
    Key::new("", WORKSPACE_QUEUE)
}

impl Views {
    /// Empty stores for these namespaces.
    pub fn new(namespaces: &[String]) -> Self {
        fn scoped<K>(namespaces: &[String]) -> Scoped<K>
        where
            K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
        {
            Scoped::new(namespaces.iter().cloned())
        }
        Self {
            workspaces: Store::default(),
            queues: Store::default(),
            policies: Store::default(),
            images: scoped(namespaces),
            networks: scoped(namespaces),
            services: scoped(namespaces),
            deployments: scoped(namespaces),
            pods: scoped(namespaces),
            claims: scoped(namespaces),
            machines: scoped(namespaces),
            grounds: Grounds::default(),
        }
    }

    /// The ledger as last seen.
    pub fn queue(&self) -> Option<Arc<AdmissionQueue>> {
        self.queues.get(&queue_key())
    }
}
