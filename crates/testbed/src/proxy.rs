//! A proxy between one controller process and a real API server, on loopback, where [faults](crate::fault) strike.
//!
//! It ends TLS under an authority of its own and passes on the credentials it is shown, so the server sees the
//! controller's account. It speaks HTTP/1.1 as kube's client does: a connection per watch, and one per request at a
//! time, so that a broken or silent connection concerns one request. Requests are read as far as their line (`route`), watches event
//! by event (`events`). Signals go to the process that was named by [`Proxy::attach`]. Everything that was asked is kept
//! as data ([`Entry`]).

mod events;
mod exchange;
mod log;
mod process;
mod reply;
mod route;
mod tls;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use self::log::{Entry, Outcome};

use self::events::Histories;
use self::exchange::Exchange;
use self::log::Log;
use self::process::Process;
use crate::fault::{Fault, Faults};

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No address to listen at.
    #[error("the proxy has no address")]
    Bind(#[source] io::Error),
    /// The certificate could not be made.
    #[error("the proxy has no certificate")]
    MakeCertificate(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("the proxy's certificate is of no use")]
    UseCertificate(#[from] rustls::Error),
    /// No way to the API server.
    #[error("the proxy cannot reach the API server")]
    BuildClient(#[from] kube::Error),
    /// The kubeconfig cannot be rewritten.
    #[error("cannot rewrite the kubeconfig '{}': {why}", path.display())]
    RewriteKubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The proxy. Dropping it breaks every connection.
pub struct Proxy {
    address: SocketAddr,
    authority: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What all connections share.
struct Shared {
    server: Client,
    faults: Faults,
    log: Log,
    process: Process,
    histories: Histories,
    /// How often everything that is held was let go.
    released: watch::Sender<u64>,
}

impl Proxy {
    /// Starts one in front of the API server of `server`, whose credentials are not used.
    ///
    /// # Errors
    /// When it has no address, no certificate, or no way to the server.
    pub async fn start(server: &Config) -> Result<Self, ProxyError> {
        // An error says that a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::new(server.cluster_url.clone());
        config.root_cert.clone_from(&server.root_cert);
        config.default_retry = false;
        let shared = Arc::new(Shared {
            server: Client::try_from(config)?,
            faults: Faults::default(),
            log: Log::default(),
            process: Process::default(),
            histories: Histories::default(),
            released: watch::Sender::new(0),
        });
        let (acceptor, authority) = tls::acceptor()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(ProxyError::Bind)?;
        let address = listener.local_addr().map_err(ProxyError::Bind)?;
        let accepting = tokio::spawn(accept(listener, acceptor, shared.clone()));
        Ok(Self { address, authority, shared, accepting })
    }

    /// A kubeconfig like `original`, with its credentials, that leads here. It is written next to it.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is no kubeconfig.
    pub fn kubeconfig(&self, original: &Path) -> Result<PathBuf, ProxyError> {
        let wrong = |why: String| ProxyError::RewriteKubeconfig { path: original.to_owned(), why };
        let text = std::fs::read_to_string(original).map_err(|error| wrong(error.to_string()))?;
        let mut config: Value =
            serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let authority = k8s_openapi::ByteString(self.authority.clone().into_bytes());
        for cluster in config["clusters"].as_array_mut().into_iter().flatten() {
            cluster["cluster"] = json!({
                "server": format!("https://{}", self.address),
                "certificate-authority-data": authority,
            });
        }
        let path = original.with_extension(format!("proxy-{}", self.address.port()));
        tls::write_private(&path, &config.to_string()).map_err(|error| wrong(error.to_string()))?;
        Ok(path)
    }

    /// Signals go to this process from now on. After one was killed, nothing passes before the next is attached.
    pub fn attach(&self, id: i32) {
        self.shared.process.attach(id);
    }

    /// One more fault.
    pub fn add(&self, fault: Fault) {
        self.shared.faults.add(fault);
    }

    /// The faults, to see which were met.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Lets go of everything that is held.
    pub fn release(&self) {
        self.shared.released.send_modify(|times| *times += 1);
    }

    /// Everything that was asked so far, in order, and every event that a fault struck.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        self.log_since(0)
    }

    /// The log from this entry on; `0` is the first.
    ///
    /// # Panics
    /// When there are fewer entries.
    #[must_use]
    pub fn log_since(&self, from: usize) -> Vec<Entry> {
        self.shared.log.since(from)
    }

    /// How many entries the log has.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.shared.log.len()
    }

    /// How often faults have struck.
    #[must_use]
    pub fn strikes(&self) -> usize {
        self.shared.log.strikes()
    }

    /// Waits until faults have struck so often. What they do may still be on its way.
    pub async fn struck(&self, times: usize) {
        self.shared.log.struck(times).await;
    }

    /// How many processes its faults have killed.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.shared.process.kills()
    }

    /// Waits until so many were killed.
    pub async fn killed(&self, times: usize) {
        self.shared.process.killed(times).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, acceptor.clone(), shared.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection until it ends; how it ends is its two ends' business.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| Exchange::serve(shared.clone(), request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
