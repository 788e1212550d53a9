//! The life of a workspace under the account of the installation, with everything guarded that the charts guard: nothing
//! is refused, and no right is granted that nothing shows the use of.

use std::collections::BTreeSet;

use image_server::Content;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use local_cluster::Options;
use local_cluster::audit::{AuditEntry, Mark};
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use otctl_kit::rbac::Rule;
use otctl_types::names::{DEFAULT_NAMESPACE, OWNER_LABEL};
use otctl_types::workspace::Phase;
use serde_json::{Value, json};
use workspace_controller::rbac::RIGHTS;

use super::LABS;
use super::labs::Labs;
use crate::stage::{until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
/// Rights of which a life like this one shows no use, and what they are for.
const UNUSED: [(&str, &[Right]); 4] = [
    (
        "what is watched is listed where an API server streams no lists",
        &[
            ("", "configmaps", "list"),
            ("", "persistentvolumeclaims", "list"),
            ("", "services", "list"),
            ("apps", "deployments", "list"),
            ("kubevirt.io", "virtualmachines", "list"),
            ("networking.k8s.io", "networkpolicies", "list"),
            ("pelotech.ot", "admissionqueues", "list"),
            ("pelotech.ot", "vmdiskimages", "list"),
        ],
    ),
    (
        "whose an object is is looked up when the answer to its creation is lost",
        &[
            ("", "persistentvolumeclaims", "get"),
            ("", "services", "get"),
            ("apps", "deployments", "get"),
            ("kubevirt.io", "virtualmachines", "get"),
            ("networking.k8s.io", "networkpolicies", "get"),
            ("pelotech.ot", "vmdiskimages", "get"),
        ],
    ),
    (
        "a slot whose Workspace the watch does not show is freed after one more look",
        &[("pelotech.ot", "workspaces", "get")],
    ),
    (
        "admission asks for it when a child is made that blocks its owner's deletion, and no request is about it",
        &[("pelotech.ot", "workspaces/finalizers", "update")],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_lives_with_the_rights_of_its_controller_and_all_of_them_are_used() {
    let mut labs = Labs::set(&[("concurrency", "1")], Options::default()).await;
    let _kubevirt = labs.stage.cluster().install_kubevirt().await.unwrap();
    labs.start();
    live(&labs).await;
    labs.stop().await;
    expect_all_used(&labs.requests(Mark::default()));
    labs.finish_but(|_| false).await;
}

/// From nothing to a machine and a container that run, through every kind of edit, and to nothing.
async fn live(labs: &Labs) {
    labs.stage.server.add("debian", Content::generated(SIZE, 1));
    labs.stage.server.behave("debian", well_behaved()).unwrap();
    labs.create("lab", lab(&labs.stage.server.url("debian"))).await;
    let lab = Lab { labs };
    lab.is(Phase::Ready).await;
    lab.expect_put_right_by_hand().await;
    expect_a_bad_policy_is_told(labs).await;
    for spec in [
        json!({"containers": [{"name": "web", "image": "example.com/web:2", "ports": [{"containerPort": 8081}]}]}),
        json!({"network": {"ingress": [{"from": {"cidr": "10.1.0.0/16"}}]}}),
    ] {
        lab.edit(spec).await;
        lab.is(Phase::Ready).await;
    }
    lab.edit(json!({"suspended": true})).await;
    lab.is(Phase::Suspended).await;
    lab.edit(json!({"suspended": false})).await;
    lab.is(Phase::Ready).await;
    lab.edit(json!({"network": {"isolate": false}})).await;
    lab.is(Phase::Ready).await;
    lab.has_no::<NetworkPolicy>().await;
    lab.edit(json!({"network": {"isolate": true}})).await;
    lab.is(Phase::Ready).await;
    // With the only entry that names it, the image goes: nobody else has a share in it.
    lab.edit(json!({"virtualMachines": []})).await;
    lab.has_no::<PersistentVolumeClaim>().await;
    until("the image is gone", async || {
        labs.stage.images().get_opt("debian").await.unwrap().is_none().then_some(())
    })
    .await;
    labs.delete("lab").await;
    labs.is_gone("lab").await;
    lab.has_no::<Deployment>().await;
}

/// Beside it, where the other controller may have told the same before.
async fn expect_a_bad_policy_is_told(labs: &Labs) {
    labs.stage.policy(&[("concurrency", "1"), ("workspaceConcurrency", "x")]).await;
    until("the controller tells what is wrong with the policy", async || {
        let mut requests = labs.requests(Mark::default()).into_iter();
        requests.find(|it| it.resource == "events" && it.namespace == DEFAULT_NAMESPACE)
    })
    .await;
    labs.stage.policy(&[("concurrency", "1")]).await;
}

fn lab(url: &str) -> Value {
    json!({
        "virtualMachines": [{"name": "db", "spec": {
            "VMDiskImageName": "debian",
            "image": {
                "url": url, "sourceType": "http", "diskSize": "1Mi",
                "storageClass": IMMEDIATE_CLASS, "snapshotClass": SNAPSHOT_CLASS,
            },
            "instance": {"memory": "64Mi", "ports": [{"port": 5432}]},
        }}],
        "containers": [{"name": "web", "image": "example.com/web:1", "ports": [{"containerPort": 8080}]}],
        "imageRetention": "Delete",
    })
}

struct Lab<'a> {
    labs: &'a Labs,
}

impl Lab<'_> {
    async fn edit(&self, spec: Value) {
        self.labs.edit("lab", spec).await;
    }

    /// Waits until the workspace is so as it is asked for now.
    async fn is(&self, phase: Phase) {
        self.labs.is("lab", phase).await;
    }

    /// What was made for it, of a kind.
    async fn made<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.labs.stage.client.clone(), LABS);
        let ours = ListParams::default().labels(OWNER_LABEL);
        let mut made = api.list(&ours).await.unwrap().items;
        made.retain(|it| it.meta().name.as_deref().unwrap_or_default().starts_with("lab--"));
        made
    }

    async fn has_no<K>(&self)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let what = format!("there is no {} of it", K::kind(&()));
        until(&what, async || self.made::<K>().await.is_empty().then_some(())).await;
    }

    /// Labels of a claim and of a machine are what else there is of ours that anybody may edit.
    async fn expect_put_right_by_hand(&self) {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.labs.stage.client.clone(), LABS);
        let claim = self.made::<PersistentVolumeClaim>().await.remove(0).metadata.name.unwrap();
        let patch = json!({"metadata": {"labels": {"pelotech.ot/entry": "another"}}});
        claims.patch(&claim, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        until("the claim is put right", async || {
            let labels = claims.get(&claim).await.unwrap().metadata.labels.unwrap_or_default();
            (labels["pelotech.ot/entry"] == "db").then_some(())
        })
        .await;
    }
}

