//! Faults as data: *when* (a request of a controller, or an event of a watch) and *what*. One notation and one file
//! format for both places where they happen: the line to the world in memory ([`wire`](crate::wire)) and the [`proxy`]
//! in front of a real API server. Each says which faults it cannot express.
//!
//! [`proxy`]: crate::proxy
//!
//! ```yaml
//! - when: create Job labs/*        # verb, subresource if any, kind, namespace/name
//!   nth: 2                         # the second of those, else the first
//!   times: 3                       # that one and the two after it; `always`: all after it
//!   point: commit                  # the server has done it, the sender has no answer yet
//!   do: kill
//! - when: patch status VMDiskImage labs/a
//!   do: {answer: {status: 429, retryAfter: 1000000000}}
//! - when: event modified Pod       # an event of a watch instead of a request
//!   times: always
//!   do: {delay: 5s}
//! ```
//!
//! A request and an event are each one line ([`Call`]), and the proxy's log holds the same lines: what a clean run did
//! can be pointed at, one after the other.

mod call;
mod count;
mod effect;
mod file;
mod pattern;
mod what;

#[cfg(test)]
mod tests;

pub(crate) use call::key;
pub use call::{Call, Verb};
pub use count::Faults;
pub use effect::{Effect, Inexpressible};
pub use file::{FileError, files, parse};
pub use pattern::{Pattern, PatternError};
pub use what::{Answer, What};

use std::fmt;

use serde::Deserialize;

/// A fault: when and what.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    when: When,
    what: What,
}

/// Which requests or events are meant. Made by [`at`].
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    pattern: Pattern,
    nth: usize,
    times: Times,
    point: Point,
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Number(usize),
    Always,
}

/// How far a request has come when a fault strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// It has not left. The server never sees it, unless the fault is one of those to the answer (lost, cut) or is that
    /// it comes twice. Of an event: it has not arrived.
    #[default]
    Before,
    /// It has left and arrives later, whatever becomes of its sender.
    UnderWay,
    /// The server has carried it out; its sender has no answer.
    Commit,
    /// Its sender has the answer, and has sent nothing since.
    Reply,
}

/// A fault does not fit what it is meant for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{what}' does not happen to '{pattern}'")]
pub struct Misfit {
    what: String,
    pattern: String,
}

/// The first request or event whose line is like `pattern`: `create Job labs/a`, `patch status VMDiskImage`, `write`,
/// `event deleted Pod labs/*`.
///
/// # Panics
/// When it is no pattern; files are read by [`parse`], which says what is wrong.
#[must_use]
pub fn at(pattern: &str) -> When {
    let pattern = pattern.parse().unwrap_or_else(|error| panic!("{error}"));
    When { pattern, nth: 1, times: Times::Number(1), point: Point::default() }
}

impl When {
    /// The `nth` of those, from 1.
    ///
    /// # Panics
    /// When it is 0.
    #[must_use]
    pub fn nth(mut self, nth: usize) -> Self {
        assert!(nth > 0, "the first is number 1");
        self.nth = nth;
        self
    }

    /// That one and those that follow, `times` in all.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Times::Number(times);
        self
    }

    /// That one and all that follow.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = Times::Always;
        self
    }

    /// At this point instead of before it leaves.
    #[must_use]
    pub fn point(mut self, point: Point) -> Self {
        self.point = point;
        self
    }

    /// What happens then.
    ///
    /// # Panics
    /// When that cannot happen to what is meant.
    #[must_use]
    pub fn then(self, what: What) -> Fault {
        Fault::new(self, what).unwrap_or_else(|error| panic!("{error}"))
    }

    /// How often it strikes at least before it was met.
    fn strikes(&self) -> usize {
        match self.times {
            Times::Number(times) => times,
            Times::Always => 1,
        }
    }

    /// Whether the `seen`th of those that are like the pattern is meant.
    fn is_struck(&self, seen: usize) -> bool {
        match self.times {
            Times::Number(times) => (self.nth..self.nth + times).contains(&seen),
            Times::Always => seen >= self.nth,
        }
    }
}

impl Fault {
    /// A fault.
    ///
    /// # Errors
    /// When it cannot happen to what is meant: an event is not lost after its commit, a request is not replayed.
    pub fn new(when: When, what: What) -> Result<Self, Misfit> {
        let is_event = when.pattern.is_event();
        let happens = if is_event { what.happens_to_events() } else { what.happens_to_requests() };
        let fits = happens
            && match when.point {
                Point::Before => true,
                Point::UnderWay => !is_event && what == What::Kill,
                Point::Commit => !is_event,
                Point::Reply => what.is_signal(),
            };
        if fits {
            return Ok(Self { when, what });
        }
        let what = format!("{what} ({:?})", when.point);
        Err(Misfit { what, pattern: when.pattern.to_string() })
    }

    /// What happens.
    #[must_use]
    pub fn what(&self) -> &What {
        &self.what
    }

    /// When, in the life of a request.
    #[must_use]
    pub fn point(&self) -> Point {
        self.when.point
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let When { pattern, nth, times, point } = &self.when;
        write!(f, "{} at '{pattern}' number {nth}", self.what)?;
        match times {
            Times::Number(1) => {}
            Times::Number(times) => write!(f, ", {times} times")?,
            Times::Always => f.write_str(" and after")?,
        }
        write!(f, " ({point:?})")
    }
}
