//! A node to break, and what tests of pods read and wait for.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Node, Pod, PodStatus};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::{Condition, await_condition},
};
use local_cluster::{
    LocalCluster, NodeTimes, Options,
    guard::Guard,
    kubevirt::LAUNCHER_IMAGE,
    node::{Image, Images, NodeOptions, PodName, ProcessNode},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::SOON;

/// An image that answers requests.
pub(crate) const SERVER: &str = "registry.example/api-server:1";
/// An image whose program ends at once, with code 3.
pub(crate) const CRASHING: &str = "registry.example/crashing:1";
/// An image whose program is a shell.
pub(crate) const SHELL: &str = "registry.example/shell:1";

/// The cluster that tests of nodes, workloads and storage share: two nodes that a scheduler may use, and storage.
pub(crate) async fn furnished() -> &'static LocalCluster {
    static FURNISHED: OnceCell<LocalCluster> = OnceCell::const_new();
    let server = || Image::new([env!("CARGO_BIN_EXE_local-cluster"), "container"]);
    let images = Images::none()
        .with(SERVER, server())
        .with(CRASHING, server().with_arguments(["--exit-code=3"]))
        .with(LAUNCHER_IMAGE, server())
        .with(SHELL, Image::new(["/bin/sh"]));
    let options = || Options {
        importer: vec!["/bin/sh".to_owned()],
        images,
        node_times: NodeTimes::short(),
        backoff: Duration::from_millis(200),
        ..Options::default()
    };
    FURNISHED.get_or_try_init(|| LocalCluster::start(options())).await.unwrap()
}

/// Waits until `condition` holds for an object.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let holds = await_condition(api.clone(), name, condition);
    match tokio::time::timeout(SOON, holds).await {
        Ok(object) => object.unwrap(),
        Err(_) => panic!("not within {SOON:?}: {name}: {:?}", api.get_opt(name).await),
    }
}

pub(crate) fn phase<'a>(phase: &'a str) -> impl Condition<Pod> + 'a {
    move |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
    }
}

pub(crate) fn gone<K>() -> impl Condition<K> {
    |object: Option<&K>| object.is_none()
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

pub(crate) fn status(pod: &Pod) -> &PodStatus {
    pod.status.as_ref().unwrap()
}

pub(crate) fn termination(pod: &Pod) -> &ContainerStateTerminated {
    let containers = status(pod).container_statuses.as_ref().unwrap();
    containers[0].state.as_ref().unwrap().terminated.as_ref().unwrap()
}

pub(crate) fn waiting_reason(pod: Option<&Pod>) -> Option<&str> {
    let state = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?;
    state.waiting.as_ref()?.reason.as_deref()
}

/// A node that no scheduler uses, for pods that name it; so a test can break it.
pub(crate) struct Workbench {
    cluster: &'static LocalCluster,
    pub(crate) namespace: String,
    pub(crate) node: ProcessNode,
    pub(crate) state: tempfile::TempDir,
}

impl Workbench {
    pub(crate) async fn new() -> Self {
        let cluster = furnished().await;
        let namespace = cluster.namespace("node").await.unwrap();
        let nodes: Api<Node> = Api::all(cluster.admin());
        // In a zone of its own: Kubernetes evicts less, or nothing, where many nodes of a zone are lost.
        let labels = json!({"topology.kubernetes.io/zone": namespace});
        let metadata = json!({"name": namespace, "labels": labels});
        create(&nodes, json!({"metadata": metadata, "spec": {"unschedulable": true}})).await;
        let state = tempfile::tempdir().unwrap();
        let guard = Arc::new(Guard::start(Duration::from_secs(1), None).unwrap());
        let mut options = NodeOptions::new(cluster.admin(), guard, &namespace, state.path());
        options.storage_root = cluster.storage().unwrap().root().to_owned();
        options.program = vec!["/bin/sh".to_owned()];
        options.heartbeat = NodeTimes::short().heartbeat;
        options.backoff = Duration::from_millis(1);
        let node = ProcessNode::start(options).await.unwrap();
        Self { cluster, namespace, node, state }
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.admin()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub(crate) fn name(&self, pod: &str) -> PodName {
        PodName::new(&self.namespace, pod)
    }

    /// A pod of this node that runs `script`, with the parts of `spec` on top. As anywhere in Kubernetes, `$$` in a
    /// script stands for one `$`. A finalizer keeps the pod, so that its last status can be read.
    pub(crate) async fn run(&self, name: &str, script: &str, spec: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "finalizers": ["test.local/keep"]},
            "spec": {
                "nodeName": self.namespace,
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "volumes": [{"name": "shared", "emptyDir": {}}],
                "containers": [{
                    "name": "main",
                    "image": "none",
                    "command": ["/usr/bin/disk-importer", "-c", script],
                    "env": [{"name": "SHARED", "value": "/shared"}, {"name": "LOG", "value": "/dev/termination-log"}],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                }],
            },
        });
        lay_over(&mut pod["spec"], spec);
        create(&self.pods(), pod).await
    }

    /// A file of the pod's emptyDir, once it has a line.
    pub(crate) async fn line_in(&self, pod: &Pod, file: &str) -> String {
        let path = self.pod_dir(pod).join("volumes/shared").join(file);
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
                _ => {
                    assert!(tokio::time::Instant::now() < deadline, "no line in {}", path.display())
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.node.log(&pod.uid().unwrap()).parent().map(Path::to_owned).unwrap()
    }

    pub(crate) async fn delete(&self, pod: &str, grace: u32) {
        let params = DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
        self.pods().delete(pod, &params).await.unwrap();
    }

    /// Lets a pod go that the test's finalizer has kept.
    pub(crate) async fn let_go(&self, pod: &str) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.pods().patch(pod, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Lays `patch` over `target`: objects are merged, anything else is replaced.
fn lay_over(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                lay_over(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}
