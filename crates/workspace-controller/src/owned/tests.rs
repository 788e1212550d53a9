//! What is a difference and what is not: a line for each rule.

use kube::core::TypeMeta;
use serde_json::{Value, json};

use super::*;

fn object(kind: &str, fields: &Value) -> DynamicObject {
    let mut object = fields.clone();
    object["metadata"]["name"] = json!("a");
    let mut object: DynamicObject = serde_json::from_value(object).unwrap();
    object.types = Some(TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() });
    object
}

#[track_caller]
fn check(kind: &str, desired: &Value, observed: &Value, expected: Option<&str>) {
    let found = differs(&object(kind, desired), &object(kind, observed));
    assert_eq!(found.as_deref(), expected, "{desired} {observed}");
}

/// As `check`, of a container in a Deployment.
#[track_caller]
fn check_container(desired: Value, observed: Value, expected: Option<&str>) {
    let whole = |mut container: Value| {
        container["name"] = json!("api");
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    };
    let expected = expected.map(|path| format!("spec.template.spec.containers[api].{path}"));
    check("Deployment", &whole(desired), &whole(observed), expected.as_deref());
}

#[track_caller]
fn check_pod(desired: Value, observed: Value, expected: Option<&str>) {
    let whole = |pod: Value| json!({"spec": {"template": {"spec": pod}}});
    let expected = expected.map(|path| format!("spec.template.spec.{path}"));
    check("Deployment", &whole(desired), &whole(observed), expected.as_deref());
}

#[test]
fn metadata_is_ours_as_far_as_it_is_asked_for() {
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let two = json!({"a.b/c": "1", "d": "2"});
    check("Service", &labels(json!({"a.b/c": "1"})), &labels(two.clone()), None);
    check("Service", &labels(two), &labels(json!({"d": "2"})), Some("metadata.labels[a.b/c]"));
    check(
        "Service",
        &labels(json!({"d": "2"})),
        &labels(json!({"d": "3"})),
        Some("metadata.labels.d"),
    );
    check("Service", &labels(json!({"d": "2"})), &json!({}), Some("metadata.labels"));
    let owners = |owners: Value| json!({"metadata": {"ownerReferences": owners}});
    let owner = |uid: &str, controller: bool| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": controller});
    let both = owners(json!([owner("2", false), owner("1", true)]));
    check("Service", &owners(json!([owner("1", true)])), &both, None);
    let lost = Some("metadata.ownerReferences[1].controller");
    check("Service", &owners(json!([owner("1", true)])), &owners(json!([owner("1", false)])), lost);
    let gone = Some("metadata.ownerReferences[1]");
    check("Service", &owners(json!([owner("1", true)])), &owners(json!([owner("2", true)])), gone);
}

#[test]
fn name_version_and_status_are_not_compared() {
    let observed = json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "generation": 3, "finalizers": ["f"]},
        "status": {"replicas": 1},
    });
    check("Deployment", &json!({"metadata": {"uid": "v"}, "status": {}}), &observed, None);
}

#[test]
fn a_policy_is_compared_as_a_whole() {
    let spec = |ingress: Value| json!({"spec": {"podSelector": {}, "ingress": ingress, "policyTypes": ["Ingress"]}});
    let own = json!({"from": [{"podSelector": {"matchLabels": {"a": ""}}}]});
    check("NetworkPolicy", &spec(json!([own])), &spec(json!([own])), None);
    check(
        "NetworkPolicy",
        &spec(json!([])),
        &json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
        None,
    );
    check("NetworkPolicy", &spec(json!([])), &spec(json!([{}])), Some("spec"));
    check("NetworkPolicy", &spec(json!([own])), &spec(json!([own, {}])), Some("spec"));
    let wider = json!({"from": [{"podSelector": {"matchLabels": {}}}]});
    check("NetworkPolicy", &spec(json!([own])), &spec(json!([wider])), Some("spec"));
    let narrower =
        json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]}});
    check("NetworkPolicy", &spec(json!([])), &narrower, Some("spec"));
}

