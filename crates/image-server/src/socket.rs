//! One accepted socket: small buffers, input read ahead so that the peer's close
//! is seen at any time, and the two ways to end.

use std::{
    io::{self, ErrorKind},
    mem::MaybeUninit,
    net::Shutdown,
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::behaviour::CutKind;

/// What is asked of the kernel for a send buffer, in bytes; Linux doubles it for
/// its own bookkeeping. What was written and not yet received stays within it
/// and the peer's receive buffer, so an interrupted download costs little more
/// than what its client has read.
const SEND_BUFFER: usize = 64 * 1024;

/// More unread input than this is no HTTP client.
const INBOX_LIMIT: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    inbox: Vec<u8>,
}

impl Socket {
    /// Takes over an accepted stream.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: Arc::new(stream), inbox: Vec::new() })
    }

    pub(crate) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// What was received and not yet taken.
    pub(crate) fn inbox(&self) -> &[u8] {
        &self.inbox
    }

    /// Takes `count` bytes off the inbox.
    pub(crate) fn take(&mut self, count: usize) {
        self.inbox.drain(..count);
    }

    /// Waits for more input; false once there will be none.
    pub(crate) async fn receive(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            if self.inbox.len() > INBOX_LIMIT || self.stream.readable().await.is_err() {
                return false;
            }
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.inbox.extend_from_slice(&buffer[..count]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits until the peer closes. A peer that only ends its own side counts as
    /// gone: no client of images does that and reads on.
    pub(crate) async fn gone(&mut self) {
        while self.receive().await {}
    }

    /// Ends the connection.
    pub(crate) async fn close(mut self, kind: CutKind) {
        match kind {
            // Closing while input is unread would turn the FIN into an RST, so
            // it is read until the peer closes too.
            CutKind::Graceful => {
                if SockRef::from(&*self.stream).shutdown(Shutdown::Write).is_ok() {
                    self.gone().await;
                }
            }
            CutKind::Abort => {
                if let Err(error) = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO)) {
                    tracing::warn!(%error, "connection is ended by FIN instead of RST");
                }
            }
        }
    }
}

/// Writes a head; bodies go through the tally.
pub(crate) async fn send(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the peer has closed, seen without taking input or waiting.
pub(crate) fn peer_is_gone(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(stream).peek(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair() -> (Socket, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::new(listener.accept().await.unwrap().0).unwrap(), peer)
    }

    #[tokio::test]
    async fn the_send_buffer_is_at_most_128_kib() {
        let (socket, _peer) = pair().await;
        let size = SockRef::from(&**socket.stream()).send_buffer_size().unwrap();
        assert!(size <= 128 * 1024, "{size}");
    }

    #[tokio::test]
    async fn a_peer_is_gone_once_it_has_closed() {
        let (mut socket, peer) = pair().await;
        assert!(!peer_is_gone(socket.stream()));
        drop(peer);
        socket.gone().await;
        assert!(peer_is_gone(socket.stream()));
    }
}
