//! `otctl up` says what it has, and what it says is so.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use image_server::fixtures::COMPLETE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl_types::AdmissionQueue;
use otctl_types::names::{IMAGE_QUEUE, WORKSPACE_LABEL, WORKSPACE_QUEUE};
use serde_json::json;

use crate::processes::{Running, SOON, descendants, wait_for};

/// It, and everything that it printed once it was up.
struct Up {
    process: Running,
    hints: String,
}

impl Up {
    fn start() -> Self {
        let mut up = Self { process: Running::start("up"), hints: String::new() };
        let output = BufReader::new(up.process.stdout.take().unwrap());
        for line in output.lines().map_while(Result::ok) {
            let is_last = line.trim_start().starts_with("Kubernetes'");
            up.hints += &format!("{line}\n");
            if is_last {
                return up;
            }
        }
        panic!("it ended: {}", up.hints);
    }

    /// The first word after this text.
    fn word_after(&self, text: &str) -> &str {
        let rest =
            self.hints.split_once(text).unwrap_or_else(|| panic!("{text}: {}", self.hints)).1;
        rest.split_whitespace().next().unwrap()
    }

    /// Of the controller of images, and of that of workspaces.
    fn logs_of_controllers(&self) -> [&str; 2] {
        let (_, rest) = self.hints.split_once("controllers' ").unwrap();
        let mut words = rest.split_whitespace();
        let logs = [words.next().unwrap(), words.next().unwrap()];
        assert!(logs.iter().all(|log| Path::new(log).is_file()), "{}", self.hints);
        logs
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.word_after("KUBECONFIG=")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    }

    fn end(mut self) -> Option<i32> {
        kill(self.process.pid(), Signal::SIGINT).unwrap();
        self.process.wait().unwrap().code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_what_it_has_and_guards_it_as_the_charts_do() {
    let up = tokio::task::spawn_blocking(Up::start).await.unwrap();
    for fixture in COMPLETE {
        assert!(up.hints.contains(&format!("/{}\n", fixture.name)), "{}", up.hints);
    }
    assert!(up.hints.contains(r#"-p '{"data": {"allowedSourceHosts": ""#), "{}", up.hints);

    let client = up.client().await;
    let queues: Api<AdmissionQueue> = Api::all(client.clone());
    for name in [IMAGE_QUEUE, WORKSPACE_QUEUE] {
        // Its controller makes it too: whoever comes second changes nothing.
        let ledger = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": name},
        });
        let params = PatchParams::apply("test");
        queues.patch(name, &params, &Patch::Apply(ledger)).await.unwrap();
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let refusal = refused(async || queues.delete(name, &dry).await.map(drop)).await;
        assert!(refusal.contains("pelotech.ot/force-delete=true"), "{refusal}");
    }
    let refusal = refused(async || create_spoof(&client).await).await;
    assert!(refusal.contains("only the workspace controller sets"), "{refusal}");
    for (kind, log) in ["diskimage", "workspace"].into_iter().zip(up.logs_of_controllers()) {
        expect_a_killed_controller_to_be_replaced(&up, kind, log);
    }
    assert_eq!(up.end(), Some(130));
}

/// A pod that would be in the network of a workspace.
async fn create_spoof(client: &Client) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "labs");
    let pod = json!({
        "metadata": {"name": "spoof", "labels": {WORKSPACE_LABEL: "u"}},
        "spec": {"containers": [{"name": "a", "image": "example.com/a:1"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry, &pod).await.map(drop)
}

fn expect_a_killed_controller_to_be_replaced(up: &Up, kind: &str, log: &str) {
    let controllers = || {
        let mut all = descendants(up.process.pid().as_raw());
        all.retain(|process| process.command.contains(&format!("run-controller {kind}")));
        all
    };
    wait_for("it listens", || {
        fs::read_to_string(log).unwrap().contains("\"listening\"").then_some(())
    });
    let before = wait_for("a controller runs", || controllers().pop());
    kill(Pid::from_raw(before.id), Signal::SIGKILL).unwrap();
    wait_for("another controller runs", || controllers().into_iter().find(|now| *now != before));
}

/// What it is refused with. A new admission policy takes a moment to act, which a dry run may look at as often as it likes.
async fn refused(mut dry_run: impl AsyncFnMut() -> kube::Result<()>) -> String {
    let mut last = None;
    let refusal = async {
        loop {
            match dry_run().await {
                Err(kube::Error::Api(answer)) if answer.code == 403 => return answer.message,
                other => last = Some(other),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(SOON, refusal).await;
    told.unwrap_or_else(|_| panic!("it is not refused: {last:?}"))
}
