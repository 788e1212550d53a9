//! What is refused of one part: it is told, and holds no other part up, nor anything that is to stop.

use otctl_kit::plan::Propagation;
use otctl_types::WorkspaceSpec;
use otctl_types::condition;
use otctl_types::workspace::ContainerPort;
use serde_json::{Value, json};
use testbed::builders::key;
use testbed::fault::{What, at as call};
use testbed::sim::Order;
use testbed::{Health, Sim, World};

use crate::builders::{container, instance, machine, workspace};
use crate::controller::{
    at, edit, expect_sound, expect_sound_together, is_ready, names, reason, slots, status, world,
    world_of,
};
use crate::edits::ready;
use crate::faults::refusal;
use crate::strangers::stranger;

/// From now on, until the faults are taken away.
fn refuse(sim: &Sim, what: &str) {
    answer(sim, what, refusal(403, "Forbidden", "admission webhook says no"));
}

fn answer(sim: &Sim, what: &str, refusal: What) {
    sim.faults().add(call(&format!("write {what}")).always().then(refusal));
}

/// What an API server says whose webhook is away.
fn webhook_is_away() -> What {
    let words =
        "Internal error occurred: failed calling webhook vm.example.com: connection refused";
    refusal(500, "InternalError", words)
}

fn image_of(world: &World, deployment: &str) -> Value {
    let found = world.get("Deployment", &at(deployment)).unwrap();
    found["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

/// Whatever is refused when it is put right.
fn check_stop(kind: &str, name: &str, spoil: fn(&Sim, &str, &str)) {
    check_stop_by(kind, name, spoil, refusal(403, "Forbidden", "admission webhook says no"));
    check_stop_by(kind, name, spoil, webhook_is_away());
}

fn check_stop_by(kind: &str, name: &str, spoil: fn(&Sim, &str, &str), with: What) {
    let mut sim = ready();
    answer(&sim, &format!("{kind} labs/{name}"), with);
    spoil(&sim, kind, name);
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.run_until("nothing runs", |world| names(world, "Pod").is_empty());
    let machine = sim.world.get("VirtualMachine", &at("lab--db")).unwrap();
    assert_eq!(machine["spec"]["runStrategy"], json!("Halted"), "{kind}\n{}", sim.story);
    sim.faults().clear();
    sim.settle();
    let found = sim.world.get(kind, &at(name)).unwrap();
    let labels = found["metadata"]["labels"].as_object();
    assert!(labels.is_some_and(|labels| !labels.is_empty()), "{kind}\n{}", sim.story);
    let reason = reason(&sim.world, "lab", condition::READY);
    assert_eq!(reason, "Suspended", "{kind}\n{}", sim.story);
}

#[test]
fn what_is_suspended_stops_whatever_is_refused_of_the_rest() {
    let lose = |sim: &Sim, kind: &str, name: &str| {
        sim.world.delete(kind, &at(name), Propagation::Background)
    };
    let unmark = |sim: &Sim, kind: &str, name: &str| {
        sim.world.edit(kind, &at(name), |it| it["metadata"]["labels"] = json!({}));
    };
    check_stop("Service", "lab--api", lose);
    check_stop("NetworkPolicy", "lab--network", lose);
    check_stop("PersistentVolumeClaim", "lab--db-r1", unmark);
}

#[test]
fn what_is_suspended_in_its_turn_stops_though_a_name_is_taken_meanwhile() {
    let mut sim = world(Order::Fixed);
    sim.world.fare("web", Health::NeverReady);
    workspace("lab").container("api").container("web").create(&sim.world);
    sim.run_until("both run", |world| names(world, "Pod").len() == 2);
    assert!(status(&sim.world, "lab").open_turn.is_some());
    sim.world.delete("Service", &at("lab--web"), Propagation::Background);
    stranger(&sim, "Service", "lab--web");
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.run_until("nothing runs", |world| names(world, "Pod").is_empty());
    assert_eq!(reason(&sim.world, "lab", condition::ACCEPTED), "NameConflict", "\n{}", sim.story);
}

#[test]
fn one_deployment_that_is_refused_holds_no_other_up() {
    let mut sim = ready();
    refuse(&sim, "Deployment labs/lab--api");
    edit(&sim.world, "lab", |spec| {
        spec.containers.iter_mut().for_each(|it| it.image.push_str("-next"));
    });
    sim.run_until("the other one is rolled", |world| {
        image_of(world, "lab--web") == "registry.example/web:1-next"
    });
    assert_eq!(image_of(&sim.world, "lab--api"), json!("registry.example/api:1"));
}

/// With KubeVirt's webhook away no machine can be written; containers can.
#[test]
fn a_webhook_that_is_away_holds_up_only_what_it_is_asked_about() {
    let mut sim = ready();
    answer(&sim, "VirtualMachine labs/lab--db", webhook_is_away());
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines[0].spec.instance.as_mut().unwrap().memory = Some("2Gi".to_owned());
        spec.suspended = true;
    });
    sim.run_until("the containers have stopped", |world| {
        names(world, "Pod").iter().all(|pod| pod.contains("--db"))
    });
    let told = status(&sim.world, "lab").message.unwrap();
    assert!(told.contains("failed calling webhook"), "{told}");
    sim.faults().clear();
    sim.settle();
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
}

