//! The queue of workspaces: who waits there, and what a slot pays for. Order, limit and protocol are those of every queue
//! ([`otctl_queue`]). Nothing of a workspace is fenced as a Job is: the entry carries the number of a turn, the workspace's
//! status says that the turn is open before anything is made, and closes it by a guarded write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{ApiError, Cluster, Target};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::Next;
use otctl_kit::reader::Reader;
use otctl_kit::store::Version;
use otctl_queue::{Line, Member, Place, PolicySource, Trace, Want, Work};
use otctl_types::Workspace;
use otctl_types::condition::{self, READY, Reason};
use otctl_types::names::{WORKSPACE_CONTROLLER, WORKSPACE_QUEUE};
use otctl_types::queue::ActiveEntry;
use policy::admission::{Eligibility, Limits};
use policy::{Policy, Ticket};

use crate::config::Site;
use crate::needs::Needs;
use crate::parts;
use crate::views::Views;

/// How often a namespace that takes nothing new is looked at.
pub const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// A workspace in the queue, with what follows from its last version.
#[derive(Clone, Debug)]
pub struct Waiting {
    workspace: Arc<Workspace>,
    uid: String,
    ticket: Option<Ticket>,
}

impl Waiting {
    /// What follows from this workspace.
    pub fn of(workspace: Arc<Workspace>) -> Self {
        let ticket = workspace.status.as_ref().and_then(|status| status.ticket.as_deref());
        Self {
            uid: workspace.uid().unwrap_or_default(),
            ticket: ticket.and_then(|text| text.parse().ok()),
            workspace,
        }
    }

    /// Whether something of it has not had its start, and is not having it.
    fn lacks_a_start(&self) -> bool {
        self.workspace.metadata.deletion_timestamp.is_none()
            && self.open().is_none()
            && parts::unstarted(&self.workspace).next().is_some()
    }
}

impl Member for Waiting {
    fn metadata(&self) -> &ObjectMeta {
        &self.workspace.metadata
    }

    fn target(&self) -> Target {
        Target::new::<Workspace>(None, &self.workspace.name_any())
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn ticket_text(&self) -> Option<&str> {
        self.workspace.status.as_ref()?.ticket.as_deref()
    }

    fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    fn last(&self) -> i64 {
        self.workspace.status.as_ref().and_then(|status| status.last_turn).unwrap_or(0)
    }

    fn open(&self) -> Option<i64> {
        Some(self.workspace.status.as_ref()?.open_turn.as_ref()?.number)
    }

    fn order(&self) -> (Option<&Time>, Version) {
        (self.workspace.metadata.creation_timestamp.as_ref(), Version::of(&*self.workspace))
    }

    fn is_suspended(&self) -> bool {
        self.workspace.spec.suspended
    }
}

/// What the choice rests on beside workspaces, ledger and policy.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What holds a workspace back though there were room, by UID.
    pub blocked: BTreeMap<String, &'static str>,
    /// UIDs of workspaces that the controller cannot act on: they want nothing.
    pub refused: BTreeSet<String>,
    /// The namespaces of those that wait and that nothing holds back, by UID.
    pub namespaces: BTreeMap<String, String>,
    /// Namespaces that take nothing new, and why.
    pub grounds: BTreeMap<String, &'static str>,
}

/// The line of workspaces.
pub struct Workspaces {
    /// What the watches have seen.
    pub views: Views,
    /// Where the controller works.
    pub site: Arc<Site>,
    /// When a namespace is asked for.
    pub clock: Arc<dyn Clock>,
}

/// Everything that the queue of workspaces decides on.
pub type Observed = otctl_queue::Observed<Workspaces>;

/// The reconciler of the ledger of workspaces.
pub type Queue = otctl_queue::Queue<Workspaces>;

/// The reconciler of the ledger of workspaces over these views.
pub fn queue(
    views: Views,
    site: Arc<Site>,
    policy: PolicySource,
    through: (Arc<dyn Cluster>, Arc<dyn Clock>),
) -> Queue {
    let seen = (views.queues.clone(), views.policies.clone());
    let line = Workspaces { views, site, clock: through.1.clone() };
    Queue::new(line, seen, policy, through)
}

impl Line for Workspaces {
    type Member = Waiting;
    type Facts = Facts;
    const QUEUE: &'static str = WORKSPACE_QUEUE;
    const CONTROLLER: &'static str = WORKSPACE_CONTROLLER;

    fn members(&self) -> Vec<Arc<Waiting>> {
        self.views.workspaces.all().into_iter().map(Waiting::of).map(Arc::new).collect()
    }

