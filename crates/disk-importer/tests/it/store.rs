//! A real object store in the test's own process: it verifies signatures, serves files of a
//! directory, and stands behind a gate that remembers every request and can cut or refuse it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::host::MultiDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub(crate) const KEY_ID: &str = "AKIDCANARY";
pub(crate) const SECRET: &str = "sesame/canary+secret";
pub(crate) const BUCKET: &str = "lab-images";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What the store demands besides what every store does.
#[derive(Default)]
pub(crate) struct Demands {
    /// Anybody may read; else only who has the key.
    pub(crate) is_public: bool,
    /// The session token that goes with the key.
    pub(crate) session_token: Option<&'static str>,
    /// Domains under which a bucket is a host, without their port.
    pub(crate) domains: Vec<&'static str>,
}

pub(crate) struct Store {
    pub(crate) address: SocketAddr,
    directory: TempDir,
    gate: Arc<Gate>,
    _server: AbortOnDropHandle<()>,
}

/// What passes the gate.
struct Gate {
    service: S3Service,
    session_token: Option<&'static str>,
    requests: Mutex<Vec<http::HeaderMap>>,
    /// After how many bytes the next bodies are cut.
    cuts: Mutex<VecDeque<usize>>,
}

impl Store {
    pub(crate) async fn start(demands: Demands) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::new(Gate {
            service: service(directory.path(), &demands, address.port()),
            session_token: demands.session_token,
            requests: Mutex::default(),
            cuts: Mutex::default(),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&gate)));
        Self { address, directory, gate, _server: AbortOnDropHandle::new(server) }
    }

    /// Puts an object there.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.directory.path().join(BUCKET).join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// The next bodies end after so many bytes each, without the connection's good order.
    pub(crate) fn cut_after(&self, bytes: &[usize]) {
        self.gate.cuts.lock().unwrap().extend(bytes);
    }

    /// The heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<http::HeaderMap> {
        self.gate.requests.lock().unwrap().clone()
    }
}

fn service(root: &Path, demands: &Demands, port: u16) -> S3Service {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    if !demands.is_public {
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
    }
    if !demands.domains.is_empty() {
        let domains: Vec<_> = demands.domains.iter().map(|name| format!("{name}:{port}")).collect();
        builder.set_host(MultiDomain::new(&domains).unwrap());
    }
    builder.build()
}

async fn serve(listener: TcpListener, gate: Arc<Gate>) {
    while let Ok((stream, _)) = listener.accept().await {
        let gate = Arc::clone(&gate);
        let service = service_fn(move |request| {
            let gate = Arc::clone(&gate);
            async move { Ok::<_, Infallible>(gate.pass(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A cut body ends the connection with an error, as it should.
            let _ = connection.await;
        });
    }
}

impl Gate {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        let headers = request.headers().clone();
        self.requests.lock().unwrap().push(headers.clone());
        let token = headers.get("x-amz-security-token").and_then(|value| value.to_str().ok());
        if self.session_token.is_some() && token != self.session_token {
            let body = "<Error><Code>InvalidToken</Code><Message>canary</Message></Error>";
            let body = Full::new(Bytes::from(body)).map_err(io::Error::other).boxed_unsync();
            return Response::builder().status(400).body(body).unwrap();
        }
        let response = Service::call(&self.service, request).await.unwrap();
        let cut = self.cuts.lock().unwrap().pop_front().unwrap_or(usize::MAX);
        response.map(|body| Limited::new(body, cut).map_err(io::Error::other).boxed_unsync())
    }
}
