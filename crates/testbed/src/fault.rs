//! Faults as data: which request of a controller, and what happens to it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use otctl_kit::cluster::{ApiError, Request, Target};

/// What happens to a request, instead of being carried out and answered.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Its sender dies before it leaves.
    DieBefore,
    /// It is carried out; its sender dies before it reads the answer.
    DieAfter,
    /// Its sender dies, and it is carried out some time later, when another may have taken over.
    DieInFlight,
    /// It is not carried out, and this is the answer.
    Answer(ApiError),
    /// It is carried out, and the answer is lost: [`ApiError::Unknown`].
    LoseAnswer,
}

/// A fault: *when* (the n-th request whose line begins with a pattern) and *what*.
#[derive(Clone, Debug)]
pub struct Fault {
    pattern: Pattern,
    nth: usize,
    times: usize,
    effect: Effect,
    seen: usize,
}

#[derive(Clone, Debug)]
enum Pattern {
    Write,
    Line(String),
}

impl Fault {
    /// At the `nth` write, from 1, of any kind.
    #[must_use]
    pub fn at_write(nth: usize, effect: Effect) -> Self {
        Self { pattern: Pattern::Write, nth, times: 1, effect, seen: 0 }
    }

    /// At the first request whose [`line()`] begins with `pattern`: `create Job lab/a`, `patch status VMDiskImage`.
    #[must_use]
    pub fn at(pattern: &str, effect: Effect) -> Self {
        Self { pattern: Pattern::Line(pattern.to_owned()), nth: 1, times: 1, effect, seen: 0 }
    }

    /// At the `nth` such request, from 1.
    #[must_use]
    pub fn nth(mut self, nth: usize) -> Self {
        self.nth = nth;
        self
    }

    /// At that one and the following ones, `times` in all.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Counts `request`; says what happens to it, if this fault is meant for it.
    fn strike(&mut self, request: &Request) -> Option<Effect> {
        let is_meant = match &self.pattern {
            Pattern::Write => request.is_write(),
            Pattern::Line(pattern) => line(request).starts_with(pattern.as_str()),
        };
        if !is_meant {
            return None;
        }
        self.seen += 1;
        (self.nth..self.nth + self.times).contains(&self.seen).then(|| self.effect.clone())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = match &self.pattern {
            Pattern::Write => "write",
            Pattern::Line(pattern) => pattern.as_str(),
        };
        write!(f, "{:?} at \"{pattern}\" {} (seen {})", self.effect, self.nth, self.seen)
    }
}

/// A request in one line: verb, kind, object.
#[must_use]
pub fn line(request: &Request) -> String {
    match request {
        Request::Get(target) => format!("get {target}"),
        Request::List { resource, namespace, .. } => {
            format!("list {} {}", resource.kind, namespace.as_deref().unwrap_or_default())
        }
        Request::Create(object) => format!("create {}", Target::of(object)),
        Request::Apply(object) => format!("apply {}", Target::of(object)),
        Request::Replace(object) => format!("replace {}", Target::of(object)),
        Request::ReplaceStatus(object) => format!("replace status {}", Target::of(object)),
        Request::PatchStatus { target, .. } => format!("patch status {target}"),
        Request::Delete { target, .. } => format!("delete {target}"),
    }
}

/// The faults of one simulation, and what they left behind. Clones are the same faults.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    faults: Vec<Fault>,
    writes: usize,
    in_flight: Vec<(String, Request)>,
}

impl Faults {
    /// One more.
    pub fn add(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// How many writes were sent by all controllers, struck ones included.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// The faults that were never met: a test that relies on one should find none.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        let inner = self.lock();
        inner
            .faults
            .iter()
            .filter(|fault| fault.seen < fault.nth)
            .map(ToString::to_string)
            .collect()
    }

    pub(crate) fn strike(&self, request: &Request) -> Option<Effect> {
        let mut inner = self.lock();
        if request.is_write() {
            inner.writes += 1;
        }
        let struck: Vec<Effect> =
            inner.faults.iter_mut().filter_map(|fault| fault.strike(request)).collect();
        struck.into_iter().next()
    }

    pub(crate) fn leave_in_flight(&self, by: &str, request: Request) {
        self.lock().in_flight.push((by.to_owned(), request));
    }

    /// How many requests of dead senders are still under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight.len()
    }

    /// The oldest of them.
    pub(crate) fn land(&self) -> Option<(String, Request)> {
        let mut inner = self.lock();
        (!inner.in_flight.is_empty()).then(|| inner.in_flight.remove(0))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
