//! What people see of an image: phase, message and conditions, one function per condition. Nothing here is read back
//! by a decision.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use otctl_types::condition::{self, Finding, Reason, Truth};
use otctl_types::diskimage::{Phase, VMDiskImageStatus};

/// What is to be told.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where the image stands.
    pub phase: Phase,
    /// Why it is not further.
    pub reason: Reason,
    /// The first thing that is not yet true.
    pub message: String,
    /// Whether the spec is the trouble.
    pub is_refused: bool,
    /// Whether a snapshot is wanted.
    pub wants_snapshot: bool,
    /// The snapshot class, if it keeps content and bytes when the snapshot is deleted.
    pub retaining: Option<String>,
    /// Whether the data of the revision in spec is complete.
    pub has_data: bool,
}

/// The memory of `memory` with everything that is output made anew.
pub fn render(
    mut memory: VMDiskImageStatus,
    standing: &Standing,
    generation: Option<i64>,
    now: Timestamp,
) -> VMDiskImageStatus {
    let findings = findings(standing, memory.current.is_some());
    let at = Time(now);
    let before = std::mem::take(&mut memory.conditions);
    let conditions: Vec<Condition> = findings
        .iter()
        .map(|(kind, finding)| condition::condition(kind, finding, generation, &before, &at))
        .collect();
    memory.conditions = conditions;
    memory.observed_generation = generation;
    memory.phase = Some(standing.phase);
    memory.message = Some(condition::message(&standing.message));
    memory
}

fn findings(standing: &Standing, is_available: bool) -> Vec<(&'static str, Finding)> {
    let mut findings = vec![
        (condition::ACCEPTED, accepted(standing)),
        (condition::ADMITTED, admitted(standing)),
        (condition::SYNCED, synced(standing)),
        (condition::SNAPSHOTTED, snapshotted(standing)),
        (condition::AVAILABLE, available(standing, is_available)),
        (condition::READY, ready(standing)),
    ];
    findings.extend(reconciling(standing).map(|finding| (condition::RECONCILING, finding)));
    findings.extend(stalled(standing).map(|finding| (condition::STALLED, finding)));
    findings
}

fn accepted(standing: &Standing) -> Finding {
    if standing.is_refused {
        because(standing, false)
    } else {
        Finding::new(true, Reason::Accepted, "")
    }
}

fn admitted(standing: &Standing) -> Finding {
    match standing.phase {
        Phase::Syncing => Finding::new(true, Reason::Admitted, ""),
        Phase::Snapshotting | Phase::Succeeded => Finding::new(true, Reason::Succeeded, ""),
        Phase::Queued | Phase::Failed => because(standing, false),
    }
}

fn synced(standing: &Standing) -> Finding {
    if standing.has_data {
        Finding::new(true, Reason::Succeeded, "")
    } else {
        because(standing, false)
    }
}

fn snapshotted(standing: &Standing) -> Finding {
    match standing.phase {
        _ if !standing.wants_snapshot => {
            Finding::new(false, Reason::NotRequested, "no snapshotClass is set")
        }
        Phase::Succeeded => Finding::new(true, Reason::Succeeded, remains(standing)),
        Phase::Queued | Phase::Syncing | Phase::Snapshotting | Phase::Failed => {
            because(standing, false)
        }
    }
}

/// What deleting the image will leave behind, said while somebody can read it.
fn remains(standing: &Standing) -> String {
    let said = standing.retaining.as_ref().map(|class| {
        format!(
            "snapshot class '{class}' retains: the content and its bytes stay when this image is deleted, until a person deletes them"
        )
    });
    said.unwrap_or_default()
}

fn available(standing: &Standing, is_available: bool) -> Finding {
    match (is_available, standing.phase) {
        (true, Phase::Succeeded) => Finding::new(true, Reason::Succeeded, ""),
        (true, Phase::Queued | Phase::Syncing | Phase::Snapshotting | Phase::Failed) => {
            Finding::new(true, Reason::Updating, "an earlier state is usable")
        }
        (false, _) => Finding::new(false, Reason::NoData, "there is no usable disk yet"),
    }
}

fn ready(standing: &Standing) -> Finding {
    match standing.phase {
        Phase::Succeeded => Finding::new(true, Reason::Succeeded, standing.message.clone()),
        Phase::Queued | Phase::Syncing | Phase::Snapshotting | Phase::Failed => {
            because(standing, false)
        }
    }
}

fn reconciling(standing: &Standing) -> Option<Finding> {
    let works = matches!(standing.phase, Phase::Queued | Phase::Syncing | Phase::Snapshotting);
    (works && standing.reason != Reason::Suspended).then(|| because(standing, true))
}

fn stalled(standing: &Standing) -> Option<Finding> {
    (standing.phase == Phase::Failed).then(|| because(standing, true))
}

fn because(standing: &Standing, status: impl Into<Truth>) -> Finding {
    Finding::new(status, standing.reason, standing.message.clone())
}
