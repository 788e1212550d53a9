//! Deletion: workloads and Services, then the policy, then the workspace; whatever stands in the way.

use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_types::condition;
use serde_json::json;
use testbed::builders::key;
use testbed::fault::at as call;
use testbed::sim::Order;
use testbed::world::Verb;
use testbed::{Health, Sim, builders as bed, check};
use workspace_controller::grounds::LASTS;

use crate::builders::{synced_image, workspace};
use crate::controller::{
    at, delete, edit, expect_sound, instance, is_ready, make_namespace, names, reason, status,
    told, turns, world, world_of,
};
use crate::faults::refusal;

fn ready() -> Sim {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sim
}

fn expect_gone(sim: &Sim) {
    for kind in ["Workspace", "Service", "Deployment", "VirtualMachine", "NetworkPolicy", "Pod"] {
        assert_eq!(names(&sim.world, kind), [""; 0], "{kind}\n{}", sim.story);
    }
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), [""; 0], "\n{}", sim.story);
    check::expect_none(&check::whole_history_of_workspaces(&sim.world));
}

#[test]
fn the_policy_outlives_the_pods() {
    let mut sim = ready();
    delete(&sim.world, "lab");
    sim.settle();
    let gone: Vec<String> = sim.world.history(|history| {
        let removed = history.iter().filter(|it| it.is_removal());
        removed.map(|it| it.id.kind.clone()).collect()
    });
    let place = |kind: &str| gone.iter().rposition(|it| it == kind).unwrap();
    assert!(place("Pod") < place("NetworkPolicy"), "{gone:?}");
    expect_gone(&sim);
}

#[test]
fn one_without_isolation_needs_no_finalizer_and_goes_at_once() {
    let mut sim = world(Order::Fixed);
    workspace("lab").container("api").with(|spec| spec.network.isolate = false).create(&sim.world);
    sim.settle();
    delete(&sim.world, "lab");
    assert_eq!(names(&sim.world, "Workspace"), [""; 0]);
    sim.settle();
    expect_gone(&sim);
}

#[test]
fn it_goes_from_every_state() {
    for turns in turns(60) {
        let mut sim = world(Order::Fixed);
        synced_image(&sim.world, "debian");
        workspace("lab").machine("db", "debian").container("api").create(&sim.world);
        (0..turns).for_each(|_| {
            sim.step();
        });
        delete(&sim.world, "lab");
        sim.settle();
        expect_gone(&sim);
    }
}

#[test]
fn a_restart_at_each_turn_of_a_deletion_loses_nothing() {
    for turns in turns(40) {
        let mut sim = ready();
        delete(&sim.world, "lab");
        (0..turns).for_each(|_| {
            sim.step();
        });
        sim.kill("controller");
        sim.settle();
        expect_gone(&sim);
    }
}

#[test]
fn a_child_whose_deletion_is_refused_is_told_and_tried_again() {
    let fault = call("delete Deployment").times(5).then(refusal(403, "Forbidden", "no"));
    let mut sim = ready().with_fault(fault);
    delete(&sim.world, "lab");
    sim.run_until("it is told", |world| {
        told(world, "lab").contains("Deployment labs/lab--api was refused")
    });
    assert_eq!(reason(&sim.world, "lab", condition::DELETING), "Deleting");
    sim.settle();
    assert_eq!(sim.faults().unmet(), [""; 0]);
    expect_gone(&sim);
}

/// What can go goes, and with it what it costs; the policy waits for the last pod.
#[test]
fn a_deletion_that_is_refused_holds_up_no_other() {
    let mut sim = ready();
    let fault = call("write Deployment labs/lab--api").always();
    sim.faults().add(fault.then(refusal(403, "Forbidden", "no")));
    delete(&sim.world, "lab");
    sim.run_until("the others are gone", |world| {
        names(world, "Deployment") == ["lab--api"] && names(world, "VirtualMachine").is_empty()
    });
    sim.run_until("their pods too", |world| names(world, "Pod").len() == 1);
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"], "\n{}", sim.story);
    sim.faults().clear();
    sim.settle();
    expect_gone(&sim);
}

