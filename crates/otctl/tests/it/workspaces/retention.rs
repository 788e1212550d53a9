//! An image that workspaces made goes with the last of them, and not before.

use image_server::Content;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Resource as _, ResourceExt as _};
use local_cluster::Options;
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use otctl_types::workspace::Phase;
use serde_json::{Value, json};

use super::LABS;
use super::labs::Labs;
use crate::stage::{until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_workspaces_made_goes_with_the_last_of_them() {
    let mut labs = Labs::set(&[("workspaceConcurrency", "5")], Options::default()).await;
    labs.start();
    let spec = user(&labs);
    for name in ["a", "b", "c"] {
        labs.create(name, spec.clone()).await;
    }
    for name in ["a", "b", "c"] {
        labs.is(name, Phase::Ready).await;
    }
    let first = uid(&labs).await.unwrap();

    // What is made for the first alone goes with it, so by then the garbage collector has seen it go.
    let own = make_own(&labs, "a").await;
    remove(&labs, &["a"]).await;
    until("what was the first one's is collected", async || {
        own.get_opt("own").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(uid(&labs).await, Some(first.clone()), "two more use it");

    // The last two in the same second, nobody there to see it; one more comes while it goes.
    labs.kill().await;
    tokio::join!(labs.delete("b"), labs.delete("c"));
    labs.start();
    labs.create("d", spec.clone()).await;
    tokio::join!(labs.is_gone("b"), labs.is_gone("c"));
    labs.is("d", Phase::Ready).await;
    let second = uid(&labs).await.expect("it is there for the one that came");

    remove(&labs, &["d"]).await;
    until("the image is gone", async || uid(&labs).await.is_none().then_some(())).await;
    println!("{first} was followed by {second}: {}", first != second);
    assert_eq!(labs.stage.images().list(&Default::default()).await.unwrap().items.len(), 0);
    labs.finish_but(|_| false).await;
}

fn user(labs: &Labs) -> Value {
    labs.stage.server.add("shared", Content::generated(SIZE, 1));
    labs.stage.server.behave("shared", well_behaved()).unwrap();
    json!({
        "imageRetention": "Delete",
        "virtualMachines": [{"name": "db", "spec": {
            "VMDiskImageName": "shared",
            "image": {
                "url": labs.stage.server.url("shared"), "sourceType": "http", "diskSize": "1Mi",
                "storageClass": IMMEDIATE_CLASS, "snapshotClass": SNAPSHOT_CLASS,
            },
        }}],
        "containers": [{"name": "web", "image": "example.com/web:1"}],
    })
}

async fn make_own(labs: &Labs, workspace: &str) -> Api<ConfigMap> {
    let owner = labs.workspaces().get(workspace).await.unwrap().owner_ref(&()).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(labs.stage.client.clone(), LABS);
    let metadata = ObjectMeta {
        name: Some("own".to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let own = ConfigMap { metadata, ..ConfigMap::default() };
    maps.create(&PostParams::default(), &own).await.unwrap();
    maps
}

async fn uid(labs: &Labs) -> Option<String> {
    labs.stage.images().get_opt("shared").await.unwrap().and_then(|image| image.uid())
}

async fn remove(labs: &Labs, names: &[&str]) {
    for name in names {
        labs.delete(name).await;
    }
    for name in names {
        labs.is_gone(name).await;
    }
}