#[test]
fn selectors_are_compared_as_a_whole() {
    let selector = |selector: Value| json!({"spec": {"selector": selector}});
    let (one, two) = (selector(json!({"a": "1"})), selector(json!({"a": "1", "b": "2"})));
    check("Service", &one, &two, Some("spec.selector"));
    check("Service", &two, &one, Some("spec.selector"));
    check("Service", &one, &one, None);
    let of = |labels: Value| selector(json!({"matchLabels": labels}));
    check(
        "Deployment",
        &of(json!({"a": "1"})),
        &of(json!({"a": "1", "b": "2"})),
        Some("spec.selector"),
    );
}

#[test]
fn ports_of_a_service_are_told_apart_by_number_and_protocol() {
    let ports = |ports: Value| json!({"spec": {"ports": ports}});
    let port = |port: u16, protocol: &str, name: &str| json!({"port": port, "protocol": protocol, "name": name});
    let (tcp, udp) = (port(53, "TCP", "tcp"), port(53, "UDP", "udp"));
    check("Service", &ports(json!([tcp, udp])), &ports(json!([udp, tcp])), None);
    check("Service", &ports(json!([tcp])), &ports(json!([udp, tcp])), None);
    check("Service", &ports(json!([tcp, udp])), &ports(json!([tcp])), Some("spec.ports[53/UDP]"));
    let named = port(53, "UDP", "other");
    check("Service", &ports(json!([udp])), &ports(json!([named])), Some("spec.ports[53/UDP].name"));
}

#[test]
fn what_others_add_is_theirs() {
    let sidecar = json!([{"name": "mesh", "image": "m"}, {"name": "api", "image": "a", "imagePullPolicy": "Always"}]);
    let own = json!([{"name": "api", "image": "a"}]);
    check_pod(
        json!({"containers": own}),
        json!({"containers": sidecar, "dnsPolicy": "ClusterFirst"}),
        None,
    );
    check_container(json!({}), json!({"livenessProbe": {"exec": {}}, "command": ["sh"]}), None);
    check_container(json!({"image": "a"}), json!({"image": "b"}), Some("image"));
}

#[test]
fn variables_are_told_apart_by_name_and_ordered_where_they_refer_to_each_other() {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let (a, b, c) = (variable("A", "1"), variable("B", "2"), variable("C", "$(A)"));
    let env = |variables: Value| json!({"env": variables});
    check_container(env(json!([a, b])), env(json!([b, a])), None);
    check_container(env(json!([a, c])), env(json!([a, b, c])), None);
    check_container(env(json!([a, c])), env(json!([c, a])), Some("env"));
    check_container(env(json!([a, b])), env(json!([a])), Some("env[B]"));
    check_container(env(json!([a])), env(json!([variable("A", "3")])), Some("env[A].value"));
    check_container(env(json!([variable("A", "")])), env(json!([{"name": "A"}])), None);
    check_container(env(json!([variable("A", "")])), env(json!([a])), Some("env[A].value"));
    let of_field = |source: Value| env(json!([{"name": "A", "valueFrom": {"fieldRef": source}}]));
    let defaulted = json!({"fieldPath": "metadata.name", "apiVersion": "v1"});
    check_container(of_field(json!({"fieldPath": "metadata.name"})), of_field(defaulted), None);
}

#[test]
fn lists_without_keys_are_compared_item_by_item() {
    check_container(json!({"args": ["a", "b"]}), json!({"args": ["a", "b"]}), None);
    check_container(json!({"args": ["a", "b"]}), json!({"args": ["b", "a"]}), Some("args"));
    check_container(json!({"args": ["a"]}), json!({"args": ["a", "b"]}), Some("args"));
    check_container(json!({"args": ["a"]}), json!({}), Some("args"));
    check_container(json!({"args": []}), json!({}), None);
    let capabilities = |add: Value| json!({"securityContext": {"capabilities": {"add": add}}});
    let path = Some("securityContext.capabilities.add");
    check_container(capabilities(json!(["CHOWN"])), capabilities(json!(["CHOWN", "KILL"])), path);
}