/// What its owner wants to keep is not gone with its disk.
#[test]
fn a_disk_stays_while_its_machine_may_not_be_deleted() {
    let mut sim = ready();
    refuse(&sim, "VirtualMachine labs/lab--db");
    edit(&sim.world, "lab", |spec| spec.virtual_machines.clear());
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    let claim = sim.world.get("PersistentVolumeClaim", &at("lab--db-r1")).unwrap();
    assert_eq!(claim["metadata"]["deletionTimestamp"], Value::Null, "\n{}", sim.story);
    assert!(sim.world.get("VirtualMachine", &at("lab--db")).is_some());
    sim.faults().clear();
    sim.settle();
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), [""; 0], "\n{}", sim.story);
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

/// A slot pays for the starts that go on, whatever becomes of another one.
#[test]
fn a_part_that_is_called_invalid_ends_its_own_start_and_no_other() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("slow", Health::NeverReady);
    answer(&sim, "Deployment labs/lab--bad", refusal(422, "Invalid", "spec: no such thing"));
    workspace("lab").container("bad").container("slow").create(&sim.world);
    workspace("next").container("api").create(&sim.world);
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    sim.quiesce();
    let lab = status(&sim.world, "lab");
    assert_eq!(lab.started_parts, ["bad"], "\n{}", sim.story);
    assert_eq!(lab.open_turn.map(|open| open.number), Some(1), "\n{}", sim.story);
    assert_eq!(slots(&sim.world), ["lab#1"]);
    sim.world.fare("slow", Health::Fine);
    sim.run_until("next is ready", |world| is_ready(world, "next"));
    assert_eq!(status(&sim.world, "lab").open_turn, None);
    sim.faults().clear();
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

/// Neither the network nor the address of a part is what its spec says.
#[test]
fn a_change_that_is_refused_is_told_where_it_is_looked_for() {
    let check = |kind: &str, name: &str, told: &str, change: fn(&mut WorkspaceSpec)| {
        let mut sim = ready();
        refuse(&sim, &format!("{kind} labs/{name}"));
        edit(&sim.world, "lab", change);
        sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
        let status = status(&sim.world, "lab");
        let condition = condition::find(&status.conditions, told).unwrap();
        let lab = sim.world.get("Workspace", &key("lab")).unwrap();
        assert_eq!(json!(condition.observed_generation), lab["metadata"]["generation"]);
        let found = (condition.status.as_str(), condition.reason.as_str());
        assert_eq!(found, ("False", "Rejected"), "{kind}\n{}", sim.story);
        assert!(condition.message.contains("admission webhook says no"), "{}", condition.message);
        sim.faults().clear();
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "{kind}\n{}", sim.story);
    };
    let port = |spec: &mut WorkspaceSpec| {
        let port = ContainerPort { container_port: 9000, ..ContainerPort::default() };
        spec.containers[0].ports = vec![port];
    };
    let door = |spec: &mut WorkspaceSpec| {
        let from = json!([{"from": {"cidr": "10.0.0.0/8"}}]);
        spec.network.ingress = serde_json::from_value(from).unwrap();
    };
    check("Service", "lab--api", condition::CONTAINERS_READY, port);
    check("NetworkPolicy", "lab--network", condition::NETWORK_READY, door);
}

