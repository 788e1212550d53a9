//! Who is woken by an object that only says whose it is.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use otctl_kit::store::Change;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const UID: &str = "11111111-0000-4000-8000-000000000001";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn workspace(name: &str, uid: &str) -> Workspace {
    read(json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name, "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
        "status": {"namespace": "labs"},
    }))
}

/// Metadata of an object that says to be a child of the workspace `lab`.
fn of_lab(name: &str, uid: &str) -> Value {
    let owner = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "name": "lab", "uid": uid, "controller": true,
    });
    json!({"name": name, "namespace": "labs", "uid": "x", "resourceVersion": "2", "ownerReferences": [owner]})
}

/// Who is woken once `wire` is done and then `change` happens, among the workspaces `lab` and `other`.
fn woken(wire: fn(&Wake, &Views), change: impl Fn(&Views)) -> BTreeSet<String> {
    let views = Views::new(&["labs".to_owned()]);
    for (name, uid) in [("lab", UID), ("other", "22222222-0000-4000-8000-000000000002")] {
        views.workspaces.apply(Change::Present(workspace(name, uid)));
    }
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let wake: Wake = {
        let seen = seen.clone();
        Arc::new(move |key: &Key| {
            seen.lock().unwrap().insert(key.name.clone());
        })
    };
    wire(&wake, &views);
    seen.lock().unwrap().clear();
    change(&views);
    seen.lock().unwrap().clone()
}

#[test]
fn a_policy_wakes_everybody_whom_it_may_select() {
    let check = |metadata: Value, expected: &[&str]| {
        let woken = woken(wire_workspaces, |views| {
            let policy: NetworkPolicy =
                read(json!({"metadata": metadata, "spec": {"podSelector": {}}}));
            views.networks.of("labs").unwrap().apply(Change::Present(policy));
        });
        assert_eq!(woken.iter().collect::<Vec<_>>(), expected, "{metadata}");
    };
    check(of_lab("lab--network", UID), &["lab"]);
    // References can be copied by hand, to one of any name.
    check(of_lab("open", UID), &["lab", "other"]);
    check(of_lab("lab--network", "of one that is gone"), &["lab", "other"]);
    check(json!({"name": "open", "namespace": "labs", "resourceVersion": "2"}), &["lab", "other"]);
}

#[test]
fn an_object_in_somebodys_way_wakes_the_queue_whatever_it_says_of_itself() {
    let check = |metadata: Value, expected: &[&str]| {
        let woken = woken(wire_queue, |views| {
            let service: Service = read(json!({"metadata": metadata}));
            views.services.of("labs").unwrap().apply(Change::Present(service));
        });
        assert_eq!(woken.iter().collect::<Vec<_>>(), expected, "{metadata}");
    };
    check(of_lab("lab--web", UID), &[]);
    check(of_lab("other--web", UID), &["workspaces"]);
    let nobodys = json!({"name": "other--web", "namespace": "labs", "resourceVersion": "2"});
    check(nobodys, &["workspaces"]);
    check(json!({"name": "unrelated", "namespace": "labs", "resourceVersion": "2"}), &[]);
}
