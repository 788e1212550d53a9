//! `otctl up` says what it has, and what it says is so.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use image_server::fixtures::COMPLETE;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl_types::AdmissionQueue;
use otctl_types::names::IMAGE_QUEUE;
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
async fn it_says_what_it_has_and_guards_the_ledger_as_the_chart_does() {
    let up = tokio::task::spawn_blocking(Up::start).await.unwrap();
    for fixture in COMPLETE {
        assert!(up.hints.contains(&format!("/{}\n", fixture.name)), "{}", up.hints);
    }
    assert!(Path::new(up.word_after("controller's ")).is_file(), "{}", up.hints);
    assert!(up.hints.contains(r#"-p '{"data": {"allowedSourceHosts": ""#), "{}", up.hints);

    let queues: Api<AdmissionQueue> = Api::all(up.client().await);
    // The controller makes it too: whoever comes second changes nothing.
    let ledger = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": IMAGE_QUEUE},
    });
    let params = PatchParams::apply("test");
    queues.patch(IMAGE_QUEUE, &params, &Patch::Apply(ledger)).await.unwrap();
    let refusal = tokio::time::timeout(SOON, refusal(&queues)).await.expect("it is refused");
    assert!(refusal.contains("pelotech.ot/force-delete=true"), "{refusal}");
    expect_a_killed_controller_to_be_replaced(&up);
    assert_eq!(up.end(), Some(130));
}

fn expect_a_killed_controller_to_be_replaced(up: &Up) {
    let controllers = || {
        let mut all = descendants(up.process.pid().as_raw());
        all.retain(|process| process.command.contains("run-controller"));
        all
    };
    let log = up.word_after("controller's ");
    wait_for("it listens", || {
        fs::read_to_string(log).unwrap().contains("\"listening\"").then_some(())
    });
    let before = wait_for("a controller runs", || controllers().pop());
    kill(Pid::from_raw(before.id), Signal::SIGKILL).unwrap();
    wait_for("another controller runs", || controllers().into_iter().find(|now| *now != before));
}

/// A new admission policy takes a moment to act, which a dry run may look at as often as it likes.
async fn refusal(queues: &Api<AdmissionQueue>) -> String {
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    loop {
        match queues.delete(IMAGE_QUEUE, &dry).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return error.to_string(),
        }
    }
}
