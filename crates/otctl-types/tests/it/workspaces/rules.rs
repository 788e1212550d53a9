//! The rules of `Workspace`, one by one, judged as an API server judges them.

use std::collections::BTreeSet;

use otctl_types::workspace::network::metadata_addresses;
use serde_json::{Value, json};

use super::{full, least, with};
use crate::judge::{self, messages, schema};

const NAMESPACE_STAYS: &str = "namespace cannot change any more";

fn broken(new: &Value, old: Option<&Value>) -> Vec<String> {
    judge::broken("Workspace", new, old)
}

/// What may not be written, where, and a part of the sentence that refuses it.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    [spec(), virtual_machines(), images(), containers(), environment(), rights(), doors()].concat()
}

fn spec() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("/namespace", json!("Labs"), "the name of a namespace that the controller's chart lists"),
        ("/namespace", json!("a.b"), "leave it out for the default"),
        ("/containers/0/name", json!("database"), "share one space of names"),
        ("/virtualMachines/1/name", json!("worker"), "give each entry a name of its own"),
    ]
}

fn virtual_machines() -> Vec<(&'static str, Value, &'static str)> {
    let form = "such as database-vm";
    let (image, instance) =
        ("/virtualMachines/0/spec/VMDiskImageName", "/virtualMachines/0/spec/instance");
    vec![
        ("/virtualMachines/0/name", json!("Database"), form),
        ("/virtualMachines/0/name", json!("1database"), form),
        ("/virtualMachines/0/name", json!("-database"), form),
        ("/virtualMachines/0/name", json!("database-"), form),
        ("/virtualMachines/0/name", json!("data--base"), form),
        ("/virtualMachines/0/name", json!("data.base"), form),
        ("/virtualMachines/0/name", json!(""), form),
        (image, json!("other/image"), "see kubectl get vmdi"),
        (
            instance,
            json!({"memory": "4Gi", "instancetype": "u1.medium"}),
            "brings cores and memory",
        ),
        (instance, json!({"cores": 2, "instancetype": "u1.medium"}), "remove instancetype"),
        (instance, json!({"cores": 2}), "needs memory, such as 4Gi"),
        (instance, json!({"runStrategy": "Always"}), "or an instancetype"),
        (instance, json!({"instancetype": "U1"}), "name of a VirtualMachineClusterInstancetype"),
        (instance, json!({"memory": "4Gi", "preference": ""}), "VirtualMachineClusterPreference"),
        ("/virtualMachines/0/spec/instance/memory", json!("4096"), "at least 1Mi"),
        ("/virtualMachines/0/spec/instance/memory", json!("65Ti"), "at most 64Ti"),
        ("/virtualMachines/0/spec/instance/memory", json!("4GB"), "such as 4Gi"),
        ("/virtualMachines/0/spec/instance/cloudInitSecretRef", json!("a/b"), "name of a Secret"),
    ]
}

/// An image in an entry is held to the rules of a VMDiskImage.
fn images() -> Vec<(&'static str, Value, &'static str)> {
    let [url, user] = ["s3://bucket/key", "https://user:password@images.example.com/a"];
    vec![
        ("/virtualMachines/0/spec/image/url", json!(url), "for S3 write https://"),
        ("/virtualMachines/0/spec/image/url", json!(user), "name it in secretRef"),
        ("/virtualMachines/0/spec/image/secretRef", json!("other/keys"), "name of a Secret"),
        ("/virtualMachines/0/spec/image/checksum", json!("md5:00"), "64 hexadecimal digits"),
        ("/virtualMachines/0/spec/image/diskSize", json!("65Ti"), "at most 64Ti, such as 24Gi"),
        ("/virtualMachines/0/spec/image/storageClass", json!(""), "name of a StorageClass"),
        (
            "/virtualMachines/0/spec/image/snapshotClass",
            json!("A"),
            "name of a VolumeSnapshotClass",
        ),
    ]
}

