//! Nobody gets by a Workspace what they may not have in its namespace.

mod ends;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use local_cluster::LocalCluster;
use otctl_types::Workspace;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{EXAMS, LABS, api, as_user, installed, refusal, workspace};
use crate::stage::until;

/// May do with Workspaces as everybody may, and make and delete in one namespace what a container needs.
const ADA: &str = "ada";
/// May do with Workspaces as everybody may, and nothing else.
const BOB: &str = "bob";
/// As Ada, but for deleting.
const EVE: &str = "eve";
/// As Ada, but for network policies.
const DAN: &str = "dan";
/// Everybody who is called so may write Workspaces, with all that belongs to them.
const USERS: [&str; 6] = [ADA, BOB, EVE, DAN, CONTROLLER, RELEASE];
/// What acts for an installation.
const CONTROLLER: &str = "system:serviceaccount:sync-operator:workspace-controller";
const RELEASE: &str = "system:serviceaccount:sync-operator:workspace-controller-release";

/// A cluster on which all have their rights, and what two of them see of it.
async fn users() -> (&'static LocalCluster, Client, Client) {
    let cluster = installed().await;
    let admin = cluster.admin();
    let everything = rules(
        "pelotech.ot",
        &["workspaces", "workspaces/status"],
        &["get", "list", "create", "update", "patch", "delete", "deletecollection"],
    );
    let name = json!({"name": "workspace-writers"});
    apply(&Api::<ClusterRole>::all(admin.clone()), json!({"metadata": name, "rules": everything}))
        .await;
    apply(
        &Api::<ClusterRoleBinding>::all(admin.clone()),
        json!({"metadata": name, "roleRef": reference("ClusterRole", "workspace-writers"), "subjects": subjects(&USERS)}),
    )
    .await;
    let isolated: &[(&str, &str)] =
        &[("", "services"), ("apps", "deployments"), ("networking.k8s.io", "networkpolicies")];
    for (user, parts, verbs) in [
        (ADA, isolated, &["create", "delete"][..]),
        (EVE, isolated, &["create"]),
        (DAN, &isolated[..2], &["create", "delete"]),
    ] {
        let parts = parts.iter().flat_map(|(group, part)| rules(group, &[*part], verbs));
        may(&admin, user, parts.collect()).await;
    }
    let (ada, bob) = (as_user(cluster, ADA), as_user(cluster, BOB));
    let open = workspace("a-try", &json!({"network": {"isolate": false}}));
    until("the rights hold", async || {
        let bob_reads = workspaces(&bob).list(&ListParams::default()).await.ok();
        let dan_makes = create_dry(&as_user(cluster, DAN), open.clone()).await.ok();
        bob_reads.and(dan_makes)
    })
    .await;
    (cluster, ada, bob)
}

/// Gives a user rights in one namespace.
async fn may(admin: &Client, user: &str, rules: Vec<Value>) {
    let name = json!({"name": user, "namespace": LABS});
    apply(&Api::<Role>::namespaced(admin.clone(), LABS), json!({"metadata": name, "rules": rules}))
        .await;
    apply(
        &Api::<RoleBinding>::namespaced(admin.clone(), LABS),
        json!({"metadata": name, "roleRef": reference("Role", user), "subjects": subjects(&[user])}),
    )
    .await;
}

fn rules(group: &str, resources: &[&str], verbs: &[&str]) -> Vec<Value> {
    vec![json!({"apiGroups": [group], "resources": resources, "verbs": verbs})]
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn subjects(users: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    users.iter().map(subject).collect()
}

async fn apply<K>(api: &Api<K>, object: Value)
where
    K: Resource<DynamicType = ()>
        + k8s_openapi::Resource
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let mut object = object;
    object["apiVersion"] = json!(K::API_VERSION);
    object["kind"] = json!(<K as k8s_openapi::Resource>::KIND);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}

fn workspaces(client: &Client) -> Api<Workspace> {
    Api::all(client.clone())
}

async fn create_dry(client: &Client, workspace: Value) -> kube::Result<()> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(workspace).unwrap();
    api(client, &object).create(&params, &object).await.map(drop)
}

async fn create(client: &Client, workspace: Value) -> kube::Result<Workspace> {
    let workspace: Workspace = serde_json::from_value(workspace).unwrap();
    workspaces(client).create(&PostParams::default(), &workspace).await
}

