//! `otctl up`: the demo's control plane with nothing to sync yet, for as long as a developer wants it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use image_server::fixtures::{COMPLETE, PLAIN};
use image_server::{Content, ImageServer};
use local_cluster::LocalCluster;
use local_cluster::programs::{Program, Sources};
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS, WAITING_CLASS};

use super::demo::{logs, start_cluster};
use crate::cli::LocalArgs;
use crate::installation::{self, ControllerProcess, Launch, Policy, own_program};
use crate::out;
use crate::signals::Interruption;

/// Where the hints put things.
const NAMESPACE: &str = "labs";
/// Before a controller that ended is started again.
const BACKOFF: Duration = Duration::from_secs(1);

/// Starts it, says how to use it, and waits for Ctrl-C. Nothing of it is left running.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    logs();
    let mut interruption = Interruption::listen()?;
    let code = tokio::select! {
        ended = serve(args) => return Err(ended),
        code = interruption.arrives() => code,
    };
    out::line("stopped; everything it started has ended");
    Ok(code)
}

/// Runs until it is dropped; an error if it cannot start, or the controller cannot.
async fn serve(args: LocalArgs) -> anyhow::Error {
    match try_serve(args).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_serve(args: LocalArgs) -> anyhow::Result<std::convert::Infallible> {
    let cluster = start_cluster(args).await?;
    let server = ImageServer::start().await?;
    COMPLETE.iter().for_each(|fixture| server.add(fixture.name, Content::bytes(fixture.bytes)));
    installation::apply(&cluster.admin(), policy(&server), &[NAMESPACE]).await?;
    installation::guard_deletion(&cluster.admin()).await?;
    let mut launch = Launch::on(&cluster, own_program()?).await?;
    let mut controller = ControllerProcess::start(&launch)?;
    out::line(&hints(&cluster, &server, &controller));
    for starts in 2.. {
        let ended = controller.ends().await;
        if !controller.has_listened() {
            return Err(ended.context("the controller cannot run here"));
        }
        tokio::time::sleep(BACKOFF).await;
        // As its Deployment would; what the last one said stays.
        launch.log.set_file_name(format!("diskimage-controller-{starts}.log"));
        out::line(&format!("{ended:#}\nIt is started again; its log is {}", launch.log.display()));
        controller = ControllerProcess::start(&launch)?;
    }
    anyhow::bail!("the controller was started too often")
}

/// Any source may be tried, and the local server, which is on loopback, is listed by name.
fn policy(server: &ImageServer) -> Policy {
    let entries = [
        ("allowedSourceHosts", allowed_hosts(server)),
        ("defaultStorageClass", IMMEDIATE_CLASS.to_owned()),
        ("defaultSnapshotClass", SNAPSHOT_CLASS.to_owned()),
        ("retryBackoffDuration", "10s".to_owned()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn allowed_hosts(server: &ImageServer) -> String {
    format!("https://*, http://*, http://{}", server.address())
}

fn hints(cluster: &LocalCluster, server: &ImageServer, controller: &ControllerProcess) -> String {
    let images = COMPLETE.map(|fixture| format!("    {}", server.url(fixture.name))).join("\n");
    format!(
        "
The control plane is up, with a controller and an image server, until Ctrl-C. In another terminal:

  export KUBECONFIG={kubeconfig}
{tools}
  kubectl apply -f - <<'END'
apiVersion: pelotech.ot/v1alpha1
kind: VMDiskImage
metadata: {{name: debian, namespace: {NAMESPACE}}}
spec: {{url: '{url}', sourceType: http}}
END
  {otctl} queue
  {otctl} describe -n {NAMESPACE} vmdi/debian
  kubectl -n {NAMESPACE} get vmdi
  kubectl -n {NAMESPACE} wait --for=condition=Ready vmdi/debian
  kubectl -n sync-operator edit configmap sync-operator-policy

Classes: storage class {IMMEDIATE_CLASS} (or {WAITING_CLASS}), snapshot class {SNAPSHOT_CLASS}; the policy names the
first and the last as defaults. The image server has
{images}
A server of your own on this machine must be listed by name, such as one at http://127.0.0.1:8000:
  kubectl -n sync-operator patch configmap sync-operator-policy --type merge \\
    -p '{{\"data\": {{\"allowedSourceHosts\": \"{allowed}, http://127.0.0.1:8000\"}}}}'

Logs: the controller's {log}
      a pod's         {state}/nodes/NODE/logs/NAMESPACE_POD_UID.log (`kubectl logs` finds no kubelet here)
      Kubernetes'     {state}/logs/
",
        kubeconfig = cluster.kubeconfig_path().display(),
        tools = tools(),
        otctl = own_name(),
        url = server.url(PLAIN.name),
        allowed = allowed_hosts(server),
        log = controller.log().display(),
        state = cluster.state_dir().display(),
    )
}

/// How this program is started where a shell does not know its name.
fn own_name() -> String {
    own_program().map_or_else(|_| "otctl".to_owned(), |path| path.display().to_string())
}

/// Where kubectl and helm are, if not where a shell looks anyway.
fn tools() -> String {
    let Ok(sources) = Sources::from_env() else {
        return String::new();
    };
    let cache = sources.cache.display();
    let found = sources.find(&[Program::Kubectl, Program::Helm]);
    let is_cached = |path: &PathBuf| path.starts_with(&sources.cache);
    match (found.len(), found.values().any(is_cached)) {
        (2, false) => String::new(),
        (2, true) => format!("  export PATH=\"{cache}:$PATH\"   # kubectl and helm"),
        _ => format!(
            "  export PATH=\"{cache}:$PATH\"   # kubectl and helm, once `cargo run --release -p local-cluster -- programs` \
             has built them"
        ),
    }
}
