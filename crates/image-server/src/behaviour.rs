//! What a path does wrong, and on which request. No sockets here: choosing is
//! a walk over a list.

use std::{collections::VecDeque, time::Duration};

use crate::request::RequestKind;

/// One thing a source can do to a request, each seen on real servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends after `after` bytes of this answer's body.
    Cut {
        /// Body bytes of this answer that are written before, in bytes.
        after: u64,
        /// As a proxy that shuts down, or as a network that breaks.
        kind: CutKind,
    },
    /// Nothing is written after `after` bytes of the body, while the connection
    /// stays open until the peer closes or [`release`](crate::ImageServer::release) is called.
    Stall {
        /// Body bytes of this answer that are written before, in bytes.
        after: u64,
    },
    /// `bytes` are written every `every`: a slow source, or a drip.
    Drip {
        /// Bytes at a time; 0 counts as 1.
        bytes: u64,
        /// The pause between two writes.
        every: Duration,
    },
    /// From this request on the path has another entity tag, as after an upload.
    ChangeEtag,
    /// No entity tag is given, so no resumed download can be sure.
    NoEtag,
    /// The entity tag is a weak one, which does not vouch for bytes.
    WeakEtag,
    /// `Range` is ignored: always 200 with everything.
    NoRanges,
    /// `If-Range` is ignored: 206 although the entity tag is another one.
    IgnoreIfRange,
    /// A range starts this many bytes later than asked, and `Content-Range` says so.
    ShiftRange {
        /// Bytes left out at the front.
        by: u64,
    },
    /// An answer of this status, with an empty body.
    Status {
        /// The HTTP status.
        code: u16,
        /// Sent as `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// 200 with a page for people, as captive portals and login walls send it.
    HtmlPage,
    /// The length is said to be `announced` everywhere, whatever it is. A longer
    /// one is followed by the end of the connection where the content ends.
    WrongLength {
        /// The complete length that is claimed, in bytes.
        announced: u64,
    },
    /// No length is given; the end of the connection ends the body.
    NoLength,
    /// 302 to this address.
    Redirect {
        /// The value of `Location`.
        to: String,
    },
    /// 401 unless the request has exactly this `Authorization`.
    RequireAuthorization {
        /// The whole header value, for example `Basic dXNlcjpwYXNz`.
        value: String,
    },
    /// The connection ends without any answer.
    HangUp {
        /// How it ends.
        kind: CutKind,
    },
    /// No answer ever, while the connection stays open until the peer closes
    /// or [`release`](crate::ImageServer::release) is called.
    Mute,
}

/// How a connection is ended by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutKind {
    /// FIN: every byte that was written arrives.
    Graceful,
    /// RST: bytes still on their way are lost, so the peer may see fewer than
    /// were counted.
    Abort,
}

impl Fault {
    /// An end by FIN after `after` bytes of the body.
    #[must_use]
    pub fn cut(after: u64) -> Self {
        Self::Cut { after, kind: CutKind::Graceful }
    }

    /// An end by RST after `after` bytes of the body.
    #[must_use]
    pub fn abort(after: u64) -> Self {
        Self::Cut { after, kind: CutKind::Abort }
    }

    /// Silence after `after` bytes of the body.
    #[must_use]
    pub fn stall(after: u64) -> Self {
        Self::Stall { after }
    }

    /// This status and nothing else.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Status { code, retry_after: None }
    }

    /// 429 with `Retry-After` in seconds.
    #[must_use]
    pub fn throttled(retry_after: u64) -> Self {
        Self::Status { code: 429, retry_after: Some(retry_after) }
    }

    /// A pace of about this many bytes a second, twenty writes to the second,
    /// so that progress can be watched.
    #[must_use]
    pub fn rate_limit(bytes_per_second: u64) -> Self {
        Self::Drip { bytes: bytes_per_second / 20, every: Duration::from_millis(50) }
    }

    /// This fault, but only for requests of one kind.
    #[must_use]
    pub fn on(self, on: On) -> Step {
        Step { fault: Some(self), on }
    }
}

/// The requests a step concerns; others pass by and do not use it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Every request, also HEAD.
    Any,
    /// GET for content, but not a first look of at most 64 KiB.
    Data,
    /// GET for at most 64 KiB.
    Probe,
}

