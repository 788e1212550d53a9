//! By whom a Workspace or a part of it may be ended: ways besides its deletion, and those who have to be able to.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::params::PropagationPolicy;
use otctl_types::names::WORKSPACE_FINALIZER;
use serde_json::{Value, json};

use super::*;
use crate::workspaces::almighty;

const FOREIGN_FINALIZER: &str = "example.com/backup";

fn dry() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// An owner that is not there: garbage collection takes what has no other.
fn lost_owner() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "name": "lost", "uid": "11111111-0000-4000-8000-000000000000"})
}

fn metadata(field: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {field: value.into()}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_a_workspace_or_keeps_its_parts_asks_as_its_deletion_does() {
    let (cluster, ada, bob) = users().await;
    create(&ada, workspace("kept", &json!({}))).await.unwrap();
    let all = [WORKSPACE_FINALIZER, FOREIGN_FINALIZER];
    edit(&ada, "kept", &metadata("finalizers", json!(all))).await.unwrap();
    for patch in [
        metadata("ownerReferences", json!([lost_owner()])),
        metadata("finalizers", json!([FOREIGN_FINALIZER])),
        metadata("finalizers", json!([all[0], all[1], "orphan"])),
        metadata("finalizers", json!([all[0], all[1], "foregroundDeletion"])),
    ] {
        let told = refusal(edit(&bob, "kept", &patch).await);
        assert!(told.contains("bob may not delete deployments in namespace labs"), "{told}");
        assert!(told.ends_with("or leave those as they are"), "{told}");
        workspaces(&ada).patch("kept", &dry(), &Patch::Merge(&patch)).await.unwrap();
    }
    for status in [json!({"namespace": EXAMS}), json!({"lastTurn": 7})] {
        let patch = json!({"status": status});
        let params = PatchParams::default();
        let told = workspaces(&bob).patch_status("kept", &params, &Patch::Merge(&patch)).await;
        let told = refusal(told);
        assert!(told.contains("bob may not create deployments in"), "{patch}: {told}");
        assert!(told.ends_with("or leave the status to the controller"), "{patch}: {told}");
    }
    // The other way about, a status is no way to the metadata.
    let mut both = metadata("ownerReferences", json!([lost_owner()]));
    both["status"] = json!({"lastTurn": 7});
    let admin = workspaces(&cluster.admin());
    let params = PatchParams::default();
    let after = admin.patch_status("kept", &params, &Patch::Merge(&both)).await.unwrap();
    assert_eq!(after.owner_references(), []);
    // What is about nobody's parts is nobody's business.
    edit(&bob, "kept", &metadata("labels", json!({"team": "red"}))).await.unwrap();
    edit(&bob, "kept", &metadata("finalizers", json!([WORKSPACE_FINALIZER]))).await.unwrap();
    edit(&ada, "kept", &metadata("finalizers", json!([]))).await.unwrap();
    workspaces(&ada).delete("kept", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_takes_a_part_away_needs_the_right_to_delete_such_a_part() {
    let (cluster, ada, _) = users().await;
    let eve = as_user(cluster, EVE);
    let container = |name: &str| json!({"name": name, "image": "example.com/web:1"});
    let two = json!({"containers": [container("web"), container("api")]});
    create(&eve, workspace("shrinking", &two)).await.unwrap();
    for (what, spec) in [
        ("deployments", json!({"containers": [container("web")]})),
        ("deployments", json!({"containers": [container("web"), container("other")]})),
        ("networkpolicies", json!({"network": {"isolate": false}})),
    ] {
        let patch = json!({"spec": spec});
        let told = refusal(edit(&eve, "shrinking", &patch).await);
        assert!(told.contains(&format!("eve may not delete {what} in namespace labs")), "{told}");
        assert!(told.ends_with("ask for that right, or leave the Workspace as it is"), "{told}");
        workspaces(&ada).patch("shrinking", &dry(), &Patch::Merge(&patch)).await.unwrap();
    }
    let three = json!({"containers": [container("web"), container("api"), container("third")]});
    edit(&eve, "shrinking", &json!({"spec": three})).await.unwrap();
    refusal(workspaces(&eve).delete("shrinking", &DeleteParams::default()).await);
    workspaces(&ada).delete("shrinking", &DeleteParams::default()).await.unwrap();
}

/// Each ends a Workspace by a write that asks for the rights of a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn the_garbage_collector_does_its_work() {
    let (cluster, ada, _) = users().await;
    let delete = |propagation: PropagationPolicy| DeleteParams {
        propagation_policy: Some(propagation),
        ..DeleteParams::default()
    };
    for (name, propagation) in
        [("foreground", PropagationPolicy::Foreground), ("orphan", PropagationPolicy::Orphan)]
    {
        create(&ada, workspace(name, &json!({}))).await.unwrap();
        workspaces(&ada).delete(name, &delete(propagation)).await.unwrap();
        is_gone(cluster, name).await;
    }
    create(&ada, workspace("owner", &json!({}))).await.unwrap();
    let owner = workspaces(&ada).get("owner").await.unwrap();
    let living = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "name": "owner", "uid": owner.uid(),
    });
    let mut owned = workspace("owned", &json!({}));
    owned["metadata"]["ownerReferences"] = json!([living, lost_owner()]);
    create(&ada, owned).await.unwrap();
    until("the owner that is lost is struck off", async || {
        let owners = workspaces(&ada).get("owned").await.unwrap().owner_references().len();
        (owners == 1).then_some(())
    })
    .await;
    workspaces(&ada).delete("owner", &delete(PropagationPolicy::Background)).await.unwrap();
    is_gone(cluster, "owned").await;
}

