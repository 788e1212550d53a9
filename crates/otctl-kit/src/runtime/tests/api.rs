//! As much of an API server as a runtime needs: ConfigMaps to list and watch, one Lease with a resourceVersion.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode};
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// The server; cheap to clone.
#[derive(Clone)]
pub(super) struct Api {
    world: Arc<Mutex<World>>,
    /// Counts the writes of the lease.
    lease_writes: Arc<watch::Sender<u64>>,
}

struct World {
    maps: Vec<Value>,
    lease: Option<Value>,
    version: u64,
    lists_fail: bool,
}

impl Api {
    pub(super) fn with_maps(names: &[&str]) -> Self {
        let maps = names.iter().map(|name| {
            json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}})
        });
        let world = World { maps: maps.collect(), lease: None, version: 10, lists_fail: false };
        Self { world: Arc::new(Mutex::new(world)), lease_writes: Arc::default() }
    }

    /// A client as [`crate::kube_cluster::client`] makes one, without the wire.
    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    pub(super) fn fail_lists(&self, fail: bool) {
        self.world.lock().unwrap().lists_fail = fail;
    }

    /// The holder that the lease names; none without a lease.
    pub(super) fn holder(&self) -> Option<String> {
        let world = self.world.lock().unwrap();
        world.lease.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    pub(super) fn take_lease_as(&self, holder: &str) {
        let mut world = self.world.lock().unwrap();
        world.version += 1;
        let version = world.version.to_string();
        let lease = world.lease.as_mut().expect("somebody made the lease");
        lease["spec"]["holderIdentity"] = holder.into();
        lease["metadata"]["resourceVersion"] = version.into();
    }

    /// Waits until the lease was written three times from now: time passed for everybody.
    pub(super) async fn renewed(&self) {
        let mut writes = self.lease_writes.subscribe();
        let now = *writes.borrow();
        timeout(Duration::from_secs(60), writes.wait_for(|writes| *writes >= now + 3))
            .await
            .unwrap()
            .unwrap();
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path();
        if path.ends_with("/configmaps") {
            let query = head.uri.query().unwrap_or_default();
            return match () {
                () if query.contains("sendInitialEvents=") => self.initial_events(),
                () if query.contains("watch=") => silence(Vec::new()),
                () => self.list(),
            };
        }
        assert_eq!(
            path.trim_end_matches("/test-controller"),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
        );
        self.lease(&head.method, &body)
    }

    fn list(&self) -> Response<Body> {
        let world = self.world.lock().unwrap();
        if world.lists_fail {
            return refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        answer(
            &json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "10"}, "items": world.maps}),
        )
    }

    /// All objects, the bookmark after them, and then nothing.
    fn initial_events(&self) -> Response<Body> {
        let world = self.world.lock().unwrap();
        if world.lists_fail {
            return refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        let added = world.maps.iter().map(|map| json!({"type": "ADDED", "object": map}));
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let end = json!({"type": "BOOKMARK", "object": {
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"resourceVersion": "10", "annotations": annotations},
        }});
        silence(added.chain([end]).map(|event| format!("{event}\n")).collect())
    }

    fn lease(&self, method: &Method, body: &Bytes) -> Response<Body> {
        let mut world = self.world.lock().unwrap();
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match (method.as_str(), &world.lease) {
            ("GET" | "PUT", None) => return refusal(StatusCode::NOT_FOUND, "NotFound"),
            ("GET", Some(_)) | ("PATCH", Some(_)) => {}
            ("PATCH", None) => world.store(sent()),
            ("PUT", Some(held)) => {
                let sent = sent();
                if sent["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"] {
                    return refusal(StatusCode::CONFLICT, "Conflict");
                }
                world.store(sent);
                self.lease_writes.send_modify(|writes| *writes += 1);
            }
            (method, _) => panic!("a lease is never changed by {method}"),
        }
        answer(world.lease.as_ref().expect("it was stored"))
    }
}

impl World {
    fn store(&mut self, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease);
    }
}

/// A watch that tells this and in which nothing happens then.
fn silence(told: Vec<String>) -> Response<Body> {
    let told = futures::stream::iter(told).map(|line| Ok::<_, Infallible>(Bytes::from(line)));
    Response::new(Body::from_stream(told.chain(futures::stream::pending()).boxed()))
}

fn answer(value: &Value) -> Response<Body> {
    Response::new(Body::from(value.to_string()))
}

fn refusal(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap()
}
