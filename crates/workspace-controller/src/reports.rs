//! What is known of each part, from its children: whether it is ready, why not, and what people are told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Resource, ResourceExt};
use otctl_types::Workspace;
use otctl_types::condition::{Reason, message};
use otctl_types::names::ENTRY_LABEL;
use otctl_types::workspace::{
    Container, ContainerReport, ContainerState, VirtualMachine as MachineEntry,
    VirtualMachineReport,
};

use crate::aggregate::{self, Part};
use crate::children::{self, Facts};
use crate::family::{Child, ChildKind};
use crate::images::Lack;
use crate::isolation;
use crate::kin;
use crate::machines::VirtualMachine;
use crate::parts;
use crate::workspace::observe::Observed;

/// What is known of a part.
#[derive(Clone, Debug)]
pub struct Report {
    /// It is as its entry says, and reached by its name.
    pub is_ready: bool,
    /// Something is wrong with it, and not only on its way.
    pub is_degraded: bool,
    /// It is being changed into something else.
    pub is_changing: bool,
    /// Something of it was refused in this pass.
    pub is_refused: bool,
    /// Whether a machine is to run from its image.
    pub runs_machine: bool,
    /// Why it is not ready; means nothing when it is.
    pub lack: Lack,
    /// Of a virtual machine, what is told.
    pub machine: Option<VirtualMachineReport>,
    /// Of a container, what is told.
    pub container: Option<ContainerReport>,
}

impl Report {
    /// Of a part of which something was refused: it is not what its entry says, and will not be by itself.
    fn refused(mut self, lack: &Lack) -> Self {
        let told = Some(message(&lack.message));
        if let Some(container) = &mut self.container {
            container.message.clone_from(&told);
        }
        if let Some(machine) = &mut self.machine {
            machine.message = told;
        }
        let lack = lack.clone();
        Self { is_ready: false, is_changing: false, is_refused: true, lack, ..self }
    }
}

impl Observed {
    /// What is known of each part, in the order of the spec, virtual machines first. What Deployments and machines say of
    /// themselves that are `touched` in this very pass, made or changed, does not count; nor does it of a part of which
    /// something was `refused`.
    pub fn reports(&self, touched: &[Child], refused: &[(Child, Lack)]) -> Vec<Report> {
        let Some(workspace) = &self.workspace else { return Vec::new() };
        let said = |entry: &str, part: Part| {
            let mut touched = touched.iter().filter(|child| child.is_of(entry));
            let is_touched = touched.any(|child| child.kind.has_pods());
            match self.held_up_by(entry) {
                _ if is_touched => touched_just_now(self.has_workload(entry)),
                _ if self.is_workload_leaving(entry) => Part::leaving(),
                Some(other) => Part::held_up(other),
                None => part,
            }
        };
        let machines = workspace.spec.virtual_machines.iter();
        let machines = machines.map(|entry| {
            let part = self.machine_says(entry).map(|part| said(&entry.name, part));
            self.machine_part(entry, part.as_ref(), touched)
        });
        let (containers, started) = (workspace.spec.containers.iter(), parts::started(workspace));
        let containers = containers.map(|entry| {
            let (deployment, pods) = (self.deployment(&entry.name), self.pods_of(&entry.name));
            let is_starting = !started.contains(entry.name.as_str());
            let part = aggregate::container(entry, deployment, &pods, is_starting);
            self.container_part(entry, &said(&entry.name, part), touched)
        });
        let lack_of = |entry: &str| {
            refused.iter().find(|(child, _)| child.is_of(entry)).map(|(_, lack)| lack)
        };
        let reports = parts::names(workspace).zip(machines.chain(containers));
        let reports = reports.map(|(entry, report)| match lack_of(entry) {
            Some(lack) => report.refused(lack),
            None => report,
        });
        reports.collect()
    }

    /// Whether the Service of an entry, which is there or was, is made in this very pass, or made anew.
    fn is_reached_anew(entry: &str, touched: &[Child]) -> bool {
        let mut touched = touched.iter().filter(|child| child.is_of(entry));
        touched.any(|child| child.kind == ChildKind::Service)
    }

