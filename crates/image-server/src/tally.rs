//! Every number of the server, under one lock.
//!
//! The lock is held while bytes are handed to a socket, which cannot block: the
//! sockets are non-blocking. So whoever has received a byte finds it counted,
//! and nobody sees a transfer open that has had its last byte.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{net::TcpStream, sync::watch};

use crate::{
    request::{Asked, RequestKind},
    socket,
};

/// How many ended exchanges are remembered.
const REMEMBERED: usize = 10_000;

/// Numbers of a path, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of any method whose head was understood.
    pub requests: u64,
    /// GETs that ask for byte 0 and more than 64 KiB.
    pub downloads: u64,
    /// GETs for a bounded range of at most 64 KiB.
    pub probes: u64,
    /// Body bytes handed to sockets.
    pub bytes: u64,
    /// Those of `bytes` that answered probes.
    pub probe_bytes: u64,
    /// Transfers now open: from the first body byte that is written until the
    /// last one is, or the peer or the server ends the connection.
    pub open_now: usize,
    /// Those of `open_now` that do not answer probes.
    pub open_data: usize,
}

/// The numbers of the whole server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sums over all paths.
    pub counts: Counts,
    /// The most transfers that were open at once.
    pub most_open: usize,
    /// The most transfers that were open at once, probes left out.
    pub most_open_data: usize,
}

/// One request and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The connection it came by, counted from 0 in the order of accepting.
    pub connection: u64,
    /// The path that was asked for.
    pub path: String,
    /// What it is for.
    pub kind: RequestKind,
    /// Which bytes.
    pub asked: Asked,
    /// The status that was answered, if any was.
    pub status: Option<u16>,
    /// Body bytes handed to the socket.
    pub bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Exchange {
    /// A download is a data request that asks for byte 0, whatever was answered.
    #[must_use]
    pub fn is_download(&self) -> bool {
        self.kind == RequestKind::Data && self.asked.starts_at_zero()
    }
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has not.
    Underway,
    /// Everything that was announced is written.
    Complete,
    /// The server ended it before everything announced was written.
    Cut,
    /// The peer closed before everything was written.
    PeerClosed,
    /// The server was shut down, or its content could not be read.
    Abandoned,
}

/// All numbers. Cheap to read, and to wait on through its watch channels.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    paths: BTreeMap<String, watch::Sender<Counts>>,
    totals: watch::Sender<Totals>,
    underway: BTreeMap<u64, Underway>,
    ended: VecDeque<(u64, Exchange)>,
    next: u64,
}

#[derive(Debug)]
struct Underway {
    exchange: Exchange,
    stream: Arc<TcpStream>,
    /// Body bytes still to be written, should nothing come between.
    remaining: u64,
    open: bool,
}

impl Tally {
    pub(crate) fn watch(&self, path: &str) -> watch::Receiver<Counts> {
        self.lock().path(path).subscribe()
    }

    pub(crate) fn watch_totals(&self) -> watch::Receiver<Totals> {
        self.lock().totals.subscribe()
    }

    /// What was asked so far, in the order of asking.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let state = self.lock();
        let underway = state.underway.iter().map(|(id, entry)| (*id, entry.exchange.clone()));
        let mut all: Vec<_> = state.ended.iter().cloned().chain(underway).collect();
        all.sort_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, exchange)| exchange).collect()
    }

    /// Counts a request whose answer will have `length` body bytes.
    pub(crate) fn begin(
        self: &Arc<Self>,
        exchange: Exchange,
        stream: &Arc<TcpStream>,
        length: u64,
    ) -> Counted {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.count(&exchange.path, |counts| {
            counts.requests += 1;
            counts.probes += u64::from(exchange.kind == RequestKind::Probe);
            counts.downloads += u64::from(exchange.is_download());
        });
        let stream = Arc::clone(stream);
        state.underway.insert(id, Underway { exchange, stream, remaining: length, open: false });
        Counted { tally: Arc::clone(self), id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the numbers")
    }
}

/// An exchange that is being counted; dropped without an outcome it is
/// [`Outcome::Abandoned`], so that a task that is ended leaves nothing open.
#[derive(Debug)]
pub(crate) struct Counted {
    tally: Arc<Tally>,
    id: u64,
}

impl Counted {
    /// Hands body bytes to the socket and counts what it took.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.tally.lock();
        let entry = &state.underway[&self.id];
        let written = entry.stream.try_write(bytes)?;
        state.wrote(self.id, written as u64);
        Ok(written)
    }

    /// The exchange is over.
    pub(crate) fn end(self, outcome: Outcome) {
        self.tally.lock().end(self.id, outcome);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tally.lock().end(self.id, Outcome::Abandoned);
    }
}

impl State {
    fn path(&mut self, path: &str) -> &watch::Sender<Counts> {
        self.paths.entry(path.to_owned()).or_default()
    }