async fn is_gone(cluster: &LocalCluster, name: &str) {
    let all = workspaces(&cluster.admin());
    until(&format!("{name} is gone"), async || {
        all.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// Where the namespace is gone, their rights in it are, and the Workspace has to be let go all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_controller_and_the_release_hook_let_go_what_they_have_no_rights_about() {
    let (cluster, _, bob) = users().await;
    let admin = workspaces(&cluster.admin());
    for (name, user) in [("of-controller", CONTROLLER), ("of-release", RELEASE)] {
        let mut gone = workspace(name, &in_namespace("gone"));
        gone["metadata"]["finalizers"] = json!([WORKSPACE_FINALIZER]);
        let gone = serde_json::from_value(gone).unwrap();
        admin.create(&PostParams::default(), &gone).await.unwrap();
        admin.delete(name, &DeleteParams::default()).await.unwrap();
        let free = metadata("finalizers", json!([]));
        refusal(edit(&bob, name, &free).await);
        edit(&as_user(cluster, user), name, &free).await.unwrap();
        is_gone(cluster, name).await;
    }
}

/// An API server gives up on rules that cost too much, and refuses then.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_workspace_can_be_made_edited_and_deleted() {
    let (cluster, ..) = users().await;
    let carol = almighty(cluster, "carol");
    create(&carol, workspace("largest", &largest("a"))).await.unwrap();
    edit(&carol, "largest", &json!({"spec": largest("b")})).await.unwrap();
    workspaces(&carol).delete("largest", &DeleteParams::default()).await.unwrap();
    is_gone(cluster, "largest").await;
}

/// As many entries as there may be, with the longest names.
fn largest(letter: &str) -> Value {
    let name = |kind: &str, index: usize| format!("{kind}{}{index:02}", letter.repeat(37));
    let containers =
        (0..64).map(|index| json!({"name": name("c", index), "image": "example.com/web:1"}));
    let machines = (0..64).map(|index| {
        let source = json!({"url": "https://example.com/a.qcow2", "sourceType": "http"});
        json!({"name": name("v", index), "spec": {"VMDiskImageName": "a", "image": source, "instance": {"memory": "1Gi"}}})
    });
    json!({
        "containers": containers.collect::<Vec<_>>(), "virtualMachines": machines.collect::<Vec<_>>(),
        "imageRetention": "Delete",
    })
}