impl On {
    fn concerns(self, kind: RequestKind) -> bool {
        match self {
            Self::Any => true,
            Self::Data => kind == RequestKind::Data,
            Self::Probe => kind == RequestKind::Probe,
        }
    }
}

/// A fault with the requests it concerns. A bare [`Fault`] becomes one: what
/// happens inside a body concerns data requests, so that a first look does not
/// use it up; everything else concerns any request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    fault: Option<Fault>,
    on: On,
}

impl From<Fault> for Step {
    fn from(fault: Fault) -> Self {
        let in_body = matches!(fault, Fault::Cut { .. } | Fault::Stall { .. });
        fault.on(if in_body { On::Data } else { On::Any })
    }
}

/// The script of a path: steps used up in order, one per request, and faults
/// that act on every request.
///
/// ```
/// # use image_server::{Behaviour, Fault};
/// // Slow, cut twice after 1 MiB, then well-behaved.
/// Behaviour::new().always(Fault::rate_limit(4 << 20)).times(2, Fault::cut(1 << 20));
/// // A source that is replaced after two requests.
/// Behaviour::new().pass(2).then(Fault::ChangeEtag);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    script: VecDeque<Step>,
    lasting: Vec<Step>,
}

impl Behaviour {
    /// A server that does nothing wrong.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Next in the script: this, once.
    #[must_use]
    pub fn then(self, step: impl Into<Step>) -> Self {
        self.times(1, step)
    }

    /// Next in the script: this, `count` times.
    #[must_use]
    pub fn times(mut self, count: usize, step: impl Into<Step>) -> Self {
        self.script.extend(std::iter::repeat_n(step.into(), count));
        self
    }

    /// Next in the script: `count` requests of any kind without a fault.
    #[must_use]
    pub fn pass(self, count: usize) -> Self {
        self.times(count, Step { fault: None, on: On::Any })
    }

    /// On every request it concerns, besides the script.
    #[must_use]
    pub fn always(mut self, step: impl Into<Step>) -> Self {
        self.lasting.push(step.into());
        self
    }

    /// The faults for a request of this kind: the lasting ones, then the
    /// script's first step if it concerns the request, which uses it up.
    pub(crate) fn next(&mut self, kind: RequestKind) -> Vec<Fault> {
        let lasting = self.lasting.iter().filter(|step| step.on.concerns(kind)).cloned();
        let mut steps: Vec<Step> = lasting.collect();
        if self.script.front().is_some_and(|step| step.on.concerns(kind)) {
            steps.extend(self.script.pop_front());
        }
        steps.into_iter().filter_map(|step| step.fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_used_up_in_order() {
        let mut behaviour =
            Behaviour::new().pass(1).times(2, Fault::status(503)).then(Fault::HtmlPage);
        let mut next = || behaviour.next(RequestKind::Data);
        assert_eq!(next(), []);
        assert_eq!(next(), [Fault::status(503)]);
        assert_eq!(next(), [Fault::status(503)]);
        assert_eq!(next(), [Fault::HtmlPage]);
        assert_eq!(next(), []);
    }

    #[test]
    fn a_first_look_does_not_use_up_a_cut() {
        let mut behaviour = Behaviour::new().then(Fault::cut(5)).then(Fault::ChangeEtag);
        assert_eq!(behaviour.next(RequestKind::Head), []);
        assert_eq!(behaviour.next(RequestKind::Probe), []);
        assert_eq!(behaviour.next(RequestKind::Data), [Fault::cut(5)]);
        assert_eq!(behaviour.next(RequestKind::Probe), [Fault::ChangeEtag]);
    }

    #[test]
    fn lasting_faults_come_besides_the_script() {
        let mut behaviour =
            Behaviour::new().always(Fault::NoRanges).then(Fault::status(404).on(On::Probe));
        assert_eq!(behaviour.next(RequestKind::Data), [Fault::NoRanges]);
        assert_eq!(behaviour.next(RequestKind::Probe), [Fault::NoRanges, Fault::status(404)]);
        assert_eq!(behaviour.next(RequestKind::Probe), [Fault::NoRanges]);
    }
}