#[test]
fn children_that_are_gone_already_are_a_success() {
    let mut sim = ready();
    sim.pause("controller");
    delete(&sim.world, "lab");
    for (kind, name) in
        [("Deployment", "lab--api"), ("Service", "lab--api"), ("NetworkPolicy", "lab--network")]
    {
        sim.world.delete(kind, &at(name), Propagation::Background);
    }
    sim.resume("controller");
    sim.settle();
    for kind in ["Workspace", "Service", "Deployment", "VirtualMachine", "NetworkPolicy", "Pod"] {
        assert_eq!(names(&sim.world, kind), [""; 0], "{kind}\n{}", sim.story);
    }
}

#[test]
fn a_pod_that_does_not_end_keeps_the_policy_and_is_named() {
    let mut sim = ready();
    let pod = names(&sim.world, "Pod")[0].clone();
    sim.world.edit("Pod", &at(&pod), |it| it["metadata"]["finalizers"] = json!(["somebody/else"]));
    delete(&sim.world, "lab");
    sim.quiesce();
    assert_eq!(names(&sim.world, "Pod"), std::slice::from_ref(&pod));
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    sim.advance(Duration::from_secs(60));
    let message = crate::controller::status(&sim.world, "lab").message.unwrap();
    assert_eq!(message, format!("these pods do not end: {pod}"), "\n{}", sim.story);
    sim.world.edit("Pod", &at(&pod), |it| it["metadata"]["finalizers"] = json!([]));
    sim.settle();
    expect_gone(&sim);
}

/// Its turn is over, what runs stops, and who keeps it is told.
#[test]
fn one_that_somebody_elses_finalizer_keeps_stops_and_gives_its_slot_back() {
    for isolate in [true, false] {
        let mut sim = world_of(1, Order::Fixed);
        sim.world.fare("api", Health::NeverReady);
        workspace("lab")
            .container("api")
            .with(|spec| spec.network.isolate = isolate)
            .create(&sim.world);
        sim.run_until("it runs", |world| !names(world, "Pod").is_empty());
        sim.world.edit("Workspace", &key("lab"), |it| {
            let finalizers = &mut it["metadata"]["finalizers"];
            let ours = finalizers.as_array().cloned().unwrap_or_default();
            *finalizers = ours.into_iter().chain([json!("example.com/backup")]).collect();
        });
        delete(&sim.world, "lab");
        workspace("next").container("web").create(&sim.world);
        sim.settle();
        assert!(is_ready(&sim.world, "next"), "\n{}", sim.story);
        assert_eq!(names(&sim.world, "Deployment"), ["next--web"], "\n{}", sim.story);
        let lab = status(&sim.world, "lab");
        assert_eq!(lab.open_turn, None);
        let words =
            "its pods and parts are gone, and finalizers of others keep it: example.com/backup";
        assert_eq!(lab.message.as_deref(), Some(words), "\n{}", sim.story);
        sim.world.edit("Workspace", &key("lab"), |it| it["metadata"]["finalizers"] = json!([]));
        sim.settle();
        assert_eq!(names(&sim.world, "Workspace"), ["next"], "\n{}", sim.story);
    }
}

#[test]
fn a_part_that_does_not_go_is_named_with_what_keeps_it() {
    let mut sim = ready();
    let hold = |sim: &Sim, finalizers| {
        sim.world.edit("VirtualMachine", &at("lab--db"), |it| {
            it["metadata"]["finalizers"] = finalizers;
        });
    };
    hold(&sim, json!(["kubevirt.io/virtualMachineControllerFinalize"]));
    delete(&sim.world, "lab");
    sim.quiesce();
    sim.advance(Duration::from_secs(60));
    let words = "these parts do not go: VirtualMachine lab--db (finalizers: kubevirt.io/virtualMachineControllerFinalize)";
    assert_eq!(status(&sim.world, "lab").message.as_deref(), Some(words), "\n{}", sim.story);
    hold(&sim, json!([]));
    sim.settle();
    expect_gone(&sim);
}

