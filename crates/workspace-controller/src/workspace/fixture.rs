//! Facts of a workspace in verbs, for the tables of `verdict`, `status` and `decide`.

mod children;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use otctl_kit::cluster::Target;
use otctl_types::condition;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::names::WORKSPACE_FINALIZER;
use otctl_types::queue::ActiveEntry;
use otctl_types::workspace::{
    Container, DiskOrigin, Instance, OpenTurn, VirtualMachine as MachineEntry, WorkspaceStatus,
};
use otctl_types::{VMDiskImage, VMDiskImageSpec, Workspace, WorkspaceSpec};
use policy::Policy;
use serde_json::json;

use super::observe::{Hall, Observed};
use crate::children::fixture::current;
use crate::config::{self, Site};
use crate::family::Child;
use crate::grounds::Ground;
use crate::kin::Whose;
use crate::machines::VirtualMachine;
use crate::needs::Needs;
use crate::parts;

/// The namespace of everything.
pub(crate) const LABS: &str = "labs";
const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";

/// Noon, when every table is judged.
pub(crate) fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().expect("a constant")
}

/// A workspace without entries that was just created, in a cluster with KubeVirt and four slots.
pub(crate) fn bare() -> Facts {
    let mut workspace = Workspace::new("lab", WorkspaceSpec::default());
    workspace.metadata.uid = Some(UID.to_owned());
    workspace.metadata.generation = Some(1);
    Facts {
        workspace,
        policy: Policy::default(),
        hall: Hall::default(),
        ground: Ground::Firm,
        entry: None,
        images: vec![image("debian", "r1")],
        taken: Vec::new(),
        has_kubevirt: true,
        children: Children::default(),
    }
}

/// A workspace with the container `api`.
pub(crate) fn workspace() -> Facts {
    bare().container("api")
}

/// A workspace with the machine `db`, whose image `debian` is usable.
pub(crate) fn with_machine() -> Facts {
    bare().machine("db")
}

fn image(name: &str, revision: &str) -> VMDiskImage {
    let mut image = VMDiskImage::new(name, spec_of_image());
    image.metadata.namespace = Some(LABS.to_owned());
    let status = json!({
        "phase": "Succeeded", "message": "",
        "conditions": [{"type": condition::AVAILABLE, "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-05-01T11:00:00Z"}],
    });
    let mut status: VMDiskImageStatus = serde_json::from_value(status).expect("a status");
    status.current = Some(current());
    status.current.iter_mut().for_each(|current| current.revision = revision.to_owned());
    image.status = Some(status);
    image
}

/// What the image `debian` is made from.
pub(crate) fn spec_of_image() -> VMDiskImageSpec {
    VMDiskImageSpec { url: "http://host/debian.qcow2".to_owned(), ..VMDiskImageSpec::default() }
}

/// What is known, before it becomes an `Observed`.
#[derive(Clone)]
pub(crate) struct Facts {
    workspace: Workspace,
    policy: Policy,
    hall: Hall,
    ground: Ground,
    entry: Option<i64>,
    images: Vec<VMDiskImage>,
    taken: Vec<(Target, Whose)>,
    has_kubevirt: bool,
    children: Children,
}

#[derive(Clone, Default)]
struct Children {
    networks: Vec<NetworkPolicy>,
    services: Vec<Service>,
    deployments: Vec<Deployment>,
    claims: Vec<PersistentVolumeClaim>,
    machines: Vec<VirtualMachine>,
    pods: Vec<Pod>,
}

impl Facts {
    pub(crate) fn spec(mut self, change: impl FnOnce(&mut WorkspaceSpec)) -> Self {
        change(&mut self.workspace.spec);
        self
    }

    pub(crate) fn status(mut self, change: impl FnOnce(&mut WorkspaceStatus)) -> Self {
        change(self.workspace.status.get_or_insert_default());
        self
    }

