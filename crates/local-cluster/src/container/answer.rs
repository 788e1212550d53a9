//! What is answered to whom.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde::Serialize;
use tokio::sync::mpsc;

use super::Args;

/// What every request sees and may change. Clones share it.
#[derive(Clone)]
pub(super) struct Server {
    state: Arc<Mutex<Answer>>,
    exits: mpsc::UnboundedSender<u8>,
}

/// The answer to any request.
#[derive(Debug, Clone, Serialize)]
struct Answer {
    ready: bool,
    process: u32,
    pod: String,
    arguments: Vec<String>,
    hosts: String,
    disks: BTreeMap<String, String>,
}

impl Server {
    /// One that is ready only if there is nothing to be done before, and where it says with which code to exit.
    pub(super) fn new(args: &Args) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<u8>)> {
        let hosts = args.hosts.as_ref().map(std::fs::read_to_string).transpose();
        let answer = Answer {
            ready: args.disks.is_empty() && args.ready_after.is_zero(),
            process: std::process::id(),
            pod: std::env::var("HOSTNAME").unwrap_or_default(),
            arguments: std::env::args().skip(1).collect(),
            hosts: hosts.context("read the hosts file")?.unwrap_or_default(),
            disks: BTreeMap::new(),
        };
        let (exits, receiver) = mpsc::unbounded_channel();
        Ok((Self { state: Arc::new(Mutex::new(answer)), exits }, receiver))
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.with(|answer| answer.ready = ready);
    }

    pub(super) fn add_disk(&self, file: &Path, sum: String) {
        self.with(|answer| answer.disks.insert(file.display().to_string(), sum));
    }

    pub(super) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Answer) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does what a request orders, if it orders anything.
    fn obey(&self, method: &Method, path: &str) {
        match (method, path) {
            (&Method::PUT, "/ready") => self.set_ready(true),
            (&Method::DELETE, "/ready") => self.set_ready(false),
            (&Method::PUT, path) => {
                if let Some(code) = path.strip_prefix("/exit/").and_then(|it| it.parse().ok()) {
                    // Once is enough.
                    let _ = self.exits.send(code);
                }
            }
            _ => {}
        }
    }
}

async fn answer(State(server): State<Server>, method: Method, uri: Uri) -> Response {
    server.obey(&method, uri.path());
    let answer = server.with(|answer| answer.clone());
    let status = if answer.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(answer)).into_response()
}
