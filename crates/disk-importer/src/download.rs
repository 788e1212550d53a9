//! From the source to the scratch volume: one request that starts at byte 0 at most, reconnects
//! that continue where the last connection ended, and the first look on the way.
//!
//! ```text
//! connect ──▶ accept the head ──▶ take bytes ──▶ whole
//!    ▲                                │ cut
//!    └── wait 1 s, 2 s … 30 s ◀── moved the offset? ──no──▶ the run ends, transient
//! ```

use std::sync::Arc;

use hyper::body::Bytes;
use otctl_types::import::ImportReason;
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::client::{ByteRange, Client, Cut, Reply};
use crate::failure::Failure;
use crate::look::{Beginning, IMPORT_LOOK_BYTES, fits};
use crate::progress::Tally;
use crate::scratch::Spool;
use crate::settings::{Expected, Limits, Source, Timing};
use crate::version::{Likeness, Version};

/// One run's way from the source to the spool.
pub struct Download<'a> {
    client: Client,
    spool: &'a mut Spool,
    tally: Arc<Tally>,
    expected: &'a Expected,
    limits: Limits,
    timing: Timing,
    /// Whether this run's one request from byte 0 was answered.
    began_at_zero: bool,
    /// Whether the first look still has to be made.
    to_be_looked_at: bool,
    is_page: bool,
}

