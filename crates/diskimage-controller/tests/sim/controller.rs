//! The controller as a process of the simulator.

use std::sync::Arc;

use clap::Parser;
use diskimage_controller::Args;
use diskimage_controller::exchange::Correspondence;
use diskimage_controller::image::Image;
use diskimage_controller::queue::{PolicySource, queue};
use diskimage_controller::views::Views;
use diskimage_controller::wiring::{Wake, wire_images, wire_queue};
use otctl_types::diskimage::VMDiskImageStatus;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use otctl_types::{VMDiskImage, condition};
use serde_json::Value;
use testbed::script::Role;
use testbed::sim::{Connection, Order};
use testbed::{Ending, Feed, Instance, Loop, Sim, Wakes, World, builders};

/// A world with storage, and one controller in it.
pub(crate) fn world(order: Order) -> Sim {
    let sim = Sim::new(order).with_process("controller", instance);
    builders::storage(&sim.world);
    sim
}

/// A world with one slot, and one controller in it, in the order that reads well.
pub(crate) fn one_slot() -> Sim {
    let sim = world(Order::Fixed);
    builders::policy().concurrency(1).apply(&sim.world);
    sim
}

/// A controller process that nobody's import talks to.
pub(crate) fn instance(connection: &Connection) -> Instance {
    instance_with(connection, Correspondence::default())
}

/// A controller process that knows what imports told in this correspondence.
pub(crate) fn instance_with(connection: &Connection, talk: Correspondence) -> Instance {
    instance_over(&Views::default(), connection, talk)
}

/// The same over these views.
pub(crate) fn instance_over(
    views: &Views,
    connection: &Connection,
    talk: Correspondence,
) -> Instance {
    let clock = Arc::new(connection.clock.clone());
    let policy = PolicySource {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        name: DEFAULT_POLICY_NAME.to_owned(),
    };
    let queue = queue(views.clone(), connection.cluster.clone(), policy, clock);
    let settings = Args::parse_from(["diskimage-controller"]).settings;
    let image = Image::new(views.clone(), connection.cluster.clone(), Arc::new(settings), talk);
    let (of_queue, of_images) = (Wakes::new(&connection.clock), Wakes::new(&connection.clock));
    wire_queue(&waking(&of_queue), views);
    wire_images(&waking(&of_images), views);
    let feeds = vec![
        Feed::new(&views.images),
        Feed::new(&views.queues),
        Feed::new(&views.policies),
        Feed::new(&views.jobs),
        Feed::new(&views.pods),
        Feed::new(&views.claims),
        Feed::new(&views.snapshots),
        Feed::new(&views.storage_classes),
        Feed::new(&views.snapshot_classes),
    ];
    let loops =
        vec![Loop::of(queue, connection, &of_queue), Loop::of(image, connection, &of_images)];
    Instance { feeds, loops }
}

fn waking(wakes: &Wakes) -> Wake {
    // The simulator is one thread; the lock inside `Wakes` is what the driver's trigger has too.
    let wakes = wakes.clone();
    Arc::new(move |key| wakes.wake(key))
}

/// Whether an import pod of that image runs.
pub(crate) fn is_importing(world: &World, image: &str) -> bool {
    let (namespace, name) = image.split_once('/').expect("an image is namespace/name");
    world.list("Pod").iter().any(|pod| {
        let is_import = pod["metadata"]["labels"]["pelotech.ot/role"] == "import";
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let is_of_image =
            pod["metadata"]["namespace"] == namespace && pod_name.starts_with(&format!("{name}-"));
        is_import && is_of_image && pod["status"]["phase"] == "Running"
    })
}

/// From now on imports of that image succeed.
pub(crate) fn let_imports_succeed(world: &World, image: &str) {
    world.script_always(&builders::key(image), Role::Import, Ending::complete(Role::Import));
}

/// The status of that image; empty before the first write.
pub(crate) fn status(world: &World, image: &str) -> VMDiskImageStatus {
    let image = world.read::<VMDiskImage>(&builders::key(image));
    image.and_then(|image| image.status).unwrap_or_default()
}

/// Why that image is Ready or is not.
pub(crate) fn reason(world: &World, image: &str) -> String {
    let conditions = status(world, image).conditions;
    condition::find(&conditions, condition::READY)
        .map(|ready| ready.reason.clone())
        .unwrap_or_default()
}

/// Names of everything of that kind, with namespaces.
pub(crate) fn names(world: &World, kind: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = world.list(kind).into_iter().map(|object| object["metadata"].clone());
    objects.map(|meta| format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))).collect()
}

/// How often an import of that image has run to an end, whichever.
pub(crate) fn imports(world: &World, image: &str) -> usize {
    let key = builders::key(image);
    world.runs().iter().filter(|run| run.role == Role::Import && run.image == key).count()
}
