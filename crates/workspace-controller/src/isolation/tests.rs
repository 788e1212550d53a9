//! Selectors, what weakens an isolation, and who reaches whom past the policies that are made here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use otctl_types::names::ENTRY_LABEL;
use serde_json::{Value, json};

use super::reach::{Door, End, Net};
use super::*;
use crate::children::fixture::{Fixture, full};
use crate::children::network_policy::network_policy;
use crate::names::{Component, pod_labels};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn selectors_select_as_kubernetes_says() {
    let app = labels(&[("app", "web"), ("tier", "")]);
    let check = |selector: Value, expected: bool| {
        let selector: LabelSelector = read(selector.clone());
        assert_eq!(matches(&selector, &app), expected, "{selector:?}");
    };
    check(json!({}), true);
    check(json!({"matchLabels": {"app": "web"}}), true);
    check(json!({"matchLabels": {"app": "web", "tier": ""}}), true);
    check(json!({"matchLabels": {"app": "web", "team": ""}}), false);
    let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    check(one("app", "In", &["db", "web"]), true);
    check(one("app", "In", &["db"]), false);
    check(one("team", "In", &["red"]), false);
    check(one("app", "NotIn", &["db"]), true);
    check(one("app", "NotIn", &["web"]), false);
    check(one("team", "NotIn", &["red"]), true);
    check(one("tier", "Exists", &[]), true);
    check(one("team", "Exists", &[]), false);
    check(one("team", "DoesNotExist", &[]), true);
    check(one("tier", "DoesNotExist", &[]), false);
    check(one("app", "Near", &["web"]), false);
    let both = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]});
    check(both, false);
}

/// Which of these policies weaken the isolation of the full workspace, with a pod that also has the label `app: web`.
fn check_weakened(specs: &[(&str, Value)], expected: &[&str]) {
    let whole = full();
    let own = network_policy(&whole.facts());
    let others = specs.iter().map(|(name, spec)| {
        let metadata = json!({"name": name, "namespace": "labs", "uid": name});
        Arc::new(read(json!({"metadata": metadata, "spec": spec})))
    });
    let policies: Vec<_> = [Arc::new(own.clone())].into_iter().chain(others).collect();
    let mut pod = pod_labels("lab-151", &whole.facts().uid(), Component::Container, "worker");
    pod.insert("app".to_owned(), "web".to_owned());
    assert_eq!(weakened_by(&policies, &own, &[pod]), expected, "{specs:?}");
}

#[test]
fn a_policy_that_opens_our_pods_is_named() {
    let all = json!({"podSelector": {}, "ingress": [{}]});
    check_weakened(&[("z-open", all.clone()), ("a-open", all)], &["a-open", "z-open"]);
    let web = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}]}]});
    check_weakened(&[("web", web)], &["web"]);
    let untyped = json!({"podSelector": {}, "egress": [{}]});
    check_weakened(&[("untyped", untyped)], &["untyped"]);
}

#[test]
fn a_policy_that_only_shuts_or_is_about_others_weakens_nothing() {
    let deny = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    let other = json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{}]});
    let idle =
        json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [], "egress": [{}]});
    check_weakened(&[("deny", deny), ("other", other), ("idle", idle)], &[]);
    check_weakened(&[], &[]);
}