impl<'a> Download<'a> {
    /// A download of `source` into `spool`, which may hold its first bytes already.
    ///
    /// # Errors
    /// When the source's Secret is of no use.
    pub fn new(
        source: &Source,
        expected: &'a Expected,
        spool: &'a mut Spool,
        tally: Arc<Tally>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::new(source)?,
            spool,
            tally,
            expected,
            limits: source.limits,
            timing: source.timing,
            began_at_zero: false,
            to_be_looked_at: true,
            is_page: false,
        })
    }

    /// Fetches what is missing. Whatever the outcome, everything received is kept safe.
    ///
    /// # Errors
    /// Why the source cannot be fetched now, or `Interrupted`.
    pub async fn run(mut self, cancel: &CancellationToken) -> Result<(), Failure> {
        let fetched = cancel.run_until_cancelled(self.fetch()).await;
        let kept = self.spool.keep();
        fetched.unwrap_or_else(|| Err(Failure::interrupted()))?;
        kept
    }

    async fn fetch(&mut self) -> Result<(), Failure> {
        if let Some(version) = self.spool.version() {
            self.tally.expect_total(version.size);
            self.tally.reach(self.spool.offset());
        }
        self.look()?;
        let mut reconnects = 0;
        while !self.spool.is_whole() {
            let before = self.tally.received();
            let Some(cut) = self.connection().await? else { continue };
            let brought = self.tally.received() - before;
            self.may_reconnect(brought, &cut, reconnects)?;
            reconnects += 1;
            let delay = self.timing.reconnect_delay(reconnects);
            tracing::info!(offset = self.spool.offset(), ?cut, ?delay, "reconnecting");
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// One connection; gives how it ended, or `None` when nothing is missing any more.
    async fn connection(&mut self) -> Result<Option<Cut>, Failure> {
        self.tally.start_download();
        let mut reply = self.client.get(&self.missing()).await?;
        self.accept(&reply)?;
        loop {
            match reply.body.next().await {
                Ok(Some(bytes)) => self.take(&bytes)?,
                Ok(None) if self.spool.is_whole() => return Ok(None),
                // A server may send less of a range than was asked for.
                Ok(None) => return Ok(Some(Cut::Closed)),
                Err(_) if self.spool.is_whole() => return Ok(None),
                Err(cut) => return Ok(Some(cut)),
            }
        }
    }

    fn missing(&self) -> ByteRange {
        let version = self.spool.version();
        let etag = version.and_then(|version| version.etag.clone());
        // A weak tag does not vouch for bytes, so a server may not act on it here; what it sends
        // is compared by ourselves in any case.
        let if_range = etag.filter(|etag| !etag.starts_with("W/"));
        ByteRange { first: self.spool.offset(), last: None, if_range }
    }

    /// Judges the head of an answer against what is here and what the probe saw.
    fn accept(&mut self, reply: &Reply) -> Result<(), Failure> {
        match reply.answer {
            Answer::BeyondEnd { length } => Err(self.beyond_end(length, reply)),
            Answer::Part { first, total } => self.accept_part(first, total, reply),
            Answer::Whole { length } => {
                let version = version(reply, length, false)?;
                self.check_same(&version)?;
                self.begin(version, reply)
            }
        }
    }

    fn accept_part(
        &mut self,
        first: u64,
        total: Option<u64>,
        reply: &Reply,
    ) -> Result<(), Failure> {
        let offset = self.spool.offset();
        let known = self.spool.version().map(|version| version.size);
        let version = version(reply, total.or(known), true)?;
        self.check_same(&version)?;
        if first != offset {
            let message = format!("the source sent bytes from {first} when asked from {offset}");
            return Err(Failure::new(ImportReason::ServerError, message));
        }
        if offset == 0 { self.begin(version, reply) } else { Ok(()) }
    }

    /// The bytes from 0 on begin to arrive, whether we asked for them or the server has no
    /// ranges any more. A run takes them once.
    fn begin(&mut self, version: Version, reply: &Reply) -> Result<(), Failure> {
        if self.began_at_zero {
            let message = "the source does not continue a download; \
                           the next attempt begins at its first byte";
            return Err(Failure::new(ImportReason::ConnectionLost, message));
        }
        self.began_at_zero = true;
        self.to_be_looked_at = true;
        self.is_page = reply.is_page;
        self.tally.expect_total(version.size);
        self.tally.reach(0);
        self.spool.restart(Some(version))?;
        self.look()
    }

    /// The version that answers is the one we have bytes of, and the one the probe saw.
    fn check_same(&self, version: &Version) -> Result<(), Failure> {
        let kept = self.spool.version().map_or(Likeness::Same, |kept| kept.beside(version));
        match kept.max(version.beside_probe(self.expected)) {
            Likeness::Same => Ok(()),
            Likeness::OtherLength => Err(self.other_length(version.size)),
            Likeness::Replaced => {
                let message =
                    "the image at the source was replaced; the next attempt fetches the new one";
                Err(Failure::new(ImportReason::SourceChanged, message))
            }
        }
    }

    fn other_length(&self, told: u64) -> Failure {
        let known = self.spool.version().map(|kept| kept.size).or(self.expected.size);
        let message = format!(
            "the source announces {told} bytes and, under the same tag or date, announced {} before",
            known.unwrap_or_default()
        );
        Failure::new(ImportReason::LengthMismatch, message)
    }

    /// The source ends before what we ask for.
    fn beyond_end(&self, length: Option<u64>, reply: &Reply) -> Failure {
        let offset = self.spool.offset();
        if offset == 0 {
            return Failure::new(ImportReason::BadFormat, "the source is empty");
        }
        let Some(kept) = self.spool.version() else { return self.too_short() };
        let (etag, last_modified) = (reply.etag.clone(), reply.last_modified.clone());
        let told = Version { etag, last_modified, size: length.unwrap_or(offset), ..kept.clone() };
        // Asked from its end on, a source without a change has none of these bytes, and says so.
        let known = Version { size: offset, ..kept.clone() };
        match known.beside(&told) {
            Likeness::Same => self.too_short(),
            Likeness::OtherLength => self.other_length(told.size),
            Likeness::Replaced => {
                let message = "the image at the source was replaced by a shorter one";
                Failure::new(ImportReason::SourceChanged, message)
            }
        }
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), Failure> {
        let arrived = bytes.len() as u64;
        self.tally.receive(arrived);
        let size = self.spool.version().map_or(0, |version| version.size);
        if arrived > size - self.spool.offset() {
            let message = format!("the source sent more than the {size} bytes it announced");
            return Err(Failure::new(ImportReason::LengthMismatch, message));
        }
        self.spool.append(bytes)?;
        self.tally.reach(self.spool.offset());
        self.look()
    }

    /// The first look, once enough bytes are here.
    fn look(&mut self) -> Result<(), Failure> {
        let Some(version) = self.spool.version() else { return Ok(()) };
        if !self.to_be_looked_at || self.spool.offset() < version.size.min(IMPORT_LOOK_BYTES) {
            return Ok(());
        }
        let beginning = Beginning {
            bytes: &self.spool.first_bytes(IMPORT_LOOK_BYTES)?,
            size: version.size,
            etag: version.etag.clone(),
            accepts_ranges: version.accepts_ranges,
            is_page: self.is_page,
        };
        let facts = beginning.facts()?;
        self.tally.learn(facts.clone());
        self.to_be_looked_at = false;
        fits(&facts, &self.limits)
    }

    fn may_reconnect(&self, brought: u64, cut: &Cut, reconnects: u32) -> Result<(), Failure> {
        let offset = self.spool.offset();
        let lost = |why: &str| {
            let message = format!("the connection ended at byte {offset}: {why}");
            Err(Failure::new(ImportReason::ConnectionLost, message))
        };
        let resumable = self.spool.version().is_some_and(|version| version.accepts_ranges);
        match cut {
            Cut::Stalled => {
                let seconds = self.timing.stall.as_secs();
                let message = format!("no byte arrived for {seconds} s, at byte {offset}");
                Err(Failure::new(ImportReason::NoProgress, message))
            }
            // Asked to continue, it agreed and closed in good order: it has no more.
            Cut::Closed if brought == 0 && offset > 0 => Err(self.too_short()),
            _ if brought == 0 => lost("it brought no byte"),
            _ if !resumable => lost("the source has no ranges, so nothing can be continued"),
            _ if reconnects >= self.timing.reconnects => lost("it did so too often"),
            Cut::Closed | Cut::Broken(_) => Ok(()),
        }
    }

    fn too_short(&self) -> Failure {
        let offset = self.spool.offset();
        let size = self.spool.version().map_or(0, |version| version.size);
        let message = format!("the source announced {size} bytes and ends after {offset}");
        Failure::new(ImportReason::LengthMismatch, message)
    }
}

fn version(reply: &Reply, size: Option<u64>, accepts_ranges: bool) -> Result<Version, Failure> {
    let Some(size) = size else { return Err(size_unknown()) };
    let (etag, last_modified) = (reply.etag.clone(), reply.last_modified.clone());
    Ok(Version { etag, last_modified, size, accepts_ranges })
}

/// The server does not say how long the image is.
pub(crate) fn size_unknown() -> Failure {
    let message = "the source does not say how long it is; serve it with a Content-Length";
    Failure::new(ImportReason::SizeUnknown, message)
}
