//! The body of one answer: how far it goes, how fast, and what comes after.

use std::io::ErrorKind;

use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Interval, MissedTickBehavior, interval},
};

use crate::{
    answer::Body,
    behaviour::CutKind,
    content::SLICE,
    tally::{Counted, Outcome},
    terms::{Pace, Terms},
};

/// What will be written of a body, decided before its first byte.
#[derive(Debug)]
pub(crate) struct Delivery {
    body: Option<Body>,
    /// Bytes that are written if nobody interrupts, at most those announced.
    pub(crate) length: u64,
    stall: Option<u64>,
    pace: Option<Pace>,
    /// How the connection is ended by this answer, if it is.
    pub(crate) end: Option<CutKind>,
    /// What it will be called when everything of `length` is written.
    pub(crate) outcome: Outcome,
}

impl Delivery {
    /// What `terms` make of `body`. A cut or stall beyond its end does nothing.
    pub(crate) fn plan(body: Option<Body>, terms: &Terms) -> Self {
        let announced = body.as_ref().map_or(0, |body| body.length);
        let present =
            body.as_ref().map_or(0, |body| body.content.size().saturating_sub(body.first));
        let whole = announced.min(present);
        let cut = terms.cut.filter(|(after, _)| body.is_some() && *after < whole);
        let length = cut.map_or(whole, |(after, _)| after);
        let falls_short = length < announced;
        Self {
            length,
            stall: terms.stall.filter(|after| *after < length),
            pace: terms.pace,
            end: cut.map(|(_, kind)| kind).or(falls_short.then_some(CutKind::Graceful)),
            outcome: if falls_short { Outcome::Cut } else { Outcome::Complete },
            body,
        }
    }

    /// Writes the body; stalls until `release` changes, should it be told to.
    ///
    /// # Errors
    /// With what the exchange has come to, when it cannot go on.
    pub(crate) async fn run(
        &self,
        stream: &TcpStream,
        counted: &Counted,
        release: &mut watch::Receiver<u64>,
    ) -> Result<(), Outcome> {
        let Some(body) = &self.body else { return Ok(()) };
        let mut writer = Writer {
            stream,
            counted,
            body,
            metronome: self.pace.map(Metronome::new),
            buffer: vec![0; SLICE],
            sent: 0,
        };
        if let Some(after) = self.stall {
            writer.write_until(after).await?;
            released(release).await;
        }
        writer.write_until(self.length).await
    }
}

/// Waits for a release. One whose sender is gone never comes.
pub(crate) async fn released(release: &mut watch::Receiver<u64>) {
    if release.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Writer<'a> {
    stream: &'a TcpStream,
    counted: &'a Counted,
    body: &'a Body,
    metronome: Option<Metronome>,
    buffer: Vec<u8>,
    sent: u64,
}

impl Writer<'_> {
    async fn write_until(&mut self, end: u64) -> Result<(), Outcome> {
        while self.sent < end {
            let mut count = (end - self.sent).min(SLICE as u64);
            if let Some(metronome) = &mut self.metronome {
                count = metronome.allow(count).await;
            }
            self.write_slice(usize::try_from(count).expect("at most one slice")).await?;
        }
        Ok(())
    }

    async fn write_slice(&mut self, count: usize) -> Result<(), Outcome> {
        // Read here and not on a blocking thread: 64 KiB of a local file cost
        // less than the way there.
        let slice = &mut self.buffer[..count];
        self.body.content.read_at(self.body.first + self.sent, slice).map_err(|error| {
            tracing::warn!(%error, "content can no longer be read");
            Outcome::Abandoned
        })?;
        let mut rest = &self.buffer[..count];
        while !rest.is_empty() {
            self.stream.writable().await.map_err(|_| Outcome::PeerClosed)?;
            match self.counted.write(rest) {
                Ok(written) => {
                    rest = &rest[written..];
                    self.sent += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Outcome::PeerClosed),
            }
        }
        Ok(())
    }
}

/// Lets so many bytes pass at each tick.
struct Metronome {
    pace: Pace,
    ticks: Interval,
    left: u64,
}

impl Metronome {
    fn new(pace: Pace) -> Self {
        let mut ticks = interval(pace.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { pace, ticks, left: 0 }
    }

    /// How many of `wanted` bytes may be written now, at least one.
    async fn allow(&mut self, wanted: u64) -> u64 {
        if self.left == 0 {
            self.ticks.tick().await;
            self.left = self.pace.bytes;
        }
        let allowed = wanted.min(self.left);
        self.left -= allowed;
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{behaviour::Fault, content::Content};

    fn plan(fault: Fault) -> Delivery {
        let content = Content::generated(100, 1);
        let body = Body { content: content.clone(), first: 20, length: 80 };
        Delivery::plan(Some(body), &Terms::honest(content, 0).with(fault))
    }

    #[test]
    fn a_cut_is_counted_from_the_start_of_the_answer() {
        let cut = plan(Fault::abort(30));
        assert_eq!((cut.length, cut.end, cut.outcome), (30, Some(CutKind::Abort), Outcome::Cut));
        let at_the_end = plan(Fault::cut(80));
        assert_eq!((at_the_end.length, at_the_end.end), (80, None));
        assert_eq!(at_the_end.outcome, Outcome::Complete);
    }

    #[test]
    fn a_stall_beyond_the_end_does_nothing() {
        assert_eq!(plan(Fault::stall(79)).stall, Some(79));
        assert_eq!(plan(Fault::stall(80)).stall, None);
    }

    #[test]
    fn content_that_ends_early_ends_the_connection() {
        let content = Content::generated(100, 1);
        let body = Body { content: content.clone(), first: 0, length: 150 };
        let short = Delivery::plan(Some(body), &Terms::honest(content, 0));
        assert_eq!((short.length, short.end), (100, Some(CutKind::Graceful)));
        assert_eq!(short.outcome, Outcome::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept() {
        let every = std::time::Duration::from_millis(50);
        let mut metronome = Metronome::new(Pace { bytes: 100, every });
        let begun = tokio::time::Instant::now();
        let mut passed = 0;
        while passed < 1000 {
            passed += metronome.allow(64).await;
        }
        assert_eq!(passed, 1000);
        assert_eq!(begun.elapsed(), every * 9);
    }
}
