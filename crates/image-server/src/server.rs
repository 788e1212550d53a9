//! The listener and what its owner can ask and change while it runs.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    behaviour::Behaviour,
    connection::Connection,
    content::Content,
    error::{Error, Result},
    site::Site,
    socket::Socket,
    tally::{Counts, Exchange, Totals},
};

/// A running server. Dropping it ends its connections soon;
/// [`shutdown`](Self::shutdown) waits until they have ended.
#[derive(Debug)]
pub struct ImageServer {
    address: SocketAddr,
    site: Arc<Site>,
    /// Dropped to stop; it never carries a value.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ImageServer {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Listens on this loopback address, for example that of a server that was
    /// shut down.
    ///
    /// # Errors
    /// When the address is taken, or not a loopback address.
    pub async fn start_at(address: SocketAddr) -> Result<Self> {
        if !address.ip().is_loopback() {
            return Err(Error::ListenBeyondLoopback(address));
        }
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let site = Arc::new(Site::default());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(listener, Arc::clone(&site), stopped));
        Ok(Self { address, site, stop, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of `path` for a client.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{}", self.address, key(path))
    }

    /// Serves `content` at `path`, from the next request on. Adding to a path
    /// that is served replaces its content and keeps its behaviour.
    pub fn add(&self, path: &str, content: Content) {
        self.site.add(key(path), content);
    }

    /// Replaces what is left of the path's behaviour, from the next request on.
    ///
    /// # Errors
    /// When nothing was added at `path`.
    pub fn behave(&self, path: &str, behaviour: Behaviour) -> Result<()> {
        self.site.behave(&key(path), behaviour)
    }

    /// Gives `path` another entity tag, from the next request on.
    ///
    /// # Errors
    /// When nothing was added at `path`.
    pub fn change_etag(&self, path: &str) -> Result<()> {
        self.site.change_etag(&key(path))
    }

    /// Lets everything that is stalled at `path` go on.
    ///
    /// # Errors
    /// When nothing was added at `path`.
    pub fn release(&self, path: &str) -> Result<()> {
        self.site.release(&key(path))
    }

    /// The numbers of `path`; all zero if it was never asked for.
    #[must_use]
    pub fn counts(&self, path: &str) -> Counts {
        *self.watch(path).borrow()
    }

    /// The numbers of all paths together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        *self.watch_totals().borrow()
    }

    /// The numbers of `path` as they change, for progress bars and for tests
    /// that wait for a number.
    #[must_use]
    pub fn watch(&self, path: &str) -> watch::Receiver<Counts> {
        self.site.tally.watch(&key(path))
    }

    /// The numbers of all paths together as they change.
    #[must_use]
    pub fn watch_totals(&self) -> watch::Receiver<Totals> {
        self.site.tally.watch_totals()
    }

    /// Every request so far in the order they came, the last 10 000 that have
    /// ended and those underway.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.site.tally.exchanges()
    }

    /// Ends every connection and waits until all have ended.
    pub async fn shutdown(self) -> Totals {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "accepting connections failed");
        }
        *self.site.tally.watch_totals().borrow()
    }
}

/// Paths begin with one slash, however they are written.
fn key(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

async fn accept(listener: TcpListener, site: Arc<Site>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted.and_then(|(stream, _)| Socket::new(stream)) {
                Ok(socket) => {
                    let site = Arc::clone(&site);
                    connections.spawn(Connection { socket, number, site }.serve());
                    number += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of descriptors, most likely: others have to end first.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
        }
    }
    connections.shutdown().await;
}
