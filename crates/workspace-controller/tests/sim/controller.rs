//! The controller as a process of the simulator, and what tests do to a world and read from it.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;

use clap::Parser;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use otctl_kit::plan::Propagation;
use otctl_kit::store::{Key, Scoped};
use otctl_queue::PolicySource;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, WORKSPACE_LABEL};
use otctl_types::workspace::WorkspaceStatus;
use otctl_types::{AdmissionQueue, Workspace, WorkspaceSpec, condition};
use serde_json::{Value, json};
use testbed::sim::{Connection, Order};
use testbed::world::Id;
use testbed::{Feed, Instance as Process, Loop, Sim, Wakes, World, builders, effort};
use workspace_controller::config::Site;
use workspace_controller::queue::queue;
use workspace_controller::views::Views;
use workspace_controller::wiring::{Wake, wire_queue, wire_workspaces};
use workspace_controller::workspace::Reconciler;
use workspace_controller::{Args, slim};

/// Numbers of turns up to `most`: each third one, or each where there is time for many seeds.
pub(crate) fn turns(most: usize) -> StepBy<Range<usize>> {
    (0..most).step_by(if effort::is_long() { 1 } else { 3 })
}

/// Where all is made.
pub(crate) const LABS: &str = "labs";

/// A world with KubeVirt and a namespace, and one controller in it.
pub(crate) fn world(order: Order) -> Sim {
    let sim = Sim::new(order).with_process("controller", instance);
    furnish(&sim.world);
    sim
}

/// As [`world`], with a policy of so many slots.
pub(crate) fn world_of(slots: u32, order: Order) -> Sim {
    let sim = world(order);
    limit(&sim.world, &slots.to_string());
    sim
}

/// KubeVirt, storage and a namespace.
pub(crate) fn furnish(world: &World) {
    builders::storage(world);
    install_kubevirt(world);
    make_namespace(world);
}

/// The namespace of all tests.
pub(crate) fn make_namespace(world: &World) {
    let mut labs = Namespace::default();
    labs.metadata.name = Some(LABS.to_owned());
    world.create(&labs);
}

/// The definition of machines.
pub(crate) fn install_kubevirt(world: &World) {
    world.create_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "virtualmachines.kubevirt.io"},
    }));
}

/// `workspaceConcurrency` of the policy.
pub(crate) fn limit(world: &World, slots: &str) {
    builders::policy().set("workspaceConcurrency", slots).apply(world);
}

/// A controller process.
pub(crate) fn instance(connection: &Connection) -> Process {
    instance_over(&views(), connection)
}

/// Where it works.
fn site() -> Site {
    let flags = ["workspace-controller", "--default-namespace=labs"];
    let settings = Args::parse_from(flags).settings;
    Site { settings, installation: DEFAULT_NAMESPACE.to_owned() }
}

/// The views of a controller that has seen nothing.
pub(crate) fn views() -> Views {
    Views::new(&site().settings.served_namespaces())
}

/// A controller process over these views.
pub(crate) fn instance_over(views: &Views, connection: &Connection) -> Process {
    instance_within(views, connection, |reconciler| reconciler)
}

/// As [`instance_over`], with its reconciler of workspaces within another.
pub(crate) fn instance_within<R: otctl_kit::reconciler::Reconciler>(
    views: &Views,
    connection: &Connection,
    within: impl FnOnce(Reconciler) -> R,
) -> Process {
    let site = Arc::new(site());
    let clock = Arc::new(connection.clock.clone());
    let policy = PolicySource {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        name: DEFAULT_POLICY_NAME.to_owned(),
    };
    let through = (connection.cluster.clone(), clock as Arc<dyn otctl_kit::clock::Clock>);
    let queue = queue(views.clone(), site.clone(), policy, through.clone());
    let workspaces = Reconciler::new(views.clone(), site, through);
    let (of_queue, of_workspaces) = (Wakes::new(&connection.clock), Wakes::new(&connection.clock));
    wire_queue(&waking(&of_queue), views);
    wire_workspaces(&waking(&of_workspaces), views);
    let loops = vec![
        Loop::of(queue, connection, &of_queue),
        Loop::of(within(workspaces), connection, &of_workspaces),
    ];
    Process { feeds: feeds(views), loops }
}

