//! What running imports tell of themselves, kept in memory and read by `observe`. Losing the talk changes no outcome: of
//! an import that cannot be reached the progress is unknown, and that is all. One that takes connections and says
//! nothing, or tells the same again and again, is another matter: how long it has done so is kept here too.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use otctl_types::import::{ImportPhase, Progress};
use tokio::time::Instant;

/// Time since some moment, which never jumps: how long an import has been silent must not follow a clock that is set.
#[derive(Clone)]
pub struct Elapsed(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Elapsed {
    /// Time that is told by `read`.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The time now.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Elapsed {
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }
}

impl fmt::Debug for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Elapsed({:?})", self.now())
    }
}

/// What came of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It told how far it is.
    Told(Progress),
    /// Something answered, but not with progress: an older importer, or another process.
    Unusable,
    /// It took the connection and said nothing in time.
    Mute,
    /// No connection was made, or it was torn down: the network between (a proxy there accepts and resets what it does
    /// not let through), or no such process. It says nothing of the import.
    Unreachable,
}

/// How the talk with an import stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talk {
    /// What it last told.
    pub progress: Option<Progress>,
    /// How long it has told the same while it was at work on the source's bytes.
    pub still_for: Duration,
    /// How long it has not answered, connections being taken all the while; none when it answers, or when nothing shows
    /// that it is more than out of reach.
    pub mute_for: Option<Duration>,
    /// How long its progress has been unknown; none when the last question was answered.
    pub unknown_for: Option<Duration>,
}

/// What is remembered of the talk with one import.
#[derive(Clone, Debug)]
struct Page {
    progress: Option<Progress>,
    /// When what it tells was last another than before.
    moved_at: Duration,
    /// When it last answered; when it was first asked, before that.
    answered_at: Duration,
    is_answering: bool,
    /// Whether it took a connection since it last answered.
    has_connected: bool,
}

/// The talk with each running import, by UID of its Job.
#[derive(Clone, Debug, Default)]
pub struct ProgressBook {
    pages: Arc<Mutex<HashMap<String, Page>>>,
    elapsed: Elapsed,
}

impl ProgressBook {
    /// A book whose time is `elapsed`.
    pub fn new(elapsed: Elapsed) -> Self {
        Self { pages: Arc::default(), elapsed }
    }

    /// How the talk with the import of this Job stands; none when nobody has asked it yet.
    pub fn talk(&self, job_uid: &str) -> Option<Talk> {
        let now = self.elapsed.now();
        self.lock().get(job_uid).map(|page| page.talk(now))
    }

    /// Notes what came of a question.
    pub fn note(&self, job_uid: &str, answer: Answer) {
        let now = self.elapsed.now();
        let mut pages = self.lock();
        pages.entry(job_uid.to_owned()).or_insert_with(|| Page::new(now)).note(answer, now);
    }

    /// Forgets all but these.
    pub fn keep(&self, running: &HashSet<&str>) {
        self.lock().retain(|uid, _| running.contains(uid.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn new(now: Duration) -> Self {
        Self {
            progress: None,
            moved_at: now,
            answered_at: now,
            is_answering: false,
            has_connected: false,
        }
    }

    fn note(&mut self, answer: Answer, now: Duration) {
        match answer {
            Answer::Told(progress) => {
                if self.progress.as_ref() != Some(&progress) {
                    self.moved_at = now;
                }
                self.progress = Some(progress);
                self.answered(now, true);
            }
            Answer::Unusable => self.answered(now, false),
            Answer::Mute => {
                self.is_answering = false;
                self.has_connected = true;
            }
            Answer::Unreachable => self.is_answering = false,
        }
    }

    fn answered(&mut self, now: Duration, with_progress: bool) {
        self.answered_at = now;
        self.has_connected = false;
        self.is_answering = with_progress;
    }

    fn talk(&self, now: Duration) -> Talk {
        let since_answer = now.saturating_sub(self.answered_at);
        // Only what it tells itself shows that nothing moves; the rest of its work moves no byte of the source.
        let is_fetching =
            self.progress.as_ref().is_some_and(|told| told.phase == ImportPhase::Fetching);
        let still_until = if self.is_answering { now } else { self.answered_at };
        Talk {
            progress: self.progress.clone(),
            still_for: if is_fetching {
                still_until.saturating_sub(self.moved_at)
            } else {
                Duration::ZERO
            },
            mute_for: self.has_connected.then_some(since_answer),
            unknown_for: (!self.is_answering).then_some(since_answer),
        }
    }
}

#[cfg(test)]
mod tests;
