//! Connections and their bounds. Whatever peers do, the server holds a bounded number of them, each with a
//! bounded buffer and a bounded life.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Open at once. When one more comes the oldest ends: a flood, or scrapers that hang, never keep the kubelet's
    /// probes out, which come, are answered and go within milliseconds.
    pub(super) connections: usize,
    /// From the begin of a connection, or from the last answer, to the end of the next request's headers.
    pub(super) headers: Duration,
    /// A connection ends after this time, idle, busy or stuck in a peer that does not read.
    pub(super) life: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 64, headers: Duration::from_secs(10), life: Duration::from_secs(60) }
    }
}

/// Request line and headers together.
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// After a failed accept, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers connections from `listener` by `routes` until `stop` is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let mut open = Open { bounds, tasks: JoinSet::new(), by_age: VecDeque::new() };
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => open.admit(stream, peer, routes.clone()),
            Err(error) => {
                tracing::warn!(%error, "did not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The open connections, oldest first; all end when this is dropped.
struct Open {
    bounds: Bounds,
    tasks: JoinSet<()>,
    by_age: VecDeque<AbortHandle>,
}

impl Open {
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, routes: Router) {
        while self.tasks.try_join_next().is_some() {}
        self.by_age.retain(|task| !task.is_finished());
        while self.by_age.len() >= self.bounds.connections {
            if let Some(oldest) = self.by_age.pop_front() {
                oldest.abort();
            }
        }
        self.by_age.push_back(self.tasks.spawn(converse(stream, peer, routes, self.bounds)));
    }
}

/// Serves one connection within its bounds.
async fn converse(stream: TcpStream, peer: SocketAddr, routes: Router, bounds: Bounds) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = routes.clone().oneshot(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.headers)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Peers end connections in many ways, and none of them is our concern.
    let _ = tokio::time::timeout(bounds.life, connection).await;
}
