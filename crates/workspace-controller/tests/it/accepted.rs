//! What the definition of Workspaces takes, the API server takes of the children as well: what it would refuse of them for
//! ever, a person is told when they write it, in a sentence.

use serde_json::{Value, json};

use crate::stage::Stage;

type Row = (&'static str, Value, Option<&'static str>);

/// What is written where, and a part of the sentence that refuses it.
fn rows() -> Vec<Row> {
    [resources(), labels(), names(), keys(), addresses()].concat()
}

fn resources() -> Vec<Row> {
    let limits = |name: &str, amount: &str| json!({"limits": {"cpu": "1", name: amount}});
    let gpus = |asked: &str, most: &str| json!({"requests": {"a.b/gpu": asked}, "limits": {"a.b/gpu": most}});
    let (unknown, counted, whole) =
        (Some("a resource is cpu, memory"), Some("is a whole number"), Some("in limits alone"));
    let pages = Some("of whole pages");
    let resources = [
        (limits("memory", "0"), None),
        (limits("ephemeral-storage", "1.5Gi"), None),
        (limits("foo", "1"), unknown),
        (limits("storage", "1Gi"), unknown),
        (limits("pods", "1"), unknown),
        (limits("limits.cpu", "1"), unknown),
        (limits("/gpu", "1"), unknown),
        (limits("a.b/", "1"), unknown),
        (limits("a/b/c", "1"), unknown),
        (limits("A.b/gpu", "1"), unknown),
        (limits("a..b/gpu", "1"), unknown),
        (limits("a.b/-gpu", "1"), unknown),
        (limits("requests.a.b/gpu", "1"), unknown),
        (limits("hugepages-", "2Mi"), unknown),
        (limits("hugepages-big", "2Mi"), unknown),
        (limits("a.b/gpu", "1"), None),
        (limits("a.b/gpu", "1k"), None),
        (limits("a.b/gpu", "500m"), counted),
        (limits("a.b/gpu", "99999999999999999999"), counted),
        (limits(&format!("{}a/gpu", "a.".repeat(121)), "1"), None),
        (limits(&format!("{}a/gpu", "a.".repeat(122)), "1"), unknown),
        (limits(&format!("a.b/{}", "g".repeat(63)), "1"), None),
        (limits(&format!("a.b/{}", "g".repeat(64)), "1"), unknown),
        (limits("hugepages-2Mi", "64Mi"), None),
        (limits("hugepages-2Mi", "3Mi"), pages),
        (limits("hugepages-1Gi", "1"), pages),
        (json!({"limits": {"hugepages-2Mi": "2Mi"}}), Some("with cpu or memory")),
        (json!({"requests": {"a.b/gpu": "1"}}), whole),
        (json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}), whole),
        (gpus("1", "1"), None),
        (gpus("1k", "1000"), None),
        (gpus("1", "2"), whole),
        (gpus("2", "1"), Some("requests ask for more")),
    ];
    resources.map(|(value, told)| ("/containers/0/resources", value, told)).into()
}

/// Keys of labels, wherever one is written.
fn labels() -> Vec<Row> {
    let domain = |length: usize| format!("{}a/a", "a.".repeat(length / 2));
    let keys = [
        ("a".to_owned(), true),
        ("a.b/c".to_owned(), true),
        ("a_.b".to_owned(), true),
        ("a".repeat(63), true),
        (domain(253), true),
        ("bad key!".to_owned(), false),
        ("a/b/c".to_owned(), false),
        ("/b".to_owned(), false),
        ("a/".to_owned(), false),
        ("A/b".to_owned(), false),
        ("a..b/c".to_owned(), false),
        ("-a".to_owned(), false),
        ("a-".to_owned(), false),
        ("a".repeat(64), false),
        (domain(255), false),
    ];
    let of = |(key, is_taken): &(String, bool)| -> Vec<Row> {
        let told = (!is_taken).then_some("the key of a label");
        let path = (!is_taken).then_some("fieldPath");
        let field = json!(format!("metadata.labels['{key}']"));
        let (of_pods, of_namespaces) = (
            "/network/ingress/1/from/podSelector/matchExpressions/0/key",
            "/network/ingress/1/from/namespaceSelector/matchLabels",
        );
        vec![
            (of_pods, json!(key), told),
            (of_namespaces, json!({key: "a"}), told),
            ("/containers/0/env/5/valueFrom/fieldRef/fieldPath", field, path),
        ]
    };
    keys.iter().flat_map(of).collect()
}