    /// Looked at of those only that want something.
    fn facts(&self, members: &[Arc<Waiting>]) -> Facts {
        let mut facts = Facts::default();
        for member in members.iter().filter(|member| member.lacks_a_start()) {
            let workspace = &member.workspace;
            let namespace = parts::namespace(workspace, &self.site.settings);
            if self.site.problem_of_namespace(&namespace).is_some() {
                facts.refused.insert(member.uid.clone());
                continue;
            }
            let needs = Needs::seen(&self.views, workspace, &namespace);
            let lack = needs.conflict(&namespace);
            let lack = lack.or_else(|| needs.obstacle(workspace, &namespace));
            let reason = lack.map(|lack| lack.reason).or_else(|| defect(workspace));
            facts.blocked.extend(reason.map(|reason| (member.uid.clone(), reason.as_str())));
            facts.namespaces.insert(member.uid.clone(), namespace);
        }
        facts
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.views.workspaces.has_seen(expectation)
    }

    /// Whether there is a namespace to work in, for those who could be admitted now: a slot in one that is being deleted
    /// would be given and given back for ever. One that took nothing is asked for again.
    async fn complete(&self, observed: &mut Observed, reader: &Reader) -> Result<(), ApiError> {
        let could_start = observed.members.iter().filter(|member| waits(observed, member));
        let of_members =
            could_start.filter_map(|member| observed.facts.namespaces.get(&member.uid).cloned());
        let grounds = &self.views.grounds;
        let asked: BTreeSet<String> = of_members.chain(grounds.all_bad()).collect();
        for namespace in asked {
            let ground = grounds.ask(reader, &namespace, self.clock.now()).await?;
            let why = ground.obstacle(&namespace).map(|lack| lack.reason.as_str());
            observed.facts.grounds.extend(why.map(|why| (namespace, why)));
        }
        Ok(())
    }

    /// A slot pays for work: with the workspace goes what was made for it, and nothing starts any more.
    async fn trace(&self, entry: &ActiveEntry, reader: &Reader) -> Result<Trace, ApiError> {
        let uid = reader.uid::<Workspace>(None, &entry.name).await?;
        Ok(if uid.as_ref() == Some(&entry.uid) { Trace::Alive } else { Trace::Nothing })
    }

    /// Whose turn is open has a slot, whatever became of the ledger.
    async fn work(&self, reader: &Reader) -> Result<Work, ApiError> {
        let mut work = Work::default();
        work.started(reader.list::<Workspace>(None, "").await?.iter().filter_map(entry_of));
        Ok(work)
    }

    fn limits(policy: &Policy) -> Limits {
        policy.workspace_limits()
    }

    fn want(observed: &Observed, member: &Waiting, _: &Policy, now: Timestamp) -> Want {
        if !member.lacks_a_start() || observed.facts.refused.contains(&member.uid) {
            return Want::Nothing;
        }
        if member.is_suspended() {
            let has_place = member.ticket_text().is_some();
            return if has_place { Want::GiveUpPlace } else { Want::Nothing };
        }
        let eligibility = match blocked(observed, member) {
            Some(why) => Eligibility::Blocked { why: why.to_owned() },
            None => Eligibility::Eligible,
        };
        Want::Slot { place: place(member, now), eligibility }
    }

    /// Namespaces are not watched: one that came back is seen by looking.
    fn next(observed: &Observed, now: Timestamp) -> Next {
        if observed.facts.grounds.is_empty() {
            return Next::Wait;
        }
        Next::At(now.checked_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX))
    }
}

/// A slot would be given to it and given back for ever, until the controller can decide about it.
fn defect(workspace: &Workspace) -> Option<Reason> {
    let ready = condition::find(&workspace.status.as_ref()?.conditions, READY)?;
    (ready.reason == Reason::InternalError.as_str()).then_some(Reason::InternalError)
}

/// Whether nobody and nothing holds it back but the line.
fn waits(observed: &Observed, member: &Waiting) -> bool {
    let facts = &observed.facts;
    let is_free = !facts.blocked.contains_key(&member.uid) && !facts.refused.contains(&member.uid);
    is_free && member.lacks_a_start() && !member.is_suspended()
}

fn blocked(observed: &Observed, member: &Waiting) -> Option<&'static str> {
    let facts = &observed.facts;
    let ground = || facts.grounds.get(facts.namespaces.get(&member.uid)?);
    facts.blocked.get(&member.uid).or_else(ground).copied()
}

/// A first start has a first ticket. One that has had its turn, and has something to start again, goes behind those that
/// wait for their first.
fn place(member: &Waiting, now: Timestamp) -> Place {
    match member.ticket {
        Some(ticket) => Place::Held(ticket),
        None if member.last() > 0 => Place::Retry(now),
        None => Place::First,
    }
}

/// The entry that a workspace with an open turn should have.
fn entry_of(workspace: &Workspace) -> Option<ActiveEntry> {
    let status = workspace.status.as_ref()?;
    let open = status.open_turn.as_ref()?;
    Some(ActiveEntry {
        namespace: String::new(),
        name: workspace.name_any(),
        uid: workspace.uid()?,
        attempt: open.number,
        ticket: status.ticket.clone().unwrap_or_else(|| "0".to_owned()),
        host: None,
        since: open.since.clone(),
    })
}
