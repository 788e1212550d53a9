//! The endpoints over real sockets, and every bound.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tracing_subscriber::EnvFilter;

use super::*;
use crate::args::Build;

struct Running {
    address: SocketAddr,
    is_fine: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn telling(is_fine: &Arc<AtomicBool>) -> Telling {
    let metrics = Arc::new(Metrics::new(Build::of("test-controller")));
    metrics.leader(true);
    let flag = is_fine.clone();
    let loop_check = Check::new("loop", move || {
        if flag.load(Ordering::SeqCst) { Ok(()) } else { Err("silent for 61 s".to_owned()) }
    });
    Telling {
        metrics,
        live: vec![Check::new("watches", || Ok(())), loop_check],
        ready: vec![Check::new("caches", || Err("not synced: jobs".to_owned()))],
        state: Box::new(|| serde_json::json!({"queued": ["lab/a"]})),
        state_anywhere: false,
        log_level: None,
    }
}

async fn running() -> Running {
    running_within(Bounds::default()).await
}

async fn running_within(bounds: Bounds) -> Running {
    let is_fine = Arc::new(AtomicBool::new(true));
    let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), telling(&is_fine)).await.unwrap();
    server.bounds = bounds;
    let (address, stop) = (server.address(), CancellationToken::new());
    let task = tokio::spawn(server.serve(stop.clone()));
    Running { address, is_fine, stop, task }
}

impl Running {
    /// Sends `text` as it is and returns what comes back until the peer closes.
    async fn exchange(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let _ = stream.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"))
            .await
    }
}

#[tokio::test]
async fn livez_fails_when_a_check_fails_and_names_it() {
    let server = running().await;
    let answer = server.get("/livez").await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("[+] watches ok\n[+] loop ok\nok\n"),
        "{answer}"
    );
    server.is_fine.store(false, Ordering::SeqCst);
    let answer = server.get("/livez").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("[-] loop failed: silent for 61 s"), "{answer}");
}

