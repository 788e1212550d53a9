//! Healing: whatever becomes of a child, it is put right, and nobody else's is written.

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use otctl_types::condition;
use otctl_types::workspace::ContainerPort;
use serde_json::{Value, json};
use testbed::sim::Order;
use testbed::{Health, Sim, builders as bed};

use crate::builders::{synced_image, workspace};
use crate::controller::{at, expect_sound, is_ready, names, reason, status, told, versions, world};

/// A workspace with a machine and two containers, Ready, and another one beside it.
fn ready() -> Sim {
    let mut sim = world(Order::Fixed);
    synced_image(&sim.world, "debian");
    workspace("lab").machine("db", "debian").container("api").container("web").create(&sim.world);
    workspace("other").container("api").create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab") && is_ready(&sim.world, "other"), "\n{}", sim.story);
    sim
}

/// Kind and key of every child of `lab`.
fn children(sim: &Sim) -> Vec<(String, Key)> {
    let is_child = |it: &&Value| {
        it["metadata"]["ownerReferences"][0]["name"] == json!("lab") && it["kind"] != json!("Pod")
    };
    let id = |it: &Value| {
        let name = it["metadata"]["name"].as_str().unwrap();
        (it["kind"].as_str().unwrap().to_owned(), at(name))
    };
    sim.world.objects().iter().filter(is_child).map(id).collect()
}

/// What a child says, without what is new in each life of it.
fn gist(sim: &Sim, kind: &str, key: &Key) -> Value {
    let mut object =
        sim.world.get(kind, key).unwrap_or_else(|| panic!("{kind} {key}\n{}", sim.story));
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    for field in ["status", "volumeName"] {
        object.as_object_mut().unwrap().remove(field);
        object["spec"].as_object_mut().unwrap().remove(field);
    }
    object
}

fn uid(sim: &Sim, kind: &str, name: &str) -> Value {
    sim.world.get(kind, &at(name)).unwrap()["metadata"]["uid"].clone()
}

/// The address of a Service.
pub(crate) fn cluster_ip(sim: &Sim, service: &str) -> String {
    let service = sim.world.get("Service", &at(service)).unwrap();
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

/// The names that pods of a Deployment know, and where they lead.
pub(crate) fn hosts(sim: &Sim, deployment: &str) -> Vec<(String, String)> {
    let deployment = sim.world.get("Deployment", &at(deployment)).unwrap();
    let lines = deployment["spec"]["template"]["spec"]["hostAliases"].as_array().cloned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pair = |line: Value| (text(&line["hostnames"][0]), text(&line["ip"]));
    let mut lines: Vec<_> = lines.unwrap_or_default().into_iter().map(pair).collect();
    // A line that is added comes last.
    lines.sort();
    lines
}

#[test]
fn a_lost_service_whose_address_is_somebody_elses_by_now_gets_another_one() {
    let mut sim = ready();
    let address = |sim: &Sim| {
        let service = sim.world.get("Service", &at("lab--api")).unwrap();
        service["spec"]["clusterIP"].as_str().unwrap().to_owned()
    };
    let had = address(&sim);
    sim.world.delete("Service", &at("lab--api"), Propagation::Background);
    sim.world.create_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "quick", "namespace": "labs"},
        "spec": {"clusterIP": had, "ports": [{"port": 1}]},
    }));
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let has = address(&sim);
    assert_ne!(has, had);
    let aliases = sim.world.get("Deployment", &at("lab--web")).unwrap();
    let aliases = aliases["spec"]["template"]["spec"]["hostAliases"].to_string();
    assert!(aliases.contains(&has) && !aliases.contains(&had), "{aliases}");
    expect_sound(&sim);
}

/// Versions of all children but one.
fn others(sim: &Sim, name: &str) -> Vec<(String, String)> {
    let mut versions = versions(&sim.world);
    versions.retain(|(other, _)| other != name);
    versions
}

