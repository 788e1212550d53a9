//! What the controller's cache is measured against: reflectors of kube-rs with its defaults, over the same kinds with the
//! same selectors, and nothing else. It decides and writes nothing.

use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;

use anyhow::Context as _;
use diskimage_controller::snapshots::{VolumeSnapshot, VolumeSnapshotClass};
use futures::StreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Lookup};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use otctl_types::names::{
    DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, IMAGE_QUEUE, MANAGED_BY, ROLE_LABEL,
};
use otctl_types::{AdmissionQueue, VMDiskImage};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::cli::PlainArgs;
use crate::out;

/// What it says when all that is there is in its stores.
pub(crate) const READY: &str = "every store is complete";

/// Keeps the stores until it is killed.
pub(crate) async fn run(args: &PlainArgs) -> anyhow::Result<ExitCode> {
    let kubeconfig = Kubeconfig::read_from(&args.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let all = watcher::Config::default;
    let by_role = || all().labels(ROLE_LABEL);
    let made_here = all().labels(&format!("app.kubernetes.io/managed-by={MANAGED_BY}"));
    let only = |name: &str| all().fields(&format!("metadata.name={name}"));
    let policies: Api<ConfigMap> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let stores = [
        reflect::<VMDiskImage>(Api::all(client.clone()), all()),
        reflect::<AdmissionQueue>(Api::all(client.clone()), only(IMAGE_QUEUE)),
        reflect(policies, only(DEFAULT_POLICY_NAME)),
        reflect::<Job>(Api::all(client.clone()), by_role()),
        reflect::<Pod>(Api::all(client.clone()), by_role()),
        reflect::<PersistentVolumeClaim>(Api::all(client.clone()), made_here.clone()),
        reflect::<StorageClass>(Api::all(client.clone()), all()),
        reflect::<VolumeSnapshot>(Api::all(client.clone()), made_here),
        reflect::<VolumeSnapshotClass>(Api::all(client), all()),
    ];
    try_join_all(stores).await?;
    out::line(&READY);
    std::future::pending::<()>().await;
    Ok(ExitCode::SUCCESS)
}

/// Starts a reflector; the task ends when its store is complete, the reflector does not.
fn reflect<K>(api: Api<K>, config: watcher::Config) -> JoinHandle<anyhow::Result<()>>
where
    K: kube::Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Default,
{
    let writer: Writer<K> = Writer::default();
    let store = writer.as_reader();
    let stream = reflector::reflector(writer, watcher(api, config)).default_backoff();
    tokio::spawn(stream.for_each(|_| std::future::ready(())));
    tokio::spawn(async move { store.wait_until_ready().await.context("a reflector ended") })
}
