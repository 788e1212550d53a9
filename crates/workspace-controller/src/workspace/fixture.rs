//! Facts of a workspace in verbs, for the tables of `verdict`, `status` and `decide`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::core::ObjectMeta;
use otctl_kit::cluster::Target;
use otctl_types::condition;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use otctl_types::names::{ENTRY_LABEL, WORKSPACE_FINALIZER, WORKSPACE_LABEL};
use otctl_types::queue::ActiveEntry;
use otctl_types::workspace::{
    Container, Instance, OpenTurn, VirtualMachine as MachineEntry, WorkspaceStatus,
};
use otctl_types::{VMDiskImage, VMDiskImageSpec, Workspace, WorkspaceSpec};
use policy::Policy;
use serde_json::{Value, json};

use super::observe::{Hall, Observed};
use crate::children::machine::Power;
use crate::children::{self, Facts as Made, fixture::current};
use crate::config::{self, Site};
use crate::grounds::Ground;
use crate::machines::VirtualMachine;
use crate::needs::Needs;

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
    let mut images = Vec::new();
    images.push(image("debian", "r1"));
    Facts {
        workspace,
        policy: Policy::default(),
        hall: Hall::default(),
        ground: Ground::Firm,
        entry: None,
        images,
        foreign: Vec::new(),
        has_kubevirt: true,
        children: Children::default(),
        are_pods_gone: false,
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
    foreign: Vec<Target>,
    has_kubevirt: bool,
    children: Children,
    are_pods_gone: bool,
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

    pub(crate) fn ground(mut self, ground: Ground) -> Self {
        self.ground = ground;
        self
    }

    /// Somebody else's object has that name.
    pub(crate) fn foreign<K: Resource<DynamicType = ()>>(mut self, name: &str) -> Self {
        self.foreign.push(Target::new::<K>(Some(LABS), name));
        self
    }

    /// Its policy is there.
    pub(crate) fn isolated(mut self) -> Self {
        let policy = self.make(children::network_policy::network_policy);
        self.children.networks.push(policy);
        self
    }

    /// Somebody's policy is in the namespace too; its spec.
    pub(crate) fn other_policy(mut self, spec: Value) -> Self {
        let policy = json!({"metadata": {"name": "other", "namespace": LABS}, "spec": spec});
        self.children.networks.push(serde_json::from_value(policy).expect("a policy"));
        self
    }

    /// The Service of that entry is there.
    pub(crate) fn service(mut self, name: &str) -> Self {
        let service = self.make(|facts| {
            let spec = &facts.workspace.spec;
            let container = spec.containers.iter().find(|entry| entry.name == name);
            let machine = spec.virtual_machines.iter().find(|entry| entry.name == name);
            match container {
                Some(entry) => children::service::of_container(facts, entry, None),
                None => children::service::of_machine(facts, machine.expect("it was added"), None),
            }
        });
        self.children.services.push(service);
        self
    }

    /// Everything of a container is there, and so many of its one pod are ready.
    pub(crate) fn runs(mut self, name: &str, ready: i32) -> Self {
        let mut deployment = self.make(|facts| {
            let mut all = facts.workspace.spec.containers.iter();
            let entry = all.find(|entry| entry.name == name).expect("it was added");
            children::deployment::deployment(facts, entry, entry.replicas, Vec::new())
        });
        deployment.metadata.generation = Some(1);
        deployment.status = serde_json::from_value(json!({
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": ready,
        }))
        .expect("a status");
        self.children.deployments.push(deployment);
        self.service(name)
    }

    /// Everything of a machine is there, made from revision `r1`; KubeVirt's word for it.
    pub(crate) fn machine_is(mut self, name: &str, word: &str) -> Self {
        let entry = |facts: &Made<'_>| {
            let mut all = facts.workspace.spec.virtual_machines.iter();
            all.find(|entry| entry.name == name).expect("it was added").clone()
        };
        let claim = self.make(|facts| {
            children::claim::kept(facts, &entry(facts), "r1", &PersistentVolumeClaim::default())
        });
        let claim_name = claim.metadata.name.clone().expect("it was named");
        let mut machine = self.make(|facts| {
            let entry = entry(facts);
            let instance = entry.spec.instance.clone().expect("it runs");
            children::machine::machine(facts, (&entry, &instance), &claim_name, Power::AsAsked)
        });
        machine.metadata.generation = Some(1);
        machine.status = serde_json::from_value(json!({
            "observedGeneration": 1, "printableStatus": word, "created": true, "ready": word == "Running",
        }))
        .expect("a status");
        self.children.claims.push(claim);
        self.children.machines.push(machine);
        self.service(name)
    }

    /// A pod of that entry whose container waits for this reason, with these words.
    pub(crate) fn pod_waits(mut self, entry: &str, reason: &str, words: &str) -> Self {
        let mut pod = pod_of(entry);
        pod.status = serde_json::from_value(json!({
            "phase": "Pending",
            "containerStatuses": [{
                "name": entry, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": words}},
            }],
        }))
        .expect("a status");
        self.children.pods.push(pod);
        self
    }

    /// A pod of that entry whose deletion was to be over so many seconds ago.
    pub(crate) fn pod_going(mut self, entry: &str, seconds: i64) -> Self {
        let mut pod = pod_of(entry);
        let due = now().checked_sub(SignedDuration::from_secs(seconds)).expect("a constant");
        pod.metadata.deletion_timestamp = Some(Time(due));
        self.children.pods.push(pod);
        self
    }

    /// The API server knows no pod of it.
    pub(crate) fn pods_gone(mut self) -> Self {
        self.are_pods_gone = true;
        self
    }

    fn make<T>(&self, build: impl FnOnce(&Made<'_>) -> T) -> T {
        let settings = config::fixture();
        build(&Made {
            workspace: &self.workspace,
            namespace: LABS,
            settings: &settings,
            policy: &self.policy,
        })
    }

    /// As it is judged.
    pub(crate) fn observed(self) -> Observed {
        let namespace = self.workspace.spec.namespace.clone().unwrap_or_else(|| LABS.to_owned());
        let images = self.images.into_iter().map(Arc::new);
        let named =
            images.filter(|image| crate::images::is_named(&self.workspace, &name(&**image)));
        let images = named.map(|image| (name(&*image), image)).collect();
        let claims = self.children.claims.into_iter().map(Arc::new).collect();
        let needs = Needs::of(&self.workspace, images, claims, self.has_kubevirt);
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
            needs: Needs { foreign: self.foreign, ..needs },
            former_images: Vec::new(),
            networks: shared(self.children.networks),
            services: shared(self.children.services),
            deployments: shared(self.children.deployments),
            machines: shared(self.children.machines),
            pods: shared(self.children.pods),
            are_pods_gone: self.are_pods_gone,
        }
    }
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}

fn name<K: Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}

fn pod_of(entry: &str) -> Pod {
    let labels = [(WORKSPACE_LABEL, UID), (ENTRY_LABEL, entry)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("lab--{entry}-x")),
            namespace: Some(LABS.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}
