//! A collector of traces that keeps what it is sent, as bytes. It speaks as much gRPC as an exporter needs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An empty message, not compressed.
const EMPTY: &[u8] = &[0; 5];

/// A collector on loopback. Dropping it ends it.
pub(super) struct Collector {
    address: SocketAddr,
    kept: Kept,
    accepting: JoinHandle<()>,
}

type Kept = Arc<Mutex<Vec<u8>>>;

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, kept) = (listener.local_addr().unwrap(), Kept::default());
        let accepting = tokio::spawn(accept(listener, kept.clone()));
        Self { address, kept, accepting }
    }

    /// What a process needs in its environment to send its traces here.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{}", self.address))]
    }

    /// Everything that was sent; names and values of spans are readable in it.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock().unwrap()).into_owned()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, kept: Kept) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, kept.clone()));
    }
}

async fn serve(stream: TcpStream, kept: Kept) {
    let service = service_fn(move |request| keep(request, kept.clone()));
    let connection = http2::Builder::new(TokioExecutor::new());
    // Who is killed does not say goodbye.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

async fn keep(
    request: Request<Incoming>,
    kept: Kept,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    if let Ok(body) = request.into_body().collect().await {
        kept.lock().unwrap().extend_from_slice(&body.to_bytes());
    }
    let trailers = HeaderMap::from_iter([(
        "grpc-status".parse().expect("it is a name"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(Bytes::from_static(EMPTY)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    Ok(response)
}