async fn edit(client: &Client, name: &str, patch: &Value) -> kube::Result<Workspace> {
    workspaces(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn with(mut fields: Value, field: &str, value: Value) -> Value {
    fields[field] = value;
    fields
}

fn in_namespace(namespace: &str) -> Value {
    json!({"namespace": namespace})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_made_where_its_user_may_make_its_parts() {
    let (_, ada, bob) = users().await;
    for fields in [json!({}), in_namespace(LABS)] {
        let told = refusal(create_dry(&bob, workspace("of-bob", &fields)).await);
        let sentence = "bob may not create deployments in namespace labs, which this Workspace would do there: \
                        ask for that right, or name another namespace in a new Workspace";
        assert!(told.ends_with(sentence), "{told}");
        create_dry(&ada, workspace("of-ada", &fields)).await.unwrap();
    }
    let elsewhere = workspace("of-ada", &in_namespace(EXAMS));
    let told = refusal(create_dry(&ada, elsewhere).await);
    assert!(told.contains("ada may not create deployments in namespace exams"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_needs_the_right_to_make_such_a_part() {
    let (cluster, ada, bob) = users().await;
    let machine = |fields: Value| {
        let mut spec = json!({"VMDiskImageName": "debian"});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"virtualMachines": [{"name": "db", "spec": spec}]})
    };
    let source =
        json!({"image": {"url": "https://example.com/debian.qcow2", "sourceType": "http"}});
    for (fields, expected) in [
        (machine(json!({})), None),
        (machine(json!({"instance": {"memory": "1Gi"}})), Some("create virtualmachines in")),
        (machine(source.clone()), Some("create vmdiskimages in")),
        // Each image that it names and another Workspace has made goes with it, if it is the last.
        (
            with(machine(json!({})), "imageRetention", json!("Delete")),
            Some("at its end: ask for that right, or set imageRetention to Retain"),
        ),
        (json!({"imageRetention": "Delete"}), None),
    ] {
        let tried = create_dry(&ada, workspace("parts", &fields)).await;
        match expected {
            None => tried.unwrap(),
            Some(part) => {
                let told = refusal(tried);
                assert!(told.contains(part), "{fields}: {told}");
            }
        }
    }
    // Without a container nobody is asked for Deployments.
    let mut images = workspace("images", &machine(json!({})));
    images["spec"].as_object_mut().unwrap().remove("containers");
    create_dry(&ada, images.clone()).await.unwrap();
    images["spec"]["network"] = json!({"isolate": false});
    assert!(refusal(create_dry(&bob, images).await).contains("bob may not create services in"));
    // Isolation is a network policy, and so is each of its doors.
    let dan = as_user(cluster, DAN);
    let door = json!({"ingress": [{"from": {"cidr": "0.0.0.0/0"}}]});
    for network in [json!({}), door] {
        let told =
            refusal(create_dry(&dan, workspace("cut-off", &json!({"network": network}))).await);
        assert!(told.contains("dan may not create networkpolicies in"), "{network}: {told}");
    }
    let open = workspace("open", &json!({"network": {"isolate": false}}));
    create_dry(&dan, open).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_and_a_deletion_are_asked_for_their_rights_too() {
    let (_, ada, bob) = users().await;
    create(&ada, workspace("edited", &json!({}))).await.unwrap();
    let more = json!({"spec": {"containers": [{"name": "web", "image": "example.com/bobs:1"}]}});
    let told = refusal(edit(&bob, "edited", &more).await);
    assert!(told.contains("bob may not create deployments in namespace labs"), "{told}");
    edit(&bob, "edited", &json!({"metadata": {"annotations": {"note": "of bob"}}})).await.unwrap();
    edit(&ada, "edited", &more).await.unwrap();
    let machine = json!({"spec": {"virtualMachines": [{"name": "db", "spec": {"VMDiskImageName": "a", "instance": {"memory": "1Gi"}}}]}});
    assert!(
        refusal(edit(&ada, "edited", &machine).await)
            .contains("ada may not create virtualmachines")
    );

    let delete = DeleteParams::default();
    let told = refusal(workspaces(&bob).delete("edited", &delete).await);
    let sentence = "bob may not delete deployments in namespace labs, and what this Workspace has made there goes with it: \
                    ask for that right, or have it deleted by somebody who has it";
    assert!(told.ends_with(sentence), "{told}");
    refusal(workspaces(&bob).delete_collection(&delete, &ListParams::default()).await);
    workspaces(&ada).delete("edited", &delete).await.unwrap();
}

/// The controller writes the namespace that counts; a chart that is told of another default later changes nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_that_was_accepted_counts() {
    let (cluster, ada, _) = users().await;
    create(&ada, workspace("accepted", &json!({}))).await.unwrap();
    let status = json!({"status": {"namespace": EXAMS}});
    let admin = workspaces(&cluster.admin());
    admin.patch_status("accepted", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let suspended = json!({"spec": {"suspended": true}});
    let told = refusal(edit(&ada, "accepted", &suspended).await);
    assert!(told.contains("in namespace exams"), "{told}");
    let told = refusal(workspaces(&ada).delete("accepted", &DeleteParams::default()).await);
    assert!(told.contains("ada may not delete deployments in namespace exams"), "{told}");
}
