//! An object store that verifies signatures, from a Secret in the cluster to a disk; and images that are compressed as
//! a whole, whose size only `diskSize` may tell.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use image_server::{ImageServer, fixtures};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use local_cluster::Options;
use otctl_types::condition::{ACCEPTED, STALLED, find};
use otctl_types::diskimage::{Phase, SourceType, VMDiskImageStatus};
use otctl_types::{VMDiskImage, import::Compression};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::stage::{NAMESPACE, Stage, ready_reason, status};

const KEY_ID: &str = "AKIDCANARY";
const SECRET: &str = "sesame/canary+secret";
const WRONG: &str = "wrong/canary+secret";
const MIB: u64 = 1 << 20;

/// A store of one bucket, whose objects are files.
struct Store {
    address: SocketAddr,
    bucket: TempDir,
    server: JoinHandle<()>,
}

impl Store {
    async fn start() -> Self {
        let bucket = tempfile::tempdir().unwrap();
        fs::create_dir(bucket.path().join("images")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(bucket.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, bucket, server: tokio::spawn(serve(listener, builder.build())) }
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.bucket.path().join("images").join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn url(&self, key: &str) -> String {
        format!("http://{}/images/{key}", self.address)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, service: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            let _ = connection.await;
        });
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

async fn stage_with(store: &Store) -> Stage {
    let server = Arc::new(ImageServer::start().await.unwrap());
    let hosts = format!("http://{},http://{}", server.address(), store.address);
    let policy = [("allowedSourceHosts", hosts.as_str()), ("concurrency", "2")];
    let stage = Stage::set_with(server, &policy, Options::default()).await;
    for (name, secret) in [("store", SECRET), ("wrong", WRONG)] {
        let secret = serde_json::from_value::<Secret>(json!({
            "metadata": {"name": name},
            "stringData": {"accessKeyId": KEY_ID, "secretKey": secret, "region": "eu-west-1"},
        }));
        let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret.unwrap()).await.unwrap();
    }
    stage
}

fn image(stage: &Stage, name: &str, url: &str, secret: &str) -> VMDiskImage {
    let mut image = stage.image_of(name, url);
    image.spec.source_type = SourceType::S3;
    image.spec.secret_ref = Some(secret.to_owned());
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_store_is_asked_with_the_keys_of_the_secret() {
    let store = Store::start().await;
    store.put("labs/151/attacker 1+1.qcow2", fixtures::ZLIB.bytes);
    store.put("attacker.qcow2.gz", &gzip(fixtures::PLAIN.bytes));
    store.put("attacker.raw.gz", &gzip(fixtures::DISK.bytes().unwrap()));
    let mut stage = stage_with(&store).await;
    let plain = store.url("labs/151/attacker%201+1.qcow2");
    stage.create(&image(&stage, "plain", &plain, "store")).await;
    stage.create(&image(&stage, "wrong-key", &plain, "wrong")).await;
    stage.create(&image(&stage, "packed", &store.url("attacker.qcow2.gz"), "store")).await;
    let mut unsized_disk = image(&stage, "unsized", &store.url("attacker.raw.gz"), "store");
    unsized_disk.spec.disk_size = None;
    stage.create(&unsized_disk).await;
    stage.start_controller();

    for name in ["plain", "packed"] {
        expect_disk(&status(&stage.await_phase(name, Phase::Succeeded).await), MIB);
    }
    let packed = status(&stage.read("packed").await).source.unwrap();
    assert_eq!(packed.compression, Some(Compression::Gzip), "{packed:?}");
    expect_forbidden(&status(&stage.await_phase("wrong-key", Phase::Failed).await));
    expect_size_asked_for(&status(&stage.await_phase("unsized", Phase::Failed).await));
    stage.patch("unsized", &json!({"spec": {"diskSize": "2Mi"}})).await;
    expect_disk(&status(&stage.await_phase("unsized", Phase::Succeeded).await), 2 * MIB);
    stage.finish().await;
}

#[track_caller]
fn expect_disk(status: &VMDiskImageStatus, size: u64) {
    let disk = status.current.as_ref().and_then(|current| current.disk_checksum.as_deref());
    assert_eq!(disk, Some(&*format!("sha256:{}", fixtures::DISK.sha256_at(size))), "{status:#?}");
}

#[track_caller]
fn expect_forbidden(status: &VMDiskImageStatus) {
    assert_eq!((ready_reason(status), status.attempts.len()), ("Forbidden", 1), "{status:#?}");
    assert_eq!(find(&status.conditions, STALLED).unwrap().reason, "Forbidden");
    let message = status.message.as_deref().unwrap_or_default();
    assert!(message.contains("secretKey"), "{message}");
}

#[track_caller]
fn expect_size_asked_for(status: &VMDiskImageStatus) {
    let accepted = find(&status.conditions, ACCEPTED).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "SizeUnknown"));
    assert!(accepted.message.contains("diskSize"), "{}", accepted.message);
}