fn containers() -> Vec<(&'static str, Value, &'static str)> {
    let form = "such as api-server";
    let port = |name: &str, number: i32| json!({"name": name, "containerPort": number});
    let twice = json!([port("http", 80), port("http", 81)]);
    vec![
        ("/containers/0/name", json!("API"), form),
        ("/containers/0/name", json!("api--server"), form),
        ("/containers/0/name", json!("api-"), form),
        ("/containers/0/name", json!("3api"), form),
        ("/containers/0/image", json!(""), "such as registry.example.com/api-server:3.1.0"),
        ("/containers/0/image", json!("api server"), "without spaces"),
        ("/containers/0/ports/0/name", json!("HTTP"), "at most 15 lower-case letters"),
        ("/containers/0/ports/0/name", json!("80"), "with a letter among them"),
        ("/containers/0/ports/0/name", json!("a--b"), "single '-'"),
        ("/containers/0/ports", twice, "give each port a name of its own"),
        ("/containers/0/livenessProbe/exec", json!({"command": ["a"]}), "exactly one of httpGet"),
        ("/containers/0/readinessProbe", json!({"periodSeconds": 1}), "a probe has exactly one"),
        (
            "/containers/0/livenessProbe/successThreshold",
            json!(2),
            "of livenessProbe can only be 1",
        ),
        ("/containers/0/startupProbe/successThreshold", json!(2), "of startupProbe can only be 1"),
        ("/containers/0/livenessProbe/httpGet/httpHeaders/0/name", json!("X Y"), "such as X-Probe"),
        (
            "/containers/0/resources/requests/cpu",
            json!("2"),
            "lower the request or raise the limit",
        ),
        ("/containers/0/resources/requests/memory", json!("1Gi"), "requests ask for more"),
        ("/containers/0/resources/limits", json!({"foo": "1"}), "a resource is cpu, memory"),
        ("/containers/0/resources/limits", json!({"requests.a/b": "1"}), "such as nvidia.com/gpu"),
        ("/containers/0/resources", json!({"limits": {"a.b/gpu": "500m"}}), "is a whole number"),
        ("/containers/0/resources", json!({"requests": {"a.b/gpu": "1"}}), "in limits alone"),
        (
            "/containers/0/resources",
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            "add one of these",
        ),
        (
            "/containers/0/resources/limits",
            json!({"cpu": "2", "hugepages-2Mi": "3Mi"}),
            "such as 64Mi of hugepages-2Mi",
        ),
        ("/containers/0/resources/limits/cpu", json!("2 cores"), "such as 500m, 2, 256Mi or 4Gi"),
        ("/containers/0/resources/requests/cpu", json!("lots"), "a number and at most one unit"),
        (
            "/containers/0/imagePullSecrets/0/name",
            json!("a/b"),
            "name of a Secret in the workspace",
        ),
    ]
}

fn environment() -> Vec<(&'static str, Value, &'static str)> {
    let from = |source: Value| json!({"name": "A", "valueFrom": source});
    let field = |path: &str| from(json!({"fieldRef": {"fieldPath": path}}));
    let key = json!({"name": "a", "key": "b"});
    let both = json!({"configMapKeyRef": key, "secretKeyRef": key});
    vec![
        ("/containers/0/env/0/name", json!("1A"), "does not begin with a digit"),
        ("/containers/0/env/0/name", json!("A=B"), "name of an environment variable"),
        ("/containers/0/env/1/value", json!(""), "either value or valueFrom"),
        ("/containers/0/env/1", from(both), "exactly one of configMapKeyRef, secretKeyRef"),
        ("/containers/0/env/1", from(json!({})), "valueFrom has exactly one"),
        ("/containers/0/env/1/valueFrom/configMapKeyRef/name", json!("a/b"), "ConfigMap or Secret"),
        ("/containers/0/env/1/valueFrom/configMapKeyRef/key", json!("a/b"), "key is a key of"),
        ("/containers/0/env/1/valueFrom/configMapKeyRef/key", json!("..a"), "begin with '..'"),
        (
            "/containers/0/env/1/valueFrom/configMapKeyRef/name",
            json!("a..b"),
            "ConfigMap or Secret",
        ),
        ("/containers/0/env/3", field("spec.serviceAccountName"), "fieldPath is metadata.name"),
        ("/containers/0/env/3", field("spec.nodeName"), "fieldPath is metadata.name"),
        ("/containers/0/env/3", field("metadata.labels"), "metadata.labels['KEY']"),
        ("/containers/0/envFrom/0/secretRef", json!({"name": "a"}), "write two entries for both"),
        ("/containers/0/envFrom/0", json!({}), "either configMapRef or secretRef"),
        ("/containers/0/envFrom/1/secretRef/name", json!("Keys"), "ConfigMap or Secret"),
    ]
}

fn rights() -> Vec<(&'static str, Value, &'static str)> {
    let profile = "/containers/0/securityContext/seccompProfile";
    let path = "/containers/1/securityContext/seccompProfile/localhostProfile";
    vec![
        (
            "/containers/0/securityContext/runAsUser",
            json!(0),
            "is root, which runAsNonRoot forbids",
        ),
        (
            "/containers/0/securityContext/capabilities/drop",
            json!(["net_raw"]),
            "in capital letters",
        ),
        (profile, json!({"type": "Localhost"}), "add the profile's path"),
        (profile, json!({"type": "RuntimeDefault", "localhostProfile": "a"}), "or remove it"),
        (path, json!("/etc/a.json"), "such as profiles/audit.json"),
        (path, json!("../a.json"), "no part of it begins with '.'"),
        (path, json!("a/../b.json"), "no part of it begins with '.'"),
        (path, json!("a/"), "no '/' at its ends"),
    ]
}

