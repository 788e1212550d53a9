//! Reading one's own writes. The views trail the API server by some milliseconds, so the pass after a write could be
//! decided on what was before it, and make the write again. Here is what each pass learnt from the answers to its
//! writes; the driver begins no other pass of its key before the views show it, or for [`VIEW_PATIENCE`] at most: a view that
//! stands still delays a key, and stops none.
//!
//! It saves requests and is no guard: nothing of it survives the process, other writers are not in it, and a pass that
//! does run on an old view is met by the preconditions of its writes.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{after, until};
use crate::cluster::Target;
use crate::store::{Key, Version};

/// A key waits so long at most.
pub const VIEW_PATIENCE: Duration = Duration::from_secs(5);
/// The views are asked again so soon: most of what they take in wakes the key anyway, but not all of it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What a view must show before the next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Of which object.
    pub target: Target,
    /// What of it.
    pub fact: Fact,
}

/// What the answer to a write tells of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The write left it in this version.
    Reached(Version),
    /// A write that this version guarded was refused: it has a later one, or is gone.
    Left(Version),
    /// The object of this UID is gone.
    Gone {
        /// Its UID.
        uid: String,
    },
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fact {
            Fact::Reached(version) => write!(f, "{} at version {version}", self.target),
            Fact::Left(version) => write!(f, "{} past version {version}", self.target),
            Fact::Gone { uid } => write!(f, "{} without UID {uid}", self.target),
        }
    }
}

/// What the passes of one loop expect their views to show.
#[derive(Debug, Default)]
pub struct Expectations {
    of_keys: HashMap<Key, Expected>,
}

#[derive(Debug)]
struct Expected {
    since: Timestamp,
    unseen: Vec<Expectation>,
}

/// Whether the views have caught up with what a key's last pass wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// They have.
    Current,
    /// They have not.
    Behind {
        /// When to ask again.
        again: Timestamp,
    },
    /// They have not for so long that the key waits no more.
    Overdue {
        /// The first thing that they do not show.
        unseen: Expectation,
    },
}

impl Expectations {
    /// The pass of `key` that has ended expects this. Replaces what was expected before: that pass began only when the
    /// views showed it, or when it was given up.
    pub fn note(&mut self, key: &Key, expected: Vec<Expectation>, now: Timestamp) {
        if !expected.is_empty() {
            self.of_keys.insert(key.clone(), Expected { since: now, unseen: expected });
        }
    }

    /// Whether a pass of `key` may begin. What the views show, or what was waited for long enough, is forgotten.
    pub fn look(
        &mut self,
        key: &Key,
        now: Timestamp,
        has_seen: impl Fn(&Expectation) -> bool,
    ) -> Sight {
        let Some(expected) = self.of_keys.get_mut(key) else { return Sight::Current };
        expected.unseen.retain(|expectation| !has_seen(expectation));
        let Some(unseen) = expected.unseen.first().cloned() else {
            self.of_keys.remove(key);
            return Sight::Current;
        };
        match patience_left(expected.since, now) {
            Some(left) => Sight::Behind { again: after(now, left.min(LOOK_AGAIN)) },
            None => {
                self.of_keys.remove(key);
                Sight::Overdue { unseen }
            }
        }
    }

    /// Another process may have written since: what we wrote last means nothing any more.
    pub fn forget(&mut self) {
        self.of_keys.clear();
    }
}

/// None when it is used up. A clock that was set back does not make it longer.
fn patience_left(since: Timestamp, now: Timestamp) -> Option<Duration> {
    until(now, after(since, VIEW_PATIENCE)).filter(|left| *left <= VIEW_PATIENCE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn key() -> Key {
        Key::new("lab", "a")
    }

    fn written(name: &str) -> Expectation {
        let target = Target::new::<ConfigMap>(Some("lab"), name);
        Expectation { target, fact: Fact::Reached(Version::read("7")) }
    }

    fn expecting(names: &[&str]) -> Expectations {
        let mut expectations = Expectations::default();
        expectations.note(&key(), names.iter().map(|name| written(name)).collect(), START);
        expectations
    }

    #[test]
    fn a_key_waits_until_all_that_it_wrote_was_seen() {
        let mut expectations = expecting(&["one", "two"]);
        let behind = Sight::Behind { again: after(START, LOOK_AGAIN) };
        assert_eq!(expectations.look(&key(), START, |_| false), behind);
        assert_eq!(expectations.look(&key(), START, |seen| seen.target.name == "one"), behind);
        // What was seen once is not asked for again.
        assert_eq!(
            expectations.look(&key(), START, |seen| seen.target.name == "two"),
            Sight::Current
        );
        assert_eq!(expectations.look(&key(), START, |_| false), Sight::Current);
    }

    #[test]
    fn other_keys_do_not_wait() {
        let mut expectations = expecting(&["one"]);
        let other = Key::new("lab", "b");
        assert_eq!(expectations.look(&other, START, |_| false), Sight::Current);
    }

    #[test]
    fn a_pass_that_wrote_nothing_expects_nothing() {
        let mut expectations = expecting(&[]);
        assert_eq!(expectations.look(&key(), START, |_| false), Sight::Current);
    }

    #[test]
    fn patience_has_an_end_and_begins_anew_with_the_next_pass() {
        let mut expectations = expecting(&["one"]);
        let almost = after(START, VIEW_PATIENCE - Duration::from_millis(1));
        assert_eq!(
            expectations.look(&key(), almost, |_| false),
            Sight::Behind { again: after(START, VIEW_PATIENCE) }
        );
        let end = after(START, VIEW_PATIENCE);
        assert_eq!(
            expectations.look(&key(), end, |_| false),
            Sight::Overdue { unseen: written("one") }
        );
        assert_eq!(expectations.look(&key(), end, |_| false), Sight::Current, "told once");
        expectations.note(&key(), vec![written("two")], end);
        assert!(matches!(expectations.look(&key(), end, |_| false), Sight::Behind { .. }));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_prolong_it() {
        let mut expectations = expecting(&["one"]);
        let before = START.checked_sub(Duration::from_secs(3600)).unwrap();
        assert!(matches!(expectations.look(&key(), before, |_| false), Sight::Overdue { .. }));
    }

    #[test]
    fn what_is_forgotten_is_not_waited_for() {
        let mut expectations = expecting(&["one"]);
        expectations.forget();
        assert_eq!(expectations.look(&key(), START, |_| false), Sight::Current);
    }
}
