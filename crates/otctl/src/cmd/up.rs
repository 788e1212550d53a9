//! `otctl up`: the demo's control plane with nothing to sync yet, for as long as a developer wants it.

use std::process::ExitCode;

use image_server::fixtures::COMPLETE;
use image_server::{Content, ImageServer};
use local_cluster::LocalCluster;
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};

use super::demo::{logs, start_cluster};
use crate::cli::LocalArgs;
use crate::installation::{self, ControllerProcess, Launch, Policy, own_program};
use crate::out;
use crate::signals::Interruption;

/// Where the hints put things.
const NAMESPACE: &str = "labs";

/// Starts it, says how to use it, and waits for Ctrl-C. Nothing of it is left running.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    logs();
    let mut interruption = Interruption::listen()?;
    tokio::select! {
        ended = serve(args) => return Err(ended),
        () = interruption.arrives() => {}
    }
    out::line("stopped; everything it started has ended");
    Ok(ExitCode::SUCCESS)
}

/// Runs until it is dropped; an error if it cannot start, or the controller ends.
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
    let mut controller = ControllerProcess::start(&Launch::on(&cluster, own_program()?).await?)?;
    out::line(&hints(&cluster, &server, &controller));
    Err(controller.ends().await)
}

/// Any source may be tried, and the local server, which is on loopback, is listed by name.
fn policy(server: &ImageServer) -> Policy {
    let hosts = format!("https://*, http://*, http://{}", server.address());
    let entries = [
        ("allowedSourceHosts", hosts.as_str()),
        ("defaultStorageClass", IMMEDIATE_CLASS),
        ("defaultSnapshotClass", SNAPSHOT_CLASS),
        ("retryBackoffDuration", "10s"),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn hints(cluster: &LocalCluster, server: &ImageServer, controller: &ControllerProcess) -> String {
    format!(
        "
The control plane is up, with a controller and an image server, until Ctrl-C. In another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl apply -f - <<'END'
apiVersion: pelotech.ot/v1alpha1
kind: VMDiskImage
metadata: {{name: debian, namespace: {NAMESPACE}}}
spec: {{url: '{url}', sourceType: http}}
END
  otctl queue
  kubectl -n {NAMESPACE} get vmdi
  kubectl -n {NAMESPACE} wait --for=condition=Ready vmdi/debian
  kubectl -n sync-operator edit configmap sync-operator-policy

The controller's log is {log}
",
        kubeconfig = cluster.kubeconfig_path().display(),
        url = server.url("plain.qcow2"),
        log = controller.log().display(),
    )
}
