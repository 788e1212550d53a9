//! Installs kinds of other projects, whose definitions are files of ours.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

/// How soon a kind that is not served yet is asked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A file's name, and the definition in it.
pub(crate) type KindFile = (&'static str, &'static str);

/// Why kinds could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// The API server did not take a definition.
    #[error("install a kind: {0}")]
    Install(#[from] kube::Error),
    /// A file is no definition.
    #[error("parse the kind in {file}: {source}")]
    Parse {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API server does not serve it.
    #[error("wait for kind {kind}: {source}")]
    Await {
        /// The definition's name.
        kind: String,
        /// What the watch said.
        source: Box<kube::runtime::wait::Error>,
    },
}

/// Applies every definition and waits until each kind can be listed.
pub(crate) async fn install(client: &Client, files: &[KindFile]) -> Result<(), KindError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("local-cluster").force();
    let kinds = files.iter().map(|file| parse(*file)).collect::<Result<Vec<_>, _>>()?;
    for kind in &kinds {
        api.patch(&kind.name_any(), &params, &Patch::Apply(kind)).await?;
    }
    for kind in kinds {
        let name = kind.name_any();
        await_condition(api.clone(), &name, conditions::is_crd_established())
            .await
            .map_err(|source| KindError::Await { kind: name, source: Box::new(source) })?;
        until_listed(client, &kind).await?;
    }
    Ok(())
}

/// An established kind answers 404 or 429 for a moment longer, until its storage is ready.
async fn until_listed(client: &Client, kind: &CustomResourceDefinition) -> Result<(), kube::Error> {
    let spec = &kind.spec;
    let version = spec.versions.first().map(|version| version.name.as_str()).unwrap_or_default();
    let resource = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&resource, &spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 429 | 503) => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            listed => return listed.map(drop),
        }
    }
}

pub(crate) fn parse((file, yaml): KindFile) -> Result<CustomResourceDefinition, KindError> {
    let tree: serde_json::Value = serde_saphyr::from_str(yaml)
        .map_err(|error| KindError::Parse { file, source: Box::new(error) })?;
    let mut kind: CustomResourceDefinition = serde_json::from_value(tree)
        .map_err(|error| KindError::Parse { file, source: Box::new(error) })?;
    kind.status = None;
    Ok(kind)
}
