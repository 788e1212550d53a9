//! Edits: an added entry takes a turn, a removed one goes, a changed one is rolled, and the others are not touched.

use otctl_kit::plan::Propagation;
use otctl_types::WorkspaceSpec;
use otctl_types::condition;
use otctl_types::workspace::ContainerPort;
use serde_json::{Value, json};
use testbed::builders::key;
use testbed::fault::at as call;
use testbed::sim::Order;
use testbed::{Health, Sim};

use crate::builders::{container, image, instance, machine, sync, synced_image, workspace};
use crate::controller::{
    at, edit, expect_sound, is_ready, names, reason, slots, status, told, versions, world, world_of,
};
use crate::faults::refusal;
use crate::healing::{cluster_ip, hosts};

/// A workspace with a machine and two containers, Ready.
pub(crate) fn ready() -> Sim {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").container("web").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sim
}

/// What is there now of what was there before in the same version.
pub(crate) fn untouched(sim: &Sim, before: &[(String, String)]) -> Vec<String> {
    let now = versions(&sim.world);
    let kept = before.iter().filter(|version| now.contains(version));
    kept.map(|(name, _)| name.clone()).collect()
}

/// The names in `before`, but for those that have one of `parts` in them.
pub(crate) fn all_but(before: &[(String, String)], parts: &[&str]) -> Vec<String> {
    let is_meant = |name: &String| !parts.iter().any(|part| name.contains(part));
    before.iter().map(|(name, _)| name.clone()).filter(is_meant).collect()
}

#[test]
fn an_added_entry_takes_a_turn_and_touches_no_other_child() {
    let mut sim = ready();
    let (before, pods) = (versions(&sim.world), names(&sim.world, "Pod"));
    edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2));
    assert_eq!(slots(&sim.world), [""; 0]);
    assert_eq!(untouched(&sim, &before), all_but(&before, &[]));
    assert!(pods.iter().all(|pod| names(&sim.world, "Pod").contains(pod)), "nothing is restarted");
    expect_sound(&sim);
}

/// A slot pays for starts: what is broken is healed without one.
#[test]
fn an_added_entry_gives_its_slot_back_though_another_part_is_broken() {
    let mut sim = ready();
    sim.world.fare("api", Health::Crashing(1));
    edit(&sim.world, "lab", |spec| spec.containers[0].image = "api:2".to_owned());
    sim.run_until("it is broken", |world| reason(world, "lab", condition::READY) == "Degraded");
    edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
    sim.quiesce();
    assert_eq!(status(&sim.world, "lab").ready_parts.as_deref(), Some("3/4"));
    assert_eq!(status(&sim.world, "lab").last_turn, Some(2));
    assert_eq!(slots(&sim.world), [""; 0], "\n{}", sim.story);
    assert_eq!(reason(&sim.world, "lab", condition::READY), "Degraded");
}

#[test]
fn what_is_removed_goes_though_what_is_added_is_refused() {
    let refused = call("write Service labs/lab--new").always().then(refusal(422, "Invalid", "no"));
    let mut sim = world(Order::Fixed).with_fault(refused);
    workspace("lab").container("api").container("web").create(&sim.world);
    sim.settle();
    edit(&sim.world, "lab", |spec| {
        spec.containers = vec![spec.containers[0].clone(), container("new")];
    });
    sim.run_until("it is told", |world| reason(world, "lab", condition::READY) == "Rejected");
    sim.run_until("it is gone", |world| names(world, "Deployment") == ["lab--api"]);
    assert_eq!(names(&sim.world, "Service"), ["lab--api"], "\n{}", sim.story);
}

#[test]
fn what_had_its_start_is_made_again_while_an_added_machine_waits_for_its_disk() {
    let mut sim = ready();
    image(&sim.world, "other");
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines.push(machine("new", "other", Some(instance())));
    });
    sim.settle();
    for kind in ["Service", "Deployment"] {
        sim.world.delete(kind, &at("lab--api"), Propagation::Background);
    }
    sim.settle();
    for kind in ["Service", "Deployment"] {
        assert!(sim.world.get(kind, &at("lab--api")).is_some(), "{kind}\n{}", sim.story);
    }
}