/// What the collector has not taken yet is waited for: a claim of one that was isolated, everything of one that was not.
#[test]
fn one_of_the_same_name_follows_at_once() {
    for isolate in [true, false] {
        let lab = || workspace("lab").machine("db", "debian").container("api");
        let lab = || lab().with(|spec| spec.network.isolate = isolate);
        let mut sim = world_of(1, Order::Fixed);
        synced_image(&sim.world, "debian");
        lab().create(&sim.world);
        sim.settle();
        let before = sim.world.get("PersistentVolumeClaim", &at("lab--db-r1")).unwrap();
        delete(&sim.world, "lab");
        sim.run_until("it is gone", |world| names(world, "Workspace").is_empty());
        let from = sim.world.revision();
        lab().create(&sim.world);
        workspace("next").container("api").create(&sim.world);
        sim.run_until("it is told", |world| {
            reason(world, "lab", condition::READY) == "OldChildTerminating"
        });
        assert_eq!(sim.world.get("PersistentVolumeClaim", &at("lab--db-r1")), Some(before));
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
        assert!(is_ready(&sim.world, "next"), "\n{}", sim.story);
        assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "it held no slot meanwhile");
        expect_never_failed(&sim, from);
        expect_sound(&sim);
    }
}

/// The watch of a kind is late: the API server is the first to tell that the name is taken.
#[test]
fn what_an_earlier_one_left_is_no_failure_when_the_watches_have_not_told_it() {
    let mut sim = world_of(1, Order::Fixed);
    sim.hold("Deployment");
    let lab = || workspace("lab").container("api").with(|spec| spec.network.isolate = false);
    lab().create(&sim.world);
    sim.run_until("it is made", |world| names(world, "Deployment") == ["lab--api"]);
    delete(&sim.world, "lab");
    // Held by somebody for a while, as the collector may be late.
    sim.world.edit("Deployment", &at("lab--api"), |it| {
        it["metadata"]["finalizers"] = json!(["somebody/else"]);
    });
    sim.quiesce();
    let from = sim.world.revision();
    lab().create(&sim.world);
    sim.run_until("it is told", |world| {
        reason(world, "lab", condition::READY) == "OldChildTerminating"
    });
    assert_eq!(status(&sim.world, "lab").open_turn.map(|open| open.number), Some(1));
    sim.release("Deployment");
    sim.world.edit("Deployment", &at("lab--api"), |it| it["metadata"]["finalizers"] = json!([]));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_never_failed(&sim, from);
}

/// No version after that revision says that something has failed.
pub(crate) fn expect_never_failed(sim: &Sim, from: u64) {
    let failed: Vec<String> = sim.world.history(|history| {
        let later = history.iter().filter(|it| it.revision > from && it.id.kind == "Workspace");
        let failed = later.filter(|it| it.object["status"]["phase"] == "Failed");
        failed.map(|it| it.object["status"]["message"].to_string()).collect()
    });
    assert_eq!(failed, [""; 0], "\n{}", sim.story);
}

/// A RoleBinding that is replaced is away for a moment.
#[test]
fn a_right_that_is_away_for_a_moment_lets_no_policy_go_before_its_pods() {
    let fault = call("get Namespace").times(4).then(refusal(403, "Forbidden", "not now"));
    let mut sim = ready().with_fault(fault);
    delete(&sim.world, "lab");
    sim.run_until("it is told", |world| {
        told(world, "lab").contains("may not look into namespace 'labs'")
    });
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    sim.settle();
    assert_eq!(sim.faults().unmet(), [""; 0]);
    expect_gone(&sim);
}

#[test]
fn a_right_that_stays_away_holds_no_deletion_up() {
    let fault = call("get Namespace").always().then(refusal(403, "Forbidden", "no more"));
    let mut sim = ready().with_fault(fault);
    delete(&sim.world, "lab");
    let started = sim.now();
    sim.run_until("it is gone", |world| names(world, "Workspace").is_empty());
    assert_eq!(sim.now().duration_since(started), LASTS, "\n{}", sim.story);
}