/// `kubectl wait --for=condition=ContainersReady` is not to pass on a spec that nothing runs.
#[test]
fn what_is_refused_is_not_told_as_done() {
    let mut sim = ready();
    refuse(&sim, "Deployment labs/lab--api");
    edit(&sim.world, "lab", |spec| spec.containers[0].image.push_str("-next"));
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    let told = status(&sim.world, "lab");
    let containers = condition::find(&told.conditions, condition::CONTAINERS_READY).unwrap();
    assert_eq!(containers.status, "False", "\n{}", sim.story);
    assert_eq!(told.ready_parts.as_deref(), Some("2/3"));
    sim.faults().clear();
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(image_of(&sim.world, "lab--api"), json!("registry.example/api:1-next"));
}

#[test]
fn what_is_lost_is_made_again_while_the_service_of_an_added_entry_is_refused() {
    let mut sim = ready();
    refuse(&sim, "Service labs/lab--new");
    edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    sim.world.delete("Deployment", &at("lab--api"), Propagation::Background);
    sim.run_until("it is gone", |world| world.get("Deployment", &at("lab--api")).is_none());
    sim.run_until("it is back", |world| world.get("Deployment", &at("lab--api")).is_some());
}

/// Its machine is what it was; only its name leads elsewhere for a moment.
#[test]
fn the_first_port_of_a_machine_is_an_edit_like_any_other() {
    let mut sim = ready();
    edit(&sim.world, "lab", |spec| {
        let machine = spec.virtual_machines[0].spec.instance.as_mut().unwrap();
        machine.ports = serde_json::from_value(json!([{"port": 22}])).unwrap();
    });
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let events = sim.world.list("Event").into_iter();
    let warnings: Vec<_> = events.filter(|it| it["type"] == json!("Warning")).collect();
    assert_eq!(warnings, [json!(null); 0], "\n{}", sim.story);
    // Ready is told of the new spec only once its Service is there again.
    let lab = sim.world.get("Workspace", &key("lab")).unwrap();
    let generation = lab["metadata"]["generation"].clone();
    let too_early = sim.world.history(|history| {
        let made = history.iter().rposition(|it| it.id.kind == "Service" && !it.is_removal());
        history[..made.unwrap()].iter().any(|it| {
            let conditions = it.object["status"]["conditions"].as_array();
            let ready = conditions.and_then(|all| all.iter().find(|it| it["type"] == "Ready"));
            it.id.kind == "Workspace"
                && ready.is_some_and(|ready| {
                    ready["status"] == "True" && ready["observedGeneration"] == generation
                })
        })
    });
    assert!(!too_early, "\n{}", sim.story);
}

fn door(spec: &mut WorkspaceSpec) {
    let from = json!([{"from": {"cidr": "10.0.0.0/8"}}]);
    spec.network.ingress = serde_json::from_value(from).unwrap();
}

/// A policy that is there isolates. What runs under it is changed and stopped all the same; what is to start waits for what
/// the policy is to be.
#[test]
fn a_change_of_the_policy_that_is_refused_holds_up_only_what_is_to_start() {
    let mut sim = ready();
    refuse(&sim, "NetworkPolicy labs/lab--network");
    edit(&sim.world, "lab", |spec| {
        door(spec);
        spec.containers[0].image.push_str("-next");
        spec.containers.push(container("new"));
    });
    sim.run_until("the change is made", |world| {
        image_of(world, "lab--api") == "registry.example/api:1-next"
    });
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    sim.run_until("it has had its time", |world| status(world, "lab").open_turn.is_none());
    assert!(sim.world.get("Deployment", &at("lab--new")).is_none(), "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab", condition::NETWORK_READY), "Rejected");
    sim.world.edit("Deployment", &at("lab--web"), |it| it["metadata"]["labels"] = json!({}));
    sim.run_until("it is put right", |world| {
        let labels =
            world.get("Deployment", &at("lab--web")).unwrap()["metadata"]["labels"].clone();
        labels.as_object().is_some_and(|labels| !labels.is_empty())
    });
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.run_until("nothing runs", |world| names(world, "Pod").is_empty());
    sim.faults().clear();
    edit(&sim.world, "lab", |spec| spec.suspended = false);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

