//! What tests want of the snapshotter, each in its namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::Stream;
use tokio::sync::watch;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    held: bool,
    delay: Duration,
    failures: usize,
    message: String,
}

/// The faults in force. Changing them makes the snapshotter look at every snapshot again.
#[derive(Default)]
pub(super) struct Faults {
    wanted: watch::Sender<BTreeMap<String, Wanted>>,
}

/// When a copied snapshot may become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Now,
    In(Duration),
    OnRelease,
}

impl Faults {
    pub(super) fn delay_ready(&self, namespace: &str, delay: Duration) {
        self.change(namespace, |wanted| wanted.delay = delay);
    }

    pub(super) fn fail_next(&self, namespace: &str, count: usize, message: &str) {
        self.change(namespace, |wanted| {
            wanted.failures = count;
            message.clone_into(&mut wanted.message);
        });
    }

    pub(super) fn hold(&self, namespace: &str, held: bool) {
        self.change(namespace, |wanted| wanted.held = held);
    }

    fn change(&self, namespace: &str, change: impl FnOnce(&mut Wanted)) {
        self.wanted.send_modify(|all| change(all.entry(namespace.to_owned()).or_default()));
    }

    /// The message of a failure that is due now; each is due once.
    pub(super) fn due_failure(&self, namespace: &str) -> Option<String> {
        let mut due = None;
        self.wanted.send_if_modified(|all| {
            if let Some(wanted) = all.get_mut(namespace)
                && let Some(left) = wanted.failures.checked_sub(1)
            {
                wanted.failures = left;
                due = Some(wanted.message.clone());
            }
            false
        });
        due
    }

    /// When a snapshot copied this long ago may become ready.
    pub(super) fn readiness(&self, namespace: &str, age: Duration) -> Readiness {
        let all = self.wanted.borrow();
        let Some(wanted) = all.get(namespace) else { return Readiness::Now };
        match wanted.delay.saturating_sub(age) {
            _ if wanted.held => Readiness::OnRelease,
            Duration::ZERO => Readiness::Now,
            rest => Readiness::In(rest),
        }
    }

    /// An item whenever the wishes change.
    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        futures::stream::unfold(self.wanted.subscribe(), |mut wanted| async {
            wanted.changed().await.ok()?;
            Some(((), wanted))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_due_exactly_as_often_as_asked_and_only_where_asked() {
        let faults = Faults::default();
        faults.fail_next("a", 2, "no");
        assert_eq!(faults.due_failure("b"), None);
        let due: Vec<_> = (0..4).map(|_| faults.due_failure("a")).collect();
        assert_eq!(due, [Some("no".to_owned()), Some("no".to_owned()), None, None]);
    }

    #[test]
    fn a_hold_outlasts_any_delay() {
        let faults = Faults::default();
        let after = |seconds| faults.readiness("a", Duration::from_secs(seconds));
        assert_eq!(after(0), Readiness::Now);
        faults.delay_ready("a", Duration::from_secs(5));
        assert_eq!(after(2), Readiness::In(Duration::from_secs(3)));
        assert_eq!(after(5), Readiness::Now);
        faults.hold("a", true);
        assert_eq!(after(9), Readiness::OnRelease);
    }
}
