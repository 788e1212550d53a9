//! The stand-in for KubeVirt: what becomes of a VirtualMachine, as others see it.

use std::fs;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::Condition,
};
use local_cluster::{
    LocalCluster,
    audit::service_account_user,
    container::sums_in,
    kubevirt::{ACCOUNT, KubeVirt, NAMESPACE, VirtualMachine, VirtualMachineInstance},
    node::{PodName, Room},
    storage::{IMMEDIATE_CLASS, WAITING_CLASS, read_volume},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::{
    node::{create, furnished, gone, until},
    support::is_running,
};

/// A namespace with virtual machines.
struct Lab {
    cluster: &'static LocalCluster,
    namespace: String,
}

impl Lab {
    async fn new() -> Self {
        static KUBEVIRT: OnceCell<KubeVirt> = OnceCell::const_new();
        let cluster = furnished().await;
        KUBEVIRT.get_or_try_init(|| cluster.install_kubevirt()).await.unwrap();
        Self { cluster, namespace: cluster.namespace("lab").await.unwrap() }
    }

    fn machines(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    fn instances(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    async fn claim(&self, name: &str, class: &str, source: Value) {
        let spec = json!({
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "dataSource": source,
        });
        create(&self.claims(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// A machine named `db` that runs by this strategy; `spec` is laid over its instances'.
    async fn machine(&self, strategy: &str, spec: Value) {
        let mut template = json!({"domain": {"devices": {"interfaces": [
            {"name": "default", "masquerade": {}, "ports": [{"port": 5432}]},
        ]}}});
        template.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({"labels": {"team": "blue"}});
        let spec =
            json!({"runStrategy": strategy, "template": {"metadata": metadata, "spec": template}});
        create(&self.machines(), json!({"metadata": {"name": "db"}, "spec": spec})).await;
    }

    async fn await_status(&self, wanted: &str) -> VirtualMachine {
        until(&self.machines(), "db", shows(wanted)).await.unwrap()
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.machines().patch("db", &PatchParams::default(), &patch).await.unwrap();
    }

    /// The only launcher.
    async fn launcher(&self) -> Pod {
        let mut pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        assert_eq!(pods.len(), 1);
        pods.remove(0)
    }

    /// Crashes the guest.
    async fn crash(&self) {
        let name = PodName::from(&self.launcher().await);
        assert!(self.cluster.nodes().iter().any(|node| node.kill(&name).is_ok()));
    }
}

fn shows<'a>(wanted: &'a str) -> impl Condition<VirtualMachine> + 'a {
    move |machine: Option<&VirtualMachine>| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.is_some_and(|status| status.printable_status == wanted)
    }
}

/// Status, reason and message of a condition.
fn condition<'a>(machine: &'a VirtualMachine, type_: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = &machine.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, &found.reason, &found.message))
}

