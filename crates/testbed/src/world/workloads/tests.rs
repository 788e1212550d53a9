use otctl_kit::plan::Propagation;
use serde_json::{Value, json};

use super::Health;
use crate::builders::{claim, key};
use crate::clock::VirtualClock;
use crate::world::World;

fn world() -> World {
    World::new(&VirtualClock::default())
}

/// Lets every component do what it can.
fn run(world: &World) {
    while let Some(act) = world.acts().first() {
        world.perform(act);
    }
}

/// A Deployment of so many pods, for entry `api`.
fn deployment(world: &World, replicas: u64) {
    let labels = json!({"pelotech.ot/entry": "api"});
    world.create_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "api", "namespace": "labs", "labels": labels},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "api", "image": "api:1"}]}},
        },
    }));
}

fn status(world: &World) -> Value {
    world.get("Deployment", &key("labs/api")).unwrap()["status"].clone()
}

fn pods(world: &World) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    world.list("Pod").iter().map(name).collect()
}

#[test]
fn a_deployment_makes_its_pods_and_says_how_many_are_ready() {
    let world = world();
    deployment(&world, 2);
    run(&world);
    let told = status(&world);
    assert_eq!((&told["replicas"], &told["availableReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(told["observedGeneration"], json!(1));
    world.edit("Deployment", &key("labs/api"), |it| it["spec"]["replicas"] = json!(1));
    run(&world);
    assert_eq!(pods(&world).len(), 1);
    assert_eq!(status(&world)["observedGeneration"], json!(2));
}

#[test]
fn another_template_replaces_every_pod() {
    let world = world();
    deployment(&world, 1);
    run(&world);
    let before = pods(&world);
    world.edit("Deployment", &key("labs/api"), |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("api:2");
    });
    run(&world);
    assert_eq!(pods(&world).len(), 1);
    assert_ne!(pods(&world), before);
}

#[test]
fn pods_fare_as_their_entry_does() {
    let world = world();
    deployment(&world, 1);
    let told = |health: Health| {
        world.fare("api", health);
        run(&world);
        (world.list("Pod")[0]["status"].clone(), status(&world))
    };
    let (pod, all) = told(Health::NoImage("no such image".to_owned()));
    let waiting = &pod["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        (&waiting["reason"], &waiting["message"]),
        (&json!("ImagePullBackOff"), &json!("no such image"))
    );
    assert_eq!(all["availableReplicas"], json!(0));
    let (pod, _) = told(Health::Crashing(3));
    assert_eq!(pod["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], json!(3));
    let (pod, _) = told(Health::Unschedulable("no room".to_owned()));
    assert_eq!(pod["conditions"][0]["message"], json!("no room"));
    let (_, all) = told(Health::Fine);
    assert_eq!(all["availableReplicas"], json!(1));
}

#[test]
fn a_refused_pod_is_told_on_its_deployment() {
    let world = world();
    world.fare("api", Health::Refused("exceeded quota: pods".to_owned()));
    deployment(&world, 1);
    run(&world);
    assert_eq!(pods(&world), [""; 0]);
    let condition = &status(&world)["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["message"]),
        (&json!("ReplicaFailure"), &json!("exceeded quota: pods"))
    );
}

#[test]
fn a_pod_on_a_node_lives_until_it_has_stopped() {
    let world = world();
    deployment(&world, 1);
    run(&world);
    let pod = pods(&world).remove(0);
    world.delete("Deployment", &key("labs/api"), Propagation::Background);
    let collected = world.acts().into_iter().find(|act| act.id.kind == "Pod").unwrap();
    world.perform(&collected);
    assert_eq!(pods(&world), [pod], "it is being stopped");
    run(&world);
    assert_eq!(pods(&world), [""; 0]);
}

#[test]
fn a_machine_starts_when_its_claim_is_there_and_keeps_it_while_it_runs() {
    let world = world();
    let volume = json!({"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}});
    world.create_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "db", "namespace": "labs"},
        "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": {"volumes": [volume]}}},
    }));
    run(&world);
    assert_eq!(pods(&world), [""; 0]);
    claim("labs/disk").create(&world);
    run(&world);
    let machine = |world: &World| world.get("VirtualMachine", &key("labs/db")).unwrap();
    assert_eq!(machine(&world)["status"]["printableStatus"], json!("Running"));
    world.delete("PersistentVolumeClaim", &key("labs/disk"), Propagation::Background);
    run(&world);
    assert!(world.get("PersistentVolumeClaim", &key("labs/disk")).is_some(), "it is in use");
    world.edit("VirtualMachine", &key("labs/db"), |it| it["spec"]["runStrategy"] = json!("Halted"));
    run(&world);
    assert_eq!(machine(&world)["status"]["printableStatus"], json!("Stopped"));
    assert!(world.get("PersistentVolumeClaim", &key("labs/disk")).is_none());
}

#[test]
fn a_service_gets_the_address_that_it_asks_for_or_one_of_its_own() {
    let world = world();
    let service = |name: &str, spec: Value| {
        let made = world.create_value(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "labs"}, "spec": spec,
        }));
        made["spec"]["clusterIP"].as_str().unwrap().to_owned()
    };
    assert_eq!(service("asked", json!({"clusterIP": "10.96.0.9"})), "10.96.0.9");
    assert_eq!(service("headless", json!({"clusterIP": "None"})), "None");
    assert_ne!(service("one", json!({})), service("two", json!({})));
}
