//! What people see of a workspace: phase, message, parts and conditions, one function per condition. Nothing here is read
//! back by a decision.

mod creating;
mod deleting;
mod news;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_types::condition::{self, Finding, Reason};
use otctl_types::workspace::{
    DiskOrigin, NetworkReport, Phase, Resources, VirtualMachineReport, WorkspaceStatus,
};

use super::observe::Observed;
use super::verdict::{self, Verdict, Wait};
use crate::family::{Child, ChildKind};
use crate::images::{Disk, Lack};
use crate::isolation;
use crate::kin::stays;
use crate::needs::no_kubevirt;
use crate::reports::Report;

pub use self::news::{is_news, is_on_its_way};

/// What is to be told.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where the workspace stands.
    pub verdict: Verdict,
    /// Whether something is made in this pass, images among it.
    pub makes_anything: bool,
    /// The children that are made in this pass, and the Deployments and machines that are changed.
    pub touched: Vec<Child>,
    /// A write that was refused: the one that stands for all of them.
    pub trouble: Option<Trouble>,
    /// The children that were refused, each with what was said of it.
    pub refused: Vec<(Child, Lack)>,
    /// Entries whose start is over, since what they ask for is refused until somebody changes something.
    pub given_up: BTreeSet<String>,
}

/// A write that was refused.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Why.
    pub lack: Lack,
    /// What only a person can help with, of this one or another.
    pub stall: Option<Lack>,
}

impl Trouble {
    /// For this reason; a `final` one is a person's to help with.
    pub fn new(lack: Lack, is_final: bool) -> Self {
        Self { stall: is_final.then(|| lack.clone()), lack }
    }
}

/// The memory of `memory` with everything that is output made anew.
pub fn render(
    mut memory: WorkspaceStatus,
    standing: &Standing,
    observed: &Observed,
    now: Timestamp,
) -> WorkspaceStatus {
    let reports = observed.reports(&standing.touched, &standing.refused);
    let stall = stall(standing, observed);
    let disks = &memory.disks;
    let sight = Sight { standing, observed, reports: &reports, disks, stall, now };
    let findings = sight.findings();
    let generation = observed.workspace.as_ref().and_then(|it| it.metadata.generation);
    let (at, before) = (Time(now), std::mem::take(&mut memory.conditions));
    memory.message = Some(condition::message(&sight.message(&findings)));
    memory.conditions = findings
        .iter()
        .map(|(kind, finding)| condition::condition(kind, finding, generation, &before, &at))
        .collect();
    memory.observed_generation = generation;
    memory.phase = sight.phase(&findings).or(memory.phase);
    memory.ready_parts = Some(sight.ready_parts());
    memory.resource_status = Some(sight.resources());
    memory
}

/// Everything that is told from.
struct Sight<'a> {
    standing: &'a Standing,
    observed: &'a Observed,
    reports: &'a [Report],
    /// What disks were made from.
    disks: &'a [DiskOrigin],
    /// What only a person can help with.
    stall: Option<Lack>,
    now: Timestamp,
}