/// Names of objects, wherever one is written.
fn names() -> Vec<Row> {
    let fields = [
        ("/virtualMachines/0/spec/VMDiskImageName", "name of a VMDiskImage"),
        ("/virtualMachines/0/spec/image/secretRef", "name of a Secret"),
        ("/virtualMachines/0/spec/image/storageClass", "name of a StorageClass"),
        ("/virtualMachines/0/spec/instance/cloudInitSecretRef", "name of a Secret"),
        ("/virtualMachines/1/spec/instance/instancetype", "name of a VirtualMachineCluster"),
        ("/containers/0/env/3/valueFrom/secretKeyRef/name", "name of a ConfigMap or Secret"),
        ("/containers/0/env/4/valueFrom/configMapKeyRef/name", "name of a ConfigMap or Secret"),
        ("/containers/0/envFrom/0/configMapRef/name", "name of a ConfigMap or Secret"),
        ("/containers/0/envFrom/1/secretRef/name", "name of a ConfigMap or Secret"),
        ("/containers/0/imagePullSecrets/0/name", "name of a Secret"),
    ];
    let of = |(field, told): (&'static str, &'static str)| {
        let names = [("a.b-c", None), ("1", None), ("a..b", Some(told)), ("a.-b", Some(told))];
        names.map(|(name, told)| (field, json!(name), told))
    };
    fields.into_iter().flat_map(of).collect()
}

/// Keys of ConfigMaps and Secrets, and names of variables.
fn keys() -> Vec<Row> {
    let fields = [
        "/containers/0/env/3/valueFrom/secretKeyRef/key",
        "/containers/0/env/4/valueFrom/configMapKeyRef/key",
    ];
    let of = |field: &'static str| {
        let told = Some("does not begin with '..'");
        let keys = [(".a", None), ("a..b", None), (".", told), ("..", told), ("..a", told)];
        keys.map(|(key, told)| (field, json!(key), told))
    };
    fields
        .into_iter()
        .flat_map(of)
        .chain([("/containers/0/env/0/name", json!("..a"), None)])
        .collect()
}

/// Addresses of doors, and what is cut out of them.
fn addresses() -> Vec<Row> {
    let no_cidr = Some("cidr is an address and the length of its network");
    let rows = [
        ("::/0", None),
        ("0.0.0.0/0", None),
        ("64:ff9b::/96", None),
        ("2002:a9fe:a9fe::/47", None),
        ("::/64", None),
        ("64:ff9b::a9fe:a9fe/128", Some("no door leads there")),
        ("2002:a9fe:a9fe:1::/64", Some("no door leads there")),
        ("::a9fe:a9fe/128", Some("no door leads there")),
        ("::ffff:a9fe:a9fe/128", no_cidr),
        ("::ffff:0:0/96", no_cidr),
    ];
    rows.map(|(cidr, told)| ("/network/egress/0/to/cidr", json!(cidr), told)).into()
}

#[tokio::test]
async fn what_is_taken_of_a_workspace_is_taken_of_its_children() {
    let mut stage = Stage::new("accepted").await;
    let spec = serde_json::to_value(&stage.workspace.spec).unwrap();
    stage.try_spec(&spec).await.unwrap();
    let mut wrong = Vec::new();
    for (pointer, value, expected) in rows() {
        let mut tried = spec.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        tried.pointer_mut(parent).unwrap()[field] = value.clone();
        let said = stage.try_spec(&tried).await;
        let is_right = match (&said, expected) {
            (Ok(()), None) => true,
            (Err(it), Some(sentence)) => it.kind == "Workspace" && it.words.contains(sentence),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{pointer} {value}: {said:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