fn doors() -> Vec<(&'static str, Value, &'static str)> {
    let labels = "/network/ingress/0/from/namespaceSelector/matchLabels";
    let requirement = "/network/ingress/0/from/podSelector/matchExpressions/0";
    let pods_and_addresses = json!({"podSelector": {}, "cidr": "10.0.0.0/8"});
    vec![
        ("/network/ingress/0/from", pods_and_addresses, "write one door for each"),
        ("/network/ingress/0/from", json!({}), "either to a cidr or to pods"),
        ("/network/egress/0/to", json!({}), "either to a cidr or to pods"),
        (labels, json!({"app": "a b"}), "the value of a label"),
        (labels, json!({"bad key!": "a"}), "the key of a label"),
        (labels, json!({"a..b/c": "a"}), "before a '/' the name of a domain"),
        (requirement, json!({"key": "a..b/c", "operator": "Exists"}), "the name of a domain"),
        (
            requirement,
            json!({"key": "a b", "operator": "Exists"}),
            "such as app or example.com/team",
        ),
        (requirement, json!({"key": "a", "operator": "In"}), "at least one of values"),
        (requirement, json!({"key": "a", "operator": "NotIn", "values": []}), "at least one"),
        (requirement, json!({"key": "a", "operator": "Exists", "values": ["b"]}), "have none"),
        (requirement, json!({"key": "a", "operator": "In", "values": ["-"]}), "values of a label"),
        ("/network/egress/0/ports/0/endPort", json!(7999), "it is not below port"),
        ("/network/egress/0/to/cidr", json!("10.0.0.0"), "such as 10.0.0.0/8"),
        ("/network/egress/0/to/cidr", json!("10.0.0.0/33"), "cidr is an address"),
        ("/network/egress/0/to/cidr", json!("::ffff:169.254.169.254/128"), "cidr is an address"),
        ("/network/egress/0/to/cidr", json!("fe80::1%eth0/128"), "cidr is an address"),
        ("/network/egress/0/to/cidr", json!("10.1.2.3/16"), "write 10.1.0.0/16 for the network"),
        ("/network/egress/0/to/cidr", json!("169.254.169.254/32"), "a Secret of its own"),
    ]
}

#[test]
fn what_is_refused_is_refused_with_a_sentence() {
    assert_eq!(broken(&full(), None), Vec::<String>::new());
    for (pointer, value, sentence) in refused() {
        let found = broken(&with(full(), pointer, value.clone()), None);
        assert!(
            matches!(&found[..], [only] if only.contains(sentence)),
            "{pointer} = {value}: {found:?}"
        );
    }
}

#[test]
fn every_rule_refuses_something_here() {
    let mut seen: BTreeSet<_> = refused()
        .into_iter()
        .flat_map(|(pointer, value, _)| broken(&with(full(), pointer, value), None))
        .collect();
    seen.extend(broken(&json!({"spec": {}}), None));
    seen.extend(broken(&with(full(), "/namespace", json!("other")), Some(&full())));
    let all: BTreeSet<_> = messages(schema("Workspace")).into_iter().collect();
    assert_eq!(seen, all);
}

