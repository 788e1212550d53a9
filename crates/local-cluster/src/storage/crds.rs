//! Installs the snapshot kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

use super::StorageError;

const FILES: [(&str, &str); 3] = [
    ("volumesnapshotclasses.yaml", include_str!("crds/volumesnapshotclasses.yaml")),
    ("volumesnapshotcontents.yaml", include_str!("crds/volumesnapshotcontents.yaml")),
    ("volumesnapshots.yaml", include_str!("crds/volumesnapshots.yaml")),
];

/// Installs the kinds of `snapshot.storage.k8s.io/v1` and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<(), StorageError> {
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("local-cluster").force();
    for (file, yaml) in FILES {
        let kind = parse(file, yaml)?;
        kinds.patch(&kind.name_any(), &params, &Patch::Apply(&kind)).await?;
    }
    for (file, yaml) in FILES {
        let kind = parse(file, yaml)?.name_any();
        await_condition(kinds.clone(), &kind, conditions::is_crd_established())
            .await
            .map_err(|source| StorageError::AwaitKind { kind, source: Box::new(source) })?;
    }
    Ok(())
}

fn parse(file: &'static str, yaml: &str) -> Result<CustomResourceDefinition, StorageError> {
    let tree: serde_json::Value = serde_saphyr::from_str(yaml)
        .map_err(|error| StorageError::ParseKind { file, source: Box::new(error) })?;
    let mut kind: CustomResourceDefinition = serde_json::from_value(tree)
        .map_err(|error| StorageError::ParseKind { file, source: Box::new(error) })?;
    kind.status = None;
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_file_parses() {
        let names =
            FILES.map(|(file, yaml)| parse(file, yaml).map(|kind| kind.spec.names.kind).ok());
        let wanted = ["VolumeSnapshotClass", "VolumeSnapshotContent", "VolumeSnapshot"];
        assert_eq!(names, wanted.map(|name| Some(name.to_owned())));
    }
}