#[test]
fn ports_of_a_container_are_told_apart_by_number_and_protocol() {
    let ports = |ports: Value| json!({"ports": ports});
    let port = |number: u16, protocol: &str| json!({"containerPort": number, "protocol": protocol});
    let (tcp, udp) = (port(53, "TCP"), port(53, "UDP"));
    check_container(ports(json!([tcp])), ports(json!([udp, tcp])), None);
    check_container(ports(json!([tcp])), ports(json!([udp])), Some("ports[53/TCP]"));
}

#[test]
fn amounts_are_compared_by_value() {
    let requests =
        |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}});
    check_container(requests("1000m"), requests("1"), None);
    check_container(requests("1000m"), requests("1001m"), Some("resources.requests.cpu"));
    let guest = |memory: &str| json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": memory}}}}}});
    check("VirtualMachine", &guest("1.5Gi"), &guest("1536Mi"), None);
    let path = Some("spec.template.spec.domain.memory.guest");
    check("VirtualMachine", &guest("1.5Gi"), &guest("1.6Gi"), path);
    let image = |image: &str| json!({"image": image});
    check_container(image("1"), image("1000m"), Some("image"));
}

#[test]
fn a_port_by_name_is_none_by_number() {
    let probe = |port: Value| json!({"livenessProbe": {"httpGet": {"port": port}}});
    let defaulted = json!({"livenessProbe": {"httpGet": {"port": "http", "scheme": "HTTP"}, "periodSeconds": 10}});
    check_container(probe(json!("http")), defaulted, None);
    let path = Some("livenessProbe.httpGet.port");
    check_container(probe(json!(8080)), probe(json!("8080")), path);
}

#[test]
fn what_is_said_to_be_off_is_off_when_nothing_is_said() {
    check_pod(json!({"hostNetwork": false}), json!({}), None);
    check_pod(json!({"hostNetwork": false}), json!({"hostNetwork": true}), Some("hostNetwork"));
    check_pod(json!({"a": true}), json!({}), Some("a"));
    check(
        "Deployment",
        &json!({"spec": {"replicas": 0}}),
        &json!({"spec": {}}),
        Some("spec.replicas"),
    );
}

