//! Namespaces that take nothing new, as far as anybody has found out. Namespaces are not watched: a right in a namespace
//! allows no watch of it, only to ask for it. Who is about to make something asks; what it learns is kept here for
//! everybody, and one loop asks again until the namespace takes something.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use otctl_kit::cluster::ApiError;
use otctl_kit::reader::Reader;
use otctl_types::condition::Reason;

use crate::images::Lack;

/// Whether a namespace takes something new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ground {
    /// Nothing speaks against it.
    #[default]
    Firm,
    /// It is being deleted.
    Terminating,
    /// There is none of that name.
    Absent,
    /// The controller may not ask. Its right to goes with the namespace that it is bound in, so most often there is none; but
    /// a binding that is being replaced is away for a moment.
    OutOfReach,
    /// It has not been allowed to for as long as [`LASTS`]: there is none, or nothing in it can be seen to any more.
    Lost,
}

/// A right that is away for less is taken for one that comes back: nothing is given up because of it. A namespace that is
/// gone holds a deletion up for no longer.
pub const LASTS: SignedDuration = SignedDuration::from_mins(1);

impl Ground {
    /// Whether what is in it can be seen and written.
    pub fn is_within_reach(self) -> bool {
        matches!(self, Self::Firm | Self::Terminating)
    }

    /// Why nothing new can be made, as far as that is not for a moment.
    pub fn lack(self, namespace: &str) -> Option<Lack> {
        match self {
            Self::OutOfReach => None,
            Self::Firm | Self::Terminating | Self::Absent | Self::Lost => self.obstacle(namespace),
        }
    }

    /// Why a slot is not to be taken.
    pub fn obstacle(self, namespace: &str) -> Option<Lack> {
        let (reason, message) = match self {
            Self::Firm => return None,
            Self::Terminating => (
                Reason::NamespaceTerminating,
                format!(
                    "namespace '{namespace}' is being deleted; this goes on when one of that name is there again"
                ),
            ),
            Self::Absent => (
                Reason::NamespaceNotFound,
                format!(
                    "there is no namespace '{namespace}': create it, and this goes on by itself"
                ),
            ),
            Self::OutOfReach | Self::Lost => (
                Reason::NamespaceNotFound,
                format!(
                    "there is no namespace '{namespace}', or the controller has no rights in it: create it, and upgrade the controller's chart, which binds its role there; then this goes on by itself"
                ),
            ),
        };
        Some(Lack { reason, message })
    }
}

type Subscriber = Box<dyn Fn(&str) + Send + Sync>;

/// What is known of namespaces. Clones share it.
#[derive(Clone, Default)]
pub struct Grounds {
    found: Arc<Mutex<Found>>,
    subscribers: Arc<RwLock<Vec<Subscriber>>>,
}

#[derive(Default)]
struct Found {
    /// Namespaces that took nothing new.
    bad: BTreeMap<String, Ground>,
    /// When those could not be asked for, without a break that anybody has noticed. A controller that starts anew begins to
    /// count anew: it may only wait longer.
    denied: BTreeMap<String, Denied>,
}

/// The first and the last time of several.
#[derive(Clone, Copy)]
struct Denied {
    since: Timestamp,
    last: Timestamp,
}

/// What was not asked for longer than that is not known to have lasted: nobody asks while another controller leads.
const GAP: SignedDuration = SignedDuration::from_secs(30);

impl Grounds {
    /// What was found last; firm where nobody has asked.
    pub fn known(&self, namespace: &str) -> Ground {
        self.found().bad.get(namespace).copied().unwrap_or_default()
    }

    /// Namespaces that took nothing new when they were asked for last.
    pub fn all_bad(&self) -> Vec<String> {
        self.found().bad.keys().cloned().collect()
    }

    /// Asks for a namespace. That it may not be asked for is an answer: nobody else is to suffer from it. `now` is the time of
    /// that answer.
    ///
    /// # Errors
    /// When the read fails.
    pub async fn ask(
        &self,
        reader: &Reader,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Ground, ApiError> {
        let ground = match reader.get::<Namespace>(None, namespace).await {
            Err(ApiError::Forbidden { .. }) => self.denied(namespace, now),
            Err(error) => return Err(error),
            Ok(None) => Ground::Absent,
            Ok(Some(found)) if found.metadata.deletion_timestamp.is_some() => Ground::Terminating,
            Ok(Some(_)) => Ground::Firm,
        };
        self.note(namespace, ground);
        Ok(ground)
    }

    /// Calls `wake` with the name of a namespace of which something else was found than before.
    pub fn subscribe(&self, wake: impl Fn(&str) + Send + Sync + 'static) {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(wake));
    }

    fn denied(&self, namespace: &str, now: Timestamp) -> Ground {
        let since = self.found().denied(namespace, now);
        if now.duration_since(since) >= LASTS { Ground::Lost } else { Ground::OutOfReach }
    }

    fn note(&self, namespace: &str, ground: Ground) {
        let before = self.found().note(namespace, ground);
        if before != ground {
            let subscribers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
            subscribers.iter().for_each(|wake| wake(namespace));
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Since when it was denied.
    fn denied(&mut self, namespace: &str, now: Timestamp) -> Timestamp {
        let before = self.denied.get(namespace);
        let before = before.filter(|before| now.duration_since(before.last).abs() <= GAP);
        let since = before.map_or(now, |before| before.since);
        self.denied.insert(namespace.to_owned(), Denied { since, last: now });
        since
    }

    /// What was found before.
    fn note(&mut self, namespace: &str, ground: Ground) -> Ground {
        let is_denied = matches!(ground, Ground::OutOfReach | Ground::Lost);
        if !is_denied {
            self.denied.remove(namespace);
        }
        let before = match ground {
            Ground::Firm => self.bad.remove(namespace),
            Ground::Terminating | Ground::Absent | Ground::OutOfReach | Ground::Lost => {
                self.bad.insert(namespace.to_owned(), ground)
            }
        };
        before.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was found at these seconds, when it could not be asked for.
    #[track_caller]
    fn check(seconds: &[i64], expected: Ground) {
        let grounds = Grounds::default();
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let found: Vec<_> = seconds.iter().map(|it| grounds.denied("labs", at(*it))).collect();
        assert_eq!(found.last(), Some(&expected), "{seconds:?}");
    }

    #[test]
    fn a_right_is_lost_once_it_was_away_for_a_minute() {
        check(&[0], Ground::OutOfReach);
        check(&[0, 20, 40, 59], Ground::OutOfReach);
        check(&[0, 20, 40, 60], Ground::Lost);
    }

    /// Another controller may have led meanwhile, or a clock was put right.
    #[test]
    fn what_was_not_asked_for_in_between_is_not_known_to_have_lasted() {
        check(&[0, 3600], Ground::OutOfReach);
        check(&[0, 20, 3600, 3620], Ground::OutOfReach);
        check(&[0, 3600, 3620, 3640, 3660], Ground::Lost);
        check(&[3600, 0, 20, 40, 60], Ground::Lost);
    }

    #[test]
    fn a_moment_is_no_lack_and_keeps_from_a_slot_all_the_same() {
        assert_eq!(Ground::OutOfReach.lack("labs"), None);
        assert!(Ground::OutOfReach.obstacle("labs").is_some());
        for ground in [Ground::Terminating, Ground::Absent, Ground::Lost] {
            assert_eq!(ground.lack("labs"), ground.obstacle("labs"), "{ground:?}");
        }
    }
}