    fn container_part(&self, entry: &Container, part: &Part, touched: &[Child]) -> Report {
        let service = self.service(&entry.name);
        let is_there = self.deployment(&entry.name).is_some();
        let is_reached_anew = Self::is_reached_anew(&entry.name, touched);
        let is_made = service.is_some_and(kin::stays) && is_there && !is_reached_anew;
        Report {
            is_ready: is_made && part.state == ContainerState::Running,
            is_degraded: is_broken(part),
            is_changing: part.is_changing || is_there && is_reached_anew,
            is_refused: false,
            runs_machine: false,
            lack: self
                .loses_name("container", &entry.name, part)
                .unwrap_or_else(|| lack("container", &entry.name, part)),
            machine: None,
            container: Some(ContainerReport {
                name: entry.name.clone(),
                status: part.state,
                message: Some(message(&part.message)).filter(|message| !message.is_empty()),
                service: service.map(|service| service.name_any()),
            }),
        }
    }

    /// Why a part that runs is not reached for long: its Service was deleted, and is still there.
    fn loses_name(&self, what: &str, entry: &str, part: &Part) -> Option<Lack> {
        let service = self.service(entry).filter(|it| !kin::stays(*it))?;
        let message = format!(
            "{what} '{entry}': Service {} is being deleted, and made anew when it is gone",
            service.name_any()
        );
        let reason = Reason::OldChildTerminating;
        (part.state == ContainerState::Running).then_some(Lack { reason, message })
    }

    /// None of one that does not run.
    fn machine_says(&self, entry: &MachineEntry) -> Option<Part> {
        let (machine, pods) = (self.machine(&entry.name), self.pods_of(&entry.name));
        entry.spec.instance.as_ref().map(|instance| aggregate::machine(instance, machine, &pods))
    }

    fn machine_part(&self, entry: &MachineEntry, part: Option<&Part>, touched: &[Child]) -> Report {
        let of_disk = self.needs.disks.get(&entry.name).and_then(|disk| disk.lack(entry));
        let is_there = part.is_none() || self.machine(&entry.name).is_some();
        let is_reached_anew = Self::is_reached_anew(&entry.name, touched);
        let is_named = self.service(&entry.name).is_some_and(kin::stays);
        let is_made = is_named && is_there && !is_reached_anew;
        let of_machine = part.filter(|part| part.state != ContainerState::Running);
        let of_machine = of_machine.map(|part| lack("virtual machine", &entry.name, part));
        let running = Part::running();
        let of_name = self.loses_name("virtual machine", &entry.name, part.unwrap_or(&running));
        let lack = of_disk.or(of_machine).or(of_name);
        Report {
            is_ready: is_made && lack.is_none(),
            is_degraded: part.is_some_and(is_broken),
            is_changing: part.is_some_and(|part| part.is_changing) || is_there && is_reached_anew,
            is_refused: false,
            runs_machine: part.is_some(),
            container: None,
            machine: Some(self.machine_report(entry, lack.as_ref())),
            lack: lack.unwrap_or_else(|| Lack {
                reason: Reason::Creating,
                message: format!("virtual machine '{}' is being made", entry.name),
            }),
        }
    }

    /// Phase and name are of one image. Of which revision the disk is, is remembered, and told from there.
    fn machine_report(&self, entry: &MachineEntry, lack: Option<&Lack>) -> VirtualMachineReport {
        let image = self.needs.images.get(&entry.spec.vm_disk_image_name);
        let phase = image.map(|image| image.status.as_ref().and_then(|status| status.phase));
        let machine = self.machine(&entry.name).and_then(|machine| machine.status.as_ref());
        VirtualMachineReport {
            name: entry.name.clone(),
            phase: match phase {
                None => Some("NotFound".to_owned()),
                Some(phase) => phase.map(|phase| format!("{phase:?}")),
            },
            message: lack.map(|lack| message(&lack.message)),
            image: Some(entry.spec.vm_disk_image_name.clone()),
            revision: None,
            machine: machine.and_then(|status| status.printable_status.clone()),
            service: self.service(&entry.name).map(|service| service.name_any()),
        }
    }

    /// The workspace and everything else that a child is made from.
    pub fn facts<'a>(&'a self, workspace: &'a Workspace) -> Facts<'a> {
        Facts {
            workspace,
            namespace: &self.namespace,
            settings: &self.site.settings,
            policy: &self.policy,
        }
    }

