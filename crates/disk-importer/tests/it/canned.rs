//! A server that says whatever it is told, however wrong that is. For what no real server would
//! send; what real ones do wrong is `image_server`'s matter.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// What is written after the head of a request has come.
#[derive(Clone)]
pub(crate) struct Saying {
    /// Written once.
    pub(crate) first: Vec<u8>,
    /// Written for ever after that, until the peer has enough.
    pub(crate) endless: Option<Vec<u8>>,
}

pub(crate) struct Canned {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    written: Arc<Mutex<u64>>,
    _server: AbortOnDropHandle<()>,
}

impl Saying {
    pub(crate) fn once(text: impl Into<Vec<u8>>) -> Self {
        Self { first: text.into(), endless: None }
    }

    pub(crate) fn endlessly(first: impl Into<Vec<u8>>, then: impl Into<Vec<u8>>) -> Self {
        Self { first: first.into(), endless: Some(then.into()) }
    }
}

impl Canned {
    /// Says the next of `sayings` to each connection, the last one again and again.
    pub(crate) async fn saying(sayings: Vec<Saying>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, written) = (Arc::default(), Arc::default());
        let (heads, bytes) = (Arc::clone(&requests), Arc::clone(&written));
        let server = tokio::spawn(async move {
            let mut nth = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let saying = sayings[nth.min(sayings.len() - 1)].clone();
                nth += 1;
                tokio::spawn(say(stream, saying, Arc::clone(&heads), Arc::clone(&bytes)));
            }
        });
        Self { address, requests, written, _server: AbortOnDropHandle::new(server) }
    }

    pub(crate) async fn once(text: impl Into<Vec<u8>>) -> Self {
        Self::saying(vec![Saying::once(text)]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/image?X-Amz-Signature=canary", self.address)
    }

    /// The heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// How many bytes were handed to sockets so far.
    pub(crate) fn written(&self) -> u64 {
        *self.written.lock().unwrap()
    }
}

async fn say(
    mut stream: TcpStream,
    saying: Saying,
    requests: Arc<Mutex<Vec<String>>>,
    written: Arc<Mutex<u64>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    requests.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let mut next = Some(saying.first.as_slice());
    while let Some(bytes) = next {
        if stream.write_all(bytes).await.is_err() {
            return;
        }
        *written.lock().unwrap() += bytes.len() as u64;
        next = saying.endless.as_deref();
    }
    let _ = stream.shutdown().await;
    // Closing with unread bytes would tear what was written out of the peer's hands.
    let _ = stream.read_u8().await;
}