    fn count(&mut self, path: &str, change: impl Fn(&mut Counts)) {
        self.path(path).send_modify(&change);
        self.totals.send_modify(|totals| {
            change(&mut totals.counts);
            totals.most_open = totals.most_open.max(totals.counts.open_now);
            totals.most_open_data = totals.most_open_data.max(totals.counts.open_data);
        });
    }

    fn wrote(&mut self, id: u64, written: u64) {
        if written > 0 && !self.underway[&id].open {
            self.close_deserted();
            self.set_open(id, true);
        }
        let entry = self.underway.get_mut(&id).expect("an exchange being counted is underway");
        entry.exchange.bytes += written;
        entry.remaining = entry.remaining.saturating_sub(written);
        let (path, kind) = (entry.exchange.path.clone(), entry.exchange.kind);
        let is_over = entry.remaining == 0;
        self.count(&path, |counts| {
            counts.bytes += written;
            counts.probe_bytes += if kind == RequestKind::Probe { written } else { 0 };
        });
        if is_over {
            self.set_open(id, false);
        }
    }

    /// Closes every transfer whose peer is gone, whether or not its own task has
    /// come to see it. Without this a transfer that begins right after another
    /// client died would be counted together with it, on a busy machine only.
    fn close_deserted(&mut self) {
        let open = self.underway.iter().filter(|(_, entry)| entry.open);
        let deserted = open.filter(|(_, entry)| socket::peer_is_gone(&entry.stream));
        let ids: Vec<u64> = deserted.map(|(id, _)| *id).collect();
        for id in ids {
            self.set_open(id, false);
        }
    }

    fn set_open(&mut self, id: u64, open: bool) {
        let entry = self.underway.get_mut(&id).expect("an exchange being counted is underway");
        if entry.open == open {
            return;
        }
        entry.open = open;
        let is_data = entry.exchange.kind == RequestKind::Data;
        let path = entry.exchange.path.clone();
        self.count(&path, |counts| {
            step(&mut counts.open_now, open);
            if is_data {
                step(&mut counts.open_data, open);
            }
        });
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        if !self.underway.contains_key(&id) {
            return;
        }
        self.set_open(id, false);
        let entry = self.underway.remove(&id).expect("looked up above");
        self.ended.push_back((id, Exchange { outcome, ..entry.exchange }));
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

fn step(number: &mut usize, up: bool) {
    *number = if up { *number + 1 } else { *number - 1 };
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Arc::new(listener.accept().await.unwrap().0), peer)
    }

    fn begin(tally: &Arc<Tally>, stream: &Arc<TcpStream>, length: u64) -> Counted {
        let exchange = Exchange {
            connection: 0,
            path: "/a".to_owned(),
            kind: RequestKind::Data,
            asked: Asked::Whole,
            status: Some(200),
            bytes: 0,
            outcome: Outcome::Underway,
        };
        tally.begin(exchange, stream, length)
    }

    async fn write(counted: &Counted, stream: &TcpStream, bytes: &[u8]) {
        stream.writable().await.unwrap();
        assert_eq!(counted.write(bytes).unwrap(), bytes.len());
    }

    /// Nothing runs here that could have seen the first peer leave.
    #[tokio::test]
    async fn a_transfer_is_not_counted_with_one_whose_peer_is_gone() {
        let tally = Arc::new(Tally::default());
        let ((first, peer), (second, _peer)) = (pair().await, pair().await);
        let (one, two) = (begin(&tally, &first, 100), begin(&tally, &second, 100));
        write(&one, &first, b"some").await;
        drop(peer);
        first.readable().await.unwrap();
        write(&two, &second, b"bytes").await;
        let totals = *tally.watch_totals().borrow();
        assert_eq!((totals.counts.bytes, totals.counts.open_now, totals.most_open), (9, 1, 1));
        one.end(Outcome::PeerClosed);
        assert_eq!(tally.watch_totals().borrow().counts.open_now, 1);
    }

    #[tokio::test]
    async fn two_whose_peers_are_there_are_open_together() {
        let tally = Arc::new(Tally::default());
        let ((first, _one), (second, _two)) = (pair().await, pair().await);
        let (one, two) = (begin(&tally, &first, 100), begin(&tally, &second, 5));
        write(&one, &first, b"some").await;
        write(&two, &second, b"bytes").await;
        let totals = *tally.watch_totals().borrow();
        assert_eq!((totals.counts.open_now, totals.most_open), (1, 2), "the second is complete");
    }

    #[tokio::test]
    async fn one_that_is_dropped_is_abandoned() {
        let tally = Arc::new(Tally::default());
        let (stream, _peer) = pair().await;
        let counted = begin(&tally, &stream, 100);
        write(&counted, &stream, b"some").await;
        drop(counted);
        assert_eq!(tally.watch("/a").borrow().open_now, 0);
        let [exchange] = tally.exchanges().try_into().unwrap();
        assert_eq!((exchange.bytes, exchange.outcome), (4, Outcome::Abandoned));
        assert_eq!(Arc::strong_count(&stream), 1, "an abort needs the last reference");
    }
}
