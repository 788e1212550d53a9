//! What happens to an image next, and when.

use otctl_types::condition::Reason;
use otctl_types::diskimage::Phase;

use super::Teller;
use crate::kind::image::arguments;
use crate::out::when;

impl Teller<'_> {
    /// What happens next. Nothing for one that is done.
    pub(super) fn next(&self) -> Option<String> {
        let image = &self.facts.image;
        if image.metadata.deletion_timestamp.is_some() {
            return Some(
                "it goes with everything that it owns, once no finalizer holds them".to_owned(),
            );
        }
        if self.facts.standing.is_unseen() {
            return Some("the controller looks at it, within seconds if it runs".to_owned());
        }
        if image.spec.suspend && self.status.phase == Some(Phase::Queued) {
            return Some(format!(
                "nothing by itself; `otctl resume {}` lets it go on",
                arguments(image)
            ));
        }
        match self.status.phase? {
            Phase::Failed => Some(self.after_failure()),
            Phase::Queued => Some(self.after_waiting()),
            Phase::Syncing => Some(self.after_syncing()),
            Phase::Snapshotting => Some("usable when the snapshot is ready".to_owned()),
            Phase::Succeeded => None,
        }
    }

    fn after_failure(&self) -> String {
        if self.is(Reason::InvalidSpec) {
            return "nothing by itself; an edit of the spec is enough".to_owned();
        }
        let arguments = arguments(&self.facts.image);
        format!(
            "nothing by itself; once the cause is mended, `otctl retry {arguments}` tries again"
        )
    }

    fn after_waiting(&self) -> String {
        if self.is(Reason::Paused) {
            return "it starts once `concurrency` of the policy is raised".to_owned();
        }
        let retry = self.status.next_retry_at.as_ref().map(|at| at.0).filter(|at| *at > self.now);
        if let Some(at) = retry {
            return format!(
                "the next attempt at {} or later, when there is a slot",
                when(at, self.now)
            );
        }
        match self.facts.place.map(|place| place.position) {
            Some(Some(1)) => "it starts as soon as there is a slot".to_owned(),
            Some(Some(position)) => {
                format!("it starts when there is a slot, after {} others", position - 1)
            }
            Some(None) => "it goes on by itself once what is missing is there".to_owned(),
            None => "it goes on by itself".to_owned(),
        }
    }

    fn after_syncing(&self) -> String {
        let class = self.facts.image.spec.snapshot_class.clone();
        let class =
            class.or_else(|| self.policy().and_then(|policy| policy.default_snapshot_class));
        let end = class.map_or("the disk is usable".to_owned(), |class| {
            format!("a snapshot of class '{class}' is taken")
        });
        if self.is(Reason::Probing) {
            return format!("the image is downloaded and verified, then {end}");
        }
        format!("the disk is verified, then {end}")
    }

    fn is(&self, reason: Reason) -> bool {
        self.facts.standing.reason == reason.as_str()
    }
}
