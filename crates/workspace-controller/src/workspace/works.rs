//! What is made, changed and taken away, in which order. Pure: wanted children beside those that are there.
//!
//! ```text
//!   network policy ─▶ finalizer ─▶ images ─▶ (all there) ─▶ Services ─▶ (all have addresses) ─▶ Deployments, machines
//! ```
//! Each entry has a lane of its own, so that what is refused of one holds no other up, but for the address that the others
//! wait for; and so have each image and what goes, a disk behind its machine. What is suspended stops first of all. A policy
//! that is there isolates: while it is being changed, what runs is changed and stopped, and only what is to start waits.
//!
//! A part that had its start is kept as it should be in every pass. One that had none is touched by nobody without a turn;
//! so one that a suspension stopped stays stopped until its turn has come.

mod departure;
mod shares;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::ResourceExt;
use kube::core::DynamicObject;
use otctl_kit::cluster::{Target, erase};
use otctl_kit::plan::{Action, Write};
use otctl_types::Workspace;
use otctl_types::condition::Reason;
use otctl_types::workspace::{Container, RunStrategy, VirtualMachine as MachineEntry};

use self::departure::departure;
use self::write::{bring_about, delete, establish_either, finalize, put_right};
use super::observe::Observed;
use super::verdict::Verdict;
use crate::children::machine::Power;
use crate::children::{self, Facts, service};
use crate::family::Child;
use crate::grounds::Ground;
use crate::images::Disk;
use crate::kin::stays;
use crate::machines::VirtualMachine;
use crate::owned;
use crate::parts;

/// What is to be written.
#[derive(Debug, Default)]
pub struct Writes {
    /// First, and in this order: the rest is made only after it.
    pub first: Vec<Write>,
    /// Then, each on its own.
    pub lanes: Vec<Vec<Write>>,
}

impl Writes {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Write> {
        self.first.iter().chain(self.lanes.iter().flatten())
    }
}

/// Everything that `verdict` asks to be written. Nothing that is there already as it should be is among it.
pub fn works(workspace: &Workspace, observed: &Observed, verdict: &Verdict) -> Writes {
    let started = parts::started(workspace);
    let of = |is_active: &dyn Fn(&str) -> bool| Works::of(workspace, observed, is_active).writes();
    match verdict {
        Verdict::Gone | Verdict::Unticketed => Writes::default(),
        Verdict::Leaving => departure(workspace, observed),
        Verdict::Invalid(lack) if lack.reason == Reason::NamespaceNotAllowed => Writes::default(),
        Verdict::Opening(_) | Verdict::Building | Verdict::Settling(_) => of(&|_| true),
        Verdict::Suspended => of(&|entry| observed.has_child(entry)),
        // Its names are to be had again one day; it is to stop now.
        Verdict::Invalid(_) if workspace.spec.suspended => of(&|entry| observed.has_child(entry)),
        Verdict::Invalid(_) | Verdict::Waiting(_) | Verdict::Yielding(_) | Verdict::Tending => {
            of(&|entry| started.contains(entry))
        }
    }
}

/// What a pass is to bring about.
struct Works<'a> {
    workspace: &'a Workspace,
    observed: &'a Observed,
    facts: Facts<'a>,
    /// Entries that are made and kept as they should be.
    active: BTreeSet<&'a str>,
    /// Whether nothing runs.
    is_stopped: bool,
}

impl<'a> Works<'a> {
    /// With these entries, but for those whose names are taken.
    fn of(
        workspace: &'a Workspace,
        observed: &'a Observed,
        is_active: &dyn Fn(&str) -> bool,
    ) -> Self {
        let active = parts::names(workspace).filter(|entry| is_active(entry));
        Self {
            workspace,
            observed,
            facts: observed.facts(workspace),
            active: active.filter(|entry| !observed.needs.family.is_taken(Some(entry))).collect(),
            is_stopped: workspace.spec.suspended,
        }
    }

