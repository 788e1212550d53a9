//! What a workspace costs the API server, and that nothing is written twice.

use std::collections::{BTreeMap, BTreeSet};

use testbed::effort::seeds;
use testbed::sim::Order;
use testbed::{Sim, builders as bed};

use crate::builders::{synced_image, workspace};
use crate::controller::{delete, is_ready, world, world_of};

/// How often the controller wrote to each kind, from that version on; statuses apart.
fn writes(sim: &Sim, from: u64) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    sim.world.history(|history| {
        let ours = history.iter().filter(|it| it.by == "controller" && it.revision > from);
        for version in ours {
            let status = version.verb == testbed::world::Verb::Status;
            let name = if status { "status of " } else { "" };
            *counts.entry(format!("{name}{}", version.id.kind)).or_default() += 1;
        }
    });
    counts
}

fn counted(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

#[test]
fn a_workspace_costs_its_children_and_four() {
    let mut sim = world(Order::Fixed).reading_own_writes();
    synced_image(&sim.world, "debian");
    sim.settle();
    let from = sim.world.revision();
    workspace("lab")
        .image("data", "debian")
        .container("a")
        .container("b")
        .container("c")
        .create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let expected = [
        // Its children.
        ("NetworkPolicy", 1),
        ("Service", 4),
        ("Deployment", 3),
        // And four: its finalizer, and a status when it is admitted, when all is made, and when all is ready.
        ("Workspace", 1),
        // One more for each part before the last that is ready.
        ("status of Workspace", 3 + 2),
        ("status of AdmissionQueue", 2),
        ("Event", 2),
    ];
    assert_eq!(writes(&sim, from), counted(&expected), "\n{}", sim.story);
}

#[test]
fn waiting_costs_a_ticket_and_a_status_and_others_cost_it_nothing() {
    let mut sim = world_of(1, Order::Fixed).reading_own_writes();
    sim.world.fare("slow", testbed::Health::NeverReady);
    workspace("first").container("slow").create(&sim.world);
    sim.quiesce();
    workspace("lab").container("api").create(&sim.world);
    sim.quiesce();
    let versions = |sim: &Sim| {
        sim.world.history(|history| {
            history.iter().filter(|it| it.id.kind == "Workspace" && it.id.key.name == "lab").count()
        })
    };
    assert_eq!(versions(&sim), 3, "made, its ticket, its status");
    for number in 0..5 {
        workspace(&format!("other-{number}")).container("api").create(&sim.world);
    }
    sim.quiesce();
    ["other-0", "other-3"].iter().for_each(|name| delete(&sim.world, name));
    sim.quiesce();
    assert_eq!(versions(&sim), 3, "\n{}", sim.story);
}

#[test]
fn what_crashes_again_and_again_is_told_once() {
    let mut sim = world_of(1, Order::Fixed);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    sim.world.fare("api", testbed::Health::Crashing(1));
    sim.settle();
    let before = sim.world.get("Workspace", &bed::key("lab")).unwrap();
    for restarts in 4..9 {
        let pod = crate::controller::names(&sim.world, "Pod")[0].clone();
        sim.world.edit("Pod", &crate::controller::at(&pod), |it| {
            it["status"]["containerStatuses"][0]["restartCount"] = serde_json::json!(restarts);
        });
        sim.quiesce();
    }
    assert_eq!(sim.world.get("Workspace", &bed::key("lab")).unwrap(), before, "\n{}", sim.story);
}

/// What the controller wrote to children more than once.
fn repeated(sim: &Sim) -> Vec<String> {
    let story = sim.story.lines_with(" because ");
    let writes = story.iter().flat_map(|line| line.split([':', ';'])).map(str::trim);
    let children = writes
        .filter(|write| ["make ", "apply ", "delete "].iter().any(|verb| write.starts_with(verb)));
    let mut seen = BTreeSet::new();
    children.filter(|write| !seen.insert(write.to_owned())).map(str::to_owned).collect()
}

/// Two lives, one after the other, with every kind of child in them.
fn lived(mut sim: Sim) -> Sim {
    synced_image(&sim.world, "debian");
    workspace("a").machine("db", "debian").container("api").create(&sim.world);
    workspace("b").container("api").container("web").create(&sim.world);
    sim.settle();
    delete(&sim.world, "a");
    sim.settle();
    sim
}

fn orders() -> impl Iterator<Item = Order> {
    seeds(5).flat_map(|seed| [Order::Shuffled(seed), Order::Interleaved(seed)])
}

#[test]
fn no_child_is_written_twice_in_any_order() {
    for order in orders() {
        let sim = lived(world_of(1, order).reading_own_writes());
        assert_eq!(repeated(&sim), Vec::<String>::new(), "{order:?}\n{}", sim.story);
    }
}

#[test]
fn without_waiting_for_own_writes_some_would_be_repeated() {
    assert!(orders().any(|order| !repeated(&lived(world_of(1, order))).is_empty()));
}
