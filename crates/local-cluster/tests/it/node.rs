//! Process nodes: what a pod's process gets, how it ends, and how a node fails. The importer is `/bin/sh` here.

mod bench;

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Event, Node, Pod, PodCondition, Secret, Taint},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    runtime::wait::Condition,
};
use local_cluster::node::LostProcesses;
use serde_json::{Value, json};

pub(crate) use self::bench::{CRASHING, SERVER, SHELL, create, furnished, gone, phase, until};
use self::bench::{Workbench, status, termination, waiting_reason};
use crate::support::{SOON, is_running, wait_until};

fn job(script: &str) -> Value {
    json!({
        "metadata": {"name": "import"},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "keys", "secret": {"secretName": "keys"}},
                {"name": "none", "secret": {"secretName": "absent", "optional": true}},
            ],
            "containers": [{
                "name": "main",
                "image": "none",
                "command": ["/disk-importer"],
                "args": ["-c", script, "sh", "--output=/scratch/out", "--address=$(POD_IP):80"],
                "terminationMessagePath": "/result",
                "env": [
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}}},
                    {"name": "KEYS", "value": "/keys"},
                    {"name": "ABSENT", "value": "/none"},
                    {"name": "RESULT", "value": "/result"},
                ],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/scratch"},
                    {"name": "keys", "mountPath": "/keys"},
                    {"name": "none", "mountPath": "/none"},
                ],
            }],
        }}},
    })
}