    fn writes(&self) -> Writes {
        // A namespace that goes, or is gone, takes nothing new.
        let takes = |write: &Write| self.observed.ground == Ground::Firm || !is_new(write);
        let network = self.network().filter(takes);
        let startable = self.startable();
        let services = self.services(&startable);
        let mut workloads = BTreeMap::new();
        if self.may_run(network.as_ref()) {
            let reached = self.reached(&services);
            workloads.extend(self.deployments(&startable, &reached));
            workloads.extend(self.machines(&startable, &reached));
        }
        let (made, changed): (Vec<Write>, Vec<Write>) = network.into_iter().partition(is_new);
        if !changed.is_empty() && self.workspace.spec.network.isolate && !self.is_stopped {
            // Nothing starts under a policy that is not what it should be.
            workloads.retain(|entry, writes| !writes.iter().any(is_new) && !self.rests(entry));
        }
        let finalizer = self.finalizer(workloads.values().flatten().any(is_new));
        // What goes comes before what is made: it may hold what is asked for next.
        let removals = self.removals().into_iter();
        let images = self.images().into_iter().map(|write| vec![write]);
        let others = removals.chain(images).chain(self.lanes(services, workloads));
        let lanes = std::iter::once(changed).chain(others).collect();
        let mut writes = Writes { first: made.into_iter().chain(finalizer).collect(), lanes };
        if self.is_stopped {
            // Nothing that is to stop waits for what makes sure of those that run.
            writes.lanes.rotate_left(1);
            writes.lanes.extend(std::mem::take(&mut writes.first).into_iter().map(|it| vec![it]));
        }
        let lists = std::iter::once(&mut writes.first).chain(&mut writes.lanes);
        lists.for_each(|list| list.retain(takes));
        writes.lanes.retain(|lane| !lane.is_empty());
        writes
    }

    /// What is to be made of each entry. One that is to stop stops before anything else.
    fn lanes(
        &self,
        mut services: BTreeMap<&'a str, Write>,
        mut workloads: BTreeMap<&'a str, Vec<Write>>,
    ) -> Vec<Vec<Write>> {
        let lane = |entry| {
            let (service, workload) = (services.remove(entry), workloads.remove(entry));
            let workload = workload.unwrap_or_default();
            let mut lane: Vec<Write> = service.into_iter().collect();
            let at = if self.is_stopped { 0 } else { lane.len() };
            lane.splice(at..at, workload);
            lane
        };
        parts::names(self.workspace).map(lane).collect()
    }

    /// Whether what is there of an entry has no pods.
    fn rests(&self, entry: &str) -> bool {
        let deployment = self.observed.deployment(entry).and_then(|it| it.spec.as_ref());
        let machine = self.observed.machine(entry).map(|it| it.spec.run_strategy.as_deref());
        deployment.is_some_and(|spec| spec.replicas == Some(0))
            || machine.flatten() == Some(RunStrategy::Halted.as_str())
    }

    /// Whether what is written may make pods: not while their policy is missing and its name is somebody else's.
    fn may_run(&self, network: Option<&Write>) -> bool {
        let is_guarded = self.observed.own_policy().is_some() || network.is_some_and(is_new);
        !self.workspace.spec.network.isolate || self.is_stopped || is_guarded
    }