/// The doors of the full workspace are ports 8080 to 8090 and 8443 to 192.0.2.0/24, any to viewers of teachers, out to port
/// 443 of the world, and to every pod of the namespace.
#[test]
fn a_policy_that_lets_through_what_a_door_does_already_weakens_nothing() {
    let from = |peer: Value, ports: Value| json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [peer], "ports": ports}]});
    let to = |peer: Value, ports: Value| json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [peer], "ports": ports}]});
    let office = |cidr: &str| json!({"ipBlock": {"cidr": cidr}});
    let teachers = |app: &str| json!({"namespaceSelector": {"matchLabels": {"team": "teachers", "year": "1"}}, "podSelector": {"matchLabels": {"app": app}}});
    let world = |except: Value| json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": except}});
    let cut = ["100.100.100.200/32", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32"];
    let web = json!([{"port": 443}]);
    let all_pods = json!({"podSelector": {"matchLabels": {"app": "db"}}});
    let own = json!({"podSelector": {"matchLabels": {"pelotech.ot/workspace-uid": full().facts().uid()}}});
    for (spec, is_named) in [
        (from(office("192.0.2.0/25"), json!([{"port": 8443}])), false),
        (
            from(office("192.0.2.0/24"), json!([{"port": 8081, "endPort": 8090}, {"port": 8443}])),
            false,
        ),
        (from(office("192.0.2.0/24"), json!([{"port": 8091}])), true),
        (from(office("192.0.2.0/24"), json!([{"port": 8443, "protocol": "UDP"}])), true),
        (from(office("192.0.2.0/24"), json!([])), true),
        (from(office("192.0.0.0/16"), json!([{"port": 8443}])), true),
        (from(office("192.0.2.0/24"), json!([{"port": "http"}])), true),
        (from(teachers("viewer"), json!([])), false),
        (from(teachers("pupil"), json!([])), true),
        (from(json!({"podSelector": {"matchLabels": {"app": "viewer"}}}), json!([])), true),
        (from(own.clone(), json!([])), false),
        (to(world(json!(cut)), web.clone()), false),
        (to(world(json!(cut[1..])), web.clone()), true),
        (to(world(json!(null)), web.clone()), true),
        (to(office("203.0.113.0/24"), web), false),
        (to(office("203.0.113.0/24"), json!([{"port": 80}])), true),
        (to(all_pods, json!([])), false),
        (to(json!({"namespaceSelector": {}}), json!([])), true),
    ] {
        check_weakened(&[("other", spec)], if is_named { &["other"] } else { &[] });
    }
}

#[test]
fn a_policy_about_pods_that_lack_a_label_of_ours_weakens_nothing() {
    let lacks = json!({"matchExpressions": [{"key": ENTRY_LABEL, "operator": "DoesNotExist"}]});
    check_weakened(&[("others", json!({"podSelector": lacks, "ingress": [{}]}))], &[]);
}

#[test]
fn what_opens_every_pod_is_named_before_there_is_one() {
    let own = network_policy(&full().facts());
    let open: NetworkPolicy =
        read(json!({"metadata": {"name": "open"}, "spec": {"podSelector": {}, "ingress": [{}]}}));
    assert_eq!(weakened_by(&[Arc::new(open)], &own, &[]), ["open"]);
}

#[test]
fn a_network_besides_that_of_pods_is_seen() {
    let machine = |networks: Value, annotations: Value| -> VirtualMachine {
        let template =
            json!({"metadata": {"annotations": annotations}, "spec": {"networks": networks}});
        read(json!({"spec": {"template": template}}))
    };
    let (pods, second) = (
        json!({"name": "default", "pod": {}}),
        json!({"name": "b", "multus": {"networkName": "n"}}),
    );
    let none = json!({});
    assert!(!has_secondary_network(&machine(json!([pods]), none.clone())));
    assert!(!has_secondary_network(&VirtualMachine::default()));
    assert!(has_secondary_network(&machine(json!([pods, second]), none.clone())));
    assert!(has_secondary_network(&machine(json!([pods, {"name": "new", "other": {}}]), none)));
    let annotated = json!({"k8s.v1.cni.cncf.io/networks": "n"});
    assert!(has_secondary_network(&machine(json!([pods]), annotated)));
}

const RED: &str = "11111111-0000-4000-8000-000000000001";
const BLUE: &str = "22222222-0000-4000-8000-000000000002";
const OPEN: &str = "33333333-0000-4000-8000-000000000003";

/// The full workspace, with another UID and name.
fn workspace(uid: &str) -> Fixture {
    full().with(|it| {
        it.workspace.metadata.uid = Some(uid.to_owned());
        it.workspace.metadata.name = Some(format!("lab-{}", &uid[..1]));
        it.settings.dns_cidrs = vec!["169.254.20.10/32".parse().unwrap()];
        it.settings.ingress_selector =
            Some("kubernetes.io/metadata.name=ingress/app=nginx".parse().unwrap());
    })
}

/// Red has the doors of `full.yaml`; blue has none and does not look names up; open is not isolated.
fn net() -> Net {
    let blue = workspace(BLUE).with(|it| {
        let network = &mut it.workspace.spec.network;
        network.ingress.clear();
        network.egress.clear();
        network.dns = false;
    });
    let namespace = |name: &'static str, team: &str| {
        (name, labels(&[("kubernetes.io/metadata.name", name), ("team", team)]))
    };
    Net {
        namespaces: [
            namespace("labs", "labs"),
            namespace("kube-system", "cluster"),
            namespace("ingress", "cluster"),
            namespace("school", "teachers"),
        ]
        .into(),
        policies: vec![network_policy(&workspace(RED).facts()), network_policy(&blue.facts())],
    }
}

