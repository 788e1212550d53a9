//! A real HTTP server on a loopback port, for what is in the client's own stack: its retries and its deadlines.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::status;

/// What it does with a create after it has carried it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It answers this instead, once.
    Refuse(u16),
    /// It never answers.
    Hold,
}

/// Creates objects, gives them out, and counts.
pub(crate) struct Loopback {
    address: SocketAddr,
    world: Arc<Mutex<World>>,
    asked: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct World {
    objects: Vec<Value>,
    requests: Vec<Method>,
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Loopback {
    pub(crate) async fn start(after: After) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (world, count) = (Arc::<Mutex<World>>::default(), watch::Sender::new(0));
        let (asked, shared) = (count.subscribe(), world.clone());
        let answer = move |method: Method, uri: Uri, body: Bytes| {
            let reply = shared.lock().unwrap().answer(&method, &uri, &body, after);
            count.send_modify(|count| *count += 1);
            async move {
                match reply {
                    Some(reply) => reply,
                    None => std::future::pending().await,
                }
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            axum::serve(listener, Router::new().fallback(answer)).await.unwrap();
        });
        Self { address, world, asked, task }
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    /// A client as kube-rs makes it.
    pub(crate) fn plain(&self) -> Client {
        Client::try_from(self.config()).unwrap()
    }

    /// A client as the kit makes it.
    pub(crate) fn kit(&self) -> Client {
        otctl_kit::kube_cluster::client(self.config()).unwrap()
    }

    /// How often that method was used.
    pub(crate) fn count(&self, method: &Method) -> usize {
        self.world.lock().unwrap().requests.iter().filter(|each| *each == method).count()
    }

    pub(crate) fn objects(&self) -> usize {
        self.world.lock().unwrap().objects.len()
    }

    /// Waits until something was asked.
    pub(crate) async fn heard(&mut self) {
        let heard = self.asked.wait_for(|asked| *asked > 0);
        drop(tokio::time::timeout(Duration::from_secs(60), heard).await.unwrap().unwrap());
    }
}

impl World {
    /// None to hold the answer.
    fn answer(
        &mut self,
        method: &Method,
        uri: &Uri,
        body: &[u8],
        after: After,
    ) -> Option<Response> {
        self.requests.push(method.clone());
        match *method {
            Method::POST => self.create(body, after),
            _ => {
                let name = uri.path().rsplit('/').next().unwrap_or_default();
                let found = self.objects.iter().find(|object| object["metadata"]["name"] == name);
                Some(found.map_or_else(|| reply(404, &status(404)), |found| reply(200, found)))
            }
        }
    }

    fn create(&mut self, body: &[u8], after: After) -> Option<Response> {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        let number = self.objects.len();
        if let Some(prefix) = object["metadata"]["generateName"].as_str() {
            object["metadata"]["name"] = format!("{prefix}{number}").into();
        }
        let name = &object["metadata"]["name"];
        if self.objects.iter().any(|other| other["metadata"]["name"] == *name) {
            let mut taken = status(409);
            taken["reason"] = "AlreadyExists".into();
            return Some(reply(409, &taken));
        }
        object["metadata"]["uid"] = format!("u-{number}").into();
        object["metadata"]["resourceVersion"] = "7".into();
        self.objects.push(object.clone());
        match after {
            After::Hold => None,
            After::Refuse(code) if number == 0 => Some(reply(code, &status(code))),
            After::Refuse(_) => Some(reply(201, &object)),
        }
    }
}

fn reply(code: u16, body: &Value) -> Response {
    let headers = [("content-type", "application/json"), ("retry-after", "0")];
    (StatusCode::from_u16(code).unwrap(), headers, json!(body).to_string()).into_response()
}
