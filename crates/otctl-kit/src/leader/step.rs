//! The choice of the next step, from what is known and the time. No IO, no clock.

use std::time::Duration;

use super::Moment;
use super::lease::Record;
use crate::cluster::ApiError;

/// Bounds of a lease's duration, ours or another's: whole seconds below, and no typo that keeps a dead holder for days.
const DURATIONS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The times of leader election, checked when built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    duration: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// Times that would not keep two processes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The lease's duration is out of bounds.
    #[error("the lease duration is not between 1 s and 5 min")]
    Duration,
    /// The renew deadline is too close to the duration, or beyond it.
    #[error(
        "the renew deadline is more than 4/5 of the lease duration: clocks that drift could let two lead"
    )]
    RenewDeadline,
    /// There is no time to try a renewal twice.
    #[error("the retry period is more than a third of the renew deadline, or zero")]
    Retry,
}

impl Timing {
    /// Lease duration, renew deadline and retry period: 15 s, 10 s and 2 s unless there is a reason.
    ///
    /// # Errors
    /// When they would not keep two processes apart, or would lose the lease by one lost answer.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        retry: Duration,
    ) -> Result<Self, TimingError> {
        if duration < DURATIONS.0 || duration > DURATIONS.1 {
            return Err(TimingError::Duration);
        }
        if renew_deadline > duration * 4 / 5 {
            return Err(TimingError::RenewDeadline);
        }
        if retry.is_zero() || retry > renew_deadline / 3 {
            return Err(TimingError::Retry);
        }
        Ok(Self { duration, renew_deadline, retry })
    }

    /// The duration as the lease states it: whole seconds, rounded up.
    #[must_use]
    pub fn duration_seconds(&self) -> i32 {
        let seconds = self.duration.as_secs() + u64::from(self.duration.subsec_nanos() > 0);
        i32::try_from(seconds).expect("at most 300")
    }
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self::new(seconds(15), seconds(10), seconds(2))
            .expect("the defaults keep two processes apart")
    }
}

/// What a candidate knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    me: String,
    timing: Timing,
    seen: Option<Seen>,
    /// Whether the last answer told the state of the lease; after a failure or a conflict it must be read.
    is_current: bool,
    /// When the last renewal that went through was *sent*.
    held: Option<Moment>,
    /// When the lease was last read.
    read_at: Moment,
    /// Nothing is called before.
    not_before: Moment,
    /// When a lease that is not there may be made.
    vacant_at: Moment,
}

/// The lease as last read or written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    record: Record,
    /// When this version was first seen here.
    changed: Moment,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the lease.
    Read,
    /// Create it, without a holder.
    Create,
    /// Write our name into the lease that was read: a claim when on standby, a renewal when leading.
    Claim,
    /// Stop working now.
    StepDown(&'static str),
    /// Nothing to do until then.
    Wait(Moment),
}

/// The next step. When leading, every path from here leads to a renewal or to [`Step::StepDown`] at the deadline.
#[must_use]
pub fn step(view: &View, now: Moment) -> Step {
    match view.held {
        Some(sent) if now >= view.own_deadline(sent) => Step::StepDown("the renew deadline passed"),
        Some(sent) => lead(view, sent, now),
        None => stand_by(view, now),
    }
}

fn lead(view: &View, sent: Moment, now: Moment) -> Step {
    if now < view.not_before {
        return Step::Wait(view.not_before.min(view.own_deadline(sent)));
    }
    let due = sent + view.timing.retry;
    match &view.seen {
        _ if !view.is_current => Step::Read,
        None => Step::StepDown("the lease is gone"),
        Some(seen) if seen.record.holder != view.me => Step::StepDown("the lease names another"),
        Some(_) if now >= due => Step::Claim,
        Some(_) => Step::Wait(due),
    }
}

