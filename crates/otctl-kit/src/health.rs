//! Signs of life. A loop that has not beaten within its bound is wedged, and so is a stream that gets nowhere while others
//! do; a restart may help: that is what `/livez` tells. When nobody is answered the API server is away, and a restart
//! would help only against what is wrong in here (certificates that were replaced, say): so it is tried much later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A stream that got nowhere for so long, while others were answered, will not heal by itself.
const STUCK: Duration = Duration::from_secs(60);
/// A stream without an answer is not up to date: not ready.
const OUT_OF_TOUCH: Duration = Duration::from_secs(60);
/// With a few streams and a lease, somebody is answered more often than this if anybody is.
const QUIET: Duration = Duration::from_secs(45);
/// An API server that answers nobody for so long may not be what is broken.
const ABANDONED: Duration = Duration::from_mins(10);

/// The loops of a process.
#[derive(Clone, Debug, Default)]
pub struct Health {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    loops: HashMap<String, Vital>,
    /// When the API server last answered anything.
    answered: Option<Instant>,
}

#[derive(Debug)]
struct Vital {
    bound: Duration,
    beat: Instant,
    stream: Option<Stream>,
}

/// What is known of a loop that follows the API server.
#[derive(Debug)]
struct Stream {
    entered: Instant,
    contact: Option<Instant>,
    /// Since when it gets nowhere, for a reason that is its own.
    stuck: Option<Instant>,
}

/// A loop and how long it was silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The loop.
    pub name: String,
    /// Time since it beat or got anywhere; for [`Health::contacts`], since the server answered it, none for never.
    pub lasted: Option<Duration>,
}

impl Health {
    /// Enters a loop that must beat at least once in `bound`. It stays entered when it dies without a word.
    #[must_use]
    pub fn pulse(&self, name: &str, bound: Duration) -> Pulse {
        self.enter(name, Vital { bound, beat: Instant::now(), stream: None })
    }

    /// Enters a loop that follows the API server.
    #[must_use]
    pub fn stream(&self, name: &str, bound: Duration) -> Pulse {
        let beat = Instant::now();
        let stream = Some(Stream { entered: beat, contact: None, stuck: None });
        self.enter(name, Vital { bound, beat, stream })
    }

    fn enter(&self, name: &str, vital: Vital) -> Pulse {
        self.lock().loops.insert(name.to_owned(), vital);
        Pulse { health: self.clone(), name: name.to_owned() }
    }

    /// The API server answered a request that is no stream's.
    pub fn answered(&self) {
        self.lock().answered = Some(Instant::now());
    }

    /// The loops that are silent beyond their bound and the streams that get nowhere, by name.
    #[must_use]
    pub fn wedged(&self) -> Vec<Silence> {
        self.list(|vital| vital.wedged().map(Some))
    }

    /// How long ago the API server answered each stream, by name.
    #[must_use]
    pub fn contacts(&self) -> Vec<Silence> {
        self.list(|vital| {
            let stream = vital.stream.as_ref()?;
            Some(stream.contact.map(|contact| contact.elapsed()))
        })
    }

    /// The streams that were not answered for so long that they may be out of date, by name.
    #[must_use]
    pub fn out_of_touch(&self) -> Vec<Silence> {
        self.list(|vital| {
            let silent = vital.stream.as_ref()?.silent();
            (silent > OUT_OF_TOUCH).then_some(Some(silent))
        })
    }