#[test]
fn an_added_machine_waits_for_its_disk_and_the_others_go_on() {
    let mut sim = ready();
    image(&sim.world, "other");
    let before = versions(&sim.world);
    edit(&sim.world, "lab", |spec| {
        spec.virtual_machines.push(machine("new", "other", Some(instance())));
        spec.containers.push(container("late"));
    });
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::READY), "AwaitingImages");
    assert_eq!(status(&sim.world, "lab").ready_parts.as_deref(), Some("3/5"));
    assert_eq!(versions(&sim.world), before);
    // What had its start heals meanwhile.
    sim.world.delete("Deployment", &at("lab--web"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert_eq!(names(&sim.world, "Deployment"), ["lab--api", "lab--web"]);
    sync(&sim.world, "other", "r1");
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn a_removed_entry_goes_and_touches_no_other_child() {
    let mut sim = ready();
    let before = versions(&sim.world);
    edit(&sim.world, "lab", |spec| drop(spec.containers.remove(0)));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Deployment"), ["lab--web"]);
    assert_eq!(names(&sim.world, "Service"), ["lab--db", "lab--web"]);
    assert_eq!(untouched(&sim, &before), all_but(&before, &["lab--api"]));
    let before = versions(&sim.world);
    edit(&sim.world, "lab", |spec| spec.virtual_machines.clear());
    sim.settle();
    for kind in ["VirtualMachine", "PersistentVolumeClaim"] {
        assert_eq!(names(&sim.world, kind), [""; 0], "{kind}\n{}", sim.story);
    }
    assert_eq!(untouched(&sim, &before), all_but(&before, &["lab--db"]));
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "it costs no slot");
    expect_sound(&sim);
}

#[test]
fn a_machine_that_is_to_run_no_more_loses_its_disk_and_keeps_its_image() {
    let mut sim = ready();
    edit(&sim.world, "lab", |spec| spec.virtual_machines[0].spec.instance = None);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "PersistentVolumeClaim"), [""; 0]);
    assert_eq!(names(&sim.world, "Service"), ["lab--api", "lab--db", "lab--web"]);
    expect_sound(&sim);
}

#[test]
fn a_changed_entry_is_rolled_and_touches_no_other_child() {
    let mut sim = ready();
    let before = versions(&sim.world);
    edit(&sim.world, "lab", |spec| spec.containers[0].image = "registry.example/api:2".to_owned());
    sim.step();
    // The old readiness is not told for the new spec.
    sim.run_until("the edit is seen", |world| status(world, "lab").observed_generation == Some(2));
    assert!(!is_ready(&sim.world, "lab"), "\n{}", sim.story);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let deployment = sim.world.get("Deployment", &at("lab--api")).unwrap();
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], json!("registry.example/api:2"));
    assert_eq!(untouched(&sim, &before), all_but(&before, &["Deployment \"lab--api\""]));
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "it costs no slot");
    expect_sound(&sim);
}

/// What an edit changes is on its way, in every step of it; whom nobody has edited is broken when it is not ready.
#[test]
fn an_edit_is_told_by_no_warning_and_what_is_lost_is() {
    let warnings = |sim: &Sim| -> Vec<Value> {
        let events = sim.world.list("Event").into_iter();
        events.filter(|it| it["type"] == json!("Warning")).map(|it| it["reason"].clone()).collect()
    };
    let readiness = |sim: &Sim| {
        sim.world.history(|history| {
            let of_lab = history.iter().filter(|it| it.id.kind == "Workspace");
            let conditions = of_lab.filter_map(|it| it.object["status"]["conditions"].as_array());
            let mut reasons: Vec<String> = conditions
                .filter_map(|all| all.iter().find(|it| it["type"] == json!("Ready")))
                .map(|ready| ready["reason"].as_str().unwrap().to_owned())
                .collect();
            reasons.dedup();
            reasons
        })
    };
    let mut sim = ready();
    let before = readiness(&sim);
    edit(&sim.world, "lab", |spec| spec.containers[0].image = "registry.example/api:2".to_owned());
    sim.settle();
    assert_eq!(readiness(&sim)[before.len()..], ["Progressing", "AllReady"], "\n{}", sim.story);
    edit(&sim.world, "lab", |spec| spec.containers[1].replicas = 3);
    sim.settle();
    edit(&sim.world, "lab", |spec| spec.containers.push(container("new")));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(warnings(&sim), [json!(null); 0], "\n{}", sim.story);
    sim.world.delete("Deployment", &at("lab--web"), otctl_kit::plan::Propagation::Background);
    sim.settle();
    assert_eq!(warnings(&sim), ["Degraded"], "\n{}", sim.story);
    assert!(readiness(&sim).ends_with(&["Degraded".to_owned(), "AllReady".to_owned()]));
}