type Findings = Vec<(&'static str, Finding)>;

impl Sight<'_> {
    fn findings(&self) -> Findings {
        let mut findings = vec![
            (condition::ACCEPTED, self.accepted()),
            (condition::ADMITTED, self.admitted()),
            (condition::CREATING_WORKS, self.creating_works()),
            (condition::NETWORK_READY, self.network_ready()),
            (condition::IMAGES_READY, self.images_ready()),
            (condition::VIRTUAL_MACHINES_READY, self.machines_ready()),
            (condition::CONTAINERS_READY, self.containers_ready()),
        ];
        let ready = self.ready(&findings);
        findings.push((condition::READY, ready.clone()));
        findings.extend(self.reconciling(&ready).map(|it| (condition::RECONCILING, it)));
        let stalled = self.stall.clone().map(|lack| because(true, lack));
        findings.extend(stalled.map(|it| (condition::STALLED, it)));
        findings.extend(self.deleting().map(|it| (condition::DELETING, it)));
        findings
    }

    fn accepted(&self) -> Finding {
        match (&self.standing.verdict, &self.standing.trouble) {
            (Verdict::Invalid(lack), _) => because(false, lack.clone()),
            (_, Some(Trouble { stall: Some(lack), .. })) if lack.reason == Reason::NameConflict => {
                because(false, lack.clone())
            }
            _ => Finding::new(true, Reason::Accepted, ""),
        }
    }

    fn admitted(&self) -> Finding {
        match &self.standing.verdict {
            Verdict::Opening(_) | Verdict::Building => Finding::new(true, Reason::Admitted, ""),
            Verdict::Settling(_) | Verdict::Tending => Finding::new(
                true,
                Reason::Admitted,
                "its start is over: no slot is needed any more",
            ),
            Verdict::Waiting(Wait::Line) => self.in_line(),
            Verdict::Waiting(Wait::Paused) => Finding::new(
                false,
                Reason::Paused,
                "nobody is admitted: workspaceConcurrency of the policy is 0",
            ),
            Verdict::Waiting(Wait::Blocked(lack))
            | Verdict::Yielding(lack)
            | Verdict::Invalid(lack) => because(false, lack.clone()),
            Verdict::Suspended => Finding::new(false, Reason::Suspended, SUSPENDED),
            Verdict::Unticketed => self.in_line(),
            Verdict::Gone | Verdict::Leaving => Finding::new(false, Reason::Deleting, ""),
        }
    }

    fn in_line(&self) -> Finding {
        let hall = self.observed.hall;
        let reason = if hall.is_full { Reason::SlotsBusy } else { Reason::Queued };
        let before = match hall.ahead {
            0 => String::new(),
            1 => ", 1 workspace was there before it".to_owned(),
            more => format!(", {more} workspaces were there before it"),
        };
        Finding::new(false, reason, format!("waits for a slot{before}"))
    }

    fn network_ready(&self) -> Finding {
        let Some(workspace) = &self.observed.workspace else {
            return Finding::new(false, Reason::Deleting, "");
        };
        if let Some(lack) = self.refused(ChildKind::NetworkPolicy) {
            return because(false, lack);
        }
        if !workspace.spec.network.isolate {
            let message =
                "network.isolate is false: whatever the cluster lets through reaches the parts";
            return Finding::new(true, Reason::NotIsolated, message);
        }
        let Some(own) = self.observed.own_policy() else {
            let why = self.admitted();
            let reason = if why.reason == Reason::Admitted { Reason::Creating } else { why.reason };
            return Finding::new(false, reason, "there is no network policy");
        };
        if !stays(own) {
            let message = format!(
                "NetworkPolicy {} is being deleted: it isolates until it is gone, and is made anew then",
                own.name_any()
            );
            return Finding::new(false, Reason::OldChildTerminating, message);
        }
        let labels = self.observed.labels_of_pods();
        let widening = isolation::weakened_by(&self.observed.networks, own, &labels);
        if !widening.is_empty() {
            let message = format!(
                "other network policies let through what its own does not: {}; remove them, or narrow their podSelector",
                widening.join(", ")
            );
            return Finding::new(false, Reason::WeakenedByOtherPolicy, message);
        }
        match self.observed.secondary_network() {
            Some(machine) => Finding::new(
                false,
                Reason::SecondaryNetworkUncovered,
                format!(
                    "machine '{machine}' has a secondary network, which no network policy covers"
                ),
            ),
            None => Finding::new(true, Reason::Isolated, ""),
        }
    }

    fn images_ready(&self) -> Finding {
        let lacks = self.observed.lacks_of_disks();
        match lacks.first() {
            _ if self.observed.needs.disks.is_empty() => {
                Finding::new(true, Reason::NothingAsked, "")
            }
            None => Finding::new(true, Reason::AllReady, ""),
            Some(first) => because(false, first.clone()),
        }
    }

    /// What was refused of a child of that kind that is of no entry, or of none any more.
    fn refused(&self, kind: ChildKind) -> Option<Lack> {
        let mut refused = self.standing.refused.iter();
        let found = refused.find(|(child, _)| child.kind == kind && child.entry.is_none());
        found.map(|(_, lack)| lack.clone())
    }

    fn machines_ready(&self) -> Finding {
        if let Some(lack) = self.refused(ChildKind::VirtualMachine) {
            return because(false, lack);
        }
        let mut asked = self.reports.iter().filter(|report| report.runs_machine).peekable();
        if asked.peek().is_none() {
            return Finding::new(true, Reason::NothingAsked, "");
        }
        if !self.observed.needs.has_kubevirt {
            return because(false, no_kubevirt());
        }
        self.first_lack(asked)
    }

    fn containers_ready(&self) -> Finding {
        if let Some(lack) = self.refused(ChildKind::Deployment) {
            return because(false, lack);
        }
        let mut asked = self.reports.iter().filter(|report| report.container.is_some()).peekable();
        if asked.peek().is_none() {
            return Finding::new(true, Reason::NothingAsked, "");
        }
        self.first_lack(asked)
    }

    /// What was refused comes first, then what is broken, then what a person is to restart, then what is only on its way.
    fn first_lack<'r>(&self, reports: impl Iterator<Item = &'r Report>) -> Finding {
        let mut lacking: Vec<&Report> = reports.filter(|report| !report.is_ready).collect();
        let asks_for_restart = |report: &Report| report.lack.reason == Reason::RestartRequired;
        lacking.sort_by_key(|report| {
            (!report.is_refused, !report.is_degraded, !asks_for_restart(report))
        });
        match lacking.first() {
            None => Finding::new(true, Reason::AllReady, ""),
            Some(report) => because(false, report.lack.clone()),
        }
    }

    fn ready(&self, findings: &Findings) -> Finding {
        let of_verdict = match &self.standing.verdict {
            Verdict::Gone | Verdict::Leaving => Some(Finding::new(false, Reason::Deleting, "")),
            Verdict::Suspended => Some(Finding::new(false, Reason::Suspended, SUSPENDED)),
            _ => None,
        };
        let of_stall = || self.stall.clone().map(|lack| because(false, lack));
        let of_trouble =
            || self.standing.trouble.as_ref().map(|trouble| because(false, trouble.lack.clone()));
        let of_ground = || verdict::ground(self.observed).map(|lack| because(false, lack));
        let found = of_verdict.or_else(of_stall).or_else(of_trouble).or_else(of_ground);
        found.unwrap_or_else(|| self.unready(findings))
    }

    /// The first condition that is not as it should be; what has had its start and is not ready is degraded, unless it is
    /// being changed.
    fn unready(&self, findings: &Findings) -> Finding {
        let Some((kind, first)) = findings.iter().find(|(kind, it)| !is_as_it_should_be(kind, it))
        else {
            return Finding::new(true, Reason::AllReady, "every part is ready");
        };
        let of_parts = [
            condition::VIRTUAL_MACHINES_READY,
            condition::CONTAINERS_READY,
            condition::CREATING_WORKS,
        ];
        if !of_parts.contains(kind) || first.reason == Reason::RestartRequired {
            return Finding::new(false, first.reason, first.message.clone());
        }
        let is_degraded = self.reports.iter().any(|report| report.is_degraded);
        let mut missing = self.reports.iter().filter(|report| !report.is_ready);
        let is_expected =
            self.standing.verdict.keeps_turn() || missing.all(|report| report.is_changing);
        let reason =
            if is_degraded || !is_expected { Reason::Degraded } else { Reason::Progressing };
        Finding::new(false, reason, first.message.clone())
    }

    fn reconciling(&self, ready: &Finding) -> Option<Finding> {
        let is_at_rest = ready.status == condition::Truth::True
            || self.stall.is_some()
            || ready.reason == Reason::RestartRequired
            || (self.standing.verdict == Verdict::Suspended && self.observed.pods.is_empty());
        (!is_at_rest).then(|| Finding::new(true, ready.reason, ready.message.clone()))
    }

    fn phase(&self, findings: &Findings) -> Option<Phase> {
        let is_ready = findings
            .iter()
            .any(|(kind, it)| *kind == condition::READY && it.status == condition::Truth::True);
        match &self.standing.verdict {
            Verdict::Gone | Verdict::Leaving => None,
            _ if self.stall.is_some() => Some(Phase::Failed),
            Verdict::Suspended => Some(Phase::Suspended),
            _ if is_ready => Some(Phase::Ready),
            _ => Some(Phase::Provisioning),
        }
    }

    /// The first of the ordered conditions that is not as it should be. What keeps one from stopping comes before that.
    fn message(&self, findings: &Findings) -> String {
        if let Some(deleting) = self.deleting() {
            return deleting.message;
        }
        // That it is to stop is known to whoever asked for it; that something does not is not.
        let trouble = self.standing.trouble.as_ref();
        if let Some(trouble) = trouble.filter(|_| self.standing.verdict == Verdict::Suspended) {
            return trouble.lack.message.clone();
        }
        if let Some(message) =
            self.runs_on().filter(|_| self.standing.verdict == Verdict::Suspended)
        {
            return message;
        }
        let first = findings.iter().find(|(kind, finding)| {
            !is_as_it_should_be(kind, finding) && !finding.message.is_empty()
        });
        first.map_or_else(|| "every part is ready".to_owned(), |(_, first)| first.message.clone())
    }

    /// What was deleted, and is kept, is stopped by nobody: whoever made pods of it leaves it alone.
    fn runs_on(&self) -> Option<String> {
        let kept = |part| {
            let part = deleting::with_finalizers(part);
            format!("{part} is being deleted, and its pods run on until it is gone")
        };
        let mut left = self.observed.workloads_left();
        let has_pods = self.observed.pods.iter().any(|pod| stays(&**pod));
        left.find(|(_, part)| part.deletion_timestamp.is_some()).filter(|_| has_pods).map(kept)
    }

    fn ready_parts(&self) -> String {
        let ready = self.reports.iter().filter(|report| report.is_ready).count();
        format!("{ready}/{}", self.reports.len())
    }

    fn resources(&self) -> Resources {
        let reports = self.reports.iter();
        Resources {
            virtual_machines: reports.clone().filter_map(|it| self.machine(it)).collect(),
            containers: reports.filter_map(|it| it.container.clone()).collect(),
            network: Some(self.network()),
        }
    }

    /// With the revision that its disk was made from, if that is one of the image that is told.
    fn machine(&self, report: &Report) -> Option<VirtualMachineReport> {
        let told = report.machine.clone()?;
        let is_of = |disk: &&DiskOrigin| {
            disk.entry == told.name && told.image.as_ref() == Some(&disk.image)
        };
        let revision = self.disks.iter().find(is_of).map(|disk| disk.revision.clone());
        Some(VirtualMachineReport { revision, ..told })
    }

    fn network(&self) -> NetworkReport {
        let finding = self.network_ready();
        NetworkReport {
            policy: self.observed.own_policy().map(|policy| policy.name_any()),
            message: Some(condition::message(&finding.message))
                .filter(|message| !message.is_empty()),
        }
    }
}

/// What only a person can help with. Of a workspace that is to do nothing no image is missed.
fn stall(standing: &Standing, observed: &Observed) -> Option<Lack> {
    let of_verdict = match &standing.verdict {
        Verdict::Leaving => return None,
        Verdict::Invalid(lack) => Some(lack.clone()),
        _ => None,
    };
    let of_trouble = || standing.trouble.as_ref().and_then(|trouble| trouble.stall.clone());
    let has_stalled = observed.needs.disks.values().any(Disk::is_stalled)
        && standing.verdict != Verdict::Suspended;
    let of_disks = || observed.lacks_of_disks().into_iter().next().filter(|_| has_stalled);
    of_verdict.or_else(of_trouble).or_else(of_disks)
}

const SUSPENDED: &str = "suspended; set suspended to false to start it again";

/// `CreatingWorks` says that something goes on: it is as it should be when it is over.
fn is_as_it_should_be(kind: &str, finding: &Finding) -> bool {
    if kind == condition::CREATING_WORKS {
        finding.reason == Reason::AllCreated
    } else {
        finding.status == condition::Truth::True
    }
}

fn because(holds: bool, lack: Lack) -> Finding {
    Finding::new(holds, lack.reason, lack.message)
}

#[cfg(test)]
mod tests;