fn stand_by(view: &View, now: Moment) -> Step {
    if now < view.not_before {
        return Step::Wait(view.not_before);
    }
    if !view.is_current {
        return Step::Read;
    }
    let (free_at, look_at) = (view.free_at(), view.read_at + view.timing.retry);
    match &view.seen {
        Some(_) if now >= free_at => Step::Claim,
        None if now >= free_at => Step::Create,
        _ if now >= look_at => Step::Read,
        _ => Step::Wait(free_at.min(look_at)),
    }
}

impl View {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(me: String, timing: Timing) -> Self {
        Self {
            me,
            timing,
            seen: None,
            is_current: false,
            held: None,
            read_at: Moment::ZERO,
            not_before: Moment::ZERO,
            vacant_at: Moment::ZERO,
        }
    }

    /// Whether we lead, as far as was taken in.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.held.is_some()
    }

    /// When our own lease ends for us; none when we do not lead.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.held.map(|sent| self.own_deadline(sent))
    }

    /// Whether the lease names us; none when the last call left that open.
    #[must_use]
    pub fn names_us(&self) -> Option<bool> {
        self.is_current
            .then(|| self.seen.as_ref().is_some_and(|seen| seen.record.holder == self.me))
    }

    /// Takes in what a read showed: the lease, or that there is none. One that was deleted was not given back: it stays
    /// its holder's, who will make it again, as long as if it had changed just now.
    pub fn read(&mut self, record: Option<Record>, now: Moment) {
        self.is_current = true;
        self.read_at = now;
        let known = self.seen.take();
        match record {
            Some(record) => {
                let known = known.filter(|known| known.record.version == record.version);
                self.seen =
                    Some(Seen { changed: known.map_or(now, |known| known.changed), record });
            }
            None => {
                let left = known.and_then(|known| self.hold(&known.record));
                self.vacant_at = left.map_or(self.vacant_at, |hold| now + hold);
            }
        }
    }

    /// Takes in that our claim, sent at `sent`, went through. An answer that comes after the deadline makes nobody lead.
    pub fn claimed(&mut self, record: Record, sent: Moment, now: Moment) {
        self.read(Some(record), now);
        self.held = (now < self.own_deadline(sent)).then_some(sent);
    }

    /// Takes in that a call failed. A write may have gone through all the same: what we know is out of date, and only a
    /// claim that was answered counts for us. Only after a conflict is there news to read at once; anything else, a
    /// missing namespace for one, would be asked for at full speed.
    pub fn failed(&mut self, error: &ApiError, now: Moment) {
        self.is_current = false;
        let pause = if self.leads() { self.timing.retry / 4 } else { self.timing.retry };
        self.not_before = match error {
            ApiError::Conflict { .. } => now,
            ApiError::Throttled { retry_after_seconds: Some(seconds) } => {
                now + Duration::from_secs(*seconds).min(self.timing.retry)
            }
            ApiError::NotFound { .. }
            | ApiError::AlreadyExists
            | ApiError::Throttled { retry_after_seconds: None }
            | ApiError::Forbidden { .. }
            | ApiError::Invalid { .. }
            | ApiError::WebhookFailed { .. }
            | ApiError::Unknown { .. }
            | ApiError::Unreadable { .. } => now + pause,
        };
    }

    /// Takes in that we no longer work.
    pub fn stepped_down(&mut self) {
        self.held = None;
    }

    fn own_deadline(&self, sent: Moment) -> Moment {
        sent + self.timing.renew_deadline
    }

    /// When the lease may be claimed or made: at once if it is nobody's or ours, else when its holder was silent too
    /// long.
    fn free_at(&self) -> Moment {
        match &self.seen {
            None => self.vacant_at,
            Some(seen) => self.hold(&seen.record).map_or(Moment::ZERO, |hold| seen.changed + hold),
        }
    }

    /// How long another may be silent and still hold the lease; none if it is nobody's or ours.
    fn hold(&self, record: &Record) -> Option<Duration> {
        let is_anothers = !record.holder.is_empty() && record.holder != self.me;
        let stated = record.duration.unwrap_or(self.timing.duration);
        is_anothers.then(|| stated.clamp(DURATIONS.0, DURATIONS.1))
    }
}