fn disk(claim: &str) -> Value {
    json!({"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]})
}

#[tokio::test]
async fn a_machine_runs_from_its_disk_until_it_is_halted() {
    let lab = Lab::new().await;
    lab.claim("image", IMMEDIATE_CLASS, Value::Null).await;
    let is_bound = |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
    };
    until(&lab.claims(), "image", is_bound).await;
    let volume = read_volume(&lab.cluster.admin(), &lab.namespace, "image").await.unwrap();
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| at.to_le_bytes()[1]).collect();
    fs::write(volume.join("disk.img"), &bytes).unwrap();
    let image = json!({"kind": "PersistentVolumeClaim", "name": "image"});
    lab.claim("root", WAITING_CLASS, image).await;
    lab.machine("Always", disk("root")).await;

    let machine = lab.await_status("Running").await;
    let is_ready = |machine: Option<&VirtualMachine>| {
        machine.is_some_and(|machine| condition(machine, "Ready").is_some_and(|it| it.0 == "True"))
    };
    let machine = until(&lab.machines(), &machine.name_any(), is_ready).await.unwrap();
    assert!(machine.status.as_ref().is_some_and(|status| status.ready && status.created));
    let instance = lab.instances().get("db").await.unwrap();
    let pod = lab.launcher().await;
    assert!(pod.name_any().starts_with("virt-launcher-db-"), "{}", pod.name_any());
    assert_eq!(pod.labels()["team"], "blue");
    assert_eq!(pod.owner_references()[0].uid, instance.uid().unwrap());
    assert_eq!(instance.owner_references()[0].uid, machine.uid().unwrap());

    let node = pod.spec.as_ref().unwrap().node_name.as_deref();
    let node = lab.cluster.nodes().iter().find(|it| Some(it.name()) == node).unwrap();
    let log = fs::read_to_string(node.kept_log(&pod)).unwrap();
    assert_eq!(sums_in(&log), [hex::encode(Sha256::digest(&bytes))]);
    let address = instance.status.unwrap().interfaces[0].ip_address.clone();
    let answer = reqwest::get(format!("http://{address}:5432/")).await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let process = i32::try_from(answer["process"].as_i64().unwrap()).unwrap();
    assert!(is_running(process));

    lab.patch(json!({"runStrategy": "Halted"})).await;
    let stopped = ("False", "VMINotExists", "VMI does not exist");
    let has_none = |machine: Option<&VirtualMachine>| {
        machine.is_some_and(|machine| condition(machine, "Ready") == Some(stopped))
    };
    let machine = until(&lab.machines(), "db", has_none).await.unwrap();
    assert_eq!(machine.status.unwrap().printable_status, "Stopped");
    assert!(lab.pods().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(!is_running(process));

    lab.patch(json!({"runStrategy": "Always"})).await;
    lab.await_status("Running").await;
    lab.machines().delete("db", &DeleteParams::default()).await.unwrap();
    until(&lab.machines(), "db", gone()).await;
    assert!(lab.instances().get_opt("db").await.unwrap().is_none());
    let user = service_account_user(NAMESPACE, ACCOUNT);
    let entries = lab.cluster.audit().entries().unwrap();
    // Another test has a quota refuse it.
    let is_here = |namespace: &str| namespace.is_empty() || namespace == lab.namespace;
    let refused = entries.iter().filter(|entry| entry.user == user && entry.is_forbidden());
    let refused: Vec<_> = refused.filter(|entry| is_here(&entry.namespace)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn a_machine_waits_for_its_claim_and_then_for_room() {
    let lab = Lab::new().await;
    let mut spec = disk("root");
    spec["domain"] = json!({"devices": {}, "memory": {"guest": "100Gi"}});
    lab.machine("Always", spec).await;
    let machine = lab.await_status("ErrorPvcNotFound").await;
    let told = format!("PVC {}/root does not exist, waiting for it to appear", lab.namespace);
    assert_eq!(condition(&machine, "Synchronized"), Some(("False", "FailedPvcNotFound", &*told)));

    lab.claim("root", IMMEDIATE_CLASS, Value::Null).await;
    let is_told = |machine: Option<&VirtualMachine>| {
        machine
            .and_then(|machine| condition(machine, "PodScheduled"))
            .is_some_and(|it| it.2.contains("2 Insufficient memory"))
    };
    let machine = until(&lab.machines(), "db", is_told).await.unwrap();
    assert_eq!(machine.status.as_ref().unwrap().printable_status, "ErrorUnschedulable");
    let volume = read_volume(&lab.cluster.admin(), &lab.namespace, "root").await.unwrap();
    fs::write(volume.join("disk.img"), b"disk").unwrap();
    let node = &lab.cluster.nodes()[1];
    node.resize(Room { memory: "200Gi".to_owned(), ..Room::default() }).await.unwrap();
    let machine = lab.await_status("Running").await;
    node.resize(Room::default()).await.unwrap();
    assert_eq!(condition(&machine, "PodScheduled"), None);
}

#[tokio::test]
async fn a_machine_that_crashes_is_started_again_as_its_strategy_says() {
    let lab = Lab::new().await;
    lab.machine("RerunOnFailure", json!({})).await;
    lab.await_status("Running").await;
    let first = lab.instances().get("db").await.unwrap().uid();
    lab.crash().await;
    let is_another = |instance: Option<&VirtualMachineInstance>| {
        instance.is_some_and(|instance| instance.uid() != first)
    };
    until(&lab.instances(), "db", is_another).await;
    lab.await_status("Running").await;

    lab.patch(json!({"runStrategy": "Once"})).await;
    lab.crash().await;
    lab.await_status("Stopped").await;
    let instance = lab.instances().get("db").await.unwrap();
    assert_eq!(instance.status.unwrap().phase, "Failed");
}

#[tokio::test]
async fn what_refuses_a_launcher_stands_in_the_conditions_of_its_machine() {
    let lab = Lab::new().await;
    let quotas: Api<ResourceQuota> = Api::namespaced(lab.cluster.admin(), &lab.namespace);
    create(&quotas, json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).await;
    let is_counted = |quota: Option<&ResourceQuota>| {
        quota.is_some_and(|quota| quota.status.as_ref().is_some_and(|it| it.used.is_some()))
    };
    until(&quotas, "none", is_counted).await;
    lab.machine("Always", json!({})).await;
    let is_told = |machine: Option<&VirtualMachine>| {
        machine
            .and_then(|machine| condition(machine, "Synchronized"))
            .is_some_and(|it| it.1 == "FailedCreate" && it.2.contains("exceeded quota: none"))
    };
    until(&lab.machines(), "db", is_told).await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    let machine = lab.await_status("Running").await;
    assert_eq!(condition(&machine, "Synchronized"), None);
}