    /// The active entries that nothing holds back: while a disk is waited for that a first start needs, only those that were
    /// made before. What was made has had its start, or has a Service.
    fn startable(&self) -> BTreeSet<&'a str> {
        let started = parts::started(self.workspace);
        let is_made =
            |entry: &str| started.contains(entry) || self.observed.service(entry).is_some();
        let is_awaited = |entry: &MachineEntry| {
            let disk = self.observed.needs.disks.get(&entry.name);
            !is_made(&entry.name) && !disk.is_some_and(Disk::is_there)
        };
        let machines = self.machine_entries(&self.active);
        let are_all_there = !machines.into_iter().any(is_awaited);
        self.active.iter().copied().filter(|entry| are_all_there || is_made(entry)).collect()
    }

    /// The policy outlives the pods: so must the workspace that owns it.
    fn finalizer(&self, makes_workloads: bool) -> Option<Write> {
        let runs = makes_workloads || self.observed.has_workloads();
        let asks = self.observed.needs.family.wants_workloads();
        match (self.workspace.spec.network.isolate, self.observed.has_finalizer()) {
            (true, false) if runs => {
                Some(finalize(self.workspace, true, "its network policy is to outlive its pods"))
            }
            (false, true) => Some(finalize(self.workspace, false, "it is not isolated any more")),
            (true, true) if !runs && !asks => {
                Some(finalize(self.workspace, false, "it has no pods any more"))
            }
            (true, _) | (false, false) => None,
        }
    }

    /// Before the images, since it costs nothing, and long before any pod.
    fn network(&self) -> Option<Write> {
        let own = self.observed.own_policy();
        if !self.workspace.spec.network.isolate {
            let own = own.filter(|own| stays(*own))?;
            return Some(delete(own, "it is not isolated any more"));
        }
        let runs = !self.active.is_empty() || self.observed.has_workloads();
        let is_free = !self.observed.needs.family.is_taken(None);
        let wanted =
            (runs && is_free).then(|| children::network_policy::network_policy(&self.facts));
        let because = "its pods are to be isolated from the first moment";
        match own {
            // It isolates until it is gone.
            Some(own) => put_right(&wanted?, own, because),
            None => bring_about(&wanted?, None, because),
        }
    }

    fn services(&self, startable: &BTreeSet<&'a str>) -> BTreeMap<&'a str, Write> {
        let machines = self.machine_entries(startable).into_iter();
        let machines = machines.filter_map(|entry| {
            let of = |address: Option<&str>| service::of_machine(&self.facts, entry, address);
            Some((entry.name.as_str(), self.service(&entry.name, of)?))
        });
        let containers = self.container_entries(startable).into_iter();
        let containers = containers.filter_map(|entry| {
            let of = |address: Option<&str>| service::of_container(&self.facts, entry, address);
            Some((entry.name.as_str(), self.service(&entry.name, of)?))
        });
        machines.chain(containers).collect()
    }

    /// The Service of an entry, which `of` makes for an address: at the one that it had, unless that is somebody else's by
    /// now.
    fn service(&self, entry: &str, of: impl Fn(Option<&str>) -> Service) -> Option<Write> {
        let because = "its entry is reached by this name";
        let address = self.observed.address_before(entry);
        let wanted = of(address);
        match (address, self.observed.service(entry)) {
            (Some(_), None) => Some(establish_either(&wanted, &of(None), because)),
            (_, found) => bring_about(&wanted, found, because),
        }
    }

    /// The entries with an address, which one that is made anew in this pass has not yet.
    fn reached(&self, services: &BTreeMap<&'a str, Write>) -> BTreeSet<&'a str> {
        let is_made_anew = |entry: &str| {
            services.get(entry).is_some_and(|it| matches!(it.action, Action::Delete { .. }))
        };
        let entries = parts::names(self.workspace);
        entries.filter(|it| self.observed.has_address(it) && !is_made_anew(it)).collect()
    }

    /// Whether the workload of an entry may be written: pods that it makes can be told every name.
    fn may_write(&self, entry: &str, due: &BTreeSet<&str>, reached: &BTreeSet<&str>) -> bool {
        let waits_for = || self.observed.address_waited_for(entry, due, reached);
        self.is_stopped || waits_for().is_none()
    }

    /// The entries whose workloads are written: what is there stops, whatever of it is somebody else's.
    fn running(&self, startable: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let stops = |entry: &&str| self.is_stopped && self.observed.has_workload(entry);
        parts::names(self.workspace).filter(stops).chain(startable.iter().copied()).collect()
    }

    fn deployments(
        &self,
        startable: &BTreeSet<&'a str>,
        reached: &BTreeSet<&str>,
    ) -> BTreeMap<&'a str, Vec<Write>> {
        let aliases = children::host_aliases::host_aliases(&self.observed.addresses());
        let nameless = self.observed.without_address();
        let entries = self.container_entries(&self.running(startable)).into_iter();
        let writes = entries.filter_map(|entry| {
            let replicas = if self.is_stopped { 0 } else { entry.replicas };
            let found = self.observed.deployment(&entry.name);
            if !self.may_write(&entry.name, startable, reached) {
                return None;
            }
            let aliases = aliases.clone();
            let wanted = children::deployment::deployment(&self.facts, entry, replicas, aliases);
            let wanted = match found {
                Some(found) => children::host_aliases::settled(wanted, found, &nameless),
                None => wanted,
            };
            Some((entry.name.as_str(), vec![bring_about(&wanted, found, "its entry runs")?]))
        });
        writes.collect()
    }

    fn machines(
        &self,
        startable: &BTreeSet<&'a str>,
        reached: &BTreeSet<&str>,
    ) -> BTreeMap<&'a str, Vec<Write>> {
        if !self.observed.needs.has_kubevirt {
            return BTreeMap::new();
        }
        let entries = self.machine_entries(&self.running(startable)).into_iter();
        let entries = entries.filter(|entry| self.may_write(&entry.name, startable, reached));
        entries.map(|entry| (entry.name.as_str(), self.machine(entry))).collect()
    }

    /// A machine and the claim that is its disk. The claim is made once, before the machine, and never changed: what is put
    /// right on one that is there are notes, which the machine does not wait for.
    fn machine(&self, entry: &MachineEntry) -> Vec<Write> {
        let Some(instance) = &entry.spec.instance else { return Vec::new() };
        let (claim, made, kept) = match self.observed.claim(&entry.name) {
            Some(claim) => (claim.name_any(), None, self.keep(entry, claim)),
            // A disk is work; and a machine is not to run on since its disk is lost.
            None if self.is_stopped => {
                let found = self.observed.machine(&entry.name);
                let Some(claim) = found.and_then(VirtualMachine::claim) else { return Vec::new() };
                (claim.to_owned(), None, None)
            }
            None => {
                let Some(claim) = self.copy(entry) else { return Vec::new() };
                let made = bring_about(&claim, None, "it is the disk of its machine");
                (claim.name_any(), made, None)
            }
        };
        let power = if self.is_stopped { Power::Off } else { Power::AsAsked };
        let wanted = children::machine::machine(&self.facts, (entry, instance), &claim, power);
        let found = self.observed.machine(&entry.name);
        let machine = bring_about(&wanted, found, "its entry runs");
        made.into_iter().chain(machine).chain(kept).collect()
    }

    /// A claim that is to be filled from the image, if that is there as the entry asks for it.
    fn copy(&self, entry: &MachineEntry) -> Option<PersistentVolumeClaim> {
        let disk = self.observed.needs.disks.get(&entry.name);
        let is_there = matches!(disk, Some(Disk::Available(_)));
        let image = self.observed.needs.images.get(&entry.spec.vm_disk_image_name);
        children::claim::claim(&self.facts, entry, image.filter(|_| is_there)?)
    }

    fn keep(&self, entry: &MachineEntry, claim: &PersistentVolumeClaim) -> Option<Write> {
        let origin = self.observed.needs.made_from(self.workspace, entry)?;
        let wanted = children::claim::kept(&self.facts, entry, &origin, claim);
        bring_about(&wanted, Some(claim), "it is the disk of its machine")
    }

    fn machine_entries(&self, names: &BTreeSet<&str>) -> Vec<&'a MachineEntry> {
        let entries = self.workspace.spec.virtual_machines.iter();
        entries.filter(|entry| names.contains(entry.name.as_str())).collect()
    }

    fn container_entries(&self, names: &BTreeSet<&str>) -> Vec<&'a Container> {
        let entries = self.workspace.spec.containers.iter();
        entries.filter(|entry| names.contains(entry.name.as_str())).collect()
    }
}