/// What was stopped has no pods: they are isolated as their spec says from their first moment on.
#[test]
fn nothing_is_resumed_under_a_policy_that_may_not_be_put_right() {
    let mut sim = ready();
    edit(&sim.world, "lab", |spec| spec.suspended = true);
    sim.settle();
    refuse(&sim, "NetworkPolicy labs/lab--network");
    let open = json!({"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"]});
    sim.world.edit("NetworkPolicy", &at("lab--network"), |it| it["spec"] = open.clone());
    edit(&sim.world, "lab", |spec| spec.suspended = false);
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    sim.run_until("it has had its time", |world| {
        let told = status(world, "lab");
        told.open_turn.is_none() && !told.started_parts.is_empty()
    });
    assert_eq!(names(&sim.world, "Pod"), [""; 0], "\n{}", sim.story);
    sim.faults().clear();
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

/// That it is not isolated any more is nothing to wait for; that it still is, is told.
#[test]
fn a_policy_that_may_not_be_deleted_holds_nothing_up() {
    let mut sim = ready();
    refuse(&sim, "NetworkPolicy labs/lab--network");
    edit(&sim.world, "lab", |spec| {
        spec.network.isolate = false;
        spec.containers.push(container("new"));
    });
    sim.run_until("what is added is there", |world| {
        world.get("Deployment", &at("lab--new")).is_some()
    });
    sim.run_until("it is told", |world| {
        reason(world, "lab", condition::NETWORK_READY) == "Rejected"
    });
    sim.faults().clear();
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::NETWORK_READY), "NotIsolated");
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

/// The one that keeps it from doing what it was asked to comes first, and the others are not kept secret. What only a person
/// can help with has failed all the same.
#[test]
fn of_several_refusals_the_one_that_keeps_from_stopping_is_told_and_how_many_there_are() {
    let check = |of_service: What, has_stalled: bool| {
        let mut sim = ready();
        answer(&sim, "Service labs/lab--api", of_service);
        refuse(&sim, "VirtualMachine labs/lab--db");
        edit(&sim.world, "lab", |spec| {
            spec.containers[0].ports[0].container_port = 9000;
            spec.suspended = true;
        });
        let told = |world: &World| status(world, "lab").message.unwrap_or_default();
        sim.run_until("it is told", |world| told(world).contains("says no"));
        let message = told(&sim.world);
        assert!(message.contains("VirtualMachine labs/lab--db was refused"), "{message}");
        assert!(message.ends_with("; and 1 other write was refused"), "{message}");
        let conditions = status(&sim.world, "lab").conditions;
        assert_eq!(condition::is_true(&conditions, condition::STALLED), has_stalled);
    };
    check(refusal(403, "Forbidden", "admission webhook says no"), false);
    check(refusal(422, "Invalid", "spec.ports: no such port"), true);
}

/// It has no address that anybody could wait for: what had its start is changed and healed without.
#[test]
fn a_service_that_is_refused_for_good_holds_up_no_other_entry() {
    for refusal in [refusal(422, "Invalid", "no"), refusal(403, "Forbidden", "no")] {
        let mut sim = ready();
        answer(&sim, "Service labs/lab--new", refusal);
        edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
        sim.run_until("its start is over", |world| {
            let told = status(world, "lab");
            told.open_turn.is_none() && told.started_parts.iter().any(|it| it == "new")
        });
        edit(&sim.world, "lab", |spec| spec.containers[0].image.push_str("-next"));
        sim.run_until("the change is made", |world| {
            image_of(world, "lab--api") == "registry.example/api:1-next"
        });
        sim.world.delete("Deployment", &at("lab--api"), Propagation::Background);
        sim.run_until("it is gone", |world| world.get("Deployment", &at("lab--api")).is_none());
        sim.run_until("it is back", |world| world.get("Deployment", &at("lab--api")).is_some());
        edit(&sim.world, "lab", |spec| spec.suspended = true);
        sim.run_until("nothing runs", |world| names(world, "Pod").is_empty());
        edit(&sim.world, "lab", |spec| spec.suspended = false);
        sim.run_until("the others run", |world| {
            status(world, "lab").ready_parts == Some("3/4".to_owned())
        });
        sim.faults().clear();
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
        // What had its time starts without a slot, when the refusal ends.
        expect_sound_together(&sim);
    }
}