async fn the_pod_of(client: Client, namespace: &str, job: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let mut found =
        pods.list(&ListParams::default().labels(&format!("job-name={job}"))).await.unwrap().items;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn job_condition(kind: &'static str) -> impl Condition<Job> {
    move |job: Option<&Job>| {
        let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True")
    }
}

/// A Job in a namespace of its own, with a Secret it needs.
async fn run_job(script: &str, end: &'static str) -> Pod {
    let cluster = furnished().await;
    let namespace = cluster.namespace("job").await.unwrap();
    let keys = json!({"metadata": {"name": "keys"}, "stringData": {"accessKeyId": "AKIA"}});
    create::<Secret>(&Api::namespaced(cluster.admin(), &namespace), keys).await;
    let jobs: Api<Job> = Api::namespaced(cluster.admin(), &namespace);
    create(&jobs, job(script)).await;
    until(&jobs, "import", job_condition(end)).await;
    the_pod_of(cluster.admin(), &namespace, "import").await
}

#[tokio::test]
async fn a_job_gets_its_arguments_variables_and_volumes_and_says_its_result() {
    let script = r#"
        printf '%s' "${1#--output=}" >"${1#--output=}" || exit 9
        printf '%s|%s|%s|%s|%s|%s' "$2" "$POD_IP" "$POD_UID" "$KEY" "$(cat "$KEYS/accessKeyId")" \
            "$(ls "$ABSENT")" >"$RESULT"
    "#;
    let pod = run_job(script, "Complete").await;

    let (status, end) = (status(&pod), termination(&pod));
    let ip = status.pod_ip.as_deref().unwrap();
    let wanted = format!("--address={ip}:80|{ip}|{}|AKIA|AKIA|", pod.uid().unwrap());
    assert_eq!(end.message.as_deref(), Some(wanted.as_str()));
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert!(ip.starts_with("127."), "{ip}");
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert_eq!(status.host_ip.as_deref(), Some("127.0.0.1"));
    let Time(started) = end.started_at.clone().unwrap();
    let Time(finished) = end.finished_at.clone().unwrap();
    assert!(started <= finished);
}

#[tokio::test]
async fn a_failing_process_shows_its_exit_code_and_its_message() {
    let pod = run_job(r#"printf '{"outcome":"Failed"}' >"$RESULT"; exit 3"#, "Failed").await;
    let end = termination(&pod);
    assert_eq!((end.exit_code, end.reason.as_deref()), (3, Some("Error")));
    assert_eq!(end.message.as_deref(), Some(r#"{"outcome":"Failed"}"#));
    assert_eq!(status(&pod).phase.as_deref(), Some("Failed"));
}

#[tokio::test]
async fn a_pod_whose_secret_is_missing_waits_says_so_and_starts_when_it_appears() {
    let bench = Workbench::new().await;
    let volumes = json!([{"name": "shared", "secret": {"secretName": "late"}}]);
    bench.run("p", "cat $SHARED/key >$LOG", json!({"volumes": volumes})).await;
    let events: Api<Event> = Api::namespaced(bench.client(), &bench.namespace);
    let told = |event: &Event| {
        event.reason.as_deref() == Some("FailedMount")
            && event.message.as_deref() == Some("secret \"late\" not found")
    };
    let deadline = tokio::time::Instant::now() + SOON;
    while !events.list(&ListParams::default()).await.unwrap().iter().any(told) {
        assert!(tokio::time::Instant::now() < deadline, "no FailedMount event");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let pod = bench.pods().get("p").await.unwrap();
    assert_eq!(waiting_reason(Some(&pod)), Some("ContainerCreating"));
    assert_eq!(status(&pod).phase.as_deref(), Some("Pending"));

    let secret = json!({"metadata": {"name": "late"}, "stringData": {"key": "now"}});
    create::<Secret>(&Api::namespaced(bench.client(), &bench.namespace), secret).await;
    let pod = until(&bench.pods(), "p", phase("Succeeded")).await.unwrap();
    assert_eq!(termination(&pod).message.as_deref(), Some("now"));
}

#[tokio::test]
async fn a_variable_from_a_missing_secret_is_a_config_error() {
    let bench = Workbench::new().await;
    let env = json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]);
    let containers = json!([{"name": "main", "image": "none", "command": ["disk-importer", "-c", "true"], "env": env}]);
    bench.run("p", "true", json!({"containers": containers})).await;
    let is_told = |pod: Option<&Pod>| waiting_reason(pod) == Some("CreateContainerConfigError");
    until(&bench.pods(), "p", is_told).await;
}

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_and_reports_before_it_goes() {
    let bench = Workbench::new().await;
    let script = r#"trap 'printf saved >"$LOG"; exit 7' TERM; echo up >$SHARED/up; while :; do sleep 0.1; done"#;
    let pod = bench.run("p", script, json!({})).await;
    assert_eq!(bench.line_in(&pod, "up").await, "up");
    bench.delete("p", 60).await;
    let pod = until(&bench.pods(), "p", phase("Failed")).await.unwrap();
    assert_eq!(termination(&pod).exit_code, 7);
    assert_eq!(termination(&pod).message.as_deref(), Some("saved"));
    bench.let_go("p").await;
    until(&bench.pods(), "p", gone()).await;
}

#[tokio::test]
async fn a_process_that_does_not_listen_is_killed_with_its_children_after_the_grace() {
    let bench = Workbench::new().await;
    let script = r#"trap '' TERM; sleep 600 & echo $! >$SHARED/child; while :; do sleep 600; done"#;
    let pod = bench.run("p", script, json!({})).await;
    let child: i32 = bench.line_in(&pod, "child").await.parse().unwrap();
    assert!(is_running(child));
    bench.delete("p", 1).await;
    let pod = until(&bench.pods(), "p", phase("Failed")).await.unwrap();
    assert_eq!(termination(&pod).exit_code, 137);
    assert!(!is_running(child));
    bench.let_go("p").await;
    until(&bench.pods(), "p", gone()).await;
}

#[tokio::test]
async fn a_pod_that_failed_once_is_started_again_if_its_policy_says_so() {
    let bench = Workbench::new().await;
    let script = r#"[ -e $SHARED/tried ] && exit 0; : >$SHARED/tried; exit 5"#;
    bench.run("p", script, json!({"restartPolicy": "OnFailure"})).await;
    let pod = until(&bench.pods(), "p", phase("Succeeded")).await.unwrap();
    let container = &status(&pod).container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 1);
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(last.exit_code, 5);
}

#[tokio::test]
async fn an_evicted_pod_is_failed_with_that_reason_and_its_process_is_gone() {
    let bench = Workbench::new().await;
    let pod = bench.run("p", "echo $$$$ >$SHARED/pid; exec sleep 600", json!({})).await;
    let pid: i32 = bench.line_in(&pod, "pid").await.parse().unwrap();
    bench.node.evict(&bench.name("p")).unwrap();
    let pod = until(&bench.pods(), "p", phase("Failed")).await.unwrap();
    assert_eq!(status(&pod).reason.as_deref(), Some("Evicted"));
    let disrupted = |c: &PodCondition| {
        c.type_ == "DisruptionTarget" && c.reason.as_deref() == Some("TerminationByKubelet")
    };
    assert!(status(&pod).conditions.as_ref().unwrap().iter().any(disrupted));
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_killed_process_leaves_an_exit_code_and_no_message() {
    let bench = Workbench::new().await;
    let pod = bench.run("p", "echo $$$$ >$SHARED/pid; exec sleep 600", json!({})).await;
    bench.line_in(&pod, "pid").await;
    bench.node.kill(&bench.name("p")).unwrap();
    let pod = until(&bench.pods(), "p", phase("Failed")).await.unwrap();
    assert_eq!(termination(&pod).exit_code, 137);
    assert_eq!(termination(&pod).message, None);
    assert!(bench.node.kill(&bench.name("p")).is_err(), "there is nothing left to kill");
}

#[tokio::test]
async fn a_held_pod_starts_when_it_is_released() {
    let bench = Workbench::new().await;
    bench.node.hold(bench.name("held-"));
    bench.run("held-1", "true", json!({})).await;
    bench.run("free-1", "true", json!({})).await;
    until(&bench.pods(), "free-1", phase("Succeeded")).await;
    let held = until(&bench.pods(), "held-1", phase("Pending")).await.unwrap();
    assert!(status(&held).pod_ip.is_none());
    bench.node.release(&bench.name("held-"));
    until(&bench.pods(), "held-1", phase("Succeeded")).await;
}

#[tokio::test]
async fn another_pod_is_reported_running_until_a_test_ends_it() {
    let bench = Workbench::new().await;
    let containers = json!([{"name": "main", "image": "nginx"}]);
    bench.run("p", "", json!({"containers": containers})).await;
    let pod = until(&bench.pods(), "p", phase("Running")).await.unwrap();
    assert!(status(&pod).pod_ip.as_deref().unwrap().starts_with("192.0.2."));
    let ready = |pod: &Pod| {
        status(pod)
            .conditions
            .as_ref()
            .unwrap()
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    };
    assert!(ready(&pod));
    bench.node.finish(&bench.name("p"), 4, "as told").unwrap();
    let pod = until(&bench.pods(), "p", phase("Failed")).await.unwrap();
    assert_eq!(termination(&pod).exit_code, 4);
    assert_eq!(termination(&pod).message.as_deref(), Some("as told"));
    assert!(!ready(&pod));
}

/// A pod that Kubernetes takes off a lost node after a second.
fn soon_evicted() -> Value {
    let toleration = |key: &str| {
        json!({
            "key": format!("node.kubernetes.io/{key}"),
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 1,
        })
    };
    json!({"tolerations": [toleration("unreachable"), toleration("not-ready")]})
}

fn is_deleted(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
}

#[tokio::test]
async fn the_pods_of_a_node_that_is_cut_off_wait_for_it_and_end_when_it_is_back() {
    let bench = Workbench::new().await;
    let pod = bench.run("p", "echo $$$$ >$SHARED/pid; exec sleep 600", soon_evicted()).await;
    let pid: i32 = bench.line_in(&pod, "pid").await.parse().unwrap();
    bench.node.lose(LostProcesses::KeepRunning);
    let pod = until(&bench.pods(), "p", is_deleted).await.unwrap();
    assert_eq!(status(&pod).phase.as_deref(), Some("Running"));
    assert!(is_running(pid), "nobody told the process");

    bench.node.recover().await.unwrap();
    until(&bench.pods(), "p", phase("Failed")).await;
    assert!(!is_running(pid));
    bench.let_go("p").await;
    until(&bench.pods(), "p", gone()).await;
    let nodes: Api<Node> = Api::all(bench.client());
    let is_ready = |node: Option<&Node>| {
        let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    until(&nodes, &bench.namespace, is_ready).await;
}

#[tokio::test]
async fn a_pod_of_a_dead_node_goes_once_somebody_says_that_the_node_is_out_of_service() {
    let bench = Workbench::new().await;
    let pod = bench.run("p", "echo $$$$ >$SHARED/pid; exec sleep 600", soon_evicted()).await;
    let pid: i32 = bench.line_in(&pod, "pid").await.parse().unwrap();
    bench.let_go("p").await;
    bench.node.lose(LostProcesses::Die);
    let pod = until(&bench.pods(), "p", is_deleted).await.unwrap();
    assert!(!is_running(pid));
    assert_eq!(status(&pod).phase.as_deref(), Some("Running"), "nobody knows");

    taint_as_out_of_service(&bench).await;
    until(&bench.pods(), "p", gone()).await;
}

/// Again for as long as others write the node at the same time.
async fn taint_as_out_of_service(bench: &Workbench) {
    let nodes: Api<Node> = Api::all(bench.client());
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let taint: Taint = serde_json::from_value(taint).unwrap();
    loop {
        let mut node = nodes.get(&bench.namespace).await.unwrap();
        node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint.clone());
        match nodes.replace(&bench.namespace, &PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            answer => return drop(answer.unwrap()),
        }
    }
}

#[tokio::test]
async fn no_process_outlives_its_node() {
    let bench = Workbench::new().await;
    let pod = bench.run("p", "echo $$$$ >$SHARED/pid; exec sleep 600", json!({})).await;
    let pid: i32 = bench.line_in(&pod, "pid").await.parse().unwrap();
    let Workbench { node, state, .. } = bench;
    node.shutdown().await;
    wait_until("the process has ended", || !is_running(pid)).await;
    drop(state);
}
