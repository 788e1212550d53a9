//! What Deployments make runs as real processes, and fails as it does under a kubelet.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, ContainerStatus, Event, Pod, PodCondition, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::Condition,
};
use local_cluster::{LocalCluster, node::Room};
use serde_json::{Value, json};

use crate::{
    node::{CRASHING, SERVER, SHELL, create, furnished, gone, until},
    support::{SOON, is_running},
};

/// A namespace with one Deployment in it.
struct Site {
    cluster: &'static LocalCluster,
    namespace: String,
}

impl Site {
    /// A Deployment of one pod with this container; `pod` is laid over the pod's spec.
    async fn with(container: Value, pod: Value) -> Self {
        let cluster = furnished().await;
        let namespace = cluster.namespace("deployment").await.unwrap();
        let site = Self { cluster, namespace };
        let mut main = json!({"name": "main", "ports": [{"name": "http", "containerPort": 8080}]});
        lay_over(&mut main, &container);
        let mut spec = json!({"automountServiceAccountToken": false, "containers": [main]});
        lay_over(&mut spec, &pod);
        let labels = json!({"app": "web"});
        let deployment = json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }});
        create(&site.deployments(), deployment).await;
        site
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    /// The first pod that is as wanted.
    async fn pod(&self, what: &str, is_wanted: impl Fn(&Pod) -> bool) -> Pod {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
            if let Some(pod) = pods.iter().find(|pod| is_wanted(pod)) {
                return pod.clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "no pod {what}: {pods:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Strategic(json!({"spec": spec}));
        self.deployments().patch("web", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn available(&self) -> Deployment {
        until(&self.deployments(), "web", available(true)).await.unwrap()
    }

    /// Waits for an Event of this reason that says so.
    async fn told(&self, reason: &str, part: &str) {
        let events: Api<Event> = Api::namespaced(self.cluster.admin(), &self.namespace);
        let says = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(part))
        };
        let deadline = tokio::time::Instant::now() + SOON;
        while !events.list(&ListParams::default()).await.unwrap().iter().any(says) {
            assert!(tokio::time::Instant::now() < deadline, "no event {reason}: {part}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn lay_over(target: &mut Value, patch: &Value) {
    let patch = patch.as_object().unwrap().clone();
    target.as_object_mut().unwrap().extend(patch);
}

/// True of a Deployment whose newest template is observed, and which is available or not.
fn available(wanted: bool) -> impl Condition<Deployment> {
    move |deployment: Option<&Deployment>| {
        let Some(deployment) = deployment else { return false };
        let status = deployment.status.as_ref();
        let is_observed =
            status.and_then(|status| status.observed_generation) == deployment.metadata.generation;
        let mut conditions =
            status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let wanted = if wanted { "True" } else { "False" };
        is_observed && conditions.any(|it| it.type_ == "Available" && it.status == wanted)
    }
}

fn containers(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    status.unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Reason and message of what the first container waits for.
fn waiting(pod: &Pod) -> Option<(&str, &str)> {
    let waiting = containers(pod).first()?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default()))
}

fn waits_for(reason: &str) -> impl Fn(&Pod) -> bool {
    move |pod| waiting(pod).is_some_and(|(waiting, _)| waiting == reason)
}

/// What the pod's server answers.
async fn ask(pod: &Pod, method: reqwest::Method, path: &str) -> (u16, Value) {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap();
    let url = format!("http://{ip}:8080{path}");
    let answer = reqwest::Client::new().request(method, url).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn get(pod: &Pod) -> (u16, Value) {
    ask(pod, reqwest::Method::GET, "/any/path").await
}

fn readiness() -> Value {
    json!({"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1})
}

#[tokio::test]
async fn a_deployment_is_available_once_its_pod_passes_its_readiness_probe() {
    let aliases = json!([{"ip": "10.96.0.9", "hostnames": ["database"]}]);
    let container = json!({
        "image": SERVER,
        "args": ["--ready-after=1h", "--address=$(OWN)"],
        "env": [{"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "readinessProbe": readiness(),
    });
    let site = Site::with(container, json!({"hostAliases": aliases})).await;
    site.told("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503").await;
    let pod = site
        .pod("is running", |pod| containers(pod).iter().any(|it| it.started == Some(true)))
        .await;
    let unready = condition(&pod, "Ready").unwrap();
    assert_eq!(
        (&*unready.status, unready.reason.as_deref()),
        ("False", Some("ContainersNotReady"))
    );
    assert_eq!(unready.message.as_deref(), Some("containers with unready status: [main]"));
    until(&site.deployments(), "web", available(false)).await;

    let (status, answer) = ask(&pod, reqwest::Method::PUT, "/ready").await;
    assert_eq!((status, answer["pod"].as_str()), (200, Some(&*pod.name_any())));
    assert!(answer["hosts"].as_str().unwrap().contains("10.96.0.9\tdatabase"), "{answer}");
    let ready = site.available().await.status.unwrap();
    assert_eq!((ready.ready_replicas, ready.available_replicas), (Some(1), Some(1)));

    // Later it is not ready any more, and says so.
    ask(&pod, reqwest::Method::DELETE, "/ready").await;
    until(&site.deployments(), "web", available(false)).await;
}

#[tokio::test]
async fn an_image_that_is_not_there_is_told_until_the_deployment_names_a_good_one() {
    let wrong = "registry.example/api-server:none";
    let site = Site::with(json!({"image": wrong}), json!({})).await;
    let pod = site.pod("backs off", waits_for("ImagePullBackOff")).await;
    let (_, message) = waiting(&pod).unwrap();
    let start = format!("Back-off pulling image \"{wrong}\": ErrImagePull: ");
    let cause = message.strip_prefix(&start).unwrap();
    assert!(
        cause.ends_with(&format!("failed to resolve reference \"{wrong}\": {wrong}: not found"))
    );
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    site.told("Failed", &format!("Failed to pull image \"{wrong}\": rpc error: code = NotFound"))
        .await;
    // It is tried again, and that is told in other words.
    site.pod("pulls again", waits_for("ErrImagePull")).await;

    site.patch(json!({"template": {"spec": {"containers": [{"name": "main", "image": SERVER}]}}}))
        .await;
    site.available().await;
    until(&site.pods(), &pod.name_any(), gone()).await;
    assert_eq!(get(&site.pod("is ready", is_ready).await).await.0, 200);
}

#[tokio::test]
async fn a_crash_loop_shows_its_exit_code_and_waits_longer_each_time() {
    let site = Site::with(json!({"image": CRASHING}), json!({})).await;
    let again =
        |pod: &Pod| waits_for("CrashLoopBackOff")(pod) && containers(pod)[0].restart_count >= 2;
    let pod = site.pod("crashes again and again", again).await;
    let container = &containers(&pod)[0];
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    // 200 ms before the second restart, as long as the first, then twice as long.
    let backoff = 200 << (container.restart_count - 1);
    let identity = format!("{}_{}({})", pod.name_any(), site.namespace, pod.uid().unwrap());
    let wanted = format!("back-off {backoff}ms restarting failed container=main pod={identity}");
    assert_eq!(waiting(&pod), Some(("CrashLoopBackOff", &*wanted)));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert!(!is_ready(&pod));
    site.told("BackOff", "Back-off restarting failed container main in pod").await;
}

#[tokio::test]
async fn a_pod_that_asks_for_too_much_is_told_by_the_scheduler_and_runs_when_there_is_room() {
    let requests = json!({"requests": {"cpu": "40"}});
    let site = Site::with(json!({"image": SERVER, "resources": requests}), json!({})).await;
    let is_told = |pod: &Pod| condition(pod, "PodScheduled").is_some_and(|it| it.status == "False");
    let pod = site.pod("is unschedulable", is_told).await;
    let unscheduled = condition(&pod, "PodScheduled").unwrap();
    assert_eq!(unscheduled.reason.as_deref(), Some("Unschedulable"));
    let message = unscheduled.message.as_deref().unwrap();
    assert!(message.contains("2 Insufficient cpu"), "{message}");

    let node = &site.cluster.nodes()[0];
    node.resize(Room { cpu: "64".to_owned(), ..Room::default() }).await.unwrap();
    site.available().await;
    node.resize(Room::default()).await.unwrap();
    let pod = site.pod("is ready", is_ready).await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some(node.name()));
}

#[tokio::test]
async fn a_deployment_that_is_scaled_to_nothing_ends_its_processes() {
    let site = Site::with(json!({"image": SERVER, "readinessProbe": readiness()}), json!({})).await;
    site.available().await;
    let pod = site.pod("is ready", is_ready).await;
    let process = i32::try_from(get(&pod).await.1["process"].as_i64().unwrap()).unwrap();
    assert!(is_running(process));
    site.patch(json!({"replicas": 0})).await;
    until(&site.pods(), &pod.name_any(), gone()).await;
    assert!(!is_running(process));
}

#[tokio::test]
async fn a_container_that_fails_its_liveness_probe_is_started_again() {
    // A busy machine is no reason to fail.
    let alive = json!({"httpGet": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60});
    let started =
        json!({"tcpSocket": {"port": "http"}, "periodSeconds": 1, "failureThreshold": 120});
    let container = json!({"image": SERVER, "livenessProbe": alive, "startupProbe": started});
    let site = Site::with(container, json!({})).await;
    site.available().await;
    let pod = site.pod("is ready", is_ready).await;
    let (_, before) = get(&pod).await;
    ask(&pod, reqwest::Method::DELETE, "/ready").await;
    let again = |pod: &Pod| is_ready(pod) && containers(pod)[0].restart_count >= 1;
    let pod = site.pod("was started again", again).await;
    let (_, after) = get(&pod).await;
    assert_ne!(after["process"], before["process"]);
    site.told("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503").await;
    site.told("Killing", "Container main failed liveness probe, will be restarted").await;
}

#[tokio::test]
async fn variables_come_from_everywhere_and_what_is_missing_is_told() {
    let script = r#"printf '%s|%s|%s|%s' "$$ONE" "$$SET_two" "$$KEY" "$$(cat "$$FILES/one")" >"$$OUT"; exec sleep 600"#;
    let container = json!({
        "image": SHELL,
        "args": ["-c", script],
        "env": [
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "one"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
            {"name": "FILES", "value": "/files"},
            {"name": "OUT", "value": "/out/values"},
        ],
        "envFrom": [{"prefix": "SET_", "configMapRef": {"name": "settings"}}],
        "volumeMounts": [{"name": "files", "mountPath": "/files"}, {"name": "out", "mountPath": "/out"}],
        "readinessProbe": {"exec": {"command": ["cat", "/out/values"]}, "periodSeconds": 1},
    });
    let volumes = json!([
        {"name": "files", "configMap": {"name": "later"}},
        {"name": "out", "emptyDir": {}},
    ]);
    let site = Site::with(container, json!({"volumes": volumes})).await;
    let maps: Api<ConfigMap> = Api::namespaced(site.cluster.admin(), &site.namespace);
    site.told("FailedMount", "configmap \"later\" not found").await;
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"one": "1", "two": "2"}});
    create(&maps, map("later")).await;
    let pod = site.pod("lacks a ConfigMap", waits_for("CreateContainerConfigError")).await;
    assert_eq!(waiting(&pod).unwrap().1, "configmap \"settings\" not found");
    create(&maps, map("settings")).await;
    let lacks =
        |pod: &Pod| waiting(pod).is_some_and(|(_, message)| message == "secret \"keys\" not found");
    site.pod("lacks a Secret", lacks).await;
    let secrets: Api<Secret> = Api::namespaced(site.cluster.admin(), &site.namespace);
    create(&secrets, json!({"metadata": {"name": "keys"}, "stringData": {"other": "k"}})).await;
    let wanted = format!("couldn't find key key in Secret {}/keys", site.namespace);
    let lacks = |pod: &Pod| waiting(pod).is_some_and(|(_, message)| message == wanted);
    site.pod("lacks a key", lacks).await;
    let patch = Patch::Merge(json!({"stringData": {"key": "k"}}));
    secrets.patch("keys", &PatchParams::default(), &patch).await.unwrap();

    site.available().await;
    let pod = site.pod("is ready", is_ready).await;
    let node = site
        .cluster
        .nodes()
        .iter()
        .find(|node| Some(node.name()) == pod.spec.as_ref().unwrap().node_name.as_deref());
    let log = node.unwrap().log(&pod.uid().unwrap());
    let values = std::fs::read_to_string(log.with_file_name("volumes/out/values")).unwrap();
    assert_eq!(values, "1|2|k|1");
}

#[tokio::test]
async fn a_pod_is_ready_only_when_each_of_its_containers_is() {
    let site = Site::with(json!({"image": SERVER}), json!({})).await;
    let second = json!({"name": "second", "image": SERVER, "args": ["--ready-after=1h"], "ports": [{"containerPort": 8081}],
        "readinessProbe": {"httpGet": {"port": 8081}, "periodSeconds": 1}});
    site.patch(json!({"template": {"spec": {"containers": [{"name": "main"}, second]}}})).await;
    let is_half_ready = |pod: &Pod| {
        let ready: Vec<_> = containers(pod).iter().map(|it| it.ready).collect();
        ready == [true, false] || ready == [false, true]
    };
    let pod = site.pod("has one ready container of two", is_half_ready).await;
    let unready = condition(&pod, "ContainersReady").unwrap();
    assert_eq!(unready.message.as_deref(), Some("containers with unready status: [second]"));
    assert_eq!(get(&pod).await.0, 200, "the first one runs");
    let ip = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    reqwest::Client::new().put(format!("http://{ip}:8081/ready")).send().await.unwrap();
    site.pod("is ready", |pod| containers(pod).len() == 2 && is_ready(pod)).await;
}
