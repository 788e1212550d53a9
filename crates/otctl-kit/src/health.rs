//! Signs of life. A loop that has not beaten within its bound is wedged, and a restart may help: that is what `/livez`
//! tells. A loop that beats but gets no answer from the API server is not wedged: a restart would not help it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The loops of a process.
#[derive(Clone, Debug, Default)]
pub struct Health {
    loops: Arc<Mutex<HashMap<String, Vital>>>,
}

#[derive(Debug)]
struct Vital {
    bound: Duration,
    beat: Instant,
    contact: Option<Instant>,
}

/// A loop and how long it was silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The loop.
    pub name: String,
    /// Time since it beat; for [`Health::contacts`], since the server answered it, none for never.
    pub lasted: Option<Duration>,
}

impl Health {
    /// Enters a loop that must beat at least once in `bound`. It stays entered when it dies without a word.
    #[must_use]
    pub fn pulse(&self, name: &str, bound: Duration) -> Pulse {
        let vital = Vital { bound, beat: Instant::now(), contact: None };
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), vital);
        Pulse { health: self.clone(), name: name.to_owned() }
    }

    /// The loops that are silent beyond their bound, by name.
    #[must_use]
    pub fn wedged(&self) -> Vec<Silence> {
        self.list(|vital| {
            Some(vital.beat.elapsed()).filter(|lasted| *lasted > vital.bound).map(Some)
        })
    }

    /// How long ago the API server answered each stream, by name.
    #[must_use]
    pub fn contacts(&self) -> Vec<Silence> {
        self.list(|vital| Some(vital.contact.map(|contact| contact.elapsed())))
    }

    fn list(&self, judge: impl Fn(&Vital) -> Option<Option<Duration>>) -> Vec<Silence> {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let judged = loops.iter().filter_map(|(name, vital)| Some((name, judge(vital)?)));
        let mut found: Vec<Silence> =
            judged.map(|(name, lasted)| Silence { name: name.clone(), lasted }).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
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
        self.note(|vital| vital.beat = Instant::now());
    }

    /// The API server answered it, so it is alive too.
    pub fn contact(&self) {
        self.note(|vital| {
            vital.beat = Instant::now();
            vital.contact = Some(vital.beat);
        });
    }

    /// The loop ends as it should; nothing is expected of it any more.
    pub fn retire(self) {
        self.health.loops.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }

    fn note(&self, change: impl FnOnce(&mut Vital)) {
        let mut loops = self.health.loops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vital) = loops.get_mut(&self.name) {
            change(vital);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stops_beating_is_wedged_even_when_it_died() {
        let health = Health::default();
        let (alive, dead) = (health.pulse("alive", BOUND), health.pulse("dead", BOUND));
        drop(dead);
        tokio::time::advance(BOUND + Duration::from_secs(1)).await;
        alive.beat();
        let names: Vec<String> = health.wedged().into_iter().map(|silence| silence.name).collect();
        assert_eq!(names, ["dead"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_contact_is_not_wedged_and_one_that_retired_is_forgotten() {
        let health = Health::default();
        let pulse = health.pulse("watch Job", BOUND);
        assert_eq!(health.contacts(), [Silence { name: "watch Job".to_owned(), lasted: None }]);
        pulse.contact();
        tokio::time::advance(Duration::from_secs(50)).await;
        pulse.beat();
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(health.wedged(), []);
        assert_eq!(health.contacts()[0].lasted, Some(Duration::from_secs(100)));
        pulse.retire();
        assert_eq!(health.contacts(), []);
    }
}
