//! The children of a workspace in one table: of which kind, under which name, for which entry. What is asked of them all is
//! asked here; whether one is there is asked of what was observed.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use otctl_kit::cluster::Target;
use otctl_types::Workspace;
use otctl_types::workspace::VirtualMachine as MachineEntry;

use crate::kin::{self, Whose};
use crate::machines::VirtualMachine;
use crate::parts;

/// What a child is, in the order in which names that are taken are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    /// It isolates the workspace: the one child that is of no entry.
    NetworkPolicy,
    /// The name of an entry.
    Service,
    /// It runs a container.
    Deployment,
    /// The disk of a machine.
    Claim,
    /// A machine.
    VirtualMachine,
}

impl ChildKind {
    /// Whether pods are made for it.
    pub fn has_pods(self) -> bool {
        match self {
            Self::Deployment | Self::VirtualMachine => true,
            Self::NetworkPolicy | Self::Service | Self::Claim => false,
        }
    }

    /// Whether none is made in a cluster without KubeVirt.
    pub fn needs_kubevirt(self) -> bool {
        match self {
            Self::Claim | Self::VirtualMachine => true,
            Self::NetworkPolicy | Self::Service | Self::Deployment => false,
        }
    }
}

/// A child that a workspace has or will have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// What it is.
    pub kind: ChildKind,
    /// Its name.
    pub name: String,
    /// The entry that it is for; none of what is for all of them.
    pub entry: Option<String>,
    /// Whether another object has its name.
    pub is_taken: bool,
    /// Whether that is one which an earlier workspace of the same name left: the name will be free by itself.
    pub is_left: bool,
}

impl Child {
    /// The network policy of a workspace, wanted or not.
    pub fn policy(workspace: &Workspace) -> Self {
        Self::new(ChildKind::NetworkPolicy, kin::policy_name(workspace), None)
    }

    /// One whose name is nobody else's.
    pub fn new(kind: ChildKind, name: String, entry: Option<&str>) -> Self {
        Self { kind, name, entry: entry.map(str::to_owned), is_taken: false, is_left: false }
    }

    /// As the API server knows it.
    pub fn target(&self, namespace: &str) -> Target {
        let (namespace, name) = (Some(namespace), self.name.as_str());
        match self.kind {
            ChildKind::NetworkPolicy => Target::new::<NetworkPolicy>(namespace, name),
            ChildKind::Service => Target::new::<Service>(namespace, name),
            ChildKind::Deployment => Target::new::<Deployment>(namespace, name),
            ChildKind::Claim => Target::new::<PersistentVolumeClaim>(namespace, name),
            ChildKind::VirtualMachine => Target::new::<VirtualMachine>(namespace, name),
        }
    }

    /// Whether it is for that entry.
    pub fn is_of(&self, entry: &str) -> bool {
        self.entry.as_deref() == Some(entry)
    }
}

/// The children of a workspace, by kind and name.
#[derive(Clone, Debug, Default)]
pub struct Family(Vec<Child>);

impl Family {
    /// The children of `workspace`, where `claim` is the name of the disk of a machine, once it is known.
    pub fn of(workspace: &Workspace, claim: impl Fn(&MachineEntry) -> Option<String>) -> Self {
        let of_entry =
            |kind, entry: &str| Child::new(kind, kin::child_name(workspace, entry), Some(entry));
        let spec = &workspace.spec;
        let policy = spec.network.isolate.then(|| Child::policy(workspace));
        let services = parts::names(workspace).map(|entry| of_entry(ChildKind::Service, entry));
        let containers = spec.containers.iter();
        let deployments = containers.map(|it| of_entry(ChildKind::Deployment, &it.name));
        let running = || spec.virtual_machines.iter().filter(|it| it.spec.instance.is_some());
        let claims = running()
            .filter_map(|it| Some(Child::new(ChildKind::Claim, claim(it)?, Some(&it.name))));
        let machines = running().map(|it| of_entry(ChildKind::VirtualMachine, &it.name));
        let all = policy.into_iter().chain(services).chain(deployments);
        let mut all: Vec<Child> = all.chain(claims).chain(machines).collect();
        all.sort();
        Self(all)
    }

    /// With those names taken whose objects are no children; `whose` says it of what has the name of a child.
    #[must_use]
    pub fn with_taken(mut self, whose: impl Fn(&Child) -> Option<Whose>) -> Self {
        for child in &mut self.0 {
            let whose = whose(child);
            child.is_taken = whose.is_some_and(|whose| !whose.is_child());
            child.is_left = whose == Some(Whose::Left);
        }
        self
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.0.iter()
    }

    /// The first one whose name is somebody else's.
    pub fn taken(&self) -> Option<&Child> {
        self.iter().find(|child| child.is_taken && !child.is_left)
    }

    /// The first one whose name an earlier workspace has left taken.
    pub fn left(&self) -> Option<&Child> {
        self.iter().find(|child| child.is_left)
    }

    /// Whether the name of a child of that entry is not to be had now; without an entry, of what is for all of them.
    pub fn is_taken(&self, entry: Option<&str>) -> bool {
        self.iter().any(|child| child.is_taken && child.entry.as_deref() == entry)
    }

    /// Names of those of a kind.
    pub fn names(&self, kind: ChildKind) -> BTreeSet<String> {
        let of_kind = self.iter().filter(|child| child.kind == kind);
        of_kind.map(|child| child.name.clone()).collect()
    }

    /// Whether one of that kind has that name.
    pub fn wants(&self, kind: ChildKind, name: &str) -> bool {
        self.iter().any(|child| child.kind == kind && child.name == name)
    }

    /// Whether something of it has pods.
    pub fn wants_workloads(&self) -> bool {
        self.iter().any(|child| child.kind.has_pods())
    }
}

#[cfg(test)]
mod tests;
