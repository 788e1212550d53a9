//! Events: one when an image is queued or admitted, one at the end, and one per attempt that failed.

use otctl_kit::plan::Notice;
use otctl_types::condition;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};

use super::Pass;
use crate::record::SUCCEEDED;

impl Pass<'_> {
    /// Events: one when it is queued or admitted, one at the end, and one per attempt that failed.
    pub(super) fn notices(&self, after: &VMDiskImageStatus) -> Vec<Notice> {
        let before = &self.observed.record.status;
        let message = after.message.clone().unwrap_or_default();
        let mut notices = Vec::new();
        let failed = after.attempts.last().filter(|last| before.attempts.last() != Some(*last));
        if let Some(last) = failed.filter(|last| {
            last.reason.as_deref() != Some(SUCCEEDED) && after.phase != Some(Phase::Failed)
        }) {
            let text =
                format!("attempt {}: {}", last.number, last.message.clone().unwrap_or_default());
            let is_asked_for = matches!(last.reason.as_deref(), Some("Suspended" | "Superseded"));
            notices.push(notice(!is_asked_for, last.reason.clone().unwrap_or_default(), text));
        }
        let late = |status: &VMDiskImageStatus| status.late_snapshots.as_ref().map(|it| it.count);
        if late(after) > late(before) {
            notices.push(notice(true, "SnapshotFailed".to_owned(), message.clone()));
        }
        match after.phase {
            phase if phase == before.phase => {}
            Some(Phase::Queued) if before.phase.is_none() => {
                notices.push(notice(false, "Queued".to_owned(), message))
            }
            Some(Phase::Syncing) if before.phase.is_none() => {
                notices.push(notice(false, "Admitted".to_owned(), message))
            }
            Some(Phase::Succeeded) => notices.push(notice(false, "Succeeded".to_owned(), message)),
            Some(Phase::Failed) => {
                let stalled = condition::find(&after.conditions, condition::STALLED);
                notices.push(notice(
                    true,
                    stalled.map(|stalled| stalled.reason.clone()).unwrap_or_default(),
                    message,
                ));
            }
            Some(Phase::Queued | Phase::Syncing | Phase::Snapshotting) | None => {}
        }
        notices
    }
}

fn notice(warning: bool, reason: String, message: String) -> Notice {
    Notice { warning, reason, action: "Sync", message, regarding: None }
}
