//! What is worth a write. A part that is on its way tells something new at every step, and a place in the line moves with
//! everybody's: each costs a write, and nobody does anything else because of it. What somebody may act on is told at once:
//! another phase, condition or reason, one more part that is ready, and every word about what is broken.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use otctl_types::condition::{self, Reason};
use otctl_types::workspace::{ContainerReport, ContainerState, WorkspaceStatus};

/// Reasons of what is on its way: their messages move with every step of it.
const ON_ITS_WAY: [Reason; 4] =
    [Reason::Queued, Reason::SlotsBusy, Reason::Creating, Reason::Progressing];

/// Conditions whose message is that of another one.
const REPEATING: [&str; 3] = [condition::READY, condition::RECONCILING, condition::STALLED];

/// Whether `after` tells somebody more than `before` does.
pub fn is_news(before: Option<&WorkspaceStatus>, after: &WorkspaceStatus) -> bool {
    before.is_none_or(|before| gist(before) != gist(after))
}

/// What counts. The message of the whole is that of a condition.
fn gist(status: &WorkspaceStatus) -> WorkspaceStatus {
    let mut gist = status.clone();
    gist.message = None;
    if condition::is_true(&gist.conditions, condition::DELETING) {
        // Its parts go one by one, and are missed by nobody.
        gist.conditions.retain(|it| [condition::READY, condition::DELETING].contains(&&*it.type_));
        (gist.ready_parts, gist.resource_status) = (None, None);
    }
    let are_machines_moving =
        condition::find(&gist.conditions, condition::VIRTUAL_MACHINES_READY).is_some_and(is_moving);
    gist.conditions.iter_mut().for_each(reduce);
    if let Some(resources) = &mut gist.resource_status {
        resources.containers.iter_mut().for_each(container);
        let machines = resources.virtual_machines.iter_mut();
        machines.filter(|_| are_machines_moving).for_each(|machine| machine.message = None);
    }
    gist
}

fn is_moving(condition: &Condition) -> bool {
    is_on_its_way(&condition.reason)
}

/// Whether nothing is wrong with what is not as it should be for this reason.
pub fn is_on_its_way(reason: &str) -> bool {
    ON_ITS_WAY.iter().any(|known| known.as_str() == reason)
}

fn reduce(condition: &mut Condition) {
    if is_moving(condition) || REPEATING.contains(&&*condition.type_) {
        condition.message.clear();
    }
    // Who waits, waits, whether or not a slot is free for a moment; and what is being made is on its way.
    if condition.reason == Reason::SlotsBusy.as_str() {
        condition.reason = Reason::Queued.to_string();
    }
    if condition.reason == Reason::Creating.as_str() {
        condition.reason = Reason::Progressing.to_string();
    }
}

fn container(report: &mut ContainerReport) {
    match report.status {
        ContainerState::Pending | ContainerState::Progressing => {
            report.status = ContainerState::Progressing;
            report.message = None;
        }
        ContainerState::Running | ContainerState::Degraded | ContainerState::Failed => {}
    }
}