/// Watches as the product has them: with their selectors, and of pods what it keeps.
fn feeds(views: &Views) -> Vec<Feed> {
    let kubevirt =
        Id::new("CustomResourceDefinition", &Key::new("", "virtualmachines.kubevirt.io"));
    let pods = Feed::mapped("Pod", views.pods.of(LABS).unwrap(), |object| {
        serde_json::from_value(object).map(|mut pod: Pod| {
            slim::pod(&mut pod);
            pod
        })
    });
    vec![
        Feed::new(&views.workspaces),
        Feed::new(&views.queues).only(|queue| queue["metadata"]["name"] == json!("workspaces")),
        Feed::new(&views.policies),
        feed(&views.images),
        feed(&views.networks),
        feed(&views.services),
        feed(&views.deployments),
        pods.only(|pod| is_here(pod) && !pod["metadata"]["labels"][WORKSPACE_LABEL].is_null()),
        feed(&views.claims),
        feed(&views.machines).once_there(kubevirt),
    ]
}

fn feed<K>(stores: &Scoped<K>) -> Feed
where
    K: kube::Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static,
{
    Feed::new(stores.of(LABS).unwrap()).only(is_here)
}

fn is_here(object: &Value) -> bool {
    object["metadata"]["namespace"] == json!(LABS)
}

fn waking(wakes: &Wakes) -> Wake {
    let wakes = wakes.clone();
    Arc::new(move |key| wakes.wake(key))
}

/// The key of an object in the namespace of all tests.
pub(crate) fn at(name: &str) -> Key {
    Key::new(LABS, name)
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
    let parts = status.ready_parts.unwrap_or_default();
    let message = status.message.unwrap_or_default();
    format!("{phase} ({}, {parts}): {message}", reason(world, name, condition::READY))
}

/// Whether it says that everything is ready.
pub(crate) fn is_ready(world: &World, name: &str) -> bool {
    condition::is_true(&status(world, name).conditions, condition::READY)
}

/// The reason of a condition; empty when it is absent.
pub(crate) fn reason(world: &World, name: &str, kind: &str) -> String {
    let conditions = status(world, name).conditions;
    condition::find(&conditions, kind).map(|found| found.reason.clone()).unwrap_or_default()
}

/// Names of everything of that kind.
pub(crate) fn names(world: &World, kind: &str) -> Vec<String> {
    let objects = world.list(kind).into_iter();
    objects.map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Who holds a slot, and for which turn.
pub(crate) fn slots(world: &World) -> Vec<String> {
    let queue = world.read::<AdmissionQueue>(&builders::key("workspaces"));
    let status = queue.and_then(|queue| queue.status).unwrap_or_default();
    status.active.iter().map(|entry| format!("{}#{}", entry.name, entry.attempt)).collect()
}

/// Kind, name and resourceVersion of everything but Workspaces, the ledger, pods and Events.
pub(crate) fn versions(world: &World) -> Vec<(String, String)> {
    let is_child = |object: &Value| {
        let kind = object["kind"].as_str().unwrap();
        !["Workspace", "AdmissionQueue", "Pod", "Event", "ConfigMap"].contains(&kind)
    };
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        let name = format!("{} {}", object["kind"].as_str().unwrap(), metadata["name"]);
        (name, metadata["resourceVersion"].as_str().unwrap().to_owned())
    };
    world.objects().iter().filter(|object| is_child(object)).map(version).collect()
}

/// A user changes the spec of a workspace.
pub(crate) fn edit(world: &World, name: &str, change: impl FnOnce(&mut WorkspaceSpec)) {
    let mut workspace = world.read::<Workspace>(&builders::key(name)).unwrap();
    change(&mut workspace.spec);
    let name = workspace.name_any();
    world.edit("Workspace", &builders::key(&name), |it| it["spec"] = json!(workspace.spec));
}

/// A user deletes a workspace.
pub(crate) fn delete(world: &World, name: &str) {
    world.delete("Workspace", &builders::key(name), Propagation::Background);
}

/// Nothing in the whole history of one controller is against the rules.
pub(crate) fn expect_sound(sim: &Sim) {
    expect_sound_together(sim);
    let found = sim.world.history(testbed::check::turns::made_in_turns);
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), sim.story);
}

/// Nothing in the whole history is against the rules, whoever wrote it.
pub(crate) fn expect_sound_together(sim: &Sim) {
    let found = testbed::check::whole_history_of_workspaces(&sim.world);
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), sim.story);
}
