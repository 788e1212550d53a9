//! `otctl up`: the demo's control plane with nothing to sync yet, for as long as a developer wants it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use image_server::fixtures::{COMPLETE, PLAIN};
use image_server::{Content, ImageServer};
use local_cluster::LocalCluster;
use local_cluster::programs::{Program, Sources};
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS, WAITING_CLASS};

use super::demo::logs;
use crate::cli::UpArgs;
use crate::installation::{
    Controller, ControllerProcess, Launch, Policy, WORKSPACE_NAMESPACE, own_program,
};
use crate::local::{self, CONTAINER_IMAGES, WEB};
use crate::out;
use crate::signals::Interruption;

/// Before a controller that ended is started again.
const BACKOFF: Duration = Duration::from_secs(1);

/// Starts it, says how to use it, and waits for Ctrl-C. Nothing of it is left running.
pub(crate) async fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    logs();
    let mut interruption = Interruption::listen()?;
    let code = tokio::select! {
        ended = serve(args) => return Err(ended),
        code = interruption.arrives() => code,
    };
    out::line("stopped; everything it started has ended");
    Ok(code)
}

/// Runs until it is dropped; an error if it cannot start, or a controller cannot.
async fn serve(args: UpArgs) -> anyhow::Error {
    match try_serve(args).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_serve(args: UpArgs) -> anyhow::Result<std::convert::Infallible> {
    let cluster = local::start(args.local.clone(), &args.container_images).await?;
    let server = ImageServer::start().await?;
    COMPLETE.iter().for_each(|fixture| server.add(fixture.name, Content::bytes(fixture.bytes)));
    let _kubevirt = local::install(&cluster, policy(&server)).await?;
    let [images, workspaces] = [
        Kept::start(Controller::Diskimage, &cluster).await?,
        Kept::start(Controller::Workspace, &cluster).await?,
    ];
    let names = container_images(&args.container_images);
    out::line(&hints(&cluster, &server, [&images, &workspaces], &names));
    tokio::select! {
        ended = images.keep() => Err(ended),
        ended = workspaces.keep() => Err(ended),
    }
}

/// A controller that is started again whenever it ends, as its Deployment would.
struct Kept {
    launch: Launch,
    process: ControllerProcess,
}

impl Kept {
    async fn start(controller: Controller, cluster: &LocalCluster) -> anyhow::Result<Self> {
        let launch = Launch::of(controller, cluster, own_program()?).await?;
        let process = ControllerProcess::start(&launch)?;
        Ok(Self { launch, process })
    }

    /// Why it cannot run here; that it ends, once it has come to work, is no reason.
    async fn keep(mut self) -> anyhow::Error {
        let account = self.launch.controller.account();
        let mut starts = 1;
        loop {
            let ended = self.process.ends().await;
            if !self.process.has_listened() {
                return ended.context(format!("the {account} cannot run here"));
            }
            tokio::time::sleep(BACKOFF).await;
            starts += 1;
            // What the last one said stays.
            self.launch.log.set_file_name(format!("{account}-{starts}.log"));
            let log = self.launch.log.display();
            out::line(&format!("{ended:#}\nThe {account} is started again; its log is {log}"));
            match ControllerProcess::start(&self.launch) {
                Ok(process) => self.process = process,
                Err(error) => return error,
            }
        }
    }
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

/// One a line.
fn container_images(others: &[String]) -> String {
    let all = CONTAINER_IMAGES.into_iter().chain(others.iter().map(String::as_str));
    all.map(|name| format!("    {name}")).collect::<Vec<_>>().join("\n")
}

fn hints(
    cluster: &LocalCluster,
    server: &ImageServer,
    controllers: [&Kept; 2],
    container_images: &str,
) -> String {
    let what_to_do = what_to_do(cluster, server);
    let what_there_is = what_there_is(cluster, server, controllers, container_images);
    format!("{what_to_do}\n{what_there_is}")
}

fn what_to_do(cluster: &LocalCluster, server: &ImageServer) -> String {
    format!(
        "
The control plane is up, with its controllers and an image server, until Ctrl-C. In another terminal:

  export KUBECONFIG={kubeconfig}
{tools}
  kubectl apply -f - <<'END'
apiVersion: pelotech.ot/v1alpha1
kind: VMDiskImage
metadata: {{name: debian, namespace: {WORKSPACE_NAMESPACE}}}
spec: {{url: '{url}', sourceType: http}}
---
apiVersion: pelotech.ot/v1alpha1
kind: Workspace
metadata: {{name: lab}}
spec:
  virtualMachines:
    - {{name: database, spec: {{VMDiskImageName: debian, instance: {{memory: 64Mi}}}}}}
  containers:
    - {{name: web, image: '{web}', ports: [{{containerPort: 8080}}]}}
END
  {otctl} queue
  {otctl} describe -n {WORKSPACE_NAMESPACE} vmdi/debian
  kubectl -n {WORKSPACE_NAMESPACE} get vmdi
  kubectl -n {WORKSPACE_NAMESPACE} wait --for=condition=Ready vmdi/debian
  kubectl get workspaces
  {otctl} describe ws/lab
  kubectl -n sync-operator edit configmap sync-operator-policy
",
        kubeconfig = cluster.kubeconfig_path().display(),
        tools = tools(),
        otctl = own_name(),
        url = server.url(PLAIN.name),
        web = WEB,
    )
}

fn what_there_is(
    cluster: &LocalCluster,
    server: &ImageServer,
    [images, workspaces]: [&Kept; 2],
    container_images: &str,
) -> String {
    let urls = COMPLETE.map(|fixture| format!("    {}", server.url(fixture.name))).join("\n");
    format!(
        "\
Classes: storage class {IMMEDIATE_CLASS} (or {WAITING_CLASS}), snapshot class {SNAPSHOT_CLASS}; the policy names the
first and the last as defaults. The image server has
{urls}
A server of your own on this machine must be listed by name, such as one at http://127.0.0.1:8000:
  kubectl -n sync-operator patch configmap sync-operator-policy --type merge \\
    -p '{{\"data\": {{\"allowedSourceHosts\": \"{allowed}, http://127.0.0.1:8000\"}}}}'

Nodes have these container images; each is a server on its pod's address (of 127/8) that takes any arguments, answers at
the ports of its container, and ends by PUT /exit/CODE. Others are not found, unless given with --container-image:
{container_images}
Virtual machines run on a stand-in for KubeVirt, which reads their disks and boots nothing. Network policies are there, and
nothing enforces them: every pod is a process of this machine.

Logs: the controllers' {images}
                       {workspaces}
      a pod's          {state}/nodes/NODE/logs/NAMESPACE_POD_UID.log (`kubectl logs` finds no kubelet here)
      Kubernetes'      {state}/logs/
",
        allowed = allowed_hosts(server),
        images = images.process.log().display(),
        workspaces = workspaces.process.log().display(),
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
