//! The HTTP server of a controller: `/livez`, `/readyz`, `/metrics`, `/debug/state` and `PUT /log-level`. It only reads
//! what others know; how connections are bounded is in `connections`.

mod connections;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

use self::connections::Bounds;
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::telemetry::LogLevel;

/// The largest body is a log filter.
const BODY_BYTES: usize = 4096;
/// Reading a body and answering take no longer than this together.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A named question with the answer "fine" or what is wrong, asked whenever a probe asks.
pub struct Check {
    name: &'static str,
    ask: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    /// A check of that name.
    pub fn new(
        name: &'static str,
        ask: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, ask: Box::new(ask) }
    }
}

type Describe = Box<dyn Fn() -> Value + Send + Sync>;

/// What the server tells, and to whom.
pub struct Telling {
    /// What `/metrics` renders.
    pub metrics: Arc<Metrics>,
    /// All must be fine for `/livez`: a restart heals what they find.
    pub live: Vec<Check>,
    /// All must be fine for `/readyz`.
    pub ready: Vec<Check>,
    /// `/debug/state`: what is queued, held, backing off and why.
    pub state: Describe,
    /// Whether peers other than loopback may read `/debug/state`.
    pub state_anywhere: bool,
    /// What `PUT /log-level` changes; none where another owns the logs.
    pub log_level: Option<LogLevel>,
}

/// A server that listens, but answers only once it [serves](Self::serve).
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    routes: Router,
    bounds: Bounds,
}

impl Server {
    /// Takes the address; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be taken.
    pub async fn bind(address: SocketAddr, telling: Telling) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, routes: routes(Arc::new(telling)), bounds: Bounds::default() })
    }

    /// The address it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        connections::serve(self.listener, self.routes, self.bounds, stop).await;
    }
}

fn routes(telling: Arc<Telling>) -> Router {
    let state = get(debug_state).layer(from_fn_with_state(telling.clone(), state_is_permitted));
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/state", state)
        .route("/log-level", put(log_level).layer(from_fn(loopback_only)))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, ANSWER_DEADLINE))
        .with_state(telling)
}

async fn livez(State(telling): State<Arc<Telling>>) -> Response {
    verdict(&telling.live)
}

async fn readyz(State(telling): State<Arc<Telling>>) -> Response {
    verdict(&telling.ready)
}

/// A line per check, as the API server's own probes answer; 503 when one is not fine.
fn verdict(checks: &[Check]) -> Response {
    let mut status = StatusCode::OK;
    let mut text = String::new();
    for check in checks {
        match (check.ask)() {
            Ok(()) => text.push_str(&format!("[+] {} ok\n", check.name)),
            Err(problem) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                text.push_str(&format!("[-] {} failed: {problem}\n", check.name));
            }
        }
    }
    text.push_str(if status == StatusCode::OK { "ok\n" } else { "failed\n" });
    (status, text).into_response()
}

async fn metrics(State(telling): State<Arc<Telling>>) -> Response {
    match telling.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn debug_state(State(telling): State<Arc<Telling>>) -> Json<Value> {
    Json((telling.state)())
}

async fn log_level(State(telling): State<Arc<Telling>>, filter: String) -> Response {
    let Some(level) = &telling.log_level else {
        return (StatusCode::NOT_FOUND, "logs are not this controller's\n").into_response();
    };
    match level.set(filter.trim()) {
        Ok(()) => (StatusCode::OK, "changed\n").into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn state_is_permitted(
    State(telling): State<Arc<Telling>>,
    request: Request,
    next: Next,
) -> Response {
    if telling.state_anywhere {
        next.run(request).await
    } else {
        loopback_only(request, next).await
    }
}

/// The state names objects of all tenants, and a log level can fill a disk: both are for who may port-forward or exec
/// into the pod. A request without a known peer is refused.
async fn loopback_only(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if peer.is_some_and(|ConnectInfo(peer)| is_loopback(peer.ip())) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "only from loopback: port-forward to the pod\n").into_response()
    }
}

fn is_loopback(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}