/// A right as the audit log names it: group, resource with its subresource, verb.
type Right = (&'static str, &'static str, &'static str);

fn rights(rules: &'static [Rule]) -> impl Iterator<Item = Right> {
    rules.iter().flat_map(|rule| {
        let resources = rule.resources.iter();
        resources.flat_map(|resource| rule.verbs.iter().map(|verb| (rule.group, *resource, *verb)))
    })
}

fn granted() -> Vec<Right> {
    let lists = [RIGHTS.cluster, RIGHTS.served, RIGHTS.events, RIGHTS.installation];
    let policy = RIGHTS.policy.iter().map(|verb| ("", "configmaps", *verb));
    lists.into_iter().flat_map(rights).chain(policy).collect()
}

/// Whether a request needed a right. An apply that makes the object needs the right to create it as well.
fn needs(entry: &AuditEntry, (group, resource, verb): Right) -> bool {
    let makes = entry.verb == "patch" && entry.code == 201;
    entry.group == group
        && entry.target() == resource
        && (entry.verb == verb || (makes && verb == "create"))
}

fn expect_all_used(requests: &[AuditEntry]) {
    let granted: BTreeSet<Right> = granted().into_iter().collect();
    let excused: BTreeSet<Right> = UNUSED.iter().flat_map(|(_, rights)| *rights).copied().collect();
    let (used, unused): (BTreeSet<Right>, BTreeSet<Right>) =
        granted.iter().partition(|right| requests.iter().any(|it| needs(it, **right)));
    println!("{} rights are used, {} are not", used.len(), unused.len());
    let unexpected: Vec<_> = unused.difference(&excused).collect();
    assert!(unexpected.is_empty(), "granted and not used: {unexpected:#?}");
    // Chance may bring one of them about all the same.
    let stale: Vec<_> = excused.difference(&granted).collect();
    assert!(stale.is_empty(), "excused and not granted: {stale:#?}");
}