/// The other machine starts by itself; this one is waited for in vain.
#[test]
fn what_is_refused_is_told_before_what_is_on_its_way() {
    let mut sim = ready();
    refuse(&sim, "VirtualMachine labs/lab--db");
    sim.world.fare("first", Health::NeverReady);
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines.insert(0, machine("first", "debian", Some(instance())));
        spec.virtual_machines[1].spec.instance.as_mut().unwrap().memory = Some("2Gi".to_owned());
    });
    sim.run_until("the other one starts", |world| names(world, "Pod").len() > 3);
    sim.run_until("it is told", |world| {
        reason(world, "lab", condition::VIRTUAL_MACHINES_READY) == "Rejected"
    });
}

/// Their pods are told every name when they are made, and no other way would they learn it.
#[test]
fn who_waits_for_an_address_says_for_whose() {
    let mut sim = world(Order::Fixed);
    refuse(&sim, "Service labs/lab--web");
    workspace("lab").container("api").container("web").create(&sim.world);
    let told = |world: &World| {
        let resources = status(world, "lab").resource_status.unwrap_or_default();
        let api = resources.containers.into_iter().find(|it| it.name == "api");
        api.and_then(|it| it.message).unwrap_or_default()
    };
    sim.run_until("it says so", |world| told(world).contains("the Service of 'web'"));
    assert_eq!(names(&sim.world, "Deployment"), [""; 0], "\n{}", sim.story);
    sim.faults().clear();
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

/// It runs on: who waits for the condition is not to take it for gone.
#[test]
fn what_may_not_be_removed_is_told_where_it_is_looked_for() {
    let check = |kind: &str, name: &str, told: &str, remove: fn(&mut WorkspaceSpec)| {
        let mut sim = ready();
        refuse(&sim, &format!("{kind} labs/{name}"));
        edit(&sim.world, "lab", remove);
        sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
        assert_eq!(reason(&sim.world, "lab", told), "Rejected", "{kind}\n{}", sim.story);
        sim.faults().clear();
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "{kind}\n{}", sim.story);
    };
    let machines = |spec: &mut WorkspaceSpec| spec.virtual_machines.clear();
    check("VirtualMachine", "lab--db", condition::VIRTUAL_MACHINES_READY, machines);
    let container = |spec: &mut WorkspaceSpec| drop(spec.containers.remove(0));
    check("Deployment", "lab--api", condition::CONTAINERS_READY, container);
}

/// A backoff is no part of what a start may last: others wait for the slot.
#[test]
fn a_slot_is_given_back_in_time_while_something_is_refused() {
    let mut sim = world_of(1, Order::Fixed);
    refuse(&sim, "Service labs/lab--api");
    workspace("lab").container("api").create(&sim.world);
    sim.run_until("its turn is over", |world| {
        let told = status(world, "lab");
        told.open_turn.is_none() && !told.started_parts.is_empty()
    });
    let late =
        sim.world.list("Event").into_iter().filter(|it| it["reason"] == "ProvisioningTimedOut");
    assert_eq!(late.count(), 1, "\n{}", sim.story);
    let opened = sim.world.history(|history| {
        let open = history.iter().find(|it| !it.object["status"]["openTurn"].is_null());
        open.map(|it| it.object["status"]["openTurn"]["since"].clone())
    });
    let closed = status(&sim.world, "lab").conditions;
    let closed = condition::find(&closed, condition::ADMITTED).unwrap();
    assert_eq!(closed.status, "True");
    let since: jiff::Timestamp = serde_json::from_value(opened.unwrap()).unwrap();
    assert_eq!(sim.now().duration_since(since), jiff::SignedDuration::from_mins(15));
}