#[test]
fn what_is_allowed_breaks_no_rule() {
    let instance = "/virtualMachines/0/spec/instance";
    let field = "/containers/0/env/3/valueFrom/fieldRef/fieldPath";
    let selector = json!({"namespaceSelector": {}, "podSelector": {}});
    let least_limit = json!({"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "0.5"}});
    for (pointer, value) in [
        ("/namespace", Value::Null),
        ("/virtualMachines", Value::Null),
        ("/containers", Value::Null),
        ("/network", Value::Null),
        ("/network", json!({})),
        ("/virtualMachines/0/name", json!("a")),
        ("/virtualMachines/0/name", json!("a-1-b2")),
        ("/virtualMachines/0/name", json!("a".repeat(40))),
        (instance, json!({"memory": "1Mi"})),
        (instance, json!({"memory": "64Ti", "cores": 1})),
        (instance, json!({"instancetype": "u1.small"})),
        ("/containers/0/image", json!("localhost:5000/a@sha256:0000")),
        ("/containers/0/ports", json!([{"containerPort": 80}, {"containerPort": 81}])),
        ("/containers/0/ports/0/name", json!("0-web")),
        ("/containers/0/readinessProbe/successThreshold", json!(3)),
        ("/containers/0/resources", least_limit),
        ("/containers/0/resources", json!({"requests": {"cpu": "1000m"}, "limits": {"cpu": "1"}})),
        (
            "/containers/0/resources",
            json!({"requests": {"a.b/gpu": "1", "cpu": "1"}, "limits": {"a.b/gpu": "1", "hugepages-2Mi": "64Mi"}}),
        ),
        ("/containers/0/env/0/value", Value::Null),
        (field, json!("metadata.labels['example.com/team']")),
        (field, json!("metadata.annotations['a']")),
        (field, json!("status.podIPs")),
        ("/containers/0/securityContext", json!({"runAsUser": 0})),
        ("/containers/0/securityContext", json!({"capabilities": {"drop": ["NET_RAW"]}})),
        ("/network/ingress/0/from", json!({"podSelector": {}})),
        ("/network/ingress/0/from", json!({"namespaceSelector": {}})),
        ("/network/ingress/0/from", selector),
        ("/network/egress/0/ports/0/endPort", json!(8000)),
        ("/network/egress/0/to/cidr", json!("0.0.0.0/0")),
        ("/network/egress/0/to/cidr", json!("2001:db8::/32")),
        ("/network/egress/0/to/cidr", json!("169.254.0.0/16")),
        ("/network/egress/0/to/cidr", json!("169.254.169.253/32")),
        ("/network/egress/0/to/cidr", json!("64:ff9b::/96")),
        ("/network/egress/0/to/cidr", json!("2002:a9fe:a9fe::/47")),
    ] {
        let found = broken(&with(full(), pointer, value.clone()), None);
        assert_eq!(found, Vec::<String>::new(), "{pointer} = {value}");
    }
    assert_eq!(broken(&least("web"), None), Vec::<String>::new());
}

#[test]
fn no_door_leads_to_where_credentials_are_handed_out() {
    let other_forms = [
        "fd00:ec2:0::254/128",
        "fd00:0ec2:0000:0000:0000:0000:0000:0254/128",
        "2002:a9fe:a9fe::1/128",
        "2002:a9fe:a9fe:1::/64",
        "fd00:c1::a9fe:a9fe/128",
        "169.254.0.23/32",
    ];
    let other_forms = other_forms.map(str::to_owned);
    for cidr in metadata_addresses().iter().chain(&other_forms) {
        for pointer in ["/network/ingress/0/from", "/network/egress/0/to"] {
            let found = broken(&with(full(), pointer, json!({"cidr": cidr})), None);
            assert!(
                matches!(&found[..], [only] if only.contains("hands out its machines' credentials")),
                "{pointer} {cidr}: {found:?}"
            );
        }
    }
}

#[test]
fn a_workspace_of_nothing_is_refused() {
    for spec in [
        json!({}),
        json!({"containers": []}),
        json!({"containers": [], "virtualMachines": []}),
        json!({"network": {}}),
    ] {
        let found = broken(&json!({"spec": spec}), None);
        assert!(matches!(&found[..], [only] if only.contains("add one")), "{spec}: {found:?}");
    }
}

#[test]
fn the_namespace_stays_as_it_was_made() {
    let (set, other) = (full(), with(full(), "/namespace", json!("other")));
    let absent = with(full(), "/namespace", Value::Null);
    for (what, old, new) in
        [("changed", &set, &other), ("removed", &set, &absent), ("added", &absent, &set)]
    {
        let found = broken(new, Some(old));
        assert!(
            matches!(&found[..], [only] if only.contains(NAMESPACE_STAYS) && only.contains("create a new Workspace")),
            "{what}: {found:?}"
        );
    }
    for unchanged in [&set, &absent] {
        assert_eq!(broken(unchanged, Some(unchanged)), Vec::<String>::new());
    }
}

#[test]
fn everything_else_may_be_edited_at_any_time() {
    let mut old = full();
    old["status"] = json!({"phase": "Ready", "namespace": "labs", "lastTurn": 1});
    for (pointer, value) in [
        ("/virtualMachines", Value::Null),
        ("/virtualMachines/0/spec/image/url", json!("https://images.example.com/other.qcow2")),
        ("/virtualMachines/0/spec/revision", json!("1")),
        ("/containers/0/image", json!("registry.example.com/api-server:4")),
        ("/containers", json!([{"name": "other", "image": "a"}])),
        ("/network/isolate", json!(false)),
        ("/network", Value::Null),
        ("/suspended", json!(true)),
        ("/imageRetention", json!("Delete")),
    ] {
        let found = broken(&with(old.clone(), pointer, value.clone()), Some(&old));
        assert_eq!(found, Vec::<String>::new(), "{pointer} = {value}");
    }
}