#[tokio::test]
async fn readyz_metrics_and_state_answer() {
    let server = running().await;
    let answer = server.get("/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503")
            && answer.contains("[-] caches failed: not synced: jobs"),
        "{answer}"
    );
    let answer = server.get("/metrics").await;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4")
            && answer.contains("otctl_leader 1"),
        "{answer}"
    );
    assert!(server.get("/debug/state").await.ends_with(r#"{"queued":["lab/a"]}"#));
    assert!(server.get("/").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn it_stops_when_told() {
    let server = running().await;
    server.get("/livez").await;
    server.stop.cancel();
    server.task.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

async fn answer_to(
    peer: Option<&str>,
    method: &str,
    path: &str,
    change: fn(&mut Telling),
) -> StatusCode {
    let mut telling = telling(&Arc::new(AtomicBool::new(true)));
    change(&mut telling);
    let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    if let Some(peer) = peer {
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer.parse().unwrap()));
    }
    routes(Arc::new(telling)).oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn state_and_log_level_are_for_loopback() {
    for (peer, expected) in [
        (Some("127.0.0.1:1"), StatusCode::OK),
        (Some("[::1]:1"), StatusCode::OK),
        (Some("[::ffff:127.0.0.1]:1"), StatusCode::OK),
        (Some("10.0.0.7:1"), StatusCode::FORBIDDEN),
        (Some("[::ffff:10.0.0.7]:1"), StatusCode::FORBIDDEN),
        (None, StatusCode::FORBIDDEN),
    ] {
        assert_eq!(answer_to(peer, "GET", "/debug/state", |_| {}).await, expected, "{peer:?}");
    }
    assert_eq!(
        answer_to(Some("10.0.0.7:1"), "PUT", "/log-level", |_| {}).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(answer_to(Some("10.0.0.7:1"), "GET", "/livez", |_| {}).await, StatusCode::OK);
}

#[tokio::test]
async fn the_flag_opens_the_state_but_not_the_log_level() {
    let open: fn(&mut Telling) = |telling| telling.state_anywhere = true;
    assert_eq!(answer_to(Some("10.0.0.7:1"), "GET", "/debug/state", open).await, StatusCode::OK);
    assert_eq!(
        answer_to(Some("10.0.0.7:1"), "PUT", "/log-level", open).await,
        StatusCode::FORBIDDEN
    );
}

/// The status and text of the answer, and what is logged then.
async fn put_log_level(body: String) -> (StatusCode, String, String) {
    let (_layer, level) = LogLevel::of(EnvFilter::new("info"));
    let mut telling = telling(&Arc::new(AtomicBool::new(true)));
    telling.log_level = Some(level.clone());
    let mut request =
        Request::builder().method("PUT").uri("/log-level").body(Body::from(body)).unwrap();
    request.extensions_mut().insert(ConnectInfo::<SocketAddr>("127.0.0.1:1".parse().unwrap()));
    let answer = routes(Arc::new(telling)).oneshot(request).await.unwrap();
    let status = answer.status();
    let text = axum::body::to_bytes(answer.into_body(), BODY_BYTES).await.unwrap();
    (status, String::from_utf8_lossy(&text).into_owned(), level.now())
}

#[tokio::test]
async fn the_log_level_changes_and_a_wrong_one_keeps_the_old() {
    let (status, text, level) = put_log_level("info,otctl_kit=trace\n".to_owned()).await;
    assert_eq!(
        (status, level.as_str()),
        (StatusCode::OK, "kube_client::client::builder=off,otctl_kit=trace,info"),
        "{text}"
    );
    let (status, text, level) = put_log_level("otctl=loud".to_owned()).await;
    assert_eq!((status, level.as_str()), (StatusCode::BAD_REQUEST, "info"), "{text}");
}

#[tokio::test]
async fn large_bodies_and_headers_are_refused() {
    assert_eq!(put_log_level("x".repeat(BODY_BYTES + 1)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let server = running().await;
    let long =
        format!("GET /livez HTTP/1.1\r\nHost: test\r\nX-Long: {}\r\n\r\n", "x".repeat(20_000));
    assert!(server.exchange(&long).await.starts_with("HTTP/1.1 431"));
    let many = "X-Many: x\r\n".repeat(100);
    assert!(
        server
            .exchange(&format!("GET /livez HTTP/1.1\r\n{many}\r\n"))
            .await
            .starts_with("HTTP/1.1 431")
    );
}

/// Peers that say nothing hold the server's connections; a probe is answered all the same, and the oldest end.
#[tokio::test]
async fn a_flood_does_not_keep_probes_out() {
    let server = running().await;
    let mut silent = Vec::new();
    for _ in 0..Bounds::default().connections {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for _ in 0..3 {
        assert!(server.get("/livez").await.starts_with("HTTP/1.1 200"));
    }
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_secs(5), silent[0].read(&mut byte)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "the oldest connection was not ended: {read:?}");
}

/// Sends `text` and nothing more; true if the server ends the connection in time.
async fn is_ended(bounds: Bounds, text: &str) -> bool {
    let server = running_within(bounds).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.is_ok()
}

#[tokio::test]
async fn a_peer_that_does_not_finish_its_headers_is_dropped() {
    let bounds = Bounds {
        headers: Duration::from_millis(100),
        life: Duration::from_secs(3600),
        ..Bounds::default()
    };
    assert!(is_ended(bounds, "GET /livez HTTP/1.1\r\n").await);
}

#[tokio::test]
async fn an_idle_connection_ends() {
    let bounds = Bounds {
        headers: Duration::from_millis(100),
        life: Duration::from_secs(3600),
        ..Bounds::default()
    };
    assert!(is_ended(bounds, "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n").await);
}

#[tokio::test]
async fn a_connection_ends_with_its_life() {
    let bounds = Bounds {
        headers: Duration::from_secs(3600),
        life: Duration::from_millis(100),
        ..Bounds::default()
    };
    assert!(
        is_ended(bounds, "PUT /log-level HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n")
            .await
    );
}
