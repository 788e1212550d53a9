//! The controller as a process of the simulator, and workspaces as tests write them.

use std::sync::Arc;

use clap::Parser;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use otctl_kit::store::Scoped;
use otctl_queue::PolicySource;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use otctl_types::workspace::{
    Container, ContainerPort, Instance, VirtualMachine, VirtualMachineSpec, WorkspaceStatus,
};
use otctl_types::{Workspace, WorkspaceSpec, condition};
use serde_json::{Value, json};
use testbed::sim::{Connection, Order};
use testbed::{Feed, Instance as Process, Loop, Sim, Wakes, World, builders};
use workspace_controller::Args;
use workspace_controller::config::Site;
use workspace_controller::queue::queue;
use workspace_controller::views::Views;
use workspace_controller::wiring::{Wake, wire_queue, wire_workspaces};
use workspace_controller::workspace::Reconciler;

/// Where all is made.
pub(crate) const LABS: &str = "labs";

/// A world with KubeVirt and a namespace, and one controller in it.
pub(crate) fn world(order: Order) -> Sim {
    let sim = Sim::new(order).with_process("controller", instance);
    let mut labs = Namespace::default();
    labs.metadata.name = Some(LABS.to_owned());
    sim.world.create(&labs);
    sim
}

/// A controller process.
pub(crate) fn instance(connection: &Connection) -> Process {
    let flags = ["workspace-controller", "--default-namespace=labs"];
    let settings = Args::parse_from(flags).settings;
    let site = Arc::new(Site { settings, installation: DEFAULT_NAMESPACE.to_owned() });
    let views = Views::new(&site.settings.served_namespaces());
    let clock = Arc::new(connection.clock.clone());
    let policy = PolicySource {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        name: DEFAULT_POLICY_NAME.to_owned(),
    };
    let through = (connection.cluster.clone(), clock as Arc<dyn otctl_kit::clock::Clock>);
    let queue = queue(views.clone(), site.clone(), policy, through);
    let workspaces = Reconciler::new(views.clone(), connection.cluster.clone(), site);
    let (of_queue, of_workspaces) = (Wakes::new(&connection.clock), Wakes::new(&connection.clock));
    wire_queue(&waking(&of_queue), &views);
    wire_workspaces(&waking(&of_workspaces), &views);
    let feeds = vec![
        Feed::new(&views.workspaces),
        Feed::new(&views.queues),
        Feed::new(&views.policies),
        feed(&views.images),
        feed(&views.networks),
        feed(&views.services),
        feed(&views.deployments),
        feed(&views.pods),
        feed(&views.claims),
        feed(&views.machines),
    ];
    let loops = vec![
        Loop::of(queue, connection, &of_queue),
        Loop::of(workspaces, connection, &of_workspaces),
    ];
    Process { feeds, loops }
}

fn feed<K>(stores: &Scoped<K>) -> Feed
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    Feed::new(stores.of(LABS).unwrap())
}

fn waking(wakes: &Wakes) -> Wake {
    let wakes = wakes.clone();
    Arc::new(move |key| wakes.wake(key))
}

/// A workspace with these entries.
pub(crate) fn workspace(name: &str, entries: &[Entry]) -> Workspace {
    let mut spec = WorkspaceSpec::default();
    for entry in entries {
        match entry {
            Entry::Container(name) => spec.containers.push(Container {
                name: (*name).to_owned(),
                image: format!("registry.example/{name}:1"),
                ports: vec![ContainerPort { container_port: 8080, ..ContainerPort::default() }],
                ..Container::default()
            }),
            Entry::Image(name, image) => spec.virtual_machines.push(machine(name, image, None)),
            Entry::Machine(name, image) => {
                let instance =
                    Instance { memory: Some("1Gi".to_owned()), ..Instance::default() };
                spec.virtual_machines.push(machine(name, image, Some(instance)));
            }
        }
    }
    Workspace::new(name, spec)
}

/// An entry of a workspace.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    /// A container of that name.
    Container(&'static str),
    /// A virtual machine that is not run, and its image.
    Image(&'static str, &'static str),
    /// A virtual machine, and its image.
    Machine(&'static str, &'static str),
}

fn machine(name: &str, image: &str, instance: Option<Instance>) -> VirtualMachine {
    let spec = VirtualMachineSpec {
        vm_disk_image_name: image.to_owned(),
        instance,
        ..VirtualMachineSpec::default()
    };
    VirtualMachine { name: name.to_owned(), spec }
}

/// An image of that name, which is being synced.
pub(crate) fn image(world: &World, name: &str) {
    builders::image(&format!("{LABS}/{name}")).create(world);
    set_image(world, name, |status| {
        status["phase"] = json!("Syncing");
        status["message"] = json!("42 of 100 MiB");
    });
}

/// The image is usable from now on, at this revision.
pub(crate) fn sync(world: &World, name: &str, revision: &str) {
    set_image(world, name, |status| {
        status["phase"] = json!("Succeeded");
        status["current"] = json!({"revision": revision, "snapshot": format!("{name}-{revision}"), "minimumSize": 1 << 20});
        status["conditions"] = json!([{
            "type": "Available", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
}

/// Changes the status of an image, as its controller would.
pub(crate) fn set_image(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    let key = builders::key(&format!("{LABS}/{name}"));
    world.edit("VMDiskImage", &key, |image| change(&mut image["status"]));
}

/// The status of that workspace; empty before the first write.
pub(crate) fn status(world: &World, name: &str) -> WorkspaceStatus {
    let workspace = world.read::<Workspace>(&builders::key(name));
    workspace.and_then(|workspace| workspace.status).unwrap_or_default()
}

/// `Phase (Reason of Ready, readyParts): message`.
pub(crate) fn told(world: &World, name: &str) -> String {
    let status = status(world, name);
    let phase = status.phase.map_or("-", |phase| phase.as_str());
    let reason = condition::find(&status.conditions, condition::READY)
        .map(|ready| ready.reason.clone())
        .unwrap_or_default();
    let parts = status.ready_parts.unwrap_or_default();
    format!("{phase} ({reason}, {parts}): {}", status.message.unwrap_or_default())
}

/// Names of everything of that kind.
pub(crate) fn names(world: &World, kind: &str) -> Vec<String> {
    let objects = world.list(kind).into_iter();
    objects.map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Who holds a slot, and for which turn.
pub(crate) fn slots(world: &World) -> Vec<String> {
    let queue = world.read::<otctl_types::AdmissionQueue>(&builders::key("workspaces"));
    let status = queue.and_then(|queue| queue.status).unwrap_or_default();
    status.active.iter().map(|entry| format!("{}#{}", entry.name, entry.attempt)).collect()
}

/// A workspace that a test changes.
pub(crate) fn edit(world: &World, name: &str, change: impl FnOnce(&mut WorkspaceSpec)) {
    let workspace = world.read::<Workspace>(&builders::key(name)).unwrap();
    let mut spec = workspace.spec.clone();
    change(&mut spec);
    let name = workspace.name_any();
    world.edit("Workspace", &builders::key(&name), |it| it["spec"] = json!(spec));
}