#[test]
fn lines_of_hosts_and_secrets_of_registries_are_told_apart_by_their_keys() {
    let line = |ip: &str, name: &str| json!({"ip": ip, "hostnames": [name]});
    let lines = |lines: Value| json!({"hostAliases": lines});
    check_pod(lines(json!([line("1", "a")])), lines(json!([line("2", "b"), line("1", "a")])), None);
    let path = Some("hostAliases[1].hostnames");
    check_pod(lines(json!([line("1", "a")])), lines(json!([line("1", "b")])), path);
    let secrets = |names: &[&str]| json!({"imagePullSecrets": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    check_pod(secrets(&["a"]), secrets(&["b", "a"]), None);
    check_pod(secrets(&["a"]), secrets(&["b"]), Some("imagePullSecrets[a]"));
}

#[test]
fn parts_of_a_machine_are_told_apart_by_name() {
    let spec = |networks: Value, disks: Value| {
        let domain = json!({"devices": {"disks": disks}});
        json!({"spec": {"template": {"spec": {"networks": networks, "domain": domain}}}})
    };
    let pod = json!({"name": "default", "pod": {}});
    let disk = |bus: &str| json!({"name": "disk", "disk": {"bus": bus}, "cache": "none"});
    let desired = spec(json!([pod]), json!([{"name": "disk", "disk": {"bus": "virtio"}}]));
    let plugged = json!([{"name": "hot", "lun": {}}, disk("virtio")]);
    check("VirtualMachine", &desired, &spec(json!([pod]), plugged), None);
    let path = Some("spec.template.spec.domain.devices.disks[disk].disk.bus");
    check("VirtualMachine", &desired, &spec(json!([pod]), json!([disk("sata")])), path);
    let elsewhere = json!([{"name": "default", "multus": {"networkName": "n"}}]);
    let path = Some("spec.template.spec.networks[default].pod");
    check("VirtualMachine", &desired, &spec(elsewhere, json!([disk("virtio")])), path);
}

#[test]
fn a_rule_of_one_kind_is_none_of_another() {
    let ports = |ports: Value| json!({"spec": {"ports": ports}});
    let (one, two) = (json!([{"port": 1}]), json!([{"port": 2}, {"port": 1}]));
    check("Other", &ports(one.clone()), &ports(two.clone()), Some("spec.ports"));
    check("Service", &ports(one), &ports(two), None);
}

#[track_caller]
fn check_stuck(kind: &str, desired: &Value, observed: &Value, expected: Option<&Stuck>) {
    let found = stuck(&object(kind, desired), &object(kind, observed));
    assert_eq!(found.as_ref(), expected, "{desired} {observed}");
}

fn ports(places: &[&str]) -> Stuck {
    Stuck::Ports(places.iter().map(|&place| place.to_owned()).collect())
}

fn port(field: &str, number: u16, name: &str) -> Value {
    json!({field: number, "protocol": "TCP", "name": name})
}

#[test]
fn a_port_of_a_service_that_was_moved_is_taken_out_unless_it_is_the_only_one() {
    let service = |all: &[(u16, &str)]| {
        let ports = all.iter().map(|(number, name)| port("port", *number, name));
        json!({"spec": {"ports": ports.collect::<Vec<_>>()}})
    };
    let (http, both) = (service(&[(80, "http")]), service(&[(80, "http"), (90, "metrics")]));
    check_stuck("Service", &http, &service(&[(81, "http")]), Some(&Stuck::Whole));
    check_stuck("Service", &http, &service(&[(80, "other")]), None);
    check_stuck("Service", &http, &service(&[(81, "other")]), None);
    check_stuck("Service", &http, &http, None);
    let one = ports(&["/spec/ports/1"]);
    check_stuck("Service", &both, &service(&[(80, "http"), (91, "metrics")]), Some(&one));
    check_stuck("Service", &http, &service(&[(7, "theirs"), (81, "http")]), Some(&one));
    let swapped = service(&[(80, "metrics"), (90, "http")]);
    check_stuck("Service", &both, &swapped, None);
    let all = service(&[(81, "http"), (91, "metrics")]);
    check_stuck("Service", &both, &all, Some(&Stuck::Whole));
    let theirs = service(&[(81, "http"), (91, "metrics"), (7, "theirs")]);
    check_stuck("Service", &both, &theirs, Some(&ports(&["/spec/ports/1", "/spec/ports/0"])));
    check_stuck("NetworkPolicy", &http, &service(&[(81, "http")]), None);
}

#[test]
fn ports_of_a_container_that_were_moved_are_taken_out_and_nothing_else_of_its_pods() {
    let deployment = |all: &[(u16, &str)]| {
        let ports = all.iter().map(|(number, name)| port("containerPort", *number, name));
        let api = json!({"name": "api", "ports": ports.collect::<Vec<_>>()});
        let mesh = json!({"name": "mesh", "ports": [port("containerPort", 15_000, "http")]});
        json!({"spec": {"template": {"spec": {"containers": [mesh, api]}}}})
    };
    let http = deployment(&[(80, "http")]);
    let place = |at: u8| format!("/spec/template/spec/containers/1/ports/{at}");
    let one = ports(&[&place(0)]);
    check_stuck("Deployment", &http, &deployment(&[(81, "http")]), Some(&one));
    check_stuck("Deployment", &http, &deployment(&[(81, "http"), (80, "web")]), Some(&one));
    check_stuck("Deployment", &http, &http, None);
    check_stuck("Deployment", &http, &json!({}), None);
    let both = deployment(&[(80, "http"), (90, "metrics")]);
    let moved = deployment(&[(81, "http"), (91, "metrics")]);
    check_stuck("Deployment", &both, &moved, Some(&ports(&[&place(1), &place(0)])));
}

#[test]
fn an_address_is_neither_lost_nor_found() {
    let service = |address: Value| json!({"spec": {"clusterIP": address}});
    let whole = Some(&Stuck::Address);
    check_stuck("Service", &service(json!("None")), &service(json!("10.96.0.1")), whole);
    check_stuck("Service", &service(Value::Null), &service(json!("None")), whole);
    check_stuck("Service", &service(Value::Null), &service(json!("10.96.0.1")), None);
    check_stuck("Service", &service(json!("None")), &service(json!("None")), None);
}
