//! What is the case, read from the stores when it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use otctl_kit::clock::Clock;
use otctl_kit::metrics::Scraped;
use otctl_queue::metrics::{POLICY_VALID, ledger};
use otctl_types::Workspace;
use otctl_types::condition::{self, Reason};
use otctl_types::workspace::Phase;
use prometheus::IntGaugeVec;

use super::families::{ACTIVE, LIMIT, OLDEST, UNREADY, UNREADY_AGE, WAITING, WORKSPACES};
use crate::views::Views;

const PHASES: [Phase; 4] = [Phase::Provisioning, Phase::Ready, Phase::Suspended, Phase::Failed];
/// A word that no version of this controller has written.
const OTHER: &str = "other";
/// Conditions that begin something: how long one is unready counts from there.
const BEGINNINGS: [(&str, &str); 5] = [
    (condition::READY, "False"),
    (condition::ADMITTED, "True"),
    (condition::IMAGES_READY, "True"),
    (condition::STALLED, "True"),
    (condition::DELETING, "True"),
];

/// Workspaces by phase and reason, and the ledger.
pub fn gauges(views: Views, clock: Arc<dyn Clock>) -> Scraped<8> {
    let families = [WORKSPACES, UNREADY, UNREADY_AGE, WAITING, OLDEST, ACTIVE, LIMIT, POLICY_VALID];
    let sight = Sight { views, clock };
    Scraped::new(families, move |families| sight.fill(families))
}

/// What is read.
struct Sight {
    views: Views,
    clock: Arc<dyn Clock>,
}

/// How many are unready for the same reason, and since when the first of them is.
struct Unready {
    count: i64,
    since: Timestamp,
}

impl Sight {
    fn fill(&self, families: &[IntGaugeVec; 8]) {
        let [workspaces, unready, age, ledger_families @ ..] = families;
        self.fill_phases(workspaces);
        self.fill_unready(unready, age);
        // Before there is a ledger nothing is known of it, and nothing is better than zeros.
        let Some(status) = self.views.queue().and_then(|queue| queue.status.clone()) else {
            return;
        };
        let told = ledger(&status, |ticket| self.queued_at(ticket), self.clock.now());
        for (family, value) in ledger_families.iter().zip(told) {
            family.with_label_values::<&str>(&[]).set(value);
        }
    }

    fn fill_phases(&self, workspaces: &IntGaugeVec) {
        let all = self.views.workspaces.all();
        for phase in PHASES {
            let count = all.iter().filter(|workspace| phase_of(workspace) == phase).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            workspaces.with_label_values(&[phase.as_str()]).set(count);
        }
    }

    fn fill_unready(&self, counts: &IntGaugeVec, ages: &IntGaugeVec) {
        let mut groups: BTreeMap<(&str, &str), Unready> = BTreeMap::new();
        let now = self.clock.now();
        for workspace in self.views.workspaces.all() {
            let Some(reason) = reason_of(&workspace) else { continue };
            let since = unready_since(&workspace).unwrap_or(now);
            let group = groups
                .entry((phase_of(&workspace).as_str(), reason))
                .or_insert(Unready { count: 0, since });
            *group = Unready { count: group.count + 1, since: since.min(group.since) };
        }
        for ((phase, reason), Unready { count, since }) in groups {
            counts.with_label_values(&[phase, reason]).set(count);
            let age = now.duration_since(since).as_secs().max(0);
            ages.with_label_values(&[phase, reason]).set(age);
        }
    }

    fn queued_at(&self, ticket: &str) -> Option<Timestamp> {
        let workspaces = self.views.workspaces.all();
        let mut told = workspaces.iter().filter_map(|workspace| workspace.status.as_ref());
        let waits = told.find(|status| status.ticket.as_deref() == Some(ticket))?;
        waits.queued_at.as_ref().map(|at| at.0)
    }
}

/// One that nothing was told of yet is at its beginning.
fn phase_of(workspace: &Workspace) -> Phase {
    let status = workspace.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or(Phase::Provisioning)
}

fn conditions(workspace: &Workspace) -> &[Condition] {
    workspace.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// Why it is not ready, as a label; none when it is. One that nothing was told of yet waits for its ticket.
fn reason_of(workspace: &Workspace) -> Option<&'static str> {
    let Some(ready) = condition::find(conditions(workspace), condition::READY) else {
        return Some(Reason::Queued.as_str());
    };
    let word = Reason::named(&ready.reason).map_or(OTHER, Reason::as_str);
    (ready.status != "True").then_some(word)
}

/// Since when what keeps it unready does. A resumption does not make `Ready` False anew, and neither does a slot.
fn unready_since(workspace: &Workspace) -> Option<Timestamp> {
    let begins = |it: &&Condition| BEGINNINGS.contains(&(&*it.type_, &*it.status));
    let begun = conditions(workspace).iter().filter(begins).map(|it| it.last_transition_time.0);
    let status = workspace.status.as_ref();
    let queued = status.and_then(|status| status.queued_at.as_ref()).map(|at| at.0);
    let created = workspace.creation_timestamp().map(|at| at.0);
    begun.chain(queued).chain(created).max()
}
