//! Everything ends with the owner, however that ends.

use std::{path::PathBuf, process::Stdio};

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{Api, Client, Config, config::Kubeconfig};
use local_cluster::LocalCluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    node::{create, until},
    support::{bare, is_running, wait_until},
};

/// What `local-cluster up` prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Up {
    kubeconfig: PathBuf,
    state_dir: PathBuf,
    processes: Vec<i32>,
    guard: i32,
}

impl Up {
    fn assert_runs(&self) {
        assert_eq!(self.processes.len(), 4);
        let all = self.processes.iter().chain([&self.guard]);
        assert_eq!(all.filter(|id| is_running(**id)).count(), 5);
        assert!(self.state_dir.join("pki/ca.crt").is_file());
    }

    /// Runs a pod and waits until it is ready; the id of its process.
    async fn run_server(&self) -> i32 {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let pods: Api<Pod> = Api::namespaced(Client::try_from(config.unwrap()).unwrap(), "default");
        let port = json!({"containerPort": 8080});
        let container = json!({"name": "main", "image": "local-cluster/server", "ports": [port],
            "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1}});
        let pod = json!({"metadata": {"name": "server"},
            "spec": {"automountServiceAccountToken": false, "containers": [container]}});
        let account = Api::<ServiceAccount>::namespaced(pods.clone().into_client(), "default");
        until(&account, "default", |account: Option<&ServiceAccount>| account.is_some()).await;
        create(&pods, pod).await;
        let pod = until(&pods, "server", is_ready).await.unwrap();
        let address = pod.status.unwrap().pod_ip.unwrap();
        let answer = reqwest::get(format!("http://{address}:8080/")).await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        i32::try_from(answer["process"].as_i64().unwrap()).unwrap()
    }

    async fn wait_until_gone(&self) {
        let all: Vec<_> = self.processes.iter().chain([&self.guard]).copied().collect();
        wait_until("all processes are gone", || !all.iter().any(|id| is_running(*id))).await;
        assert!(!self.state_dir.exists(), "the guard removes the state before it ends");
    }
}

fn is_ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// A cluster that is owned by another process.
async fn owner() -> (Child, Up) {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_local-cluster"))
        .arg("up")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("the cluster starts and says so");
    (owner, serde_json::from_str(&line).unwrap())
}

#[tokio::test]
async fn when_the_cluster_is_dropped() {
    let cluster = LocalCluster::start(bare()).await.unwrap();
    let up = Up {
        kubeconfig: cluster.kubeconfig_path(),
        state_dir: cluster.state_dir().to_owned(),
        processes: cluster.process_ids().map(|(_, id)| id).collect(),
        guard: cluster.guard_id().try_into().unwrap(),
    };
    up.assert_runs();
    drop(cluster);
    assert!(!up.processes.iter().any(|id| is_running(*id)), "drop waits for the end");
    assert!(!is_running(up.guard));
    assert!(!up.state_dir.exists());
}

#[tokio::test]
async fn when_the_owner_is_killed() {
    let (mut owner, up) = owner().await;
    up.assert_runs();
    let server = up.run_server().await;
    owner.kill().await.unwrap();
    up.wait_until_gone().await;
    assert!(!is_running(server), "and with it what runs in pods");
}

#[tokio::test]
async fn when_the_owner_is_told_to_end() {
    let (mut owner, up) = owner().await;
    up.assert_runs();
    let id = owner.id().unwrap().try_into().unwrap();
    kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
    assert!(owner.wait().await.unwrap().success());
    up.wait_until_gone().await;
}

#[tokio::test]
async fn but_a_chosen_state_directory_stays() {
    let chosen = tempfile::tempdir().unwrap();
    let state_dir = Some(chosen.path().join("state"));
    let cluster =
        LocalCluster::start(local_cluster::Options { state_dir, ..bare() }).await.unwrap();
    let log = cluster.state_dir().join("logs/kube-apiserver.log");
    cluster.shutdown().await;
    assert!(log.is_file());
}

#[tokio::test]
async fn when_its_start_is_given_up() {
    let state = tempfile::tempdir().unwrap();
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let options = local_cluster::Options {
        progress: local_cluster::Progress::new(move |line| drop(say.send(line.to_owned()))),
        state_dir: Some(state.path().join("state")),
        ..bare()
    };
    let api_server_writes = async {
        said.recv().await.expect("it says that it starts programs");
        let log = state.path().join("state/logs/kube-apiserver.log");
        let has_begun = || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
        wait_until("the API server writes", has_begun).await;
    };
    tokio::select! {
        ended = LocalCluster::start(options) => panic!("it did not wait: {:?}", ended.err()),
        () = api_server_writes => {}
    }
    let place = state.path().display().to_string();
    let is_of_it = |id: &i32| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        is_running(*id) && String::from_utf8_lossy(&command).contains(&place)
    };
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    let left: Vec<i32> =
        ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_of_it).collect();
    assert!(left.is_empty(), "drop waits for the end: {left:?}");
}