    fn list(&self, judge: impl Fn(&Vital) -> Option<Option<Duration>>) -> Vec<Silence> {
        let inner = self.lock();
        let judged = inner.loops.iter().filter_map(|(name, vital)| Some((name, judge(vital)?)));
        let mut found: Vec<Silence> =
            judged.map(|(name, lasted)| Silence { name: name.clone(), lasted }).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vital {
    fn wedged(&self) -> Option<Duration> {
        let silent = Some(self.beat.elapsed()).filter(|lasted| *lasted > self.bound);
        silent.or_else(|| self.stream.as_ref()?.wedged())
    }
}

impl Stream {
    fn wedged(&self) -> Option<Duration> {
        let stuck = self.stuck.map(|since| since.elapsed()).filter(|lasted| *lasted > STUCK);
        stuck.or_else(|| Some(self.silent()).filter(|lasted| *lasted > ABANDONED))
    }

    fn silent(&self) -> Duration {
        self.contact.unwrap_or(self.entered).elapsed()
    }
}

/// The sign of life of one loop.
#[derive(Debug)]
pub struct Pulse {
    health: Health,
    name: String,
}

impl Pulse {
    /// The loop is alive.
    pub fn beat(&self) {
        self.note(|vital, _| vital.beat = Instant::now());
    }

    /// The API server answered it, so it is alive too.
    pub fn contact(&self) {
        let now = Instant::now();
        self.note(|vital, answered| {
            vital.beat = now;
            *answered = Some(now);
            if let Some(stream) = &mut vital.stream {
                stream.contact = Some(now);
            }
        });
    }

    /// What it was answered brought it on, or would not be another after a restart.
    pub fn well(&self) {
        self.of_stream(|stream, _| stream.stuck = None);
    }

    /// What it was answered it cannot take in, but a new process could.
    pub fn stuck(&self) {
        self.of_stream(|stream, _| stream.stuck = stream.stuck.or(Some(Instant::now())));
    }

    /// It asked at `since` and was not answered. If others were meanwhile, the reason is its own.
    pub fn unanswered(&self, since: Instant) {
        self.of_stream(|stream, answered| {
            let is_alone = answered.is_some_and(|answered| {
                answered > since && stream.contact.is_none_or(|contact| contact < answered)
            });
            if is_alone {
                let since = stream.contact.map_or(since, |contact| contact.max(since));
                stream.stuck = stream.stuck.or(Some(since));
            } else if answered.is_none_or(|answered| answered.elapsed() > QUIET) {
                stream.stuck = None;
            }
        });
    }

    /// The loop ends as it should; nothing is expected of it any more.
    pub fn retire(self) {
        self.health.lock().loops.remove(&self.name);
    }

    fn of_stream(&self, change: impl FnOnce(&mut Stream, Option<Instant>)) {
        self.note(|vital, answered| {
            if let Some(stream) = &mut vital.stream {
                change(stream, *answered);
            }
        });
    }

    fn note(&self, change: impl FnOnce(&mut Vital, &mut Option<Instant>)) {
        let mut inner = self.health.lock();
        let Inner { loops, answered } = &mut *inner;
        if let Some(vital) = loops.get_mut(&self.name) {
            change(vital, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    fn names(silences: Vec<Silence>) -> Vec<String> {
        silences.into_iter().map(|silence| silence.name).collect()
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stops_beating_is_wedged_even_when_it_died() {
        let health = Health::default();
        let (alive, dead) = (health.pulse("alive", BOUND), health.pulse("dead", BOUND));
        drop(dead);
        pass(61).await;
        alive.beat();
        assert_eq!(names(health.wedged()), ["dead"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_answered_is_wedged_only_if_others_are() {
        let health = Health::default();
        let (jobs, pods) = (health.stream("watch Job", BOUND), health.stream("watch Pod", BOUND));
        jobs.contact();
        for _ in 0..7 {
            let asked = Instant::now();
            pass(10).await;
            jobs.beat();
            pods.contact();
            jobs.unanswered(asked);
        }
        assert_eq!(names(health.wedged()), ["watch Job"]);
        jobs.contact();
        jobs.well();
        assert_eq!(health.wedged(), [], "it healed");
    }

    #[tokio::test(start_paused = true)]
    async fn when_nobody_is_answered_a_restart_is_tried_late() {
        let health = Health::default();
        let (jobs, pods) = (health.stream("watch Job", BOUND), health.stream("watch Pod", BOUND));
        pods.contact();
        for _ in 0..59 {
            let asked = Instant::now();
            pass(10).await;
            for pulse in [&jobs, &pods] {
                pulse.beat();
                pulse.unanswered(asked);
            }
        }
        assert_eq!(health.wedged(), []);
        assert_eq!(names(health.out_of_touch()), ["watch Job", "watch Pod"]);
        pass(11).await;
        jobs.beat();
        pods.beat();
        assert_eq!(names(health.wedged()), ["watch Job", "watch Pod"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_comes_back_does_not_find_everybody_wedged() {
        let health = Health::default();
        let (jobs, asked) = (health.stream("watch Job", BOUND), Instant::now());
        for _ in 0..12 {
            pass(10).await;
            jobs.beat();
            jobs.unanswered(asked);
        }
        let asked = Instant::now();
        pass(10).await;
        health.answered();
        jobs.unanswered(asked);
        assert_eq!(health.wedged(), [], "it has been alone for one try only");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_can_use_nothing_of_what_it_is_told_is_wedged() {
        let health = Health::default();
        let jobs = health.stream("watch Job", BOUND);
        for _ in 0..7 {
            jobs.contact();
            jobs.stuck();
            pass(10).await;
        }
        assert_eq!(names(health.wedged()), ["watch Job"]);
        jobs.well();
        assert_eq!(health.wedged(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_tells_its_last_contact_until_it_retires() {
        let health = Health::default();
        let pulse = health.stream("watch Job", BOUND);
        let _loop = health.pulse("loop image", BOUND);
        assert_eq!(health.contacts(), [Silence { name: "watch Job".to_owned(), lasted: None }]);
        pulse.contact();
        pass(50).await;
        pulse.beat();
        assert_eq!(health.contacts()[0].lasted, Some(Duration::from_secs(50)));
        pulse.retire();
        assert_eq!(health.contacts(), []);
    }
}