    pub(crate) fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// One more container.
    pub(crate) fn container(self, name: &str) -> Self {
        let entry = Container {
            name: name.to_owned(),
            image: format!("registry.example/{name}:1"),
            ..Container::default()
        };
        self.spec(|spec| spec.containers.push(entry))
    }

    /// One more machine, from image `debian`.
    pub(crate) fn machine(self, name: &str) -> Self {
        let instance = Instance { memory: Some("1Gi".to_owned()), ..Instance::default() };
        self.image_entry(name).entry_of(name, |entry| entry.spec.instance = Some(instance))
    }

    /// One more virtual machine that does not run, from image `debian`.
    pub(crate) fn image_entry(self, name: &str) -> Self {
        let mut entry = MachineEntry { name: name.to_owned(), ..MachineEntry::default() };
        entry.spec.vm_disk_image_name = "debian".to_owned();
        self.spec(|spec| spec.virtual_machines.push(entry))
    }

    /// Changes the entry of a virtual machine.
    pub(crate) fn entry_of(self, name: &str, change: impl FnOnce(&mut MachineEntry)) -> Self {
        self.spec(|spec| {
            let mut all = spec.virtual_machines.iter_mut();
            change(all.find(|entry| entry.name == name).expect("it was added"));
        })
    }

    /// There is no image.
    pub(crate) fn without_image(mut self) -> Self {
        self.images.clear();
        self
    }

    /// The image `debian` has another revision by now.
    pub(crate) fn revision(mut self, revision: &str) -> Self {
        self.images = vec![image("debian", revision)];
        self
    }

    /// The image `debian` has no disk, and is in this phase.
    pub(crate) fn image_in(self, phase: Phase) -> Self {
        self.image(|image| {
            let message = Some("the words of the image".to_owned());
            image.status = Some(VMDiskImageStatus {
                phase: Some(phase),
                message,
                ..VMDiskImageStatus::default()
            });
        })
    }

    /// Changes the image `debian`.
    pub(crate) fn image(mut self, change: impl FnOnce(&mut VMDiskImage)) -> Self {
        change(&mut self.images[0]);
        self
    }

    pub(crate) fn without_kubevirt(mut self) -> Self {
        self.has_kubevirt = false;
        self
    }

    pub(crate) fn ticket(self, ticket: &str) -> Self {
        self.status(|status| status.ticket = Some(ticket.to_owned()))
    }

    /// Every slot is taken, and so many wait with lower tickets.
    pub(crate) fn behind(mut self, ahead: usize) -> Self {
        self.hall = Hall { ahead, is_full: true };
        self
    }

    /// Holds a slot for that turn.
    pub(crate) fn slot(mut self, number: i64) -> Self {
        self.entry = Some(number);
        self
    }

    /// That turn was opened a minute ago.
    pub(crate) fn open(self, number: i64) -> Self {
        self.open_since(number, 60)
    }

    /// That turn was opened so many seconds ago.
    pub(crate) fn open_since(self, number: i64, seconds: i64) -> Self {
        let since = now().checked_sub(SignedDuration::from_secs(seconds)).expect("a constant");
        self.slot(number).turns(number).status(|status| {
            status.open_turn = Some(OpenTurn { number, since: Time(since) });
        })
    }

    /// So many turns were used.
    pub(crate) fn turns(self, last: i64) -> Self {
        self.status(|status| status.last_turn = Some(last))
    }

    /// These entries have had their start.
    pub(crate) fn started(self, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.status(|status| {
            status.started_parts = names;
            status.last_turn.get_or_insert(1);
        })
        .recorded_as_they_are()
    }

    /// As what they are now.
    fn recorded_as_they_are(mut self) -> Self {
        let status = self.workspace.status.clone().unwrap_or_default();
        let machines = parts::machines_among(&self.workspace, &status.started_parts);
        self.workspace.status = Some(WorkspaceStatus { started_machines: machines, ..status });
        self
    }

