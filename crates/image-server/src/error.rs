//! What can go wrong before the first request: after that, failing is the point.

use std::{io, net::SocketAddr, path::PathBuf};

/// A server that could not be started, or content that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("cannot listen on '{address}'")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The server answers anybody who asks, so it stays on this machine.
    #[error("refuse to listen on '{0}': not a loopback address")]
    ListenBeyondLoopback(SocketAddr),
    /// The file does not exist or cannot be read to its end.
    #[error("cannot read '{path}'")]
    ReadContent {
        /// The file to be served.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A behaviour or a release was meant for a path that nothing was added for.
    #[error("nothing is served at '{0}'")]
    FindPath(String),
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
