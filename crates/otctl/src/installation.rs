//! What the demo and `up` put on a cluster: the kinds, the policy, each controller's account with exactly the rights of
//! its list, and the controllers as processes of their own under those accounts.

mod controller;
mod guards;
mod rights;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::controller::own_program;
pub use self::controller::{Controller, ControllerProcess, Launch};

/// Where Workspaces are made that say nothing else.
pub const WORKSPACE_NAMESPACE: &str = "labs";

/// Who applies what is installed. Another one than `otctl apply`: what is applied by that later takes no key of the policy
/// away that stands here alone.
const FIELD_MANAGER: &str = "otctl-installation";

/// A new kind is listed by then.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Entries of the policy ConfigMap.
pub type Policy = BTreeMap<String, String>;

/// Installs the kinds, the policy and the controllers' accounts; also the namespaces `others`, in which Workspaces may be
/// made.
///
/// # Errors
/// What could not be applied.
pub async fn apply(client: &Client, policy: Policy, others: &[&str]) -> anyhow::Result<()> {
    apply_kinds(client).await?;
    for name in others.iter().chain([&DEFAULT_NAMESPACE]) {
        let namespace = Namespace { metadata: named(name), ..Namespace::default() };
        apply_object(&Api::all(client.clone()), &namespace).await?;
    }
    apply_policy(client, policy).await?;
    rights::apply(client, others).await
}

/// Refuses what the charts refuse by default: to delete a ledger by mistake, to set the label of workspaces, to ask by a
/// Workspace for what one may not do.
///
/// # Errors
/// When the policies cannot be applied.
pub async fn guard(client: &Client) -> anyhow::Result<()> {
    guards::apply(client).await
}

/// Applies every kind, waits until each is served, and gives their names.
pub(crate) async fn apply_kinds(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let kinds = otctl_types::crds();
    for kind in &kinds {
        apply_object(&api, kind).await?;
    }
    for kind in &kinds {
        let name = kind.name_any();
        let served = await_condition(api.clone(), &name, conditions::is_crd_established());
        served.await.with_context(|| format!("'{name}' was applied but is not served"))?;
        wait_until_listed(client, kind).await?;
    }
    Ok(kinds.iter().map(CustomResourceDefinition::name_any).collect())
}

/// An established kind answers 404 or 429 for a moment longer, until its storage is ready.
async fn wait_until_listed(client: &Client, kind: &CustomResourceDefinition) -> anyhow::Result<()> {
    let (spec, version) = (&kind.spec, &kind.spec.versions[0].name);
    let resource = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&resource, &spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let deadline = Instant::now() + LISTED_WITHIN;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(answer)) if is_early(&answer) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            listed => {
                return listed
                    .map(drop)
                    .with_context(|| format!("'{}' cannot be listed", kind.name_any()));
            }
        }
    }
}

fn is_early(answer: &kube::core::Status) -> bool {
    matches!(answer.code, 404 | 429 | 503)
}

/// Applies the policy; a key that is not among `entries` any more goes back to its default.
///
/// # Errors
/// When the ConfigMap cannot be applied.
pub async fn apply_policy(client: &Client, entries: Policy) -> anyhow::Result<()> {
    let metadata =
        ObjectMeta { namespace: Some(DEFAULT_NAMESPACE.to_owned()), ..named(DEFAULT_POLICY_NAME) };
    let map = ConfigMap { metadata, data: Some(entries), ..ConfigMap::default() };
    apply_object(&Api::namespaced(client.clone(), DEFAULT_NAMESPACE), &map).await
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

async fn apply_object<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: kube::Resource + Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let (kind, name) = (K::KIND, object.name_any());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.map(drop).with_context(|| format!("{kind} '{name}' cannot be applied"))
}