/// Nobody hears of it, neither of the one that asked nor of its neighbours.
#[test]
fn a_right_that_is_away_for_a_moment_is_no_news() {
    let mut sim = ready();
    sim.world.fare("slow", Health::NeverReady);
    workspace("starting").container("slow").create(&sim.world);
    sim.quiesce();
    let from = sim.world.revision();
    sim.faults().add(call("get Namespace").times(3).then(refusal(403, "Forbidden", "not now")));
    sim.world.delete("Service", &at("lab--api"), Propagation::Background);
    sim.quiesce();
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    assert_eq!(sim.faults().unmet(), [""; 0]);
    for name in ["lab", "starting"] {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
        assert_eq!(status(&sim.world, name).last_turn, Some(1), "{name}\n{}", sim.story);
    }
    let told: Vec<String> = sim.world.history(|history| {
        let later = history.iter().filter(|it| it.revision > from && it.id.kind == "Workspace");
        let told = later.map(|it| it.object["status"]["message"].to_string());
        told.filter(|told| told.contains("there is no namespace")).collect()
    });
    assert_eq!(told, [""; 0], "\n{}", sim.story);
}

/// The namespace is deleted while workspaces are in it in every phase.
#[test]
fn a_namespace_that_goes_takes_everything_and_they_go_on_when_it_is_back() {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    sim.world.fare("never", Health::NeverReady);
    for number in 0..5 {
        workspace(&format!("ready-{number}"))
            .machine("db", "debian")
            .container("api")
            .create(&sim.world);
    }
    workspace("waiting").machine("db", "nowhere").create(&sim.world);
    workspace("starting").container("never").create(&sim.world);
    workspace("paused").container("api").create(&sim.world);
    sim.quiesce();
    edit(&sim.world, "paused", |spec| spec.suspended = true);
    sim.quiesce();
    let from = sim.world.revision();
    sim.world.delete("Namespace", &bed::key("labs"), Propagation::Background);
    sim.settle();
    assert_eq!(names(&sim.world, "Namespace"), [""; 0], "\n{}", sim.story);
    let refused = sim.story.lines_with("because it is being terminated");
    assert_eq!(refused, [""; 0], "nothing is made in it");
    let made = sim.world.history(|history| {
        let later = history.iter().filter(|it| it.revision > from && it.verb == Verb::Created);
        later.filter(|it| it.by == "controller" && it.id.kind != "Event").count()
    });
    assert_eq!(made, 0, "\n{}", sim.story);
    for name in ["ready-0", "ready-4", "starting"] {
        assert_eq!(reason(&sim.world, name, condition::READY), "NamespaceNotFound", "{name}");
    }
    delete(&sim.world, "ready-4");
    sim.settle();
    assert!(!names(&sim.world, "Workspace").contains(&"ready-4".to_owned()), "\n{}", sim.story);
    sim.world.fare("never", Health::Fine);
    make_namespace(&sim.world);
    synced_image(&sim.world, "debian");
    synced_image(&sim.world, "nowhere");
    sim.settle();
    for name in ["ready-0", "ready-3", "starting", "waiting"] {
        assert!(is_ready(&sim.world, name), "{name}\n{}", sim.story);
    }
}

#[test]
fn a_namespace_that_does_not_empty_is_told_as_going() {
    let mut sim = ready();
    sim.world.create_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "stuck", "namespace": "labs", "finalizers": ["somebody/else"]},
    }));
    sim.world.delete("Namespace", &bed::key("labs"), Propagation::Background);
    sim.quiesce();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "NamespaceTerminating");
    assert!(told(&sim.world, "lab").starts_with("Provisioning (NamespaceTerminating"));
    delete(&sim.world, "lab");
    sim.settle();
    assert_eq!(names(&sim.world, "Workspace"), [""; 0], "\n{}", sim.story);
}

#[test]
fn a_namespace_that_is_not_served_any_more_holds_no_deletion_up() {
    let mut sim = Sim::new(Order::Fixed).with_process("controller", instance);
    crate::controller::furnish(&sim.world);
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    // As a chart that listed another namespace before would have left it.
    sim.world.edit("Workspace", &bed::key("lab"), |it| {
        it["status"]["namespace"] = json!("elsewhere");
    });
    delete(&sim.world, "lab");
    sim.settle();
    assert_eq!(names(&sim.world, "Workspace"), [""; 0], "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), [""; 0], "owner references do the rest");
}