#[test]
fn an_image_that_does_not_exist_is_told_with_the_words_of_the_registry_and_an_edit_heals_it() {
    let mut sim = world(Order::Fixed);
    let words = "example.invalid/none:0: not found";
    sim.world.fare("api", Health::NoImage(words.to_owned()));
    workspace("lab").container("api").create(&sim.world);
    sim.settle();
    assert_eq!(reason(&sim.world, "lab", condition::CONTAINERS_READY), "ImagePullBackOff");
    assert!(told(&sim.world, "lab").contains(words), "{}", told(&sim.world, "lab"));
    assert!(!is_ready(&sim.world, "lab"));
    sim.world.fare("api", Health::Fine);
    edit(&sim.world, "lab", |spec| spec.containers[0].image = "registry.example/api:2".to_owned());
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

#[test]
fn what_is_not_asked_for_any_more_is_taken_back() {
    let mut sim = world(Order::Fixed);
    let env: Vec<otctl_types::workspace::environment::Variable> =
        serde_json::from_value(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]))
            .unwrap();
    workspace("lab").container("api").with(|spec| spec.containers[0].env = env).create(&sim.world);
    sim.settle();
    edit(&sim.world, "lab", |spec| drop(spec.containers[0].env.remove(0)));
    sim.settle();
    let deployment = sim.world.get("Deployment", &at("lab--api")).unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "B", "value": "2"}]), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "lab"));
}

#[test]
fn the_first_port_and_the_last_one_make_a_service_anew() {
    let mut sim = world(Order::Fixed);
    workspace("lab")
        .container("api")
        .container("web")
        .with(|spec| spec.containers[0].ports.clear())
        .create(&sim.world);
    sim.settle();
    let address = |sim: &Sim| -> Value {
        sim.world.get("Service", &at("lab--api")).unwrap()["spec"]["clusterIP"].clone()
    };
    assert_eq!(address(&sim), json!("None"));
    edit(&sim.world, "lab", |spec| {
        spec.containers[0].ports =
            vec![ContainerPort { container_port: 80, ..ContainerPort::default() }];
    });
    sim.settle();
    assert_ne!(address(&sim), json!("None"), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    edit(&sim.world, "lab", |spec| spec.containers[0].ports.clear());
    sim.settle();
    assert_eq!(address(&sim), json!("None"), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}

#[test]
fn the_order_of_entries_and_of_what_is_in_them_says_nothing() {
    let mut sim = world(Order::Fixed);
    let port = |number| ContainerPort { container_port: number, ..ContainerPort::default() };
    workspace("lab")
        .container("api")
        .container("web")
        .with(|spec| spec.containers[0].ports = vec![port(1), port(2)])
        .create(&sim.world);
    sim.settle();
    let (before, pods) = (versions(&sim.world), names(&sim.world, "Pod"));
    edit(&sim.world, "lab", |spec| {
        spec.containers[0].ports.reverse();
        spec.containers.reverse();
    });
    sim.settle();
    assert_eq!((versions(&sim.world), names(&sim.world, "Pod")), (before, pods));
    assert!(is_ready(&sim.world, "lab"));
}

#[test]
fn isolation_may_be_turned_off_and_on() {
    let mut sim = ready();
    let pods = names(&sim.world, "Pod");
    let finalizers = |sim: &Sim| -> Value {
        let lab = sim.world.get("Workspace", &testbed::builders::key("lab")).unwrap();
        lab["metadata"]["finalizers"].clone()
    };
    assert_eq!(finalizers(&sim), json!(["pelotech.ot/workspace"]));
    edit(&sim.world, "lab", |spec| spec.network.isolate = false);
    sim.settle();
    assert_eq!(names(&sim.world, "NetworkPolicy"), [""; 0]);
    assert_eq!(finalizers(&sim), json!(null));
    assert_eq!(reason(&sim.world, "lab", condition::NETWORK_READY), "NotIsolated");
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    edit(&sim.world, "lab", |spec| spec.network.isolate = true);
    sim.settle();
    assert_eq!(names(&sim.world, "NetworkPolicy"), ["lab--network"]);
    assert_eq!(finalizers(&sim), json!(["pelotech.ot/workspace"]));
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(names(&sim.world, "Pod"), pods, "nothing is restarted");
}

#[test]
fn an_edit_in_a_turn_counts_in_that_turn() {
    let mut sim = world_of(1, Order::Fixed);
    sim.world.fare("api", Health::NeverReady);
    workspace("lab").container("api").create(&sim.world);
    sim.quiesce();
    edit(&sim.world, "lab", |spec| spec.containers.push(container("web")));
    sim.quiesce();
    assert_eq!(names(&sim.world, "Deployment"), ["lab--api", "lab--web"]);
    edit(&sim.world, "lab", |spec| drop(spec.containers.remove(0)));
    sim.quiesce();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1));
    expect_sound(&sim);
}

