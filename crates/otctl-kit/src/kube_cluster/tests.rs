//! What each request looks like on the wire, and what becomes of answers that do not come, or come broken.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::cluster::erase;

/// What the server was sent: method and path, content type, body.
type Sent = (String, String, Value);

#[derive(Clone, Default)]
struct Server {
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Server {
    /// A cluster whose server answers everything with this.
    fn answering(&self, code: u16, body: &str) -> KubeCluster {
        let (server, body) = (self.clone(), body.to_owned());
        let answer = move |request: http::Request<Body>| {
            let (server, body) = (server.clone(), body.clone());
            async move {
                server.keep(request).await;
                let body = Full::new(Bytes::from(body));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        };
        KubeCluster::new(
            Client::new(service_fn(answer), "default"),
            "diskimage-controller",
            Deadlines::default(),
        )
    }

    async fn keep(&self, request: http::Request<Body>) {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let content =
            head.headers.get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
        let line = format!("{} {}", head.method, head.uri);
        self.sent.lock().unwrap().push((
            line,
            content,
            serde_json::from_slice(&body).unwrap_or_default(),
        ));
    }

    /// Sends one request and returns what arrived.
    async fn sent(request: Request) -> Sent {
        let server = Self::default();
        server.answering(200, &job("a").to_string()).call(request).await.unwrap();
        let sent = server.sent.lock().unwrap();
        assert_eq!(sent.len(), 1);
        sent[0].clone()
    }
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "lab", "resourceVersion": "5"}})
}

fn erased() -> Box<DynamicObject> {
    Box::new(serde_json::from_value(job("a")).unwrap())
}

fn target() -> Target {
    Target::new::<Job>(Some("lab"), "a")
}

const JOBS: &str = "/apis/batch/v1/namespaces/lab/jobs";
const MANAGER: &str = "fieldManager=diskimage-controller";

#[tokio::test]
async fn each_write_has_its_verb_its_path_and_our_name() {
    let (line, _, body) = Server::sent(Request::Create(erased())).await;
    assert_eq!((line, body), (format!("POST {JOBS}?&{MANAGER}"), job("a")));
    let (line, content, _) = Server::sent(Request::Apply(erased())).await;
    assert_eq!(
        (line, content.as_str()),
        (format!("PATCH {JOBS}/a?&force=true&{MANAGER}"), "application/apply-patch+yaml")
    );
    let (line, ..) = Server::sent(Request::Replace(erased())).await;
    assert_eq!(line, format!("PUT {JOBS}/a?&{MANAGER}"));
    let (line, ..) = Server::sent(Request::ReplaceStatus(erased())).await;
    assert_eq!(line, format!("PUT {JOBS}/a/status?&{MANAGER}"));
    let patch = json!({"metadata": {"resourceVersion": "5"}, "status": {"phase": null}});
    let (line, content, body) =
        Server::sent(Request::PatchStatus { target: target(), patch: patch.clone() }).await;
    assert_eq!(
        (line, content.as_str()),
        (format!("PATCH {JOBS}/a/status?&{MANAGER}"), "application/merge-patch+json")
    );
    assert_eq!(body, patch);
    let patch = json!({"metadata": {"resourceVersion": "5", "finalizers": []}});
    let (line, content, body) =
        Server::sent(Request::Patch { target: target(), patch: patch.clone() }).await;
    assert_eq!(
        (line, content.as_str()),
        (format!("PATCH {JOBS}/a?&{MANAGER}"), "application/merge-patch+json")
    );
    assert_eq!(body, patch);
}

#[tokio::test]
async fn what_is_stripped_goes_by_its_place_and_at_its_version_alone() {
    let (uid, resource_version) = ("u-1".to_owned(), "5".to_owned());
    let places = vec!["/spec/ports/1".to_owned(), "/spec/ports/0".to_owned()];
    let request = Request::Strip { target: target(), uid, resource_version, places };
    let (line, content, body) = Server::sent(request).await;
    assert_eq!(
        (line, content.as_str()),
        (format!("PATCH {JOBS}/a?&{MANAGER}"), "application/json-patch+json")
    );
    let want = json!([
        {"op": "replace", "path": "/metadata/uid", "value": "u-1"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
        {"op": "remove", "path": "/spec/ports/1"},
        {"op": "remove", "path": "/spec/ports/0"},
    ]);
    assert_eq!(body, want);
}

#[tokio::test]
async fn a_deletion_carries_its_preconditions() {
    let resource_version = Some("5".to_owned());
    let propagation = Propagation::Foreground;
    let request =
        Request::Delete { target: target(), uid: "u-1".to_owned(), resource_version, propagation };
    let (line, _, body) = Server::sent(request).await;
    assert_eq!(line, format!("DELETE {JOBS}/a?"));
    let want = json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "u-1", "resourceVersion": "5"}});
    assert_eq!(body, want);
}

#[tokio::test]
async fn a_deletion_is_done_or_shows_what_is_left_of_the_object() {
    let request = || Request::Delete {
        target: target(),
        uid: "u-1".to_owned(),
        resource_version: None,
        propagation: Propagation::Background,
    };
    let status = json!({"kind": "Status", "metadata": {}, "status": "Success"}).to_string();
    let done = Server::default().answering(200, &status).call(request()).await;
    assert!(matches!(done, Ok(Answer::Done)), "{done:?}");
    let left = Server::default().answering(200, &job("a").to_string()).call(request()).await;
    let Ok(Answer::Object(object)) = left else { panic!("{left:?}") };
    assert_eq!(object.metadata.resource_version.as_deref(), Some("5"));
}