fn end(name: &str) -> End {
    let of = |uid, entry| Some(("labs", pod_labels("lab", uid, Component::Container, entry)));
    let app = |namespace, app| Some((namespace, labels(&[("app", app), ("k8s-app", app)])));
    let (pod, address) = match name {
        "red api" => (of(RED, "api"), "10.1.0.1"),
        "red vm" => (of(RED, "vm"), "10.1.0.2"),
        "blue api" => (of(BLUE, "api"), "10.1.0.3"),
        "blue vm" => (of(BLUE, "vm"), "10.1.0.4"),
        "open api" => (of(OPEN, "api"), "10.1.0.5"),
        "stranger" => (app("labs", "stranger"), "10.1.0.6"),
        "dns" => (app("kube-system", "kube-dns"), "10.1.0.7"),
        "dns namesake" => (app("school", "kube-dns"), "10.1.0.8"),
        "viewer" => (app("school", "viewer"), "10.1.0.9"),
        "pupil" => (app("school", "pupil"), "10.1.0.10"),
        "nginx" => (app("ingress", "nginx"), "10.1.0.11"),
        "dns cache" => (None, "169.254.20.10"),
        "metadata" => (None, "169.254.169.254"),
        "pod identity" => (None, "169.254.170.23"),
        "office" => (None, "192.0.2.7"),
        "world" => (None, "203.0.113.1"),
        "world6" => (None, "2001:db8::1"),
        other => panic!("there is no {other}"),
    };
    End { pod, address: address.parse().unwrap() }
}

#[track_caller]
fn check_reach(from: &str, to: &str, protocol: &'static str, port: i32, expected: bool) {
    let reaches = net().reaches(&end(from), &end(to), Door { protocol, port });
    assert_eq!(reaches, expected, "{from} to {to} {protocol} {port}");
}

#[test]
fn parts_of_a_workspace_reach_each_other_on_every_port() {
    for (protocol, port) in [("TCP", 1), ("UDP", 65535), ("SCTP", 9)] {
        check_reach("red api", "red vm", protocol, port, true);
        check_reach("red vm", "red api", protocol, port, true);
        check_reach("blue api", "blue vm", protocol, port, true);
    }
}

#[test]
fn workspaces_in_one_namespace_do_not_reach_each_other() {
    // Red has a door to all pods of the namespace; it ends before the wall of blue.
    check_reach("red api", "blue api", "TCP", 80, false);
    check_reach("blue api", "red api", "TCP", 80, false);
    check_reach("open api", "red api", "TCP", 80, false);
    check_reach("blue api", "open api", "TCP", 80, false);
    check_reach("open api", "stranger", "TCP", 80, true);
    check_reach("stranger", "open api", "TCP", 80, true);
}

#[test]
fn strangers_come_in_through_doors_alone() {
    check_reach("stranger", "red api", "TCP", 80, false);
    check_reach("stranger", "blue api", "TCP", 80, false);
    check_reach("viewer", "red api", "TCP", 80, true);
    check_reach("pupil", "red api", "TCP", 80, false);
    check_reach("viewer", "blue api", "TCP", 80, false);
    check_reach("office", "red api", "TCP", 8443, true);
    check_reach("office", "red api", "TCP", 8085, true);
    check_reach("office", "red api", "TCP", 8091, false);
    check_reach("office", "red api", "UDP", 8443, false);
    check_reach("office", "blue api", "TCP", 8443, false);
    check_reach("world", "red api", "TCP", 8443, false);
}

#[test]
fn an_ingress_controller_comes_in_everywhere() {
    check_reach("nginx", "red api", "TCP", 80, true);
    check_reach("nginx", "blue api", "TCP", 80, true);
    check_reach("red api", "nginx", "TCP", 80, false);
}

#[test]
fn names_are_looked_up_at_the_clusters_dns_and_its_caches() {
    for protocol in ["UDP", "TCP"] {
        check_reach("red api", "dns", protocol, 53, true);
        check_reach("red api", "dns cache", protocol, 53, true);
        check_reach("blue api", "dns", protocol, 53, false);
        check_reach("blue api", "dns cache", protocol, 53, false);
    }
    check_reach("red api", "dns", "TCP", 9153, false);
    check_reach("red api", "dns namesake", "UDP", 53, false);
    check_reach("dns", "red api", "TCP", 80, false);
}