    /// That entry's machine has a disk of its own, as is on record: made from revision `r1` of that image.
    pub(crate) fn copied(self, entry: &str, image: &str) -> Self {
        self.disk(entry, image, true)
    }

    /// That entry used revision `r1` of that image without a machine, as is on record.
    pub(crate) fn used(self, entry: &str, image: &str) -> Self {
        self.disk(entry, image, false)
    }

    fn disk(self, entry: &str, image: &str, copied: bool) -> Self {
        let (entry, image) = (entry.to_owned(), image.to_owned());
        let disk = DiskOrigin { entry, image, revision: "r1".to_owned(), copied };
        self.status(|status| status.disks.push(disk))
    }

    pub(crate) fn suspended(self) -> Self {
        self.spec(|spec| spec.suspended = true)
    }

    pub(crate) fn deleted(mut self) -> Self {
        self.workspace.metadata.deletion_timestamp = Some(Time(now()));
        self
    }

    pub(crate) fn finalized(mut self) -> Self {
        self.workspace.metadata.finalizers = Some(vec![WORKSPACE_FINALIZER.to_owned()]);
        self
    }

    /// Somebody else means to see to it before it goes.
    pub(crate) fn kept(mut self) -> Self {
        let finalizers = self.workspace.metadata.finalizers.get_or_insert_default();
        finalizers.push("example.com/backup".to_owned());
        self
    }

    pub(crate) fn ground(mut self, ground: Ground) -> Self {
        self.ground = ground;
        self
    }

    /// Somebody else's object has that name.
    pub(crate) fn foreign<K: Resource<DynamicType = ()>>(self, name: &str) -> Self {
        self.taken::<K>(name, Whose::Foreign)
    }

    /// An object that an earlier workspace of its name had made has that name.
    pub(crate) fn left<K: Resource<DynamicType = ()>>(self, name: &str) -> Self {
        self.taken::<K>(name, Whose::Left)
    }

    fn taken<K: Resource<DynamicType = ()>>(mut self, name: &str, whose: Whose) -> Self {
        self.taken.push((Target::new::<K>(Some(LABS), name), whose));
        self
    }

    /// As it is judged.
    pub(crate) fn observed(self) -> Observed {
        let namespace = self.workspace.spec.namespace.clone().unwrap_or_else(|| LABS.to_owned());
        let images = self.images.into_iter().map(Arc::new);
        let named =
            images.filter(|image| crate::images::is_named(&self.workspace, &name(&**image)));
        let images = named.map(|image| (name(&*image), image)).collect();
        let claims = self.children.claims.into_iter().map(Arc::new).collect();
        let needs = Needs::of((&self.workspace, &namespace), images, claims, self.has_kubevirt);
        let whose = |child: &Child| {
            let mut taken = self.taken.iter().filter(|(target, _)| *target == child.target(LABS));
            taken.next().map(|(_, whose)| *whose)
        };
        let family = needs.family.clone().with_taken(whose);
        let entry = self.entry.map(|attempt| ActiveEntry {
            namespace: String::new(),
            name: "lab".to_owned(),
            uid: UID.to_owned(),
            attempt,
            ticket: "7".to_owned(),
            host: None,
            since: Time(now()),
        });
        let site = Site { settings: config::fixture(), installation: "otctl".to_owned() };
        Observed {
            workspace: Some(Arc::new(self.workspace)),
            site: Arc::new(site),
            namespace,
            policy: self.policy,
            entry,
            hall: self.hall,
            ground: self.ground,
            needs: Needs { family, ..needs },
            former_images: Vec::new(),
            networks: shared(self.children.networks),
            services: shared(self.children.services),
            deployments: shared(self.children.deployments),
            machines: shared(self.children.machines),
            pods: shared(self.children.pods),
            are_pods_gone: false,
        }
    }
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}

fn name<K: Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}