/// Whether a write makes something that is not there.
pub fn is_new(write: &Write) -> bool {
    makes(&write.action)
}

fn makes(action: &Action) -> bool {
    match action {
        Action::Create(_) | Action::Establish(_) => true,
        Action::Either { wanted, .. } => makes(wanted),
        Action::Apply(_)
        | Action::Strip { .. }
        | Action::Delete { .. }
        | Action::Remember(_)
        | Action::Swap(_)
        | Action::Finalize(_)
        | Action::Mark { .. }
        | Action::Ensure(_) => false,
    }
}

/// The children that these writes make or delete to make them anew, and the Deployments and machines that they make another
/// thing: what those say of themselves is about what they were.
pub fn touched(observed: &Observed, writes: &Writes) -> Vec<Child> {
    let targets = writes.iter().filter_map(|write| touches(observed, &write.action));
    let targets: Vec<Target> = targets.collect();
    let family = observed.needs.family.iter();
    family.filter(|child| targets.contains(&child.target(&observed.namespace))).cloned().collect()
}

fn touches(observed: &Observed, action: &Action) -> Option<Target> {
    match action {
        Action::Create(object) | Action::Establish(object) => Some(Target::of(object)),
        Action::Either { wanted, .. } => touches(observed, wanted),
        Action::Apply(object) => is_another(observed, object).then(|| Target::of(object)),
        Action::Strip { target, .. } | Action::Delete { target, .. } => Some(target.clone()),
        Action::Remember(_)
        | Action::Swap(_)
        | Action::Finalize(_)
        | Action::Mark { .. }
        | Action::Ensure(_) => None,
    }
}

/// Whether a Deployment or machine is changed into `object`.
fn is_another(observed: &Observed, object: &DynamicObject) -> bool {
    let deployments = observed.deployments.iter().map(|it| erase(&**it));
    let machines = observed.machines.iter().map(|it| erase(&**it));
    let mut found = deployments.chain(machines).filter(|found| found.types == object.types);
    found.any(|found| found.name_any() == object.name_any() && owned::changes(object, &found))
}
