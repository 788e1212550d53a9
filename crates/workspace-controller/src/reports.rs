//! What is known of each part, from its children: whether it is ready, why not, and what people are told of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use otctl_types::Workspace;
use otctl_types::condition::Reason;
use otctl_types::names::ENTRY_LABEL;
use otctl_types::workspace::{
    Container, ContainerReport, ContainerState, VirtualMachine as MachineEntry, VirtualMachineReport,
};

use crate::aggregate;
use crate::children::{self, Facts};
use crate::images::{Disk, Lack};
use crate::isolation;
use crate::kin;
use crate::machines::VirtualMachine;
use crate::workspace::observe::Observed;

/// What is known of a part.
#[derive(Clone, Debug)]
pub struct Report {
    /// It is as its entry says, and reached by its name.
    pub is_ready: bool,
    /// Everything that it consists of was made.
    pub is_made: bool,
    /// Something is wrong with it, and not only on its way.
    pub is_degraded: bool,
    /// Whether a machine is to run from its image.
    pub runs_machine: bool,
    /// Why it is not ready; means nothing when it is.
    pub lack: Lack,
    /// Of a virtual machine, what is told.
    pub machine: Option<VirtualMachineReport>,
    /// Of a container, what is told.
    pub container: Option<ContainerReport>,
}

impl Observed {
    /// What is known of each part, in the order of the spec, virtual machines first.
    pub fn reports(&self) -> Vec<Report> {
        let Some(workspace) = &self.workspace else { return Vec::new() };
        let machines = workspace.spec.virtual_machines.iter().map(|entry| self.machine_part(entry));
        machines
            .chain(workspace.spec.containers.iter().map(|entry| self.container_part(entry)))
            .collect()
    }

    fn container_part(&self, entry: &Container) -> Report {
        let service = self.service(&entry.name);
        let deployment = self.deployment(&entry.name);
        let part = aggregate::container(entry, deployment, &self.pods_of(&entry.name));
        let is_made = service.is_some() && deployment.is_some();
        Report {
            is_ready: is_made && part.state == ContainerState::Running,
            is_made,
            is_degraded: matches!(part.state, ContainerState::Degraded | ContainerState::Failed),
            runs_machine: false,
            lack: Lack {
                reason: part.reason,
                message: format!("container '{}': {}", entry.name, part.message),
            },
            machine: None,
            container: Some(ContainerReport {
                name: entry.name.clone(),
                status: part.state,
                message: Some(part.message).filter(|message| !message.is_empty()),
                service: service.map(|service| service.name_any()),
            }),
        }
    }

    fn machine_part(&self, entry: &MachineEntry) -> Report {
        let disk = self.disks.get(&entry.name);
        let image = self.images.get(&entry.spec.vm_disk_image_name);
        let service = self.service(&entry.name);
        let machine = self.machine(&entry.name);
        let of_disk = disk.and_then(|disk| disk.lack(entry));
        let runs_machine = entry.spec.instance.is_some();
        let running = entry.spec.instance.as_ref().map(|instance| {
            aggregate::machine(instance, machine, &self.pods_of(&entry.name))
        });
        // What was cloned needs its image no more.
        let has_disk = if runs_machine { self.claim(&entry.name).is_some() } else { of_disk.is_none() };
        let is_made = service.is_some() && (!runs_machine || (has_disk && machine.is_some()));
        let of_machine = running.as_ref().filter(|part| part.state != ContainerState::Running);
        let lack = of_disk.clone().filter(|_| !has_disk).or_else(|| {
            let part = of_machine?;
            Some(Lack {
                reason: part.reason,
                message: format!("virtual machine '{}': {}", entry.name, part.message),
            })
        });
        let is_broken = |part: &aggregate::Part| {
            matches!(part.state, ContainerState::Degraded | ContainerState::Failed)
        };
        let message = of_disk.or_else(|| lack.clone()).map(|lack| lack.message);
        Report {
            is_ready: is_made && has_disk && lack.is_none(),
            is_made,
            is_degraded: running.as_ref().is_some_and(is_broken),
            runs_machine,
            lack: lack.unwrap_or_else(|| Lack {
                reason: Reason::Creating,
                message: format!("virtual machine '{}' is being made", entry.name),
            }),
            container: None,
            machine: Some(VirtualMachineReport {
                name: entry.name.clone(),
                phase: match image {
                    None => Some("NotFound".to_owned()),
                    Some(image) => image.status.as_ref().and_then(|status| status.phase).map(|phase| format!("{phase:?}")),
                },
                message,
                image: Some(entry.spec.vm_disk_image_name.clone()),
                revision: self.revision(&entry.name, disk),
                machine: machine.and_then(|machine| machine.status.as_ref()?.printable_status.clone()),
                service: service.map(|service| service.name_any()),
            }),
        }
    }

    /// Once a revision is used it stays on record.
    fn revision(&self, entry: &str, disk: Option<&Disk>) -> Option<String> {
        self.made_from(entry).or_else(|| match disk {
            Some(Disk::Available(current)) => Some(current.revision.clone()),
            _ => None,
        })
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

    /// The Service of an entry.
    pub fn service(&self, entry: &str) -> Option<&Service> {
        of_entry(&self.services, entry)
    }

    /// The Deployment of an entry.
    pub fn deployment(&self, entry: &str) -> Option<&Deployment> {
        of_entry(&self.deployments, entry)
    }

    /// The machine of an entry.
    pub fn machine(&self, entry: &str) -> Option<&VirtualMachine> {
        of_entry(&self.machines, entry)
    }

    /// The claim of an entry.
    pub fn claim(&self, entry: &str) -> Option<&PersistentVolumeClaim> {
        of_entry(&self.claims, entry)
    }

    /// The address of every entry that has one.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let known = self.services.iter().filter_map(|service| {
            let entry = kin::entry_of(&service.metadata)?;
            Some((entry.to_owned(), children::service::address(service)?.to_owned()))
        });
        known.collect()
    }

    /// The labels of every pod of the workspace.
    pub fn labels_of_pods(&self) -> Vec<BTreeMap<String, String>> {
        self.pods.iter().map(|pod| pod.labels().clone()).collect()
    }

    /// A machine that a network policy does not cover.
    pub fn secondary_network(&self) -> Option<String> {
        let uncovered = self.machines.iter().find(|machine| isolation::has_secondary_network(machine));
        uncovered.map(|machine| machine.name_any())
    }

    fn pods_of(&self, entry: &str) -> Vec<Arc<Pod>> {
        let is_of = |pod: &&Arc<Pod>| pod.labels().get(ENTRY_LABEL).is_some_and(|it| it == entry);
        self.pods.iter().filter(is_of).cloned().collect()
    }
}

/// The child of an entry; one that is going counts while it is there.
fn of_entry<'a, K: kube::Resource>(children: &'a [Arc<K>], entry: &str) -> Option<&'a K> {
    children.iter().find(|child| kin::entry_of(child.meta()) == Some(entry)).map(|child| &**child)
}