#[test]
fn every_child_that_is_deleted_is_made_anew_as_it_was() {
    let mut sim = ready();
    let mut all = children(&sim);
    assert_eq!(all.len(), 8, "{all:?}");
    // Whose machine runs keeps its disk, whoever deletes it.
    all.retain(|(kind, _)| kind != "PersistentVolumeClaim");
    for (kind, key) in all {
        let name = format!("{kind} \"{}\"", key.name);
        let (before, rest) = (gist(&sim, &kind, &key), others(&sim, &name));
        sim.world.delete(&kind, &key, Propagation::Background);
        sim.run_until("it is missed", |world| !is_ready(world, "lab"));
        sim.settle();
        assert_eq!(gist(&sim, &kind, &key), before, "{name}");
        assert_eq!(others(&sim, &name), rest, "{name}\n{}", sim.story);
        assert!(is_ready(&sim.world, "lab"), "{name}\n{}", sim.story);
    }
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1), "healing takes no slot");
    expect_sound(&sim);
}

#[test]
fn a_pod_that_is_deleted_is_missed_and_comes_back() {
    let mut sim = ready();
    let pod = sim
        .world
        .list("Pod")
        .into_iter()
        .find(|it| it["metadata"]["name"].as_str().unwrap().starts_with("lab--api"));
    let pod = pod.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    sim.world.delete("Pod", &at(&pod), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let missed = sim.world.history(|history| {
        let labs = history.iter().filter(|it| it.id.key.name == "lab");
        labs.filter(|it| it.object["status"]["readyParts"] == json!("2/3")).count()
    });
    assert!(missed > 0, "\n{}", sim.story);
}

/// What somebody changes by hand, and what is ours of it.
#[test]
fn what_is_owned_is_put_right_and_the_rest_is_left_alone() {
    let mut sim = ready();
    let hand = |sim: &mut Sim, kind: &str, name: &str, change: &dyn Fn(&mut Value)| {
        let rest = others(sim, &format!("{kind} \"{name}\""));
        let before = gist(sim, kind, &at(name));
        sim.world.edit(kind, &at(name), change);
        assert_ne!(gist(sim, kind, &at(name)), before, "the edit changes something");
        sim.settle();
        assert_eq!(gist(sim, kind, &at(name)), before, "{kind} {name}\n{}", sim.story);
        assert_eq!(others(sim, &format!("{kind} \"{name}\"")), rest, "{kind} {name}");
        assert!(is_ready(&sim.world, "lab"), "{kind} {name}\n{}", sim.story);
    };
    let open = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]});
    hand(&mut sim, "NetworkPolicy", "lab--network", &|it| it["spec"] = open.clone());
    hand(&mut sim, "Service", "lab--api", &|it| it["spec"]["selector"] = json!({"app": "evil"}));
    hand(&mut sim, "Service", "lab--api", &|it| it["spec"]["type"] = json!("NodePort"));
    hand(&mut sim, "Deployment", "lab--api", &|it| it["spec"]["replicas"] = json!(3));
    hand(&mut sim, "Deployment", "lab--api", &|it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil");
    });
    hand(&mut sim, "Deployment", "lab--api", &|it| {
        it["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    });
    hand(&mut sim, "VirtualMachine", "lab--db", &|it| it["spec"]["runStrategy"] = json!("Halted"));
    for (kind, key) in children(&sim) {
        hand(&mut sim, &kind, &key.name, &|it| it["metadata"]["labels"] = json!(null));
    }
    hand(&mut sim, "PersistentVolumeClaim", "lab--db-r1", &|it| {
        it["metadata"]["annotations"] = json!({"pelotech.ot/revision": "r9"});
    });
    hand(&mut sim, "PersistentVolumeClaim", "lab--db-r1", &|it| {
        it["metadata"]["labels"] = json!(null);
        it["metadata"]["annotations"] = json!(null);
    });
    expect_sound(&sim);
}

/// An apply alone would be refused for ever: it leaves what a person has set, and two ports cannot have one name.
#[test]
fn a_port_that_was_moved_by_hand_is_put_back_and_the_pods_stay() {
    let mut sim = world(Order::Fixed);
    let port = |name: &str, container_port| ContainerPort {
        name: Some(name.to_owned()),
        container_port,
        ..ContainerPort::default()
    };
    workspace("lab")
        .container("api")
        .with(|spec| spec.containers[0].ports = vec![port("http", 80), port("metrics", 90)])
        .container("web")
        .with(|spec| spec.containers[1].ports = vec![port("http", 80)])
        .create(&sim.world);
    sim.settle();
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    let ports = "/spec/template/spec/containers/0/ports";
    for (kind, name, place, field) in [
        ("Service", "lab--api", "/spec/ports/1", "port"),
        ("Service", "lab--web", "/spec/ports/0", "port"),
        ("Deployment", "lab--api", &format!("{ports}/0"), "containerPort"),
        ("Deployment", "lab--web", &format!("{ports}/0"), "containerPort"),
    ] {
        let rest = others(&sim, &format!("{kind} \"{name}\""));
        let (before, uid) = (gist(&sim, kind, &at(name)), uid(&sim, kind, name));
        sim.world.edit(kind, &at(name), |it| it.pointer_mut(place).unwrap()[field] = json!(99));
        sim.settle();
        let after = gist(&sim, kind, &at(name));
        for list in ["/spec/ports", ports] {
            let all = |it: &Value| it.pointer(list).and_then(Value::as_array).cloned();
            let (before, after) = (all(&before), all(&after));
            let sorted = |all: Option<Vec<Value>>| {
                let mut texts: Vec<_> =
                    all.into_iter().flatten().map(|it| it.to_string()).collect();
                texts.sort();
                texts
            };
            assert_eq!(sorted(after), sorted(before), "{kind} {name}\n{}", sim.story);
        }
        let is_kept = self::uid(&sim, kind, name) == uid;
        assert_eq!(is_kept, (kind, name) != ("Service", "lab--web"), "{kind} {name}");
        assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"], "{kind} {name}");
        assert_eq!(others(&sim, &format!("{kind} \"{name}\"")), rest, "{kind} {name}");
        assert!(is_ready(&sim.world, "lab"), "{kind} {name}\n{}", sim.story);
    }
    expect_sound(&sim);
}

#[test]
fn what_others_add_stays() {
    let mut sim = ready();
    sim.world.edit("Deployment", &at("lab--api"), |it| {
        it["metadata"]["labels"]["team"] = json!("red");
        it["metadata"]["annotations"]["note"] = json!("kept");
        let containers = it["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": "sidecar", "image": "mesh:1"}));
    });
    sim.settle();
    let before = versions(&sim.world);
    sim.world.edit("Deployment", &at("lab--api"), |it| it["spec"]["replicas"] = json!(2));
    sim.settle();
    let after = sim.world.get("Deployment", &at("lab--api")).unwrap();
    assert_eq!(after["metadata"]["labels"]["team"], json!("red"));
    assert_eq!(after["metadata"]["annotations"]["note"], json!("kept"));
    assert_eq!(after["spec"]["replicas"], json!(1));
    let containers = after["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2, "\n{}", sim.story);
    assert_eq!(versions(&sim.world).len(), before.len());
}

#[test]
fn owner_references_that_are_stripped_are_put_back() {
    let mut sim = ready();
    for (kind, key) in children(&sim) {
        sim.world.edit(&kind, &key, |it| it["metadata"]["ownerReferences"] = json!([]));
        sim.settle();
        let owners = sim.world.get(&kind, &key).unwrap()["metadata"]["ownerReferences"].clone();
        assert_eq!(owners[0]["controller"], json!(true), "{kind} {key}\n{}", sim.story);
        assert_eq!(owners[0]["name"], json!("lab"), "{kind} {key}");
        assert!(is_ready(&sim.world, "lab"), "{kind} {key}\n{}", sim.story);
    }
}

#[test]
fn all_owner_references_and_finalizers_may_be_stripped_at_once_while_nobody_looks() {
    let mut sim = ready();
    sim.pause("controller");
    for (kind, key) in children(&sim) {
        sim.world.edit(&kind, &key, |it| it["metadata"]["ownerReferences"] = json!([]));
    }
    sim.world.edit("Workspace", &bed::key("lab"), |it| it["metadata"]["finalizers"] = json!([]));
    sim.resume("controller");
    sim.kill("controller");
    sim.settle();
    assert_eq!(children(&sim).len(), 8, "\n{}", sim.story);
    let lab = sim.world.get("Workspace", &bed::key("lab")).unwrap();
    assert_eq!(lab["metadata"]["finalizers"], json!(["pelotech.ot/workspace"]));
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
}

#[test]
fn a_service_that_is_lost_comes_back_with_its_address_and_nothing_is_rolled() {
    let mut sim = ready();
    let address =
        |sim: &Sim| sim.world.get("Service", &at("lab--api")).unwrap()["spec"]["clusterIP"].clone();
    let (before, pods) = (address(&sim), names(&sim.world, "Pod"));
    sim.world.delete("Service", &at("lab--api"), Propagation::Background);
    sim.settle();
    assert_eq!((address(&sim), names(&sim.world, "Pod")), (before, pods), "\n{}", sim.story);
}

#[test]
fn several_children_may_be_lost_at_once() {
    let mut sim = ready();
    for (kind, key) in children(&sim) {
        sim.world.delete(&kind, &key, Propagation::Background);
    }
    sim.settle();
    assert_eq!(children(&sim).len(), 8, "\n{}", sim.story);
    assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    assert!(is_ready(&sim.world, "other"));
}

#[test]
fn a_restart_with_nothing_changed_writes_nothing() {
    let mut sim = ready();
    workspace("two").machine("one", "debian").machine("two", "debian").create(&sim.world);
    sim.settle();
    let before = (sim.world.revision(), sim.faults().writes());
    for _ in 0..3 {
        sim.kill("controller");
        sim.settle();
    }
    // Not even a write that changes nothing.
    assert_eq!((sim.world.revision(), sim.faults().writes()), before, "\n{}", sim.story);
}

#[test]
fn what_breaks_later_is_told_in_its_own_words_and_heals() {
    let mut sim = ready();
    for (health, reason_told, words) in [
        (Health::Crashing(137), "CrashLoopBackOff", "137"),
        (Health::NoImage("no such image".to_owned()), "ImagePullBackOff", "no such image"),
        (Health::Unschedulable("no room".to_owned()), "Unschedulable", "no room"),
    ] {
        sim.world.fare("web", health);
        sim.settle();
        assert_eq!(reason(&sim.world, "lab", condition::READY), "Degraded");
        assert_eq!(reason(&sim.world, "lab", condition::CONTAINERS_READY), reason_told);
        assert!(told(&sim.world, "lab").contains(words), "{}", told(&sim.world, "lab"));
        assert_eq!(reason(&sim.world, "lab", condition::STALLED), "", "it is no failure");
        sim.world.fare("web", Health::Fine);
        sim.settle();
        assert!(is_ready(&sim.world, "lab"), "\n{}", sim.story);
    }
    assert_eq!(status(&sim.world, "lab").last_turn, Some(1));
}

#[test]
fn a_policy_beside_its_own_that_opens_it_is_named_until_it_is_gone() {
    let mut sim = ready();
    sim.world.create_value(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "allow-all", "namespace": "labs"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]},
    }));
    sim.settle();
    for name in ["lab", "other"] {
        assert_eq!(reason(&sim.world, name, condition::NETWORK_READY), "WeakenedByOtherPolicy");
        assert!(told(&sim.world, name).contains("allow-all"), "{}", told(&sim.world, name));
    }
    sim.world.delete("NetworkPolicy", &at("allow-all"), Propagation::Background);
    sim.settle();
    assert!(is_ready(&sim.world, "lab") && is_ready(&sim.world, "other"), "\n{}", sim.story);
}