    /// The Service of an entry; like every child, it counts while it is there, also when it is going.
    pub fn service(&self, entry: &str) -> Option<&Service> {
        self.of_entry(&self.services, entry)
    }

    /// The Deployment of an entry.
    pub fn deployment(&self, entry: &str) -> Option<&Deployment> {
        self.of_entry(&self.deployments, entry)
    }

    /// The machine of an entry.
    pub fn machine(&self, entry: &str) -> Option<&VirtualMachine> {
        self.of_entry(&self.machines, entry)
    }

    /// The claim of an entry.
    pub fn claim(&self, entry: &str) -> Option<&PersistentVolumeClaim> {
        self.needs.claim(self.workspace.as_ref()?, entry)
    }

    /// The workspace's own network policy.
    pub fn own_policy(&self) -> Option<&NetworkPolicy> {
        let workspace = self.workspace.as_ref()?;
        let name = kin::policy_name(workspace);
        let found = self.networks.iter().find(|policy| policy.name_any() == name)?;
        kin::whose(&found.metadata, workspace).is_child().then_some(&**found)
    }

    /// Whether a child is there.
    pub fn has(&self, child: &Child) -> bool {
        match child.kind {
            ChildKind::NetworkPolicy => self.own_policy().is_some(),
            ChildKind::Service => has_name(&self.services, &child.name),
            ChildKind::Deployment => has_name(&self.deployments, &child.name),
            ChildKind::Claim => has_name(&self.needs.claims, &child.name),
            ChildKind::VirtualMachine => has_name(&self.machines, &child.name),
        }
    }

    /// Whether what runs an entry is there.
    pub fn has_workload(&self, entry: &str) -> bool {
        self.deployment(entry).is_some() || self.machine(entry).is_some()
    }

    /// Whether what runs an entry is on its way out, though it is to run.
    fn is_workload_leaving(&self, entry: &str) -> bool {
        let is_stopped = self.workspace.iter().any(|workspace| workspace.spec.suspended);
        let stays = self.deployment(entry).map(kin::stays);
        let stays = stays.or_else(|| self.machine(entry).map(kin::stays));
        !is_stopped && stays == Some(false)
    }

    /// Whether the Service of an entry has the address that all pods are told. One that is on its way out has it still, and the
    /// next one asks for it.
    pub fn has_address(&self, entry: &str) -> bool {
        let spec = self.service(entry).and_then(|service| service.spec.as_ref());
        spec.is_some_and(|spec| spec.cluster_ip.as_ref().is_some_and(|ip| !ip.is_empty()))
    }

    /// The address that an entry's Service had before it was lost: pods know it, and the next one asks for it.
    pub fn address_before(&self, entry: &str) -> Option<&str> {
        let mut deployments = self.deployments.iter();
        let known = deployments.find_map(|it| children::host_aliases::address(it, entry));
        known.filter(|_| self.service(entry).is_none())
    }