#[test]
fn back_and_forth_ends_where_it_began() {
    let mut sim = ready();
    let before = versions(&sim.world);
    edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 3);
    edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 1);
    sim.settle();
    assert_eq!(versions(&sim.world), before);
    for _ in 0..3 {
        edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 3);
        (0..4).for_each(|_| {
            sim.step();
        });
        edit(&sim.world, "lab", |spec| spec.containers[0].replicas = 1);
        (0..4).for_each(|_| {
            sim.step();
        });
    }
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let deployment = sim.world.get("Deployment", &at("lab--api")).unwrap();
    assert_eq!(deployment["spec"]["replicas"], json!(1));
    assert_eq!(names(&sim.world, "Pod").len(), 3);
}

/// A Service that gets or loses its address is made anew. Pods that are made meanwhile are to know where it is then, and none
/// keeps an address that is free for anybody.
#[test]
fn pods_know_an_entry_by_the_address_that_it_has_after_an_edit() {
    let mut sim = ready();
    let all = |sim: &Sim| {
        ["api", "web"].map(|name| (name.to_owned(), cluster_ip(sim, &format!("lab--{name}"))))
    };
    let ports =
        sim.world.get("Workspace", &key("lab")).unwrap()["spec"]["containers"][0]["ports"].clone();
    let roll = |spec: &mut WorkspaceSpec| {
        spec.containers.iter_mut().for_each(|it| it.image.push_str("-next"));
    };
    let with_ports = |spec: &mut WorkspaceSpec, ports: &Value| {
        spec.containers[0].ports = serde_json::from_value(ports.clone()).unwrap();
    };
    for rolls in [true, false] {
        edit(&sim.world, "lab", |spec| {
            with_ports(spec, &json!([]));
            if rolls {
                roll(spec);
            }
        });
        sim.settle();
        for name in ["lab--api", "lab--web"] {
            assert_eq!(hosts(&sim, name), all(&sim)[1..], "{name}\n{}", sim.story);
        }
        edit(&sim.world, "lab", |spec| {
            with_ports(spec, &ports);
            roll(spec);
        });
        sim.settle();
        for name in ["lab--api", "lab--web"] {
            assert_eq!(hosts(&sim, name), all(&sim), "{name}\n{}", sim.story);
        }
    }
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    expect_sound(&sim);
}