#[tokio::test]
async fn absence_is_an_answer_to_a_read_and_a_failure_of_a_write() {
    let not_found = json!({"kind": "Status", "reason": "NotFound", "message": "jobs \"a\" not found", "code": 404}).to_string();
    let cluster = Server::default().answering(404, &not_found);
    assert!(matches!(cluster.call(Request::Get(target())).await, Ok(Answer::Absent)));
    assert!(matches!(cluster.call(Request::Apply(erased())).await, Err(ApiError::NotFound { .. })));
}

#[tokio::test]
async fn a_list_is_read_to_its_end_and_its_items_know_their_type() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    let answer = move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let token = if query.contains("continue") { "" } else { "more" };
        log.lock().unwrap().push(query);
        let page = json!({"metadata": {"continue": token}, "items": [{"metadata": {"name": "a"}}]});
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(page.to_string())))) }
    };
    let cluster =
        KubeCluster::new(Client::new(service_fn(answer), "default"), "x", Deadlines::default());
    let request = Request::List {
        resource: ApiResource::erase::<Job>(&()),
        namespace: None,
        selector: "a=b".to_owned(),
    };
    let Answer::Objects(objects) = cluster.call(request).await.unwrap() else { panic!() };
    assert_eq!(
        objects.iter().map(Target::of).map(|target| target.to_string()).collect::<Vec<_>>(),
        ["Job a", "Job a"]
    );
    let asked = asked.lock().unwrap();
    assert!(
        asked
            .iter()
            .all(|query| query.contains("limit=500") && query.contains("labelSelector=a%3Db")),
        "{asked:?}"
    );
    assert_eq!(
        asked.iter().map(|query| query.contains("continue=more")).collect::<Vec<_>>(),
        [false, true]
    );
}

#[tokio::test]
async fn an_answer_that_ends_early_tells_nothing_and_a_strange_one_is_unreadable() {
    let ask = async |body: &str| {
        Server::default().answering(200, body).call(Request::Get(target())).await.unwrap_err()
    };
    assert!(matches!(ask("{\"metadata\": {\"name\"").await, ApiError::Unknown { .. }));
    assert!(matches!(ask("{\"metadata\": 7}").await, ApiError::Unreadable { .. }));
}

fn silent() -> Client {
    let hang = |_: http::Request<Body>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    };
    Client::new(service_fn(hang), "default")
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_waited_for_until_the_deadline_of_its_kind() {
    let cluster = KubeCluster::new(silent(), "x", Deadlines::default());
    let took = async |request| {
        let started = tokio::time::Instant::now();
        assert!(cluster.call(request).await.unwrap_err().is_unknown());
        started.elapsed().as_secs()
    };
    assert_eq!(took(Request::Create(erased())).await, 15);
    let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
    assert_eq!(took(Request::Replace(erase(&Lease { metadata, ..Lease::default() }))).await, 3);
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_bounded_and_reads_and_leases_do_not_wait_behind_them() {
    let (inside, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, total) = (inside.clone(), asked.clone());
    let answer = move |request: http::Request<Body>| {
        let is_job_write =
            request.method() != http::Method::GET && request.uri().path().contains("jobs");
        if is_job_write {
            count.fetch_add(1, Ordering::SeqCst);
        }
        total.fetch_add(1, Ordering::SeqCst);
        async move {
            if is_job_write {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(job("a").to_string()))))
        }
    };
    let cluster = Arc::new(KubeCluster::new(
        Client::new(service_fn(answer), "default"),
        "x",
        Deadlines::default(),
    ));
    for _ in 0..200 {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.call(Request::Create(erased())).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(inside.load(Ordering::SeqCst), WRITES_IN_FLIGHT);
    cluster.call(Request::Get(target())).await.unwrap();
    let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
    cluster.call(Request::Replace(erase(&Lease { metadata, ..Lease::default() }))).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), WRITES_IN_FLIGHT + 2);
}

/// Over a real connection, because the retries that must not be there are in kube's own stack.
#[tokio::test]
async fn a_request_that_the_server_cannot_serve_is_sent_once() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let hits = Arc::new(AtomicUsize::new(0));
    let count = hits.clone();
    let busy = move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")], "busy") }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server =
        tokio::spawn(
            async move { axum::serve(listener, axum::Router::new().fallback(busy)).await },
        );
    let cluster = KubeCluster::new(client(Config::new(url)).unwrap(), "x", Deadlines::default());
    assert!(cluster.call(Request::Create(erased())).await.unwrap_err().is_unknown());
    assert_eq!(hits.load(Ordering::SeqCst), 1);
    server.abort();
}

#[tokio::test]
async fn every_request_is_counted_by_verb_and_code() {
    let metrics = Arc::new(Metrics::new(crate::args::Build::of("test")));
    let absent = json!({"kind": "Status", "reason": "NotFound", "code": 404}).to_string();
    let cluster = Server::default().answering(404, &absent).counted_in(metrics.clone());
    cluster.call(Request::Get(target())).await.unwrap();
    assert!(
        metrics.render().unwrap().contains("otctl_api_requests_total{code=\"404\",verb=\"get\"} 1")
    );
}