#[test]
fn the_world_is_reached_through_doors_alone_and_metadata_never() {
    check_reach("red api", "world", "TCP", 443, true);
    check_reach("red api", "world", "TCP", 80, false);
    check_reach("red api", "world6", "TCP", 443, false);
    check_reach("red api", "metadata", "TCP", 443, false);
    check_reach("red api", "pod identity", "TCP", 443, false);
    check_reach("red vm", "metadata", "TCP", 80, false);
    check_reach("blue api", "world", "TCP", 443, false);
    check_reach("blue api", "metadata", "TCP", 80, false);
    check_reach("open api", "metadata", "TCP", 80, true);
    check_reach("red api", "stranger", "TCP", 80, true);
}

/// Rules of every shape, as an own policy and as another one: whatever gets through with both, and not with the own one
/// alone, is told.
#[test]
fn what_is_not_told_lets_nobody_through() {
    let peers = [
        json!([]),
        json!([{"ipBlock": {"cidr": "203.0.113.0/24"}}]),
        json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["203.0.113.0/25"]}}]),
        json!([{"ipBlock": {"cidr": "0.0.0.0/0"}}]),
        json!([{"podSelector": {}}]),
        json!([{"podSelector": {"matchLabels": {"app": "stranger"}}}]),
        json!([{"namespaceSelector": {}}]),
        json!([{"namespaceSelector": {"matchLabels": {"team": "teachers"}}, "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["viewer", "pupil"]}]}}]),
        json!([{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "podSelector": {"matchLabels": {"app": "pupil"}}}]),
        json!([{"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["pupil"]}]}}]),
        json!([{"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, {"podSelector": {}}]),
    ];
    let ports = [
        json!([]),
        json!([{"port": 80}]),
        json!([{"port": 80, "endPort": 90}]),
        json!([{"port": 85, "protocol": "UDP"}, {"protocol": "TCP"}]),
    ];
    let rules: Vec<_> = peers
        .iter()
        .flat_map(|peers| ports.iter().map(move |ports| json!({"from": peers, "ports": ports})))
        .collect();
    let pod = end("red api");
    let ends = ["stranger", "viewer", "pupil", "world", "office", "blue api", "nginx"].map(end);
    let doors = [("TCP", 80), ("TCP", 85), ("TCP", 91), ("UDP", 85), ("UDP", 80)];
    let policy = |name: &str, rule: &Value| -> NetworkPolicy {
        let spec = json!({"podSelector": {"matchLabels": {"pelotech.ot/workspace-uid": RED}}, "policyTypes": ["Ingress"], "ingress": [rule]});
        read(json!({"metadata": {"name": name, "namespace": "labs", "uid": name}, "spec": spec}))
    };
    let (mut told, mut untold) = (0, 0);
    for (own, other) in rules.iter().flat_map(|own| rules.iter().map(move |other| (own, other))) {
        let (own, other) = (policy("own", own), policy("other", other));
        let labels = pod.pod.as_ref().unwrap().1.clone();
        if !weakened_by(&[Arc::new(other.clone())], &own, &[labels]).is_empty() {
            told += 1;
            continue;
        }
        untold += 1;
        let alone = Net { policies: vec![own.clone()], ..net() };
        let both = Net { policies: vec![own.clone(), other.clone()], ..net() };
        for (from, (protocol, port)) in
            ends.iter().flat_map(|from| doors.iter().map(move |door| (from, *door)))
        {
            let door = Door { protocol, port };
            let widened = both.reaches(from, &pod, door) && !alone.reaches(from, &pod, door);
            assert!(!widened, "{from:?} {door:?}: {own:?} and {other:?}");
        }
    }
    assert!(told > rules.len() && untold > rules.len(), "{told} and {untold}");
}

#[test]
fn another_policy_that_opens_is_what_weakens() {
    let mut net = net();
    let open: NetworkPolicy = read(json!({
        "metadata": {"name": "open", "namespace": "labs"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]},
    }));
    net.policies.push(open);
    let door = Door { protocol: "TCP", port: 80 };
    assert!(net.reaches(&end("stranger"), &end("blue api"), door));
    assert!(!net.reaches(&end("blue api"), &end("stranger"), door), "it opens one direction");
}
