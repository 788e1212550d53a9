//! `otctl up` says what it has, and what it says is so.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use image_server::fixtures::{COMPLETE, PLAIN};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl_types::condition::{CONTAINERS_READY, Reason, find};
use otctl_types::names::{IMAGE_QUEUE, WORKSPACE_LABEL, WORKSPACE_QUEUE};
use otctl_types::workspace::{Phase, WorkspaceStatus};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};
use serde_json::json;

use crate::processes::{Running, descendants, wait_for};
use crate::stage::until_found;

/// It, and everything that it printed once it was up.
struct Up {
    process: Running,
    hints: String,
}

impl Up {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        let process = Running::start_with(&[&["up"], flags].concat());
        let mut up = Self { process, hints: String::new() };
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

/// Nobody finds this image in any registry.
const OWN: &str = "registry.example.com/mine:1";

#[tokio::test(flavor = "multi_thread")]
async fn the_example_workspace_becomes_ready_and_an_image_that_is_not_there_is_told() {
    let start = || Up::start_with(&[&format!("--container-image={OWN}")]);
    let up = tokio::task::spawn_blocking(start).await.unwrap();
    assert!(up.hints.contains(OWN), "{}", up.hints);
    let client = up.client().await;
    let workspaces: Api<Workspace> = Api::all(client.clone());
    let create = async |workspace: &Workspace| {
        workspaces.create(&PostParams::default(), workspace).await.unwrap();
    };
    let example = include_str!("../../../../examples/workspace.yaml");
    let example: Workspace = serde_saphyr::from_str(example).unwrap();
    create(&example).await;
    create(&of_container("own", OWN)).await;
    create(&of_container("stray", "registry.example.com/stray:1")).await;
    let url = up.hints.lines().find_map(|line| line.trim().strip_suffix(PLAIN.name)).unwrap();
    for entry in &example.spec.virtual_machines {
        create_image(&client, &entry.spec.vm_disk_image_name, &format!("{url}{}", PLAIN.name))
            .await;
    }
    for name in [&*example.name_any(), "own"] {
        let is_ready = |it: &WorkspaceStatus| it.phase == Some(Phase::Ready);
        await_workspace(&workspaces, name, is_ready).await;
    }
    let stray = |it: &WorkspaceStatus| {
        let words = it.message.as_deref().unwrap_or_default();
        is_refused_by_registry(it) && words.contains("registry.example.com/stray:1: not found")
    };
    await_workspace(&workspaces, "stray", stray).await;
    assert_eq!(up.end(), Some(130));
}

fn of_container(name: &str, image: &str) -> Workspace {
    let spec = json!({"containers": [{"name": "web", "image": image, "args": ["--any", "thing"]}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

async fn create_image(client: &Client, name: &str, url: &str) {
    let images: Api<VMDiskImage> = Api::namespaced(client.clone(), "labs");
    let image = json!({"metadata": {"name": name}, "spec": {"url": url, "sourceType": "http"}});
    let image = serde_json::from_value(image).unwrap();
    images.create(&PostParams::default(), &image).await.unwrap();
}

fn is_refused_by_registry(status: &WorkspaceStatus) -> bool {
    find(&status.conditions, CONTAINERS_READY)
        .is_some_and(|found| found.reason == Reason::ImagePullBackOff.as_str())
}

async fn await_workspace(
    workspaces: &Api<Workspace>,
    name: &str,
    is_so: impl Fn(&WorkspaceStatus) -> bool,
) {
    until_found(&format!("'{name}' has come so far"), async || {
        let status = workspaces.get(name).await.unwrap().status;
        if status.as_ref().is_some_and(&is_so) { Ok(()) } else { Err(format!("{status:#?}")) }
    })
    .await;
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
    until_found("it is refused", async || match dry_run().await {
        Err(kube::Error::Api(answer)) if answer.code == 403 => Ok(answer.message),
        other => Err(format!("{other:?}")),
    })
    .await
}