    /// Of the entries that are `due`, the one whose address what runs `entry` waits for: its pods are told all of them when
    /// they are made. What had its start does not wait for what is being started; and nobody waits for an entry whose start
    /// is over and whose Service was refused. Those that are `reached` have an address.
    pub fn address_waited_for<'a>(
        &self,
        entry: &str,
        due: &BTreeSet<&'a str>,
        reached: &BTreeSet<&str>,
    ) -> Option<&'a str> {
        let workspace = self.workspace.as_ref()?;
        let started = parts::started(workspace);
        let refused = workspace.status.iter().flat_map(|status| &status.unreachable_parts);
        let is_awaited = |other: &&str| match started.contains(other) {
            true => !refused.clone().any(|it| it == other),
            false => !started.contains(entry),
        };
        due.iter().copied().filter(is_awaited).find(|other| !reached.contains(other))
    }

    /// That entry, where nothing else is missing.
    fn held_up_by(&self, entry: &str) -> Option<&str> {
        let workspace = self.workspace.as_ref().filter(|workspace| !workspace.spec.suspended)?;
        if self.has_workload(entry) || !self.has_address(entry) {
            return None;
        }
        let started = parts::started(workspace);
        let is_due = |entry: &&str| self.has_open_turn() || started.contains(entry);
        let due: BTreeSet<&str> = parts::names(workspace).filter(is_due).collect();
        let reached = due.iter().copied().filter(|it| self.has_address(it)).collect();
        let other = self.address_waited_for(entry, &due, &reached);
        other.filter(|_| due.contains(entry))
    }

    /// The entries whose Services have no address, since they name no port.
    pub fn without_address(&self) -> BTreeSet<&str> {
        let entries = self.workspace.iter().flat_map(|workspace| parts::names(workspace));
        let is_headless = |entry: &&str| {
            self.service(entry).is_some_and(|it| children::service::address(it).is_none())
        };
        entries.filter(is_headless).collect()
    }

    /// Whether something was made for an entry. Its disk outlives much, and does not count.
    pub fn has_child(&self, entry: &str) -> bool {
        self.service(entry).is_some() || self.has_workload(entry)
    }

    /// Whether something of it has pods, or will have.
    pub fn has_workloads(&self) -> bool {
        !(self.deployments.is_empty() && self.machines.is_empty() && self.pods.is_empty())
    }

    /// What is wrong with disks, what only a person can help with first.
    pub fn lacks_of_disks(&self) -> Vec<Lack> {
        let entries = self.workspace.iter().flat_map(|it| &it.spec.virtual_machines);
        let known = entries.filter_map(|it| Some((it, self.needs.disks.get(&it.name)?)));
        let mut lacks: Vec<(bool, Lack)> =
            known.filter_map(|(it, disk)| Some((!disk.is_stalled(), disk.lack(it)?))).collect();
        lacks.sort_by_key(|(is_mild, _)| *is_mild);
        lacks.into_iter().map(|(_, lack)| lack).collect()
    }

    /// The address of every entry that has one, or is to have it again.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let entries = self.workspace.iter().flat_map(|workspace| parts::names(workspace));
        let known = entries.filter_map(|entry| {
            let address = match self.service(entry) {
                Some(service) => children::service::address(service)?,
                None => self.address_before(entry)?,
            };
            Some((entry.to_owned(), address.to_owned()))
        });
        known.collect()
    }

    /// The labels of every pod of the workspace.
    pub fn labels_of_pods(&self) -> Vec<BTreeMap<String, String>> {
        self.pods.iter().map(|pod| pod.labels().clone()).collect()
    }

    /// A machine that a network policy does not cover.
    pub fn secondary_network(&self) -> Option<String> {
        let uncovered =
            self.machines.iter().find(|machine| isolation::has_secondary_network(machine));
        uncovered.map(|machine| machine.name_any())
    }

    /// The pods of an entry.
    pub fn pods_of(&self, entry: &str) -> Vec<Arc<Pod>> {
        let is_of = |pod: &&Arc<Pod>| pod.labels().get(ENTRY_LABEL).is_some_and(|it| it == entry);
        self.pods.iter().filter(is_of).cloned().collect()
    }

    /// By its name: labels can be taken off.
    fn of_entry<'a, K: Resource>(&self, children: &'a [Arc<K>], entry: &str) -> Option<&'a K> {
        let name = kin::child_name(self.workspace.as_ref()?, entry);
        children.iter().find(|child| child.meta().name.as_ref() == Some(&name)).map(|it| &**it)
    }
}

fn has_name<K: Resource>(children: &[Arc<K>], name: &str) -> bool {
    children.iter().any(|child| child.meta().name.as_deref() == Some(name))
}

fn touched_just_now(was_there: bool) -> Part {
    Part {
        state: ContainerState::Progressing,
        reason: Reason::Progressing,
        message: "it is being made or changed".to_owned(),
        is_changing: was_there,
    }
}

fn is_broken(part: &Part) -> bool {
    matches!(part.state, ContainerState::Degraded | ContainerState::Failed)
}

fn lack(what: &str, entry: &str, part: &Part) -> Lack {
    let (reason, words) = match part.state {
        // It runs, and is not reached yet.
        ContainerState::Running => (Reason::Progressing, "its Service is being made"),
        _ if part.message.is_empty() => (part.reason, "it is on its way"),
        _ => (part.reason, part.message.as_str()),
    };
    Lack { reason, message: format!("{what} '{entry}': {words}") }
}
